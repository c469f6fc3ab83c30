"""A computing party's end of the dealer's work: where its randomness comes from, step by step."""

from dataclasses import dataclass
from math import prod
from typing import Protocol

import torch
from torch import Tensor

from tacit.errors import TacitError
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
