"""A computing party's end of the dealer's work: where its randomness comes from, drawn ahead."""

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from math import prod
from threading import Lock
from typing import Protocol

import torch
from torch import Tensor

from tacit.errors import TacitError
from tacit.mpc.contract import Channel, Prepared, takes_role
from tacit.mpc.material.dealer import step_stream
from tacit.mpc.material.randomness import Need, Parts, has_corrections, unpack
from tacit.mpc.plan import Plan
from tacit.party import Session
from tacit.ring import Prg


class RandomnessSource(Protocol):
    """Where a computing party's randomness comes from: a dealer on a link, or a file."""

    def stream(self, step: int) -> Prg:
        """Return the generator of my part of a step."""
        ...

    def correction(self, step: int, count: int) -> Tensor:
        """Return that many words which the dealer made for a step; the second party asks."""
        ...


@dataclass(frozen=True)
class FromDealer:
    """A dealer who takes part in the session."""

    session: Session
    dealer: str
    run: int

    def stream(self, step: int) -> Prg:
        """Fork the generator that the dealer and I share."""
        return step_stream(self.session.shared(self.dealer), self.run, step)

    def correction(self, step: int, count: int) -> Tensor:
        """Receive the dealer's message for a step."""
        return self.session.recv(self.dealer, f"deal/{self.run}.{step}", (count,))


class Supply:
    """A computing party's end: hands out each step's material once.

    A step's own draws may be made early, in any order, by another thread; they are handed out,
    together with what the dealer sent, when the step is reached.
    """

    def __init__(
        self,
        source: RandomnessSource,
        plan: Plan,
        *,
        is_first: bool,
        device: torch.device | str = "cpu",
    ) -> None:
        self._source = source
        self._plan = plan
        self._is_first = is_first
        self._device = torch.device(device)
        self._taken = -1

    def stream(self, number: int) -> Prg:
        """Return the generator of a step that draws its masks itself; steps come in order."""
        self._pass(number)
        return self._source.stream(number)

    def draw(self, number: int) -> tuple[Parts, ...]:
        """Draw my own part of the material of a step."""
        needs = self._plan.steps[number].needs
        if not needs:
            return ()
        prg = self._source.stream(number)
        drawn = (need.first(prg) if self._is_first else need.second(prg) for need in needs)
        return tuple(self._placed(parts) for parts in drawn)

    def take(self, number: int, drawn: tuple[Parts, ...] | None = None) -> tuple[Parts, ...]:
        """Return the material of a step; steps come in order and never twice.

        Args:
            number: of the step.
            drawn: what `draw` gave for it, if that was done before.
        """
        self._pass(number)
        drawn = self.draw(number) if drawn is None else drawn
        needs = self._plan.steps[number].needs
        if self._is_first or not has_corrections(needs):
            return drawn
        received = iter(self._received(number, needs))
        return tuple(
            own + tuple(next(received) for _ in need.correction_shapes())
            for own, need in zip(drawn, needs, strict=True)
        )

    def _pass(self, number: int) -> None:
        if number <= self._taken:
            raise TacitError(f"material of step {number} was used already; masks are used once")
        self._taken = number

    def _received(self, number: int, needs: tuple[Need, ...]) -> Parts:
        shapes = tuple(shape for need in needs for shape in need.correction_shapes())
        words = self._source.correction(number, sum(prod(shape) for shape in shapes))
        return unpack(words.to(self._device, non_blocking=True), shapes)

    def _placed(self, parts: Parts) -> Parts:
        return tuple(part.to(self._device, non_blocking=True) for part in parts)


KEPT_BYTES = 256 << 20
"""How much is drawn beyond the step that is being computed."""

Material = tuple[Parts, ...]


class Ahead:
    """Hands out material like a `Supply`, and has drawn it before.

    As much as `KEPT_BYTES` is drawn when it is made, which is offline; the rest by a thread of its
    own while steps are computed. What the dealer sends is received when its step is reached.
    """

    def __init__(
        self, supply: Supply, session: Session, plan: Plan, *, run: int, device: torch.device
    ) -> None:
        self._session, self._plan, self._run, self._device = session, plan, run, device
        self._supply = supply
        self._waiting = deque(
            number
            for number, step in enumerate(plan.steps)
            if step.needs or takes_role(step.kernel, Prepared)
        )
        self._drawn_for = frozenset(self._waiting)
        self._ready: dict[int, tuple[Material, Material]] = {}
        self._bytes = 0
        self._lock = Lock()
        self._pool: ThreadPoolExecutor | None = None
        self._filling: Future[None] | None = None
        self._fill()

    def take(self, number: int) -> Material:
        """Return the material of a step; steps come in order and never twice."""
        if number not in self._drawn_for:
            return ()
        self._await(number)
        with self._lock:
            if number not in self._ready:
                raise TacitError(f"material of step {number} was used already")
            drawn, prepared = self._ready.pop(number)
            self._bytes -= _size(drawn) + _size(prepared)
        if self._waiting and self._bytes < KEPT_BYTES // 2:
            self._refill()
        return self._supply.take(number, drawn) + prepared

    def stream(self, number: int) -> Prg:
        """Return the generator of a step that draws its masks itself."""
        return self._supply.stream(number)

    def peek(self, number: int) -> Material:
        """Return what I draw for a later step, by a generator of its own; it stays there."""
        with self._lock:
            ready = self._ready.get(number)
        return self._supply.draw(number) if ready is None else ready[0]

    def _await(self, number: int) -> None:
        """Wait for the drawing of a step, or draw it now."""
        if number not in self._ready and self._filling is not None:
            self._filling.result()
        if number not in self._ready:
            self._fill()

    def close(self) -> None:
        """Stop drawing."""
        self._waiting.clear()
        if self._pool is not None:
            self._pool.shutdown(wait=False)

    def _refill(self) -> None:
        """Draw on in another thread."""
        if self._filling is not None and not self._filling.done():
            return
        self._pool = self._pool or ThreadPoolExecutor(1, thread_name_prefix="tacit-draw")
        self._filling = self._pool.submit(self._fill)

    def _fill(self) -> None:
        """Draw step after step, until enough is there; always at least one."""
        while self._waiting and (not self._ready or self._bytes < KEPT_BYTES):
            number = self._waiting.popleft()
            drawn = self._supply.draw(number), self._prepare(number)
            with self._lock:
                self._ready[number] = drawn
                self._bytes += _size(drawn[0]) + _size(drawn[1])

    def _prepare(self, number: int) -> Material:
        step = self._plan.steps[number]
        if not takes_role(step.kernel, Prepared):
            return ()
        assert isinstance(step.kernel, Prepared)  # noqa: S101 - its type says so
        channel = Channel(self._session, self._plan.roles, run=self._run, step=number)
        parts = step.kernel.prepare(channel, *step.operands)
        return (tuple(part.to(self._device, non_blocking=True) for part in parts),)


def _size(material: Material) -> int:
    return sum(part.nbytes for parts in material for part in parts)
