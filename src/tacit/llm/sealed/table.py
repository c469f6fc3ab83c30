"""What all three parties of a sealed chat do alike: agree on passes, and plan them."""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import cast

import torch
from torch import Tensor

from tacit.errors import FrameError
from tacit.llm.claims import Reveal
from tacit.llm.model.architecture import Architecture
from tacit.llm.parties import Seats
from tacit.llm.sealed.bounds import FRAC_BITS, WHY, learn, publish
from tacit.llm.sealed.choosing import gumbel
from tacit.llm.sealed.passes import LEAVE, PASS_WORDS, ROOM, Pass, read_pass, row_bytes, told_words
from tacit.llm.sealed.program import Passing, PassOutcome
from tacit.llm.sealed.schedule import DEAL, Schedule, read_schedule
from tacit.mpc import (
    EncodedInput,
    OpeningCache,
    Plan,
    Roles,
    Share,
    attend,
    compute,
    deal_ahead,
    discard,
)
from tacit.mpc.material.offline import Material
from tacit.mpc.material.recorded_dealing import DealingRecorder
from tacit.mpc.material.recorder import Next, Recorder, can_record
from tacit.mpc.walker import Walker
from tacit.party import Fact, Session, without_collections
from tacit.ring import Prg

PROTOCOL = "sealed"
_NEXT = "llm/pass"
_MOST_OPEN = 16
"""Conversations of a session whose keys and values stay open under masks."""
_MOST_PLANS = 8
_COPIES = 2
"""What is open has two words for a number at each party: it and its mask, or both masks."""


@dataclass(frozen=True)
class _Run:
    """A pass with its number, and the plan that all have agreed on."""

    step: Pass
    plan: Plan
    number: int
    resumes: bool


