"""A model's matrices with what stands around them folded in: norms, biases and scales.

The weights of a norm and the scale of scores are multiplied into the matrix behind, so that nothing
but products is left of them, and no parameter has to be public. All is computed in doubles.
"""

import math
import sys
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from tacit.llm.model.architecture import Architecture, LanguageModel
from tacit.ring import panel_rows

ALL = slice(0, sys.maxsize)
_PANEL_BYTES = 32 << 20
"""Of doubles, at a time: an embedding in doubles may be larger than all that is kept of it."""

Affine = tuple[Tensor, Tensor | None]
"""A matrix (out, in), and what is added behind it."""


def panels(shape: tuple[int, int]) -> Iterator[slice]:
    """Cut a matrix (out, in) into rows few enough for a panel of doubles."""
    at = 0
    for rows in panel_rows(shape, _PANEL_BYTES):
        yield slice(at, at + rows)
        at += rows


def stacked(model: LanguageModel, names: Sequence[str], rows: slice = ALL) -> Affine:
    """Stack matrices that read the same, and their biases, and take some of the rows."""

    def taken(kind: str) -> Tensor:
        out, at = list[Tensor](), 0
        for name in names:
            one = model.weights[f"{name}.{kind}"]
            out.append(one[max(0, rows.start - at) : max(0, rows.stop - at)])
            at += len(one)
        return torch.cat(out).double()

    has_bias = model.architecture.has_bias and "output" not in names
    return taken("weight"), taken("bias") if has_bias else None


def behind_norm(
    model: LanguageModel,
    norm: str,
    names: Sequence[str],
    rows: slice = ALL,
    scale: Tensor | None = None,
) -> Affine:
    """Stack matrices that read a norm, with its weights and bias in them.

    ``scale`` is that of their outputs, all of them.
    """
    weight, bias = stacked(model, names, rows)
    if scale is not None:
        weight = weight * scale[rows].unsqueeze(1)
        bias = None if bias is None else bias * scale[rows]
    if model.architecture.norm == "layer":
        shift = weight @ model.weights[f"{norm}.bias"].double()
        bias = shift if bias is None else bias + shift
    return weight * model.weights[f"{norm}.weight"].double(), bias


def outputs_behind_norm(a: Architecture, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Bound every output of an affine map of normalised rows, which have length √d at most."""
    lengths: Tensor = weight.norm(dim=1)
    return math.sqrt(a.width) * lengths + magnitudes(bias)


def head_lengths(
    a: Architecture, weight: Tensor, bias: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Bound how long queries, keys and values of normalised rows are, for each query's head.

    ``weight`` (out, in) and ``bias`` give all of them, one after the other.
    """
    parts = [count * a.head_dim for count in (a.heads, a.kv_heads, a.kv_heads)]
    offset = torch.zeros(len(weight), dtype=torch.float64) if bias is None else bias
    both = zip(weight.split_with_sizes(parts), offset.split_with_sizes(parts), strict=True)
    queries, keys, values = (
        math.sqrt(a.width) * spectral_norms(matrix.view(-1, a.head_dim, a.width))
        + constant.view(-1, a.head_dim).norm(dim=1)
        for matrix, constant in both
    )
    group = torch.arange(a.heads) // (a.heads // a.kv_heads)
    return queries, keys[group], values[group]


def magnitudes(bias: Tensor | None) -> Tensor:
    """Return the magnitudes of what is added."""
    return torch.zeros((), dtype=torch.float64) if bias is None else bias.abs()


def spectral_norms(matrices: Tensor) -> Tensor:
    """Return the largest singular values of (…, rows, columns), by the smaller Gram matrix."""
    doubles = matrices.double()
    if doubles.shape[-2] > doubles.shape[-1]:
        doubles = doubles.mT
    squares: Tensor = torch.linalg.eigvalsh(doubles @ doubles.mT)
    return squares[..., -1].clamp(min=0).sqrt()
