"""The verbs that are kernels: one front for PlanOps (shapes) and SecretOps (halves)."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from math import floor, log2
from typing import Generic, TypeVar

from torch import Tensor

from tacit.errors import InputError
from tacit.mpc.contract import Kernel, MpcProtocol
from tacit.mpc.products import Conv2d, Elementwise, MatMul
from tacit.mpc.share import AnySpec, Spec

V = TypeVar("V")


class Primitives(ABC, Generic[V]):
    """Interpret operations with the kernels of a protocol.

    What a kernel is and when a product is rescaled is decided here, once, so that the plan and
    the run cannot differ.
    """

    @property
    @abstractmethod
    def protocol(self) -> MpcProtocol:
        """Return the protocol in use."""

    @property
    @abstractmethod
    def frac_bits(self) -> int:
        """Return the fraction bits of inputs, factors and outputs."""

    @abstractmethod
    def spec(self, value: V) -> AnySpec:
        """Return the public facts about a value."""

    @abstractmethod
    def apply(self, kernel: Kernel, *operands: V) -> V:
        """Plan or run one kernel."""

    @abstractmethod
    def input(self, name: str, *, owner: str, shape: tuple[int, ...], bound: float) -> V:
        """Bring in an owner's tensor; everyone calls this, the owner alone holds the values."""

    @abstractmethod
    def open(self, value: V, *, to: tuple[str, ...], what: str, why: str) -> Tensor | None:
        """Reveal a value to the named parties and write it into the ledger."""

    def shape(self, x: V) -> tuple[int, ...]:
        """Return the shape of a value, which is public."""
        return self.spec(x).shape

    def has(self, name: str) -> bool:
        """Tell whether the protocol has a kernel of that name."""
        return name in self.protocol.kernels

    def _kernel(self, name: str, *public: object) -> Kernel:
        return self.protocol.kernels[name](*public)

    def ready(self, value: V) -> V:
        """Compute a function that was left to the receiver, now that more is to be done."""
        spec = self.spec(value)
        if not isinstance(spec, Spec) or spec.finish is None:
            return value
        return self.apply(
            self._kernel("elementwise", spec.finish, spec.frac_bits, spec.bound), value
        )

    def rescaled(self, value: V) -> V:
        """Bring a value down to the usual fraction bits, if a product left it with more."""
        spec = self.spec(value)
        if not isinstance(spec, Spec) or spec.frac_bits <= self.frac_bits:
            return value
        return self.apply(self._kernel("rescale", spec.frac_bits - self.frac_bits), value)

    def settle(self, value: V) -> V:
        """Make a value ready for a product or a function: computed, and of usual precision."""
        value = self.rescaled(self.ready(value))
        spec = self.spec(value)
        if not isinstance(spec, Spec) or spec.frac_bits == self.frac_bits:
            return value
        return self.apply(self._kernel("scale", 1.0, self.frac_bits - spec.frac_bits), value)

    def number(self, value: V, operation: str) -> Spec:
        """Return the facts about a number; secret bits can only be opened, so they are refused."""
        spec = self.spec(value)
        if not isinstance(spec, Spec):
            raise InputError(
                f"{operation} wants numbers, got secret bits, which can only be opened"
            )
        return spec

    def restate(self, value: V, *, bound: float) -> V:
        """Give a value a smaller bound that follows from what it is, not from how it was made."""
        return self.apply(self._kernel("restate", bound), value)

    def add(self, x: V, y: V) -> V:
        """Add element-wise, broadcasting."""
        return self.apply(self._kernel("add"), self.ready(x), self.ready(y))

    def sub(self, x: V, y: V) -> V:
        """Subtract element-wise, broadcasting."""
        return self.apply(self._kernel("add", -1), self.ready(x), self.ready(y))

    def mul(self, x: V, y: V) -> V:
        """Multiply element-wise, broadcasting."""
        return self.apply(self._kernel("multiply", Elementwise()), self.settle(x), self.settle(y))

    def square(self, x: V) -> V:
        """Multiply every element by itself."""
        return self.apply(self._kernel("square"), self.settle(x))

    def matmul(self, x: V, y: V) -> V:
        """Multiply matrices."""
        return self.apply(self._kernel("multiply", MatMul()), self.settle(x), self.settle(y))

    def conv2d(self, x: V, weight: V, *, stride: tuple[int, int], padding: tuple[int, int]) -> V:
        """Convolve images (n, channels, height, width) with weights (out, channels, h, w)."""
        product = Conv2d(stride, padding)
        return self.apply(self._kernel("multiply", product), self.settle(x), self.settle(weight))

    def scale(self, x: V, factor: float) -> V:
        """Multiply by a public number, which gets as many significant bits as a value has."""
        if float(factor).is_integer():
            return self.apply(self._kernel("scale", float(factor), 0), self.ready(x))
        frac_bits = self.frac_bits - floor(log2(abs(factor)))
        return self.apply(self._kernel("scale", float(factor), frac_bits), self.settle(x))

    def shift(self, x: V, amount: float) -> V:
        """Add a public number."""
        return self.apply(self._kernel("shift", float(amount)), self.ready(x))

    def sum(self, x: V, *, dim: int) -> V:
        """Add up along one dimension, which disappears."""
        return self.apply(self._kernel("sum", dim), self.ready(x))

    def reshape(self, x: V, shape: Sequence[int]) -> V:
        """Give the same elements another shape."""
        return self.apply(self._kernel("reshape", tuple(shape)), self.ready(x))

    def transpose(self, x: V, first: int, second: int) -> V:
        """Swap two dimensions."""
        return self.apply(self._kernel("transpose", first, second), self.ready(x))

    def part(self, x: V, index: int) -> V:
        """Take one index of the first dimension, which disappears."""
        return self.apply(self._kernel("part", index), self.ready(x))

    def halves(self, x: V, *, dim: int) -> tuple[V, V]:
        """Give the first and the last half of a dimension; if odd, both hold the middle."""
        x = self.ready(x)
        first = self.apply(self._kernel("halve", dim, False), x)
        return first, self.apply(self._kernel("halve", dim, True), x)

    def elementwise(self, name: str, x: V) -> V:
        """Apply a function of the table `ELEMENTWISE` to every element."""
        x = self.settle(x)
        spec = self.number(x, name)
        return self.apply(self._kernel("elementwise", name, spec.frac_bits, spec.bound), x)

    def exponents(self, x: V, values: tuple[Callable[[int], float], ...]) -> V:
        """Give public functions of the binary exponent of every element, one per part."""
        x = self.settle(x)
        spec = self.number(x, "normalising")
        return self.apply(self._kernel("exponents", spec.frac_bits, spec.bound, values), x)

    def normalised(self, name: str, x: V) -> V:
        """Apply a function of numbers between 1 and 2."""
        x = self.settle(x)
        return self.apply(self._kernel("normalised", name, self.frac_bits), x)

    def sigmoid(self, x: V) -> V:
        """Apply the logistic function."""
        if self.has("finish"):
            return self.apply(self._kernel("finish", "sigmoid"), self.settle(x))
        return self.elementwise("sigmoid", x)

    def is_positive(self, x: V) -> V:
        """Give 1 where an element is at least zero and 0 elsewhere."""
        return self.apply(self._kernel("is_positive"), self.ready(x))

    def relu(self, x: V) -> V:
        """Give the positive part."""
        return self.elementwise("relu", x)

    def exp(self, x: V) -> V:
        """Give exp of arguments of at most zero; 1 above."""
        return self.elementwise("exp", x)