class Table:
    """One party's place in a session of sealed passes: plans each of them, and takes part.

    A pass may order the next one, of a single token: all agree on that, too, and the dealer deals
    for it while the token before is spoken. If the user then asks for another pass, what was dealt
    is dropped, and its masks are never used: every pass that is agreed on has a number of its own.
    """

    def __init__(self, session: Session, passing: Passing, device: str = "cpu") -> None:
        self.session, self.passing, self.seats = session, passing, passing.seats
        self._cache = OpeningCache(weights_on=device)
        self._walker = walk(passing, self._cache)
        self._runner = PassRunner(session, device, self._cache)
        self._recent: dict[int, None] = {}
        self._ordered: _Run | None = None
        self._dealt_for: set[int] = set()
        self.can_expect = False
        """Whether the weights are open, so that plans no longer change."""

    @without_collections()
    def compute(
        self, step: Pass, inputs: Mapping[str, Tensor | EncodedInput], kept: Mapping[str, Share]
    ) -> PassOutcome[Share]:
        """Compute a pass as the owner or the user."""
        run = self._begin(step)
        ordered = self._ordered
        outcome = self._runner.compute(
            self.passing,
            step,
            Next(run.plan, run.number),
            inputs=inputs,
            kept=kept,
            told=told_words(self.passing.architecture, step),
            following=None if ordered is None else Next(ordered.plan, ordered.number),
            resumes=run.resumes,
        )
        self.can_expect = True
        return outcome

    @without_collections()
    def deal(self, step: Pass) -> None:
        """Deal for a pass, unless that was done, and for the one that it orders."""
        was_dealt = self._is_ordered(step)
        run = self._begin(step)
        if not was_dealt:
            self._deal(run)
        inputs = {}
        if step.is_scored and self.passing.reveal == "sample":
            inputs = {"noise": gumbel(Prg.from_os(), self.passing.architecture.vocab)}
        attend(self.session, run.plan, run=run.number, inputs=inputs)
        self.can_expect = True
        if self._ordered is not None:
            self._deal(self._ordered)

    def announce(self, step: Pass) -> None:
        """Tell the two others about a pass, as the user."""
        self._tell(step.words())

    def leave(self) -> None:
        """Tell the two others that no pass follows, as the user."""
        self._tell(LEAVE)
        self._drop()

    def request_material(self, schedule: Schedule) -> None:
        """Tell the two others to deal for many passes, as the user; an ordered one is dropped."""
        self._tell(schedule.words())
        self._drop()

    def _tell(self, words: Tensor) -> None:
        for peer in (self.seats.owner, self.seats.dealer):
            self.session.send(peer, _NEXT, words)

    def hear(self) -> Pass | Schedule | None:
        """Learn from the user what comes next: a pass, material for many, or None: it leaves.

        Raises:
            FrameError: it asks for what cannot be, or for what would draw masks a second time.
        """
        a, user = self.passing.architecture, self.seats.user
        words = self.session.recv(user, _NEXT, (PASS_WORDS,))
        if int(words[0]) == DEAL:
            self._drop()
            schedule = read_schedule(words, sender=user, architecture=a)
            # The identity makes the keys: two dealings of a session would draw the same masks.
            if schedule.identity in self._dealt_for:
                raise FrameError(user, "asks for material that was dealt in this session already")
            self._dealt_for.add(schedule.identity)
            return schedule
        step = read_pass(words, sender=user, architecture=a)
        if step is not None and step.expects_next and not self.can_expect:
            raise FrameError(user, "orders a second pass before the weights are open")
        return step

    def open_bytes(self, step: Pass | Schedule) -> int:
        """Return what open keys and values will take here, with those of a pass or a schedule.

        All plans of a schedule are held at once, and count too.
        """
        a, more = self.passing.architecture, 0
        if isinstance(step, Schedule):
            conversation, rows, more = DEAL, step.prompt + step.tokens, step.plan_bytes(a)
        else:
            conversation, rows = step.conversation, step.room
        # The pass that it orders may need the next room.
        new = _COPIES * row_bytes(a) * (rows + ROOM)
        return self._cache.grown_bytes(besides=conversation) + new + more

    def _deal(self, run: _Run) -> None:
        self._place(run)
        self._runner.deal(run.step, run.plan, run=run.number)

    def _is_ordered(self, step: Pass) -> bool:
        """Tell whether this pass was agreed on with the one before; not what it orders itself."""
        return self._ordered is not None and self._ordered.step.is_like(step)

    def _begin(self, step: Pass) -> _Run:
        """Plan and number a pass and the one that it orders, and agree on both."""
        self._make_room(step.conversation)
        if self._is_ordered(step):
            run, self._ordered = self._ordered, None
            assert run is not None  # noqa: S101 - it is the ordered one
        else:
            self._drop()
            run = self._number(step)
        if step.expects_next:
            self._ordered = self._number(step.following(), is_held=True)
        self._place(run)
        self._agree(step, run)
        return run

    def _drop(self) -> None:
        """Forget a pass that was ordered and will not be made; the user takes what was dealt."""
        dropped, self._ordered = self._ordered, None
        if dropped is None or self._runner.drop(dropped.number):
            return
        if self.session.me == self.seats.user:
            discard(self.session, dropped.plan, run=dropped.number)

    def _number(self, step: Pass, *, is_held: bool = False) -> _Run:
        is_held = is_held or self._cache.holds(step.conversation, step.past)
        return _Run(
            step, self._plan(step, resumes=not is_held), self.session.begin_run(), not is_held
        )

    def _plan(self, step: Pass, *, resumes: bool) -> Plan:
        """Say what a pass will do and cost."""
        plan = plan_pass(self._walker, self.passing, step, resumes=resumes)
        while len(self._walker.plans) > _MOST_PLANS:
            del self._walker.plans[next(iter(self._walker.plans))]
        return plan

    def _place(self, run: _Run) -> None:
        self._cache.place(run.step.conversation, 0 if run.resumes else run.step.past)

    def _agree(self, step: Pass, run: _Run) -> None:
        digest = hashlib.sha256(bytes(step.words().numpy().tobytes()))
        for one in (run, self._ordered):
            if one is not None:
                digest.update(one.plan.digest() + one.number.to_bytes(8, "big"))
        self.session.agree("plan", digest.digest())

    def _make_room(self, conversation: int) -> None:
        """Forget the openings of the conversation used longest ago; all parties forget alike."""
        self._recent.pop(conversation, None)
        self._recent[conversation] = None
        if len(self._recent) > _MOST_OPEN:
            oldest = next(iter(self._recent))
            del self._recent[oldest]
            self._cache.forget(oldest)


def walk(passing: Passing, cache: OpeningCache | None = None) -> Walker:
    """Return what plans the passes of a session."""
    seats = passing.seats
    roles = Roles(seats.owner, seats.user, seats.dealer)
    return Walker(roles, protocol=PROTOCOL, frac_bits=FRAC_BITS, cache=cache)


def plan_pass(walker: Walker, passing: Passing, step: Pass, *, resumes: bool = False) -> Plan:
    """Plan a pass: one plan serves all of its size, once the weights are open."""
    return walker.plan(
        lambda ops: passing.run(ops, step, resumes=resumes),
        key=(step.rows, step.room, step.is_scored, resumes and step.past, walker.cache.opened),
    )


def plan_all(passing: Passing, passes: Iterable[Pass]) -> tuple[Plan, ...]:
    """Plan the passes of a session in their order; the first opens the weights under masks."""
    walker, plans = walk(passing), list[Plan]()
    for step in passes:
        plans.append(plan_pass(walker, passing, step))
        walker.execute(plans[-1], lambda ops: None)
    return tuple(plans)


