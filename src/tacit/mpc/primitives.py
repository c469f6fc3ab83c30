"""The verbs that are kernels: one front for PlanOps (shapes) and SecretOps (shares)."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from math import floor, frexp, log2
from typing import Any, Concatenate, ParamSpec, TypeVar

import torch
from torch import Tensor

from tacit.errors import InputError
from tacit.mpc import shapes
from tacit.mpc.additive2.fused import truncated_spec
from tacit.mpc.additive2.logspaced import FEW
from tacit.mpc.additive2.public import Public, Told
from tacit.mpc.contract import Kernel, MpcProtocol
from tacit.mpc.openings import MaskedOpenings
from tacit.mpc.pieces import Pieces
from tacit.mpc.products import Conv2d, Elementwise, MatMul
from tacit.mpc.share import (
    HEADROOM_BITS,
    WORD_BITS,
    AnySpec,
    Fold,
    OpeningSpec,
    Spec,
    Swap,
)

V = TypeVar("V")
P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S", bound="Primitives[Any]")  # of values of any kind: a verb keeps its own types
FUSED = frozenset({"abs", "relu"})
"""Functions of whole slopes, which can truncate their argument on the way."""
Pair = tuple[int, int]


@dataclass
class Scope:
    """The family of functions that is being computed; empty for none."""

    name: str = ""


def of_family(
    name: str,
) -> Callable[[Callable[Concatenate[S, P], R]], Callable[Concatenate[S, P], R]]:
    """Mark a verb as a function of a family, for which there may be a protocol of its own."""

    def mark(verb: Callable[Concatenate[S, P], R]) -> Callable[Concatenate[S, P], R]:
        @wraps(verb)
        def marked(ops: S, /, *args: P.args, **kwargs: P.kwargs) -> R:
            scope = ops.scope
            if scope.name:
                return verb(ops, *args, **kwargs)
            scope.name = name
            try:
                return verb(ops, *args, **kwargs)
            finally:
                scope.name = ""

        return marked

    return mark


class Primitives(MaskedOpenings[V], ABC):
    """Interpret operations with the kernels of a protocol.

    What a kernel is and when a product is truncated is decided here, once, so that the plan and
    the run cannot differ.
    """

    protocol: MpcProtocol
    scope: Scope
    """The family of functions that is being computed."""
    frac_bits: int
    """Of inputs, factors and outputs."""

    @abstractmethod
    def spec(self, value: V) -> AnySpec:
        """Return the public facts about a value."""

    @abstractmethod
    def apply(self, kernel: Kernel, *operands: V) -> V:
        """Plan or run one kernel."""

    @property
    def is_checked(self) -> bool:
        """Tell whether every message has a tag."""
        return self.protocol.is_checked

    @property
    def rescales_openings(self) -> bool:
        """Tell whether a dealer shares two readings of a mask, so that openings can rescale."""
        return self.protocol.has_dealer and not self.is_checked

    def is_opening(self, value: V) -> bool:
        """Tell whether a value is an opening itself, of which nothing else is known."""
        return isinstance(self.spec(value), OpeningSpec)

    def early(self, kernel: Kernel, operands: tuple[V, ...]) -> Kernel:
        """Let what P1 knows before any query be handed over when it is shared, not now."""
        if not operands or self.notes.get(operands[0], "entered") is None:
            return kernel
        # Asking `HandsOver` whether the kernel is one would take longer than some steps do.
        handed: Callable[[], Kernel] | None = getattr(kernel, "handed", None)
        return kernel if handed is None else handed()

    @abstractmethod
    def resume(
        self,
        name: str,
        *,
        shape: tuple[int, ...],
        bound: float,
        frac_bits: int | None = None,
        is_public: bool = False,
    ) -> V:
        """Take up shares that both computing parties kept from an earlier run.

        ``is_public`` is for a number that both hold itself, not shares of it.
        """

    @abstractmethod
    def open(self, value: V, *, to: tuple[str, ...], what: str, why: str) -> Tensor | None:
        """Reveal a value to the named parties and write it into the ledger."""

    @abstractmethod
    def check(self) -> None:
        """Check all messages since the last check, under a protocol with tags; else do nothing.

        Opening a value does so by itself.
        """

    def shape(self, x: V) -> tuple[int, ...]:
        """Return the shape of a value, which is public."""
        return self.spec(x).shape

    @contextmanager
    def family(self, name: str) -> Iterator[None]:
        """Compute functions by the protocol of a family, unless one is being computed already."""
        outer = self.scope.name
        self.scope.name = outer or name
        try:
            yield
        finally:
            self.scope.name = outer

    @property
    def _in_use(self) -> MpcProtocol:
        return self.protocol.families.get(self.scope.name, self.protocol)

    def has(self, name: str) -> bool:
        """Tell whether the protocol in use has a kernel of that name."""
        return name in self._in_use.kernels

    def make(self, name: str, *public: object) -> Kernel:
        """Make a kernel of the protocol in use."""
        known = self._in_use.kernels.get(name)
        if known is None:
            raise InputError(f"protocol {self._in_use.name!r} has no kernel for {name!r}")
        return known(*public)

    def ready(self, value: V) -> V:
        """Compute a function that was left to the receiver, now that more is to be done."""
        spec = self.spec(value)
        if not isinstance(spec, Spec) or spec.deferred is None:
            return value
        # By a protocol that leaves functions to the receiver, whatever is being computed now:
        # another one could show to somebody what was not to be shown.
        kernels = next(one.kernels for one in self.protocol.parts() if "deferred" in one.kernels)
        kernel = kernels["elementwise"](spec.deferred, spec.frac_bits, spec.bound)
        return self.apply(kernel, value)

    def truncated(self, value: V) -> V:
        """Bring a value down to the usual fraction bits, if a product left it with more."""
        spec = self.spec(value)
        if not isinstance(spec, Spec):
            return value
        extra = max(0, spec.frac_bits - self.frac_bits)
        if not extra and spec.ring_bits == WORD_BITS:
            return value
        return self.apply(self.make("truncate", extra), value)

    def normalise_scale(self, value: V) -> V:
        """Make a value ready for a product or a function: computed, and of usual precision."""
        return self.once(value, "normalised", lambda: self._normalised_scale(value))

    def _normalised_scale(self, value: V) -> V:
        value = self.truncated(self.ready(value))
        spec = self.spec(value)
        if not isinstance(spec, Spec) or spec.frac_bits == self.frac_bits:
            return value
        return self.apply(self.make("scale", 1.0, self.frac_bits - spec.frac_bits), value)

    def factor(self, value: V) -> V:
        """Make a value ready for products; whole numbers stay whole, as `pick` wants them."""
        spec = self.spec(value)
        is_whole = isinstance(spec, Spec) and spec.frac_bits == 0
        return self.ready(value) if is_whole else self.normalise_scale(value)

    def number(self, value: V, operation: str) -> Spec:
        """Return the facts about a number; secret bits can only be opened, so they are refused."""
        spec = self.spec(value)
        if not isinstance(spec, Spec):
            raise InputError(
                f"{operation} wants numbers, got secret bits, which can only be opened"
            )
        return spec

    def bound(self, value: V) -> float:
        """Return how large a number, or one that is masked open, can be."""
        spec = self.spec(value)
        return spec.bound if isinstance(spec, OpeningSpec) else self.number(value, "bounding").bound

    def restate(self, value: V, *, bound: float) -> V:
        """Give a value a smaller bound that follows from what it is, not from how it was made."""
        return self.apply(self.make("restate", bound), value)

    def add(self, x: V, y: V) -> V:
        """Add element-wise, broadcasting."""
        return self.apply(self.make("add"), self.ready(x), self.ready(y))

    def sub(self, x: V, y: V) -> V:
        """Subtract element-wise, broadcasting."""
        return self.apply(self.make("add", -1), self.ready(x), self.ready(y))

    def mul(self, x: V, y: V) -> V:
        """Multiply element-wise, broadcasting."""
        return self.multiply(Elementwise(), self.normalise_scale(x), self.normalise_scale(y))

    def square(self, x: V) -> V:
        """Multiply every element by itself."""
        x = self.normalise_scale(x)
        return self.multiply(Elementwise(), x, x)

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
        return self.apply(self.make("shift", float(amount)), self.ready(x))

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
        fits = spec.largest * spec.shape[dim] < 1 << HEADROOM_BITS
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

    def weigh(self, x: V, factors: Tensor | Public | Told) -> V:
        """Multiply by a public tensor, broadcasting."""
        public = factors
        if isinstance(public, Tensor):
            public = Public.of(public, frac_bits=self.frac_bits)
        x = self.normalise_scale(x) if public.frac_bits else self.ready(x)
        return self.apply(self.make("weigh", public), x)

    def project(self, x: V, matrix: Tensor) -> V:
        """Multiply (…, inputs) by a public matrix (inputs, outputs)."""
        public = Public.of(matrix, frac_bits=self.frac_bits)
        x = self.normalise_scale(x) if public.frac_bits else self.ready(x)
        return self.apply(self.make("project", public), x)

    def offset(self, x: V, amounts: Tensor) -> V:
        """Add a public tensor, broadcasting."""
        public = Public.of(amounts, frac_bits=self.frac_bits)
        return self.apply(self.make("offset", public), self.ready(x))

    def fill(self, x: V, kept: Tensor, value: float) -> V:
        """Put a public number wherever a public mask is false."""
        public = Public.of(kept.to(torch.float64), frac_bits=0)
        return self.apply(self.make("fill", public, float(value)), self.ready(x))

    def dropout(self, x: V, rate: float) -> V:
        """Set elements to zero with a public probability, by a mask of the computing parties."""
        x = self.normalise_scale(x)
        return self.apply(self.make("dropout", float(rate), self.frac_bits), x)

    @of_family("activations")
    def indicate(self, x: V) -> V:
        """Give 1 where an element is at least zero and 0 elsewhere, as a whole number."""
        x = self._argument(x)
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
        return self.multiply(Elementwise(), self.ready(indicator), self.normalise_scale(x))

    def pick(self, hot: V, rows: V) -> V:
        """Multiply a matrix of whole numbers, as one-hot rows are, with a matrix."""
        return self.multiply(MatMul(), self.truncated(self.ready(hot)), self.normalise_scale(rows))

    def mul_whole(self, x: V, y: V) -> V:
        """Multiply whole numbers element-wise, broadcasting; nothing is to be rescaled."""
        return self.multiply(Elementwise(), self.ready(x), self.ready(y))

    def matmul_whole(self, x: V, y: V) -> V:
        """Multiply matrices of whole numbers; nothing is to be rescaled."""
        return self.multiply(MatMul(), self.ready(x), self.ready(y))

    def is_few(self, x: V) -> bool:
        """Tell whether rounds cost more here than comparisons do."""
        spec = self.number(x, "counting")
        # The pieces of a wide range are too many, and the plan would take minutes to make.
        return spec.elements <= FEW and spec.bound <= 2.0**16

    @of_family("activations")
    def elementwise(self, name: str, x: V) -> V:
        """Apply a function of the table `ELEMENTWISE` to every element."""
        if name in FUSED and self.has("truncate_compare") and self._is_wide(x):
            return self._narrowed(name, x)
        x = self._argument(x)
        bound = self.number(x, name).bound
        return self.apply(self.make("elementwise", name, self.frac_bits, bound), x)

    def _is_wide(self, x: V) -> bool:
        """Tell whether a value would have to be truncated, and has not been yet."""
        spec = self.spec(x)
        if not isinstance(spec, Spec) or spec.deferred is not None:
            return False
        return spec.frac_bits > self.frac_bits and self.notes.get(x, "normalised") is None

    def _narrowed(self, name: str, x: V) -> V:
        """Truncate and apply a function under one opening."""
        spec = self.number(x, name)
        bound = truncated_spec(spec, self.frac_bits).bound
        bits = spec.frac_bits - self.frac_bits
        return self.apply(self.make("truncate_compare", name, self.frac_bits, bound, bits), x)

    def rowwise(self, name: str, x: V, *, dim: int, parameter: float = 0.0) -> V:
        """Apply a function of the table `ROWWISE`, under a protocol that has it as a kernel."""
        x = self._argument(x)
        return self.apply(self.make("rowwise", name, dim, self.frac_bits, float(parameter)), x)

    def _argument(self, x: V) -> V:
        """Make a value ready for a function; whoever sees it can read it in any precision."""
        return self.ready(x) if self.has("rowwise") else self.normalise_scale(x)

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
