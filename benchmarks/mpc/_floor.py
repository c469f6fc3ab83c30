"""The least that a permuted row can take: its bytes through the links, two gathers, the function.

No masks, no additions, no conversions: what is left of the time of a row above this is ours.
"""

from collections.abc import Callable
from time import monotonic

import torch
from torch import Tensor

from tacit.mpc import Plan
from tacit.mpc.protocols.permuted2 import SeenBySecond
from tacit.mpc.protocols.permuted3 import SeenByHelper
from tacit.mpc.share import Spec
from tacit.party import Session


def run_floor(session: Session, plan: Plan, meet: Callable[[], None]) -> dict[str, float]:
    """Send what the permuted steps of a plan send, with nothing around it; return when."""
    stages = [_Stage(session, plan, at) for at, step in enumerate(plan.steps) if _is_seen(step)]
    if session.me in plan.roles.computing:
        meet()
    start = monotonic()
    for stage in stages:
        stage.play()
    return {"start": start, "end": monotonic()}


def _is_seen(step: object) -> bool:
    return isinstance(getattr(step, "kernel", None), SeenByHelper | SeenBySecond)


class _Stage:
    """One permuted step, with everything that it sends lying ready."""

    def __init__(self, session: Session, plan: Plan, number: int) -> None:
        self._session, self._number = session, number
        kernel, (x,) = plan.steps[number].kernel, plan.steps[number].operands
        if not isinstance(kernel, SeenByHelper | SeenBySecond) or not isinstance(x, Spec):
            raise TypeError(f"{kernel} is not a permuted step")
        self._view, self._x = kernel.view, x
        self._rounds = kernel.declare(plan.roles, x).rounds
        self._viewer = self._rounds[-1][0].sender
        self._orders = session.me in plan.roles.computing
        generator = torch.Generator().manual_seed(1)
        elements = self._view.layout(x).elements
        self._order = torch.randperm(elements, generator=generator).to(torch.int32)
        words = torch.arange(elements) % x.largest
        self._there, self._seen = words, words.clone()
        self._back = torch.arange(self._view.out(x).elements)
        self._backwards = torch.arange(len(self._back), dtype=torch.int32)
        self._messages = {
            message: torch.zeros(message.payload_bytes, dtype=torch.uint8)
            for round_ in self._rounds
            for message in round_
        }

    def play(self) -> None:
        """Do this party's part."""
        if self._orders:
            self._gather(self._there, self._order)
        for place, round_ in enumerate(self._rounds):
            for message in round_:
                tag = f"floor/{self._number}.{place}"
                if message.sender == self._session.me:
                    if message.sender == self._viewer and place == len(self._rounds) - 1:
                        self._view.evaluate(self._seen, self._x)
                    self._session.send(message.receiver, tag, self._messages[message])
            for message in round_:
                if message.receiver == self._session.me:
                    tag, size = f"floor/{self._number}.{place}", message.payload_bytes
                    self._session.recv(message.sender, tag, (size,), dtype=torch.uint8)
        if self._orders:
            self._gather(self._back, self._backwards)

    def _gather(self, words: Tensor, order: Tensor) -> Tensor:
        return torch.index_select(words, 0, order)