GAIN = Fact(
    tag="sealed gain",
    count=1,
    what="by which power of two streams are enlarged",
    why=WHY,
    kind="protocol",
)


def sit_down(
    session: Session,
    architecture: Architecture,
    *,
    reveal: Reveal,
    seats: Seats,
    known: tuple[Mapping[str, float], int] | None = None,
    device: str = "cpu",
) -> Table:
    """Agree on the model and on what is shown, and learn the owner's bounds.

    Args:
        session: my end of the chat.
        architecture: the model's.
        reveal: what the user is shown.
        seats: who is who.
        known: the bounds and the gain, as the owner.
        device: where weights lie and are multiplied; a card computes passes of one token whole.
    """
    text = f"sealed {architecture!r} {reveal} {FRAC_BITS}"
    session.agree("model", hashlib.sha256(text.encode()).digest())
    if known is None:
        bounds: Mapping[str, float] = learn(session, seats.owner, architecture)
        (gain,) = session.learn(seats.owner, GAIN)
    else:
        bounds, gain = known
        publish(session, architecture, bounds)
        session.publish(GAIN, (gain,))
    passing = Passing(
        architecture=architecture,
        bounds=bounds,
        gain_bits=min(max(gain, 0), 32),
        reveal=reveal,
        seats=seats,
    )
    return Table(session, passing, device)


class PassRunner:
    """One party's passes: those that read a token and choose the next are recorded, on a card.

    A prompt is read once and is not worth a recording, nor is the pass that opens the weights.
    """

    def __init__(
        self,
        session: Session,
        device: str,
        cache: OpeningCache,
        *,
        material: Material | None = None,
    ) -> None:
        self._session, self._cache, self._material = session, cache, material
        self._recorder = recorder_on(torch.device(device), session, material)
        self._dealing = dealing_on(torch.device(device), session)

    def takes(self, step: Pass, plan: Plan) -> bool:
        """Tell whether a pass is recorded."""
        return self._recorder is not None and _is_worth(step, plan)

    def deal(self, step: Pass, plan: Plan, *, run: int) -> None:
        """Deal for a pass, as the dealer."""
        dealing, cache = self._dealing, self._cache
        if dealing is not None and _is_worth(step, plan) and dealing.takes(plan, cache):
            dealing.deal(plan, run=run, cache=cache)
        else:
            deal_ahead(self._session, plan, run=run, cache=cache)

    def compute(
        self,
        passing: Passing,
        step: Pass,
        now: Next,
        *,
        inputs: Mapping[str, Tensor | EncodedInput],
        kept: Mapping[str, Share],
        told: Mapping[str, Tensor],
        following: Next | None,
        resumes: bool = False,
    ) -> PassOutcome[Share]:
        """Compute a pass as the owner or the user.

        Args:
            passing: the model.
            step: the pass.
            now: its run.
            inputs: what I bring in.
            kept: what it takes up; then it is not recorded.
            told: the public words of the pass.
            following: the next run, if it is agreed on.
            resumes: whether keys and values are opened once more; see `Passing.run`.
        """
        # Keys and values are numbers, never bits or masked openings: shares.
        if self._recorder is None or not _is_worth(step, now.plan):
            outcome = compute(
                self._session,
                now.plan,
                lambda ops: passing.run(ops, step, resumes=resumes),
                inputs=inputs,
                kept=kept,
                cache=self._cache,
                material=self._material,
                run=now.run,
                told=told,
            )
            return cast("PassOutcome[Share]", outcome)
        outcome = self._recorder.compute(
            now,
            lambda ops: passing.run(ops, step),
            inputs=inputs,
            told=told,
            cache=self._cache,
            following=following,
        )
        found = cast("PassOutcome[Share]", outcome)
        shown, strange = (
            None if one is None else one.clone() for one in (found.shown, found.strange)
        )
        # Out of memory that the next pass writes to.
        keys, values = (
            [Share(one.words.to("cpu", copy=True), one.spec) for one in some]
            for some in (found.keys, found.values)
        )
        return replace(found, keys=keys, values=values, shown=shown, strange=strange)

    def drop(self, run: int) -> bool:
        """Forget the material of a run that will not be made; False if none was fetched."""
        return self._recorder is not None and self._recorder.drop(run)


def recorder_on(
    device: torch.device, session: Session, material: Material | None
) -> Recorder | None:
    """Make what records passes on a device; a processor gains nothing by it."""
    return Recorder(session, device, material=material) if device.type == "cuda" else None


def dealing_on(device: torch.device, session: Session) -> DealingRecorder | None:
    """Make what records dealing on a device."""
    return DealingRecorder(session, device) if device.type == "cuda" else None


def _is_worth(step: Pass, plan: Plan) -> bool:
    return step.rows == 1 and step.is_scored and can_record(plan)
