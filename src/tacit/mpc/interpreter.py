"""Which kernel runs, and when a value is truncated: decided once, for plan and run alike."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from torch import Tensor

from tacit.errors import InputError
from tacit.mpc.contract import Begun, Kernel, MpcProtocol
from tacit.mpc.openings import MaskedOpenings
from tacit.mpc.share import WORD_BITS, AnySpec, OpeningSpec, Spec

V = TypeVar("V")
P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S", bound="Interpreter[Any]")  # of values of any kind: a verb keeps its own types


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


class Interpreter(MaskedOpenings[V], ABC):
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

    @abstractmethod
    def begin(self, kernel: Begun, *operands: V) -> Callable[[], V]:
        """Post a kernel's first message; what comes back waits for it, and gives the result."""

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

    def truncated(self, value: V, *, frac_bits: int | None = None) -> V:
        """Bring a value down to the usual fraction bits, or to others, if it has more."""
        spec = self.spec(value)
        if not isinstance(spec, Spec):
            return value
        extra = max(0, spec.frac_bits - (self.frac_bits if frac_bits is None else frac_bits))
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

    def note_least(self, mean_square: float) -> None:
        """Note in a plan that rows of a smaller mean square come out of a norm too small."""

    def restate(self, value: V, *, bound: float) -> V:
        """Give a value a smaller bound that follows from what it is, not from how it was made."""
        return self.apply(self.make("restate", bound), value)
