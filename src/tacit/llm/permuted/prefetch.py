"""The user's batches: made ahead of their use, bounded, and waited for aloud."""

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotYet
from dataclasses import dataclass
from time import monotonic
from typing import TypeVar

import torch
from torch import Tensor

from tacit.llm.permuted.batch import Batch
from tacit.llm.permuted.client import Client, Memory
from tacit.llm.permuted.crew import step_back
from tacit.llm.permuted.messages import send_packed
from tacit.llm.permuted.prepare import Prepared, Preparing
from tacit.llm.permuted.seats import channel
from tacit.ring import Prg

Wait = Callable[[float], None]
"""Told, about once a second, for how many seconds material has been waited for."""

_PATIENCE_S = 1.0

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Ready:
    """An order whose material is at the owner, and the user's part of it."""

    prepared: Prepared
    pads: Tensor

    @property
    def batch(self) -> Batch:
        """Return the order."""
        return self.prepared.batch


class Prefetch:
    """Orders of one conversation. A thread prepares, another notes what has arrived.

    Never more orders are out than asked for, so the dealer's lead and the owner's memory are
    bounded. A slow dealer makes `take` wait; a dead one makes it fail.
    """

    def __init__(self, client: Client, index: int, memory: Memory) -> None:
        self._client, self._index, self._memory = client, index, memory
        self._preparing = Preparing(
            client.plan, client.masked.weights, prg=Prg(memory.key), cached=memory.cached
        )
        self._prepare = ThreadPoolExecutor(
            1, thread_name_prefix=f"tacit-prepare-{index}", initializer=step_back
        )
        self._arrive = ThreadPoolExecutor(1, thread_name_prefix=f"tacit-arrive-{index}")
        self._batches: Iterator[Batch] = iter(())
        self._out: deque[tuple[Future[Prepared], Future[Tensor]]] = deque()

    def plan(self, batches: Iterator[Batch]) -> None:
        """Set what to order next; what was ordered before and not taken is dropped."""
        self._batches = batches
        self._out.clear()
        self._top_up()

    def take(self, on_wait: Wait) -> Ready:
        """Return the next order when its material is there, and order what follows it."""
        prepared, arrived = self._out.popleft()
        self._top_up()
        began = monotonic()
        return Ready(_await(prepared, on_wait, began), _await(arrived, on_wait, began))

    def close(self) -> None:
        """Tell the dealer, and through it the owner, that nothing more will be ordered."""
        session, seats = self._client.session, self._client.seats
        self._prepare.shutdown()
        self._arrive.shutdown()
        last, tag = torch.full_like(_note(None), 1), f"{channel('ctl', self._index)}/batch"
        session.send(seats.dealer, tag, last, phase="offline")

    def _top_up(self) -> None:
        while len(self._out) < self._client.ahead.blocks:
            batch = next(self._batches, None)
            if batch is None:
                return
            session, dealer = self._client.session, self._client.seats.dealer
            tag = f"{channel('ctl', self._index)}/batch"
            session.send(dealer, tag, _note(batch), phase="offline")
            self._out.append(
                (
                    self._prepare.submit(self._make, batch),
                    self._arrive.submit(self._note_arrival, batch),
                )
            )

    def _make(self, batch: Batch) -> Prepared:
        session, seats, a = self._client.session, self._client.seats, self._client.plan.architecture
        parts = iter(["head", *map(str, range(a.layers)), "tail"])
        for made in self._preparing.prepare(batch):
            if isinstance(made, Prepared):
                return made
            part, (tensors, items) = next(parts), made
            if items:
                tag = f"{channel('fix', self._index)}/{batch.number}.{part}"
                send_packed(session, seats.owner, tag, tensors, items)
        raise AssertionError("prepare ends with what it prepared")

    def _note_arrival(self, batch: Batch) -> Tensor:
        session, seats = self._client.session, self._client.seats
        tag = f"{channel('pad', self._index)}/{batch.number}"
        pads = session.recv(seats.dealer, tag, (batch.runs,), dtype=torch.int32)
        session.recv(seats.owner, f"{channel('ready', self._index)}/{batch.number}", (1,))
        return pads


def _note(batch: Batch | None) -> Tensor:
    words = torch.zeros(7, dtype=torch.int64) if batch is None else batch.words()
    return torch.cat([torch.zeros(1, dtype=torch.int64), words])


def _await(future: "Future[T]", on_wait: Wait, began: float) -> T:
    while True:
        try:
            return future.result(timeout=_PATIENCE_S)
        except NotYet:
            if future.done():
                raise
            on_wait(monotonic() - began)
