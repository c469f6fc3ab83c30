"""The plan: a program run on shapes, before anything is sent; dealer's list and forecast."""

import hashlib
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass
from functools import cached_property

from torch import Tensor

from tacit.errors import ConfigError
from tacit.mpc.arithmetic.coded import OpenCoded
from tacit.mpc.arithmetic.opening import OpenMasked
from tacit.mpc.arithmetic.rescaled import Rescaling
from tacit.mpc.arithmetic.weights import OpenWeight
from tacit.mpc.boundary import Input, Open, Resume
from tacit.mpc.cache import OpeningCache
from tacit.mpc.contract import Begun, HandsOver, Kernel, MpcProtocol, Roles
from tacit.mpc.interpreter import Scope
from tacit.mpc.material.randomness import Need
from tacit.mpc.memo import Memo
from tacit.mpc.ops import ProtocolOps
from tacit.mpc.protocols.checked.boundary import Deliver, OpenChecked, TellInput
from tacit.mpc.protocols.checked.check import Check
from tacit.mpc.protocols.checked.product import Enter, OpenTagged
from tacit.mpc.protocols.two_party.makers import joint_rounds
from tacit.mpc.share import AnySpec, OpeningSpec, Party, Spec, View
from tacit.mpc.sizes import (
    check_filled,
    check_rounds,
    check_sizes,
    correction_bytes,
    has_corrections,
)
from tacit.party import merge
from tacit.party.cost import Message, Round, Tally, forecast_seconds
from tacit.result import Cost, Forecast, Leak, Phase

NETWORKS = ((0.2, 10_000.0), (10.0, 1_000.0), (40.0, 80.0))
"""Round-trip milliseconds and Mbit/s of a data centre, a city and a slow line."""


AnyStep = (
    Kernel | Begun | OpenMasked | OpenCoded | OpenWeight | Input | Open | Resume | Check | Deliver
)
"""What a step of a plan can be: a kernel, or what moves values in and out."""


