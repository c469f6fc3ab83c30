"""The verbs that are kernels: one front for PlanOps (shapes) and SecretOps (shares)."""

from abc import ABC
from collections.abc import Callable, Sequence
from math import floor, frexp, log2
from typing import TypeVar

import torch
from torch import Tensor

from tacit.mpc import shapes
from tacit.mpc.arithmetic.public import Public, PublicInput
from tacit.mpc.functions.curves import CUT_FOR_MANY
from tacit.mpc.functions.pieces import Pieces
from tacit.mpc.functions.poles import FEW, has_curve
from tacit.mpc.interpreter import of_family
from tacit.mpc.openings import MaskedOpenings
from tacit.mpc.products import Conv2d, Hadamard, MatMul
from tacit.mpc.share import (
    HEADROOM_BITS,
    WORD_BITS,
    Fold,
    Spec,
    Swap,
)

V = TypeVar("V")
FUSED = frozenset({"abs", "relu"})
"""Functions of whole slopes, which can truncate their argument on the way."""
MANY = 1 << 17
"""Of more numbers than these the dealer's bytes cost more than rounds do."""
Pair = tuple[int, int]


class Primitives(MaskedOpenings[V], ABC):
    """Write every verb as a kernel of the protocol, or as a few of them."""

    def add(self, x: V, y: V) -> V:
        """Add element-wise, broadcasting."""
        return self.apply(self.make("add"), self.ready(x), self.ready(y))

    def sub(self, x: V, y: V) -> V:
        """Subtract element-wise, broadcasting."""
        return self.apply(self.make("add", -1), self.ready(x), self.ready(y))

    def mul(self, x: V, y: V) -> V:
        """Multiply element-wise, broadcasting."""
        return self.multiply(Hadamard(), self.normalise_scale(x), self.normalise_scale(y))

    def square(self, x: V) -> V:
        """Multiply every element by itself."""
        x = self.normalise_scale(x)
        return self.multiply(Hadamard(), x, x)

    def matmul(self, x: V, y: V) -> V:
        """Multiply matrices."""
        return self.multiply(MatMul(), self.normalise_scale(x), self.normalise_scale(y))

    def conv2d(
        self,
        x: V,
        weight: V,
        *,
        stride: Pair,
        padding: Pair,
        dilation: Pair = (1, 1),
        groups: int = 1,
    ) -> V:
        """Convolve images (n, channels, h, w) with weights (out, channels / groups, h, w)."""
        x, weight = self.normalise_scale(x), self.normalise_scale(weight)
        return self.multiply(Conv2d(stride, padding, dilation, groups), x, weight)

    def scale(self, x: V, factor: float) -> V:
        """Multiply by a public number, which gets as many significant bits as a value has."""
        if float(factor).is_integer():
            return self.apply(self.make("scale", float(factor), 0), self.ready(x))
        half, exponent = frexp(factor)
        if abs(half) == 0.5:  # a power of two moves the point; no bit is added or lost
            return self.apply(self.make("scale", float(factor), 1 - exponent), self.ready(x))
        frac_bits = self.frac_bits - floor(log2(abs(factor)))
        return self.apply(self.make("scale", float(factor), frac_bits), self.normalise_scale(x))

    def tune(self, x: V, name: str, *, bound: float) -> V:
        """Multiply by a public number that is given with the shares kept for a run, by name."""
        number = self.resume(name, shape=(), bound=bound, is_public=True)
        return self.apply(self.make("tune"), self.normalise_scale(x), number)

    def shift(self, x: V, amount: float) -> V:
        """Add a public number."""
        return self.apply(self.make("shift", float(amount)), self._fine_enough(x, amount))

    def _fine_enough(self, x: V, number: float) -> V:
        """Give whole numbers the usual fraction bits, if a public number beside them wants any."""
        x = self.ready(x)
        bits = self.number(x, "a public number").frac_bits
        fits = bits >= self.frac_bits or float(number * 2.0**bits).is_integer()
        return x if fits else self.normalise_scale(x)

    def sum(self, x: V, *, dim: int, bound: float | None = None) -> V:
        """Add up along one dimension, which disappears; a bound of the sum may be known."""
        return self.apply(self.make("sum", dim, bound), self.ready(x))

    def cumsum(self, x: V, *, dim: int) -> V:
        """Give the running sums along a dimension."""
        return self.apply(self.make("cumsum", dim), self.ready(x))

    def total(self, x: V, *, dim: int) -> V:
        """Add up along a dimension, truncating only the sum wherever the sum fits the word."""
        x = self.ready(x)
        spec = self.number(x, "summing")
        fits = spec.largest * spec.shape[shapes.axis(spec.shape, dim)] < 1 << HEADROOM_BITS
        return self.sum(x if fits else self.normalise_scale(x), dim=dim)

    def reshape(self, x: V, shape: Sequence[int]) -> V:
        """Give the same elements another shape."""
        x, shape = self.ready(x), tuple(shape)
        return self.once(x, ("reshape", shape), lambda: self._fold(x, shape))

    def _fold(self, x: V, shape: tuple[int, ...]) -> V:
        out = self.apply(self.make("reshape", shape), x)
        self.note_layout(x, Fold(self.spec(out).shape), out)
        return out

    def transpose(self, x: V, first: int, second: int) -> V:
        """Swap two dimensions."""
        x = self.ready(x)
        return self.once(x, ("transpose", first, second), lambda: self._swap(x, first, second))

    def _swap(self, x: V, first: int, second: int) -> V:
        if self.is_opening(x):
            shape = shapes.transpose(self.shape(x), first, second)
            return self.laid_out(x, Swap(first, second), shape)
        out = self.apply(self.make("transpose", first, second), x)
        self.note_layout(x, Swap(first, second), out)
        return out

    def part(self, x: V, index: int) -> V:
        """Take one index of the first dimension, which disappears."""
        return self.apply(self.make("part", index), self.ready(x))

    def halves(self, x: V, *, dim: int) -> tuple[V, V]:
        """Give the first and the last half of a dimension; if odd, both hold the middle."""
        x = self.ready(x)
        first = self.apply(self.make("halve", dim, False), x)
        return first, self.apply(self.make("halve", dim, True), x)

    def concatenate(self, parts: Sequence[V], *, dim: int) -> V:
        """Join tensors along a dimension."""
        return self.apply(self.make("concatenate", dim), *(self.ready(part) for part in parts))

    def take(self, x: V, positions: Sequence[int], *, dim: int) -> V:
        """Pick public positions of a dimension, in any order and as often as wanted."""
        # A stretch stays one: as a tuple a million rows would fill the plan with numbers.
        places = positions if isinstance(positions, range) else tuple(positions)
        return self.apply(self.make("take", dim, places), self.ready(x))

    def windows(
        self, x: V, *, size: Pair, stride: Pair, padding: Pair, edge_is_least: bool = False
    ) -> V:
        """Lay the windows of images (n, c, h, w) out as (n, c, window, out h, out w)."""
        kernel = self.make("windows", size, stride, padding, edge_is_least)
        return self.apply(kernel, self.ready(x))

    def weigh(self, x: V, factors: Tensor | Public | PublicInput, *, truncates: bool = True) -> V:
        """Multiply by a public tensor, broadcasting; what is too precise is truncated before."""
        public = factors
        if isinstance(public, Tensor):
            public = Public.of(public, frac_bits=self.frac_bits)
        x = self.normalise_scale(x) if public.frac_bits and truncates else self.ready(x)
        return self.apply(self.make("weigh", public), x)

    def project(self, x: V, matrix: Tensor) -> V:
        """Multiply (…, inputs) by a public matrix (inputs, outputs)."""
        public = Public.of(matrix, frac_bits=self.frac_bits)
        x = self.normalise_scale(x) if public.frac_bits else self.ready(x)
        return self.apply(self.make("project", public), x)

    def offset(self, x: V, amounts: Tensor | Public) -> V:
        """Add a public tensor, broadcasting."""
        public = amounts
        if isinstance(public, Tensor):
            public = Public.of(public, frac_bits=self.frac_bits)
        return self.apply(self.make("offset", public), self.ready(x))

    def fill(self, x: V, kept: Tensor, value: float) -> V:
        """Put a public number wherever a public mask is false."""
        public = Public.of(kept.to(torch.float64), frac_bits=0)
        return self.apply(self.make("fill", public, float(value)), self._fine_enough(x, value))

    def dropout(self, x: V, rate: float) -> V:
        """Set elements to zero with a public probability, by a mask of the computing parties."""
        x = self.normalise_scale(x)
        return self.apply(self.make("dropout", float(rate), self.frac_bits), x)

    @of_family("activations")
    def indicate(self, x: V, *, as_it_is: bool = False) -> V:
        """Give 1 where an element is at least zero and 0 elsewhere, as a whole number.

        ``as_it_is`` compares what is too precise without truncating it: more bits, no round before.
        """
        x = self.ready(x) if as_it_is else self._argument(x)
        bound = self.number(x, "comparing").bound
        return self.apply(self.make("elementwise", "step", 0, bound), x)

    @of_family("activations")
    def pieces(self, pieces: Pieces, x: V) -> V:
        """Apply a piecewise polynomial to every element."""
        x = self.normalise_scale(x)
        spec = self.number(x, "a piecewise polynomial")
        return self.apply(self.make("pieces", pieces, spec.frac_bits, spec.bound), x)

    def gate(self, indicator: V, x: V) -> V:
        """Multiply by what `indicate` gave: whole numbers, so that nothing is to be truncated."""
        return self.multiply(Hadamard(), self.ready(indicator), self.normalise_scale(x))

    def pick(self, hot: V, rows: V) -> V:
        """Multiply a matrix of whole numbers, as one-hot rows are, with a matrix."""
        return self.multiply(MatMul(), self.truncated(self.ready(hot)), self.normalise_scale(rows))

    def mul_whole(self, x: V, y: V) -> V:
        """Multiply whole numbers element-wise, broadcasting; nothing is to be rescaled."""
        return self.multiply(Hadamard(), self.ready(x), self.ready(y))

    def matmul_whole(self, x: V, y: V) -> V:
        """Multiply matrices of whole numbers; nothing is to be rescaled."""
        return self.multiply(MatMul(), self.ready(x), self.ready(y))

    def is_few(self, name: str, x: V) -> bool:
        """Tell whether rounds cost more here than the comparisons of a function with a pole do."""
        spec = self.number(x, name)
        return spec.elements <= FEW and has_curve(name, self.frac_bits, spec.bound)

    @of_family("activations")
    def elementwise(self, name: str, x: V) -> V:
        """Apply a function of the table `ELEMENTWISE` to every element."""
        if name in FUSED and self.has("truncate_compare") and self._is_wide(x):
            return self._narrowed(name, x)
        x = self._argument(x)
        spec = self.number(x, name)
        is_many = spec.elements > MANY and self.has("elementwise_many") and name in CUT_FOR_MANY
        kernel = "elementwise_many" if is_many else "elementwise"
        return self.apply(self.make(kernel, name, self.frac_bits, spec.bound), x)

    def _is_wide(self, x: V) -> bool:
        """Tell whether a value would have to be truncated, and has not been yet."""
        spec = self.spec(x)
        if not isinstance(spec, Spec) or spec.deferred is not None:
            return False
        return spec.frac_bits > self.frac_bits and self.notes.get(x, "normalised") is None

    def _narrowed(self, name: str, x: V) -> V:
        """Truncate and apply a function under one opening."""
        spec = self.number(x, name)
        bound = spec.truncated(self.frac_bits).bound
        bits = spec.frac_bits - self.frac_bits
        return self.apply(self.make("truncate_compare", name, self.frac_bits, bound, bits), x)

    def rowwise(self, name: str, x: V, *, dim: int, parameter: float = 0.0) -> V:
        """Apply a function of the table `ROWWISE`, under a protocol that has it as a kernel."""
        x = self._argument(x)
        return self.apply(self.make("rowwise", name, dim, self.frac_bits, float(parameter)), x)

    def _argument(self, x: V) -> V:
        """Make a value ready for a function; who sees whole words reads them in any precision."""
        x = self.ready(x)
        spec = self.spec(x)
        is_whole = not isinstance(spec, Spec) or spec.ring_bits == WORD_BITS
        return x if is_whole and self.has("rowwise") else self.normalise_scale(x)

    def exponents(self, x: V, values: tuple[Callable[[int], float], ...]) -> V:
        """Give public functions of the binary exponent of every element, one per part."""
        x = self.normalise_scale(x)
        spec = self.number(x, "normalising")
        return self.apply(self.make("exponents", spec.frac_bits, spec.bound, values), x)

    def normalised(self, name: str, x: V) -> V:
        """Apply a function of numbers between 1 and 2."""
        x = self.normalise_scale(x)
        return self.apply(self.make("normalised", name, self.frac_bits), x)

    @of_family("activations")
    def sigmoid(self, x: V) -> V:
        """Apply the logistic function."""
        if self.has("deferred"):
            return self.apply(self.make("deferred", "sigmoid"), self.normalise_scale(x))
        return self.elementwise("sigmoid", x)

    @of_family("activations")
    def is_positive(self, x: V) -> V:
        """Give 1 where an element is at least zero and 0 elsewhere."""
        return self.apply(self.make("is_positive"), self.ready(x))

    def relu(self, x: V) -> V:
        """Give the positive part."""
        return self.elementwise("relu", x)

    def exp(self, x: V) -> V:
        """Give exp of arguments of at most zero; 1 above."""
        return self.elementwise("exp", x)
