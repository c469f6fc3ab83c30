"""Plain computation inside an enclave: every step known beforehand, large products given away.

What runs is a program of `ops`, so which tensors are read and written does not depend on what is
in them. Products with weights can go to an accelerator outside (Tramèr and Boneh, Slalom 2019):
before the rows come, r is drawn and r·W computed inside; the accelerator gets x + r,
and what it answers less r·W is x·W. `tacit.mpc.outsource` checks the answer with random vectors
(Freivalds 1977) to 2^-40. Slalom works modulo a prime of 24 bits, here words wrap at 2^64: a pad is
as uniform, and an int64 product needs no reduction.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from tacit import ring
from tacit.mpc import outsource
from tacit.nn import TorchOps
from tacit.nn.ops import Pair
from tacit.ring import Prg

_FRAC_BITS = 20
_ROOM_BITS = 62  # of a product with a sign: a bit is left for rounding


class ObliviousOps(TorchOps):
    """Torch's operations, with reads that touch the same memory whatever is read.

    Guarantee: which operations run, on tensors of which shapes, is the same for all inputs of one
    shape. What a processor does inside one of torch's kernels is not covered.
    Cost: a table is read as a whole for every entry that is looked up.
    """

    def embedding(self, table: Tensor, ids: Tensor, *, padding: int | None = None) -> Tensor:
        """Read rows of a table by a product with one-hot vectors: every row is touched."""
        hot = (ids[..., None] == torch.arange(len(table), dtype=ids.dtype)).to(table.dtype)
        return torch.matmul(hot, table)

    def matmul_whole(self, x: Tensor, y: Tensor) -> Tensor:
        """Multiply matrices of whole numbers, as forests do; floats of 64 bits hold them."""
        return torch.matmul(x, y)

    def mul_whole(self, x: Tensor, y: Tensor) -> Tensor:
        """Multiply whole numbers."""
        return x * y


@dataclass
class TracedOps:
    """Operations that are written down as they run: their names and the shapes they touch."""

    inner: TorchOps
    steps: list[tuple[str, ...]] = field(default_factory=list)

    def __getattr__(self, verb: str) -> Callable[..., Any]:
        """Write the next step down, and do it."""
        call = getattr(self.inner, verb)

        def step(*args: Any, **named: Any) -> Any:
            found = call(*args, **named)
            seen = (*args, *named.values(), found)
            shapes = [str(tuple(x.shape)) if isinstance(x, Tensor) else repr(x) for x in seen]
            self.steps.append((verb, *shapes))
            return found

        return step


@dataclass(frozen=True, eq=False)
class _Pad:
    """What hides one left operand, once, and what it adds to the product."""

    words: Tensor
    product: Tensor


@dataclass(frozen=True, eq=False)
class _Weight:
    """A weight in fixed point, turned to (inputs, outputs), and what its left operand may be."""

    matrix: Tensor
    most: Tensor


@dataclass
class SlalomOps(ObliviousOps):
    """Oblivious operations whose products with weights go to the party's worker.

    Guarantee: the worker sees weights, and left operands under uniform words that are used once:
    nothing of the rows. A wrong answer is used with a probability of at most 2^-40 each. Operands
    are rounded to 20 bits after the point and saturate where a product could leave 64 bits.
    Cost: the pads' products are computed here, before the rows come (`prepare`).
    """

    prg: Prg
    least_terms: int
    _pads: list[_Pad] = field(default_factory=list)
    _weights: dict[int, tuple[Tensor, _Weight]] = field(default_factory=dict)
    _is_dry: bool = False
    given: int = 0

    def prepare(
        self, model: Callable[..., Any], weights: Mapping[str, Tensor], shape: tuple[int, ...]
    ) -> None:
        """Draw the pads of one run, in the order in which it will use them."""
        self._is_dry = True
        model(self, weights, torch.zeros(shape, dtype=torch.float64))
        self._is_dry = False

    def matmul(self, x: Tensor, y: Tensor) -> Tensor:
        """Multiply; a matrix from the right that is large enough is a weight and given away."""
        rows = x.numel() // max(x.shape[-1], 1)
        if y.dim() != 2 or rows * y.numel() < self.least_terms:
            return torch.matmul(x, y)
        flat = x.reshape(-1, x.shape[-1])
        return self._given(flat, y).reshape(*x.shape[:-1], y.shape[1])

    def project(self, x: Tensor, matrix: Tensor) -> Tensor:
        """Multiply by a public matrix."""
        return self.matmul(x, matrix.to(x))

    def conv2d(
        self,
        x: Tensor,
        weight: Tensor,
        *,
        stride: Pair,
        padding: Pair,
        dilation: Pair = (1, 1),
        groups: int = 1,
    ) -> Tensor:
        """Convolve by a product of windows with weights, where there is one group."""
        if groups != 1:
            return functional.conv2d(x, weight, None, stride, padding, dilation, groups)
        size = (int(weight.shape[2]), int(weight.shape[3]))
        windows = functional.unfold(x, size, dilation, padding, stride)
        high = (x.shape[2] + 2 * padding[0] - dilation[0] * (size[0] - 1) - 1) // stride[0] + 1
        found = self.matmul(windows.transpose(1, 2), weight.reshape(len(weight), -1).t())
        return found.transpose(1, 2).reshape(len(x), len(weight), high, -1)

    def _given(self, x: Tensor, y: Tensor) -> Tensor:
        weight = self._weight(y)
        if self._is_dry:
            words = self.prg.words(x.shape)
            self._pads.append(_Pad(words, ring.matmul(words, weight.matrix)))
            return torch.matmul(x, y)
        pad = self._pads.pop(0)  # never twice: two operands under one pad show their difference
        # Saturation: beyond it a product could wrap, and be wrong without a word.
        whole = torch.clamp((x * 2.0**_FRAC_BITS).round(), -weight.most, weight.most)
        hidden = whole.to(torch.int64) + pad.words
        self.given += 1
        product = outsource.matmul(hidden, weight.matrix) - pad.product
        return product.to(torch.float64) * 2.0 ** (-2 * _FRAC_BITS)

    def _weight(self, y: Tensor) -> _Weight:
        """Bring a weight to fixed point once; it is found again by its memory."""
        key = y.data_ptr()
        if key not in self._weights:
            matrix = (y * 2.0**_FRAC_BITS).round().to(torch.int64).contiguous()
            heaviest = matrix.abs().double().sum(dim=0).max().clamp(min=1)
            self._weights[key] = (y, _Weight(matrix, 2.0**_ROOM_BITS / heaviest))
        return self._weights[key][1]
