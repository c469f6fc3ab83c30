"""Which kernel runs, and when a value is truncated: decided once, for plan and run alike."""

import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

from torch import Tensor

from tacit.errors import InputError
from tacit.mpc.boundary import Input, Open, Resume
from tacit.mpc.contract import Acts, Begun, Hearing, Kernel, Roles
from tacit.mpc.protocol import MpcProtocol
from tacit.mpc.share import WORD_BITS, AnySpec, OpeningSpec, Spec

V = TypeVar("V")
N = TypeVar("N")
P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S", bound="Interpreter[Any]")  # of values of any kind: a verb keeps its own types


class Memo(Generic[N]):
    """Notes about values, by identity: two equal specs may stand for two different secrets.

    A note is there for as long as the value lives.
    """

    def __init__(self) -> None:
        self._notes: dict[int, tuple[weakref.ref[object], dict[Hashable, N]]] = {}

    def get(self, value: object, key: Hashable) -> N | None:
        """Return the note, or None."""
        found = self._notes.get(id(value))
        return None if found is None else found[1].get(key)

    def put(self, value: object, key: Hashable, note: N) -> N:
        """Write a note, and return it."""
        number = id(value)
        if number not in self._notes:
            gone = weakref.ref(value, lambda _: self._notes.pop(number, None))
            self._notes[number] = (gone, {})
        self._notes[number][1][key] = note
        return note


def of_family(
    name: str,
) -> Callable[[Callable[Concatenate[S, P], R]], Callable[Concatenate[S, P], R]]:
    """Mark a verb as a function of one of `mixing.FAMILIES`, which may have their own protocols."""

    def mark(verb: Callable[Concatenate[S, P], R]) -> Callable[Concatenate[S, P], R]:
        @wraps(verb)
        def marked(ops: S, /, *args: P.args, **kwargs: P.kwargs) -> R:
            if ops.scope:
                return verb(ops, *args, **kwargs)
            ops.scope = name  # as `family` does, which would take longer than some verbs
            try:
                return verb(ops, *args, **kwargs)
            finally:
                ops.scope = ""

        return marked

    return mark


