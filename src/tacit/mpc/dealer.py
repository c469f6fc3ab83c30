"""The dealer: makes correlated randomness for a plan and streams it ahead of its use."""

import threading
from math import prod

from tacit.errors import TacitError
from tacit.mpc.plan import Plan, Step
from tacit.mpc.randomness import Need, Parts, pack, unpack
from tacit.party import Session
from tacit.ring import Prg


def _stream(session: Session, peer: str, run: int, step: int) -> Prg:
    """Return the generator of one party's part of one step, known to it and to the dealer."""
    return session.shared(peer).fork(f"deal {run}.{step}")


AHEAD_BYTES = 128 << 20
"""How much material a helper deals beyond the step that it waits in."""


class Pace:
    """How far the third party has come in the plan, so that dealing stays only a little ahead.

    A helper deals on the same link on which its answers travel. What the second party has not
    asked for yet it must keep in memory while it waits for an answer.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._reached = 0
        self._is_stopped = False
        self._ahead: list[tuple[int, int]] = []

    def reach(self, step: int) -> None:
        """Say that the third party has come to this step."""
        with self._changed:
            self._reached = step
            self._ahead = [(at, size) for at, size in self._ahead if at > step]
            self._changed.notify_all()

    def stop(self) -> None:
        """End the dealing."""
        with self._changed:
            self._is_stopped = True
            self._changed.notify_all()

    def admits(self, step: int, size: int) -> bool:
        """Wait until the material of a step may be sent; False if it is no longer wanted."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_stopped or self._has_room(step))
            self._ahead.append((step, size))
            return not self._is_stopped

    def _has_room(self, step: int) -> bool:
        return step <= self._reached or sum(size for _, size in self._ahead) <= AHEAD_BYTES


def deal(session: Session, plan: Plan, *, run: int, pace: Pace) -> None:
    """Send the second party the corrections for every step that needs them.

    Guarantee: what is sent is uniform to the second party. The dealer learns shapes; it never
    receives anything that depends on an input.
    Cost: offline, one message per step that needs randomness; nothing to the first party.
    """
    needing = [(number, step) for number, step in enumerate(plan.steps) if step.needs]
    with session.progress.stage("deal", len(needing)) as advance:
        for done, (number, step) in enumerate(needing, start=1):
            first, second = (_stream(session, peer, run, number) for peer in plan.roles.computing)
            words = pack(_corrections(first, second, step))
            if not pace.admits(number, words.nbytes):
                return
            session.send(plan.roles.second, f"deal/{run}.{number}", words, phase="offline")
            advance(done)


def _corrections(first: Prg, second: Prg, step: Step) -> Parts:
    corrections: list[Parts] = [
        need.correction(need.first(first), need.second(second)) for need in step.needs
    ]
    return tuple(part for parts in corrections for part in parts)


class Supply:
    """A computing party's end: hands out each step's material once."""

    def __init__(self, session: Session, plan: Plan, *, run: int) -> None:
        self._session = session
        self._plan = plan
        self._run = run
        self._taken = -1

    def take(self, number: int) -> tuple[Parts, ...]:
        """Return the material of a step; steps come in order and never twice."""
        if number <= self._taken:
            raise TacitError(f"material of step {number} was used already; masks are used once")
        self._taken = number
        needs = self._plan.steps[number].needs
        if not needs:
            return ()
        prg = _stream(self._session, self._plan.roles.dealer, self._run, number)
        if self._session.me == self._plan.roles.first:
            return tuple(need.first(prg) for need in needs)
        return self._second(number, needs, prg)

    def _second(self, number: int, needs: tuple[Need, ...], prg: Prg) -> tuple[Parts, ...]:
        drawn = [need.second(prg) for need in needs]
        shapes = tuple(shape for need in needs for shape in need.correction_shapes())
        sizes = sum(prod(shape) for shape in shapes)
        words = self._session.recv(self._plan.roles.dealer, f"deal/{self._run}.{number}", (sizes,))
        received = iter(unpack(words, shapes))
        return tuple(
            own + tuple(next(received) for _ in need.correction_shapes())
            for own, need in zip(drawn, needs, strict=True)
        )
