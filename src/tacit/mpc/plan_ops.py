"""PlanOps: a program run on shapes, before anything is sent, and what is written down of it."""

from collections.abc import Callable
from copy import copy

from tacit.errors import ConfigError, InputError, TacitError
from tacit.mpc.arithmetic.opening import OpenMasked
from tacit.mpc.boundary import Input, Open, Resume
from tacit.mpc.cache import OpeningCache
from tacit.mpc.contract import Acts, Begun, Declaration, Declares, HandsOver, Hearing, Kernel, Roles
from tacit.mpc.interpreter import Memo
from tacit.mpc.material.randomness import correction_bytes, has_corrections
from tacit.mpc.ops import ProtocolOps
from tacit.mpc.plan import Plan, Step
from tacit.mpc.protocol import MpcProtocol
from tacit.mpc.share import AnySpec, OpeningSpec, Party, Spec
from tacit.party import LARGEST_MESSAGE_BYTES, merge
from tacit.party.cost import CostedMessage, CostTally, Round
from tacit.result import Leak, Phase


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
        self.protocol, self.roles, self.frac_bits = protocol, roles, frac_bits
        self.notes, self.shown = Memo(), []
        self._cache = cache or OpeningCache()
        self._kept_openings: list[tuple[str, OpeningSpec]] = []
        self._grown: list[tuple[str, OpeningSpec]] = []
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
        first, *rest = kernel.declare(self.roles, *operands).rounds
        out, mark = self._write(kernel, operands, posted=first), self._flushed

        def complete() -> AnySpec:
            self._collect(mark, tuple(rest))
            assert out is not None  # noqa: S101 - kernels have results
            return copy(out)

        return complete

    @property
    def position(self) -> int:
        """Return the number of the next step."""
        return len(self._steps)

    def act(self, step: Acts, *operands: AnySpec) -> None:
        """Write down a step that is no kernel."""
        self._write(step, operands)

    def hear(self, step: Hearing) -> AnySpec:
        """Write down a step by which something comes in that is open under a mask."""
        opening = step.opening(len(self._steps), self.roles)
        self._write(step, ())
        return opening

    def shared(self, step: Input) -> AnySpec:
        """Write down an input."""
        spec = step.spec
        self._write(step, ())
        self.note_input(spec, step)
        self.note_entry(spec, len(self._steps) - 1)
        return spec

    def reveal(self, step: Open, value: AnySpec) -> None:
        """Write down that a value is revealed."""
        self._write(step, (value,))

    def take_up(self, step: Resume, *, is_public: bool) -> AnySpec:
        """Write down that kept shares are taken up."""
        self._write(step, ())
        return step.spec

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

    def open_masked(
        self, values: tuple[AnySpec, ...], step: OpenMasked
    ) -> Callable[[], tuple[AnySpec, ...]]:
        """Write down that values are opened under masks."""
        outs = step.outs(len(self._steps), *values)
        self._write(step, values)
        mark = self._flushed

        def complete() -> tuple[AnySpec, ...]:
            if step.is_posted:
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
        if not rounds or not self._posted:
            return rounds
        if not {message.receiver for message in rounds[0]} >= set(self.roles.computing):
            return rounds
        return ((*self._take_posted(), *rounds[0]), *rounds[1:])

    def _take_posted(self) -> Round:
        posted, self._posted = self._posted, ()
        self._flushed += 1
        return posted

    def find_opening(self, name: str, spec: Spec, owner: Party | None) -> AnySpec | None:
        """Look an input up in the cache by its name."""
        return self._cache.find(name, spec, owner)

    def join(self, name: str, fresh: AnySpec, *, length: int, dim: int) -> AnySpec:
        """Describe entries behind kept ones, and write down that they are kept."""
        assert isinstance(fresh, OpeningSpec)  # noqa: S101 - `open_masked` gave it
        whole = fresh.grown(name, length=length, dim=dim)
        self._grown.append((name, whole))
        return whole

    def check(self) -> None:
        """Write down a check, if the protocol has one and there is something to check."""
        step = self.protocol.boundary.check
        if step is not None and self._is_unchecked:
            self._write(step, ())
            self._is_unchecked = False

    def _write(
        self, kernel: Declares, operands: tuple[AnySpec, ...], *, posted: Round = ()
    ) -> AnySpec | None:
        declared = kernel.declare(self.roles, *operands)
        dealt_bytes = correction_bytes(declared.needs)
        rounds = (*declared.rounds, *declared.offline, declared.posted)
        _refuse_large(type(kernel).__name__, rounds, dealt_bytes)
        _refuse_empty(kernel, declared)
        self._refuse_undeclared(kernel, declared)
        self._steps.append(Step(kernel, operands, declared.needs))
        sent: list[tuple[Phase, tuple[Round, ...]]] = []
        if self.protocol.has_dealer and has_corrections(declared.needs):
            dealt = CostedMessage(self.roles.dealer, self.roles.second, dealt_bytes)
            sent.append(("offline", ((dealt,),)))
        rounds = () if posted else self._with_posted(declared.rounds)
        self._posted += posted or declared.posted
        self._sent.append([*sent, ("online", rounds)])
        self._sent[self._sent_at(kernel, operands)].append(("offline", declared.offline))
        self._leaks.extend(declared.leaks)
        if not declared.is_checked:
            self._is_unchecked |= bool(declared.rounds or declared.offline)
        return declared.out

    def _refuse_undeclared(self, kernel: Declares, declared: Declaration) -> None:
        """Refuse a kernel that shows values to someone of whom its protocol does not say so."""
        # Rules about who may compute, and tests of what a party receives, go by the protocol.
        viewers = {getattr(self.roles, seat) for seat in self.protocol.shows_to}
        for leak in declared.leaks:
            if leak.kind == "protocol" and leak.to not in viewers:
                raise TacitError(
                    f"{type(kernel).__name__} shows {leak.what} to {leak.to!r}, but protocol "
                    f"{self.protocol.name!r} shows values to {sorted(viewers) or 'nobody'}; "
                    "declare it in shows_to"
                )

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
        tally = CostTally()
        if self.protocol.preprocessing is not None:
            needs = [need for step in self._steps for need in step.needs]
            rounds = self.protocol.preprocessing.rounds(needs, self.roles)
            _refuse_large("preparing without a dealer", rounds)
            tally.add(rounds, "offline")
        for sent in self._sent:
            for phase, rounds in sent:
                tally.add(rounds, phase)
        return Plan(
            protocol=self.protocol.name,
            roles=self.roles,
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


def _refuse_empty(kernel: Declares, declared: Declaration) -> None:
    """Refuse what holds no values: there is nothing to compute, and nothing is what comes out."""
    if declared.out is not None and declared.out.elements == 0:
        inner = getattr(kernel, "kernel", kernel)
        what = getattr(inner, "name", "") or type(inner).__name__
        raise InputError(
            f"{what!r} would be of shape {declared.out.shape}, which holds no values; leave it out"
        )


def _refuse_large(what: str, rounds: tuple[Round, ...], dealt_bytes: int = 0) -> None:
    """Refuse now what no link would carry later."""
    largest = max([dealt_bytes, *(one.payload_bytes for sent in rounds for one in sent)])
    if largest > LARGEST_MESSAGE_BYTES:
        raise InputError(
            f"{what} would send a message of {largest} bytes, more than the "
            f"{LARGEST_MESSAGE_BYTES} that a link carries; work on fewer rows at a time"
        )