@dataclass(frozen=True)
class Step:
    """One use of a kernel: public facts only."""

    kernel: AnyStep
    operands: tuple[AnySpec, ...]
    needs: tuple[Need, ...]


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Everything that will happen, in order, with what it costs.

    ``handed`` are pairs of steps: an input, and a step for which P1 hands its share of it over.
    ``grown`` are tensors to which entries are added, by the names under which they are kept.
    """

    protocol: str
    roles: Roles
    frac_bits: int
    steps: tuple[Step, ...]
    cost: Cost
    leaks: tuple[Leak, ...]
    kept_openings: tuple[tuple[str, OpeningSpec], ...] = ()
    grown: tuple[tuple[str, OpeningSpec], ...] = ()
    handed: tuple[tuple[int, int], ...] = ()
    flow: tuple[tuple[Phase, Round], ...] = ()
    least_mean_square: float = 0.0
    """Of rows in front of norms: what is shorter comes out too small, and nothing notices it."""

    def notes(self) -> tuple[str, ...]:
        """Say for which values a result is wrong, where nothing in the run can tell."""
        if not self.least_mean_square:
            return ()
        return (
            f"norms: rows that vary by less than {self.least_mean_square**0.5:.2g} (root mean "
            "square) in front of a norm come out of it too small, unnoticed; lower the bound of "
            "the input, cap hidden values, or take a permuted protocol",
        )

    def digest(self) -> bytes:
        """Return a hash that two parties share only if they will do the same things."""
        return self._digest

    @cached_property
    def _digest(self) -> bytes:
        # Every part is a frozen dataclass of public numbers and names, so repr is canonical.
        lines = [self.protocol, repr(self.roles), str(self.frac_bits), *map(repr, self.steps)]
        return hashlib.sha256("\n".join(lines).encode()).digest()

    def forecast(self, networks: tuple[tuple[float, float], ...] = NETWORKS) -> Forecast:
        """Return rounds, bytes and network seconds for a few networks."""
        timings = tuple(
            forecast_seconds(self.cost, rtt_ms=rtt, mbit_per_s=mbit) for rtt, mbit in networks
        )
        return Forecast(
            cost=self.cost,
            timings=timings,
            plan_hash=self.digest().hex(),
            notes=self.notes(),
        )


class PlanOps(ProtocolOps[AnySpec]):
    """Interpret a program on specs, and write down every step and its messages."""

    def __init__(
        self,
        protocol: MpcProtocol,
        roles: Roles,
        *,
        frac_bits: int,
        cache: OpeningCache | None = None,
    ) -> None:
        self._cache = cache or OpeningCache()
        self._kept_openings: list[tuple[str, OpeningSpec]] = []
        self._grown: list[tuple[str, OpeningSpec]] = []
        self.notes = Memo()
        self.scope = Scope()
        self.protocol = protocol
        self.frac_bits = frac_bits
        self._roles = roles
        self._steps: list[Step] = []
        self._sent: list[list[tuple[Phase, tuple[Round, ...]]]] = []
        self._handed: list[tuple[int, int]] = []
        self._leaks: list[Leak] = []
        self._is_unchecked = False
        self._least = 0.0
        self._posted: Round = ()
        self._flushed = 0

    def spec(self, value: AnySpec) -> AnySpec:
        """Return the value itself: it is a spec."""
        return value

    def apply(self, kernel: Kernel, *operands: AnySpec) -> AnySpec:
        """Write down a kernel and return the spec of its result."""
        operands = self.entered(*operands)
        kernel = self.early(kernel, operands)
        out = self._write(kernel, operands)
        assert out is not None  # noqa: S101 - only OpenMasked and Open have no result
        # A new object: what is noted about a value is noted by identity.
        return copy(out)

    def begin(self, kernel: Begun, *operands: AnySpec) -> Callable[[], AnySpec]:
        """Write down a kernel, and its later messages when its result is asked for."""
        first, *rest = kernel.declare(self._roles, *operands).rounds
        out, mark = self._write(kernel, operands, posted=first), self._flushed

        def complete() -> AnySpec:
            self._collect(mark, tuple(rest))
            assert out is not None  # noqa: S101 - kernels have results
            return copy(out)

        return complete

    def input(
        self,
        name: str,
        *,
        owner: str,
        shape: tuple[int, ...],
        bound: float,
        frac_bits: int | None = None,
    ) -> AnySpec:
        """Write down an input."""
        bits = self.frac_bits if frac_bits is None else frac_bits
        spec = Spec.of(shape=shape, frac_bits=bits, bound=bound)
        if self.is_checked and owner not in self._roles.computing:
            told = TellInput(owner, name, spec)
            opening = told.opening(len(self._steps))
            self._write(told, ())
            share = self.apply(Enter(), opening)
            self.notes.put(share, "opening", opening)
            return self.admitted(share, name, owner, self._roles.computing)
        self._write(Input(owner, name, spec), ())
        self.note_input(spec, name, owner_role(self._roles, owner))
        self.note_entry(spec, len(self._steps) - 1)
        return self.admitted(spec, name, owner, self._roles.computing)

    def note_least(self, mean_square: float) -> None:
        """Write down which rows are too short for a norm."""
        self._least = max(self._least, mean_square)

    def recall(self, value: AnySpec) -> AnySpec | None:
        """Look a value up in the cache."""
        if not isinstance(value, Spec):
            return None
        name, owner = self.notes.get(value, "name"), self.notes.get(value, "owner")
        return self._cache.find(name, value, owner)

    def keep_opening(self, name: str, opening: AnySpec) -> None:
        """Write down that an input can be kept for later runs."""
        assert isinstance(opening, OpeningSpec)  # noqa: S101 - `open_masked` gave it
        self._kept_openings.append((name, opening))

    def resume(
        self,
        name: str,
        *,
        shape: tuple[int, ...],
        bound: float,
        frac_bits: int | None = None,
        is_public: bool = False,
    ) -> AnySpec:
        """Write down that kept shares are taken up."""
        bits = self.frac_bits if frac_bits is None else frac_bits
        spec = Spec.of(shape=shape, frac_bits=bits, bound=bound)
        self._write(Resume(name, spec), ())
        self.note_name(spec, name)
        return spec

    def open_masked(
        self,
        values: tuple[AnySpec, ...],
        owners: tuple[Party | None, ...],
        phase: Phase,
        rescalings: tuple[Rescaling | None, ...] = (),
        *,
        is_posted: bool = False,
    ) -> Callable[[], tuple[AnySpec, ...]]:
        """Write down that values are opened under masks."""
        kind = OpenTagged if self.is_checked else OpenMasked
        step = kind(owners, phase, rescalings, is_posted)
        outs = step.outs(len(self._steps), *values)
        self._write(step, values)
        mark = self._flushed

        def complete() -> tuple[AnySpec, ...]:
            if is_posted:
                self._collect(mark)
            return outs

        return complete

    def _collect(self, mark: int, rounds: tuple[Round, ...] = ()) -> None:
        """Write down that what was posted at a mark is waited for, and what is sent then.

        If nothing was sent since, what was posted is a round of its own.
        """
        if mark == self._flushed and self._posted:
            self._sent[-1].append(("online", (self._take_posted(),)))
        self._sent[-1].append(("online", self._with_posted(rounds)))

    def _with_posted(self, rounds: tuple[Round, ...]) -> tuple[Round, ...]:
        """Let what was posted travel with the first of these rounds, if both parties wait in it.

        Who sends to others, or one way, has not waited for what was posted.
        """
        if not rounds or not (self._posted and self._is_exchange(rounds[0])):
            return rounds
        return ((*self._take_posted(), *rounds[0]), *rounds[1:])

    def _take_posted(self) -> Round:
        posted, self._posted = self._posted, ()
        self._flushed += 1
        return posted

    def _is_exchange(self, messages: Round) -> bool:
        return {message.receiver for message in messages} >= set(self._roles.computing)

    def laid_out(self, opening: AnySpec, view: View, shape: tuple[int, ...]) -> AnySpec:
        """Describe a masked opening in another layout."""
        assert isinstance(opening, OpeningSpec)  # noqa: S101 - `open_masked` gave all notes
        return opening.view(view, shape)

    def find_opening(
        self,
        name: str,
        *,
        owner: str,
        shape: tuple[int, ...],
        bound: float,
        frac_bits: int | None = None,
    ) -> AnySpec | None:
        """Look an input up in the cache by its name."""
        bits = self.frac_bits if frac_bits is None else frac_bits
        spec = Spec.of(shape=shape, frac_bits=bits, bound=bound)
        return self._cache.find(name, spec, owner_role(self._roles, owner))

    def open_weight(
        self, name: str, *, owner: str, shape: tuple[int, ...], bound: float
    ) -> AnySpec:
        """Write down that an input is opened under a mask."""
        spec = Spec.of(shape=shape, frac_bits=self.frac_bits, bound=bound)
        step = OpenWeight(owner, name, spec)
        opening = step.out(len(self._steps), self._roles)
        self._write(step, ())
        return opening

    def open_coded(self, name: str, *, owner: str, shape: tuple[int, int]) -> AnySpec:
        """Write down that a matrix is opened under a mask."""
        step = OpenCoded(owner, name, shape)
        opening = step.out(len(self._steps), self._roles)
        self._write(step, ())
        return opening

    def join(self, name: str, fresh: AnySpec, *, length: int, dim: int) -> AnySpec:
        """Describe entries behind kept ones, and write down that they are kept."""
        assert isinstance(fresh, OpeningSpec)  # noqa: S101 - `open_masked` gave it
        whole = fresh.grown(name, length=length, dim=dim)
        self._grown.append((name, whole))
        return whole

    def open(self, value: AnySpec, *, to: tuple[str, ...], what: str, why: str) -> Tensor | None:
        """Write down that a value is revealed; with tags, between two checks."""
        (value,) = self.entered(value)
        value = self.truncated(value)
        if not self.is_checked:
            self._write(Open(to, what, why), (value,))
            return None
        self.check()
        step = OpenChecked(to, what, why)
        number = len(self._steps)
        self._write(step, (value,))
        self._write(Check(), ())
        if step.outside(self._roles):
            self._write(Deliver(step, number), (value,))
        self._is_unchecked = False
        return None

    def check(self) -> None:
        """Write down a check, if there is something to check."""
        if self.is_checked and self._is_unchecked:
            self._write(Check(), ())
            self._is_unchecked = False

    def _write(
        self, kernel: AnyStep, operands: tuple[AnySpec, ...], *, posted: Round = ()
    ) -> AnySpec | None:
        declared = kernel.declare(self._roles, *operands)
        check_sizes(kernel, declared)
        check_filled(kernel, declared)
        self._steps.append(Step(kernel, operands, declared.needs))
        sent: list[tuple[Phase, tuple[Round, ...]]] = []
        if self.protocol.has_dealer and has_corrections(declared.needs):
            size = correction_bytes(declared.needs)
            dealt = Message(self._roles.dealer, self._roles.second, size)
            sent.append(("offline", ((dealt,),)))
        rounds = () if posted else self._with_posted(declared.rounds)
        self._posted += posted or declared.posted
        self._sent.append([*sent, ("online", rounds)])
        self._sent[self._sent_at(kernel, operands)].append(("offline", declared.offline))
        self._leaks.extend(declared.leaks)
        self._is_unchecked |= bool(declared.rounds or declared.offline)
        return declared.out

    def _sent_at(self, kernel: object, operands: tuple[AnySpec, ...]) -> int:
        """Return at which step the offline messages of the last one are sent: usually there."""
        number = len(self._steps) - 1
        entered = self.notes.get(operands[0], "entered") if operands else None
        # First the cheap question: asking a protocol of types takes longer than some steps do.
        if entered is None or not isinstance(kernel, HandsOver):
            return number
        self._handed.append((entered, number))
        return int(entered)

    def plan(self) -> Plan:
        """Return what was written down."""
        tally = Tally()
        if not self.protocol.has_dealer:
            needs = [need for step in self._steps for need in step.needs]
            tally.add(check_rounds(joint_rounds(needs, self._roles)), "offline")
        for sent in self._sent:
            for phase, rounds in sent:
                tally.add(rounds, phase)
        return Plan(
            protocol=self.protocol.name,
            roles=self._roles,
            frac_bits=self.frac_bits,
            steps=tuple(self._steps),
            cost=tally.cost(),
            leaks=merge(tuple(self._leaks)),
            kept_openings=tuple(self._kept_openings),
            grown=tuple(self._grown),
            handed=tuple(self._handed),
            flow=tally.flow,
            least_mean_square=self._least,
        )


def owner_role(roles: Roles, owner: str) -> Party | None:
    """Name the computing party that owns an input; None for anyone else."""
    if owner not in roles.computing:
        return None
    return "first" if owner == roles.first else "second"


def make_plan(
    program: Callable[[PlanOps], object],
    protocol: MpcProtocol,
    roles: Roles,
    *,
    frac_bits: int,
    cache: OpeningCache | None = None,
) -> Plan:
    """Run a program on shapes.

    Args:
        program: a function of ops.
        protocol: with which it will be run.
        roles: who is who.
        frac_bits: precision of inputs, factors and outputs.
        cache: what earlier runs of the session have opened under masks.
    """
    if protocol.has_dealer != bool(roles.dealer):
        wanted = "a dealer" if protocol.has_dealer else "no dealer: leave it out"
        raise ConfigError(f"protocol {protocol.name!r} wants {wanted}, got {roles.dealer!r}")
    ops = PlanOps(protocol, roles, frac_bits=frac_bits, cache=cache)
    program(ops)
    ops.check()
    return ops.plan()
