"""The verbs of a model under a protocol: one front for PlanOps (shapes) and SecretOps (halves)."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Generic, TypeVar

from torch import Tensor

from tacit.mpc.contract import Kernel, MpcProtocol
from tacit.mpc.share import AnySpec, Spec

V = TypeVar("V")


class ProtocolOps(ABC, Generic[V]):
    """Interpret the Ops contract with the kernels of a protocol.

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

    def _kernel(self, name: str, *public: object) -> Kernel:
        return self.protocol.kernels[name](*public)

    def _settled(self, value: V) -> V:
        """Bring a value down to the usual fraction bits, if a product left it with more."""
        spec = self.spec(value)
        if not isinstance(spec, Spec) or spec.frac_bits <= self.frac_bits:
            return value
        return self.apply(self._kernel("rescale", spec.frac_bits - self.frac_bits), value)

    def add(self, x: V, y: V) -> V:
        """Add element-wise, broadcasting."""
        return self.apply(self._kernel("add"), x, y)

    def sub(self, x: V, y: V) -> V:
        """Subtract element-wise, broadcasting."""
        return self.apply(self._kernel("add", -1), x, y)

    def mul(self, x: V, y: V) -> V:
        """Multiply element-wise, broadcasting."""
        return self.apply(self._kernel("multiply", "mul"), self._settled(x), self._settled(y))

    def matmul(self, x: V, y: V) -> V:
        """Multiply matrices."""
        return self.apply(self._kernel("multiply", "matmul"), self._settled(x), self._settled(y))

    def scale(self, x: V, factor: float) -> V:
        """Multiply by a public number."""
        frac_bits = 0 if float(factor).is_integer() else self.frac_bits
        return self.apply(self._kernel("scale", float(factor), frac_bits), self._settled(x))

    def shift(self, x: V, amount: float) -> V:
        """Add a public number."""
        return self.apply(self._kernel("shift", float(amount)), x)

    def sum(self, x: V, *, dim: int) -> V:
        """Add up along one dimension, which disappears."""
        return self.apply(self._kernel("sum", dim), x)

    def reshape(self, x: V, shape: Sequence[int]) -> V:
        """Give the same elements another shape."""
        return self.apply(self._kernel("reshape", tuple(shape)), x)

    def transpose(self, x: V, first: int, second: int) -> V:
        """Swap two dimensions."""
        return self.apply(self._kernel("transpose", first, second), x)

    def sigmoid(self, x: V) -> V:
        """Apply the logistic function."""
        return self.apply(self._kernel("sigmoid", self.frac_bits), self._settled(x))

    def is_positive(self, x: V) -> V:
        """Give 1 where an element is at least zero and 0 elsewhere."""
        return self.apply(self._kernel("is_positive", self.frac_bits), x)
