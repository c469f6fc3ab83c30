"""A model's weights as the sealed program reads them: norms folded into what follows them."""

import math
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from tacit.llm.model.architecture import Architecture, LanguageModel
from tacit.ring import panel_rows

_PANEL_BYTES = 32 << 20
"""Of doubles, at a time: an embedding in doubles may be larger than all that is kept of it."""
_USUAL_SIZE = 1 / 16
"""Embeddings are enlarged up to this root mean square: inverse roots begin at 1/16."""


def usual_gain(model: LanguageModel) -> int:
    """Return by how many powers of two to enlarge the stream; norms take it out again."""
    panels = _panels(model.weights["embed"])
    sizes = torch.cat([part.double().square().mean(1).sqrt() for part in panels])
    return max(0, math.ceil(math.log2(_USUAL_SIZE / max(float(sizes.median()), 2.0**-20))))


def fold(
    model: LanguageModel, *, gain_bits: int = 0, dtype: torch.dtype = torch.float64
) -> Iterator[dict[str, Tensor]]:
    """Yield every tensor of the program, matrices as (in, out): a layer at a time.

    Embeddings and the output come first: they are largest, and whoever keeps something of every
    layer has most room for them then. All is computed in doubles, and rounded to ``dtype``. The
    stream is enlarged by 2^gain_bits, so that a norm's eps must be by its square. The weights of a
    norm are multiplied into the matrix behind it and its bias into that matrix's bias; the scale of
    scores goes into the queries, or into the norm that they have. In ChatGLM the skip starts behind
    the norm, so its weights and bias are there too, as ``skip1`` and ``skip2``.
    """
    a, gain = model.architecture, 2.0**gain_bits
    yield {"embed": _scaled(model.weights["embed"], gain * a.embed_scale, dtype)}
    if a.positions == "learned":
        yield {"positions": _scaled(model.weights["positions"], gain, dtype)}
    yield _rounded(_behind_norm(model, "norm", "output", {"output": 1.0}, dtype), dtype)
    for i in range(a.layers):
        yield _rounded(_folded_layer(model, i, gain, dtype), dtype)


def has_bias(a: Architecture, name: str) -> bool:
    """Say whether an affine map of the program has a bias: its own, or a norm's."""
    folded = name in ("qkv", "up", "output") and a.norm == "layer"
    return folded or (a.has_bias and name != "output")


def _folded_layer(
    model: LanguageModel, i: int, gain: float, dtype: torch.dtype
) -> dict[str, Tensor]:
    a, name = model.architecture, f"layers.{i}"
    scales = {"q": 1.0 if a.has_qk_norm else a.query_scale, "k": 1.0, "v": 1.0}
    qkv = {f"{name}.{one}": scale for one, scale in scales.items()}
    ups = {f"{name}.{one}": 1.0 for one in (["gate", "up"] if a.has_gate else ["up"])}
    out = _behind_norm(model, f"{name}.norm1", f"{i}.qkv", qkv, dtype)
    out |= _behind_norm(model, f"{name}.norm2", f"{i}.up", ups, dtype)
    for one in ("o", "down"):
        out[f"{i}.{one}.weight"] = _scaled(model.weights[f"{name}.{one}.weight"], gain, dtype).T
        if a.has_bias:
            out[f"{i}.{one}.bias"] = gain * _double(model, f"{name}.{one}.bias")
    if a.has_qk_norm:
        out[f"{i}.q_norm.weight"] = a.query_scale * _double(model, f"{name}.q_norm.weight")
        out[f"{i}.k_norm.weight"] = _double(model, f"{name}.k_norm.weight")
    for j in (1, 2) if a.has_post_norm else ():
        out[f"{i}.post{j}.weight"] = gain * _double(model, f"{name}.post_norm{j}.weight")
    if a.skips_from_norm:
        for j in (1, 2):
            for part in ("weight", "bias"):
                skip = gain * a.residual_scale * _double(model, f"{name}.norm{j}.{part}")
                out[f"{i}.skip{j}.{part}"] = skip
    return out


def _behind_norm(
    model: LanguageModel, norm: str, name: str, parts: dict[str, float], dtype: torch.dtype
) -> dict[str, Tensor]:
    """Join matrices that read one norm, by name and scale, with the norm's weights in them."""
    a, weight = model.architecture, _double(model, f"{norm}.weight")
    shift = _double(model, f"{norm}.bias") if a.norm == "layer" else None
    rows = sum(len(model.weights[f"{one}.weight"]) for one in parts)
    matrix, at = torch.empty((rows, len(weight)), dtype=dtype), 0
    shifted = list[Tensor]()
    for one, scale in parts.items():
        for panel in _panels(model.weights[f"{one}.weight"]):
            own = scale * panel.double()
            matrix[at : at + len(own)] = own * weight
            at += len(own)
            if shift is not None:
                shifted.append(own @ shift)
    out = {f"{name}.weight": matrix.T}
    biases = [torch.cat(shifted)] if shifted else []
    if a.has_bias and name != "output":
        own_biases = [scale * _double(model, f"{one}.bias") for one, scale in parts.items()]
        biases.append(torch.cat(own_biases))
    if biases:
        out[f"{name}.bias"] = sum(biases[1:], biases[0])
    return out


def _rounded(tensors: dict[str, Tensor], dtype: torch.dtype) -> dict[str, Tensor]:
    return {name: one.to(dtype) for name, one in tensors.items()}


def _scaled(values: Tensor, scale: float, dtype: torch.dtype) -> Tensor:
    """Multiply in doubles, and round."""
    out = torch.empty(values.shape, dtype=dtype)
    for part, there in zip(_panels(values), _panels(out), strict=True):
        there.copy_(scale * part.double())
    return out


def _panels(values: Tensor) -> Sequence[Tensor]:
    """Cut into panels of rows."""
    return values.split_with_sizes(panel_rows(tuple(values.shape), _PANEL_BYTES))


def _double(model: LanguageModel, name: str) -> Tensor:
    return model.weights[name].double()