class Interpreter(ABC, Generic[V]):
    """Interpret operations with the kernels of a protocol.

    What a kernel is, when a product is truncated and what is noted about a value is decided here,
    once, so that the plan and the run cannot differ: both walk the same program.
    """

    protocol: MpcProtocol
    roles: Roles
    frac_bits: int
    """Of inputs, factors and outputs."""
    scope: str = ""
    """The family of functions that is being computed; empty for none."""
    notes: Memo[Any]
    """About values; a note is a value, or the role of an owner."""
    shown: list[Tensor]
    """What was opened to me so far."""

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
    @abstractmethod
    def position(self) -> int:
        """Return the number of the next step."""

    @abstractmethod
    def act(self, step: Acts, *operands: V) -> Any:
        """Plan or do a step that is no kernel; a plan has no result of it."""

    @abstractmethod
    def hear(self, step: Hearing) -> V:
        """Plan or do a step by which something comes in that is open under a mask."""

    @abstractmethod
    def shared(self, step: Input) -> V:
        """Share an input between P0 and P1."""

    @abstractmethod
    def reveal(self, step: Open, value: V) -> Tensor | None:
        """Put the shares of a value together, at those whom it is opened to."""

    @abstractmethod
    def take_up(self, step: Resume, *, is_public: bool) -> V:
        """Take up what both computing parties kept from an earlier run."""

    @abstractmethod
    def check(self) -> None:
        """Check all messages since the last check, under a protocol that checks; else do nothing.

        Opening a value does so by itself.
        """

    def stated(self, shape: tuple[int, ...], bound: float, frac_bits: int | None = None) -> Spec:
        """Describe numbers as a program states them; None is the usual precision."""
        bits = self.frac_bits if frac_bits is None else frac_bits
        return Spec.of(shape=shape, frac_bits=bits, bound=bound)

    def input(
        self,
        name: str,
        *,
        owner: str,
        shape: tuple[int, ...],
        bound: float,
        frac_bits: int | None = None,
    ) -> V:
        """Bring in an owner's tensor; everyone calls this, the owner alone holds the values.

        ``frac_bits`` is 0 for whole numbers, whose products need no rescaling; None is the usual.
        """
        step = Input(owner, name, self.stated(shape, bound, frac_bits))
        value: V = self.protocol.boundary.input(self, step)
        return value

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
        step = Resume(name, self.stated(shape, bound, frac_bits))
        value = self.take_up(step, is_public=is_public)
        self.notes.put(value, "name", name)
        return value

    def open(self, value: V, *, to: tuple[str, ...], what: str, why: str) -> Tensor | None:
        """Reveal a value to the named parties and write it into the ledger."""
        (value,) = self.entered(value)
        step = Open(to, what, why)
        found = self.protocol.boundary.open(self, step, self.truncated(value))
        if found is not None:
            self.shown.append(found)
        return found

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Open values that are no business of the program's: inputs that depend on what was opened.

        See `tacit.mpc.secret_ops.Given`.
        """
        count = len(self.shown)
        yield
        del self.shown[count:]

    def entered(self, *values: V) -> tuple[V, ...]:
        """Make what kernels compute on of values, some of which may be inputs as they came in."""
        return tuple(self.protocol.boundary.entered(self, one) for one in values)

    def note_input(self, value: V, step: Input) -> None:
        """Note the name of an input of a computing party, and which party that is."""
        owner = self.roles.role(step.owner)
        # Somebody else's input has other shares in every run: nobody can see whether it changed.
        if owner is not None:
            self.notes.put(value, "name", step.name)
            self.notes.put(value, "owner", owner)

    def note_entry(self, value: V, step: int) -> None:
        """Note at which step an input of P0 was shared: P1's share of it is drawn."""
        if self.notes.get(value, "owner") == "first":
            self.notes.put(value, "entered", step)

    def note_least(self, mean_square: float) -> None:
        """Note in a plan that rows of a smaller mean square come out of a norm too small."""

    def once(self, value: V, key: Hashable, work: Callable[[], V]) -> V:
        """Do some work about a value the first time, and remember the result."""
        known: V | None = self.notes.get(value, key)
        if known is not None:
            return known
        made = work()
        # A note about itself would keep a value alive for ever.
        return made if made is value else self.notes.put(value, key, made)

    @property
    def is_checked(self) -> bool:
        """Tell whether every message is checked before anything is revealed."""
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

    def shape(self, x: V) -> tuple[int, ...]:
        """Return the shape of a value, which is public."""
        return self.spec(x).shape

    @contextmanager
    def family(self, name: str) -> Iterator[None]:
        """Compute functions by the protocol of a family, unless one is being computed already."""
        outer = self.scope
        self.scope = outer or name
        try:
            yield
        finally:
            self.scope = outer

    @property
    def _in_use(self) -> MpcProtocol:
        return self.protocol.families.get(self.scope, self.protocol)

    def has(self, name: str) -> bool:
        """Tell whether the protocol in use has a kernel of that name."""
        return name in self._in_use.kernels

    def make(self, name: str, *public: object) -> Kernel:
        """Make a kernel of the protocol in use."""
        made: Kernel = self.choose(name, *public)
        return made

    def choose(self, name: str, *public: object, **named: object) -> Any:
        """Ask the protocol in use for what stands under a name: a kernel, or how to use one."""
        known = self._in_use.kernels.get(name)
        if known is None:
            raise InputError(f"protocol {self._in_use.name!r} has no kernel for {name!r}")
        return known(*public, **named)

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

    def restate(self, value: V, *, bound: float) -> V:
        """Give a value a smaller bound that follows from what it is, not from how it was made."""
        return self.apply(self.make("restate", bound), value)
