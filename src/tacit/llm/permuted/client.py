"""The user's session with an owner and a dealer, what it keeps between sessions, and its batches.

Batches are made ahead of their use, bounded, and waited for aloud (`Prefetch`).
"""

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotYet
from dataclasses import dataclass, field
from time import monotonic
from typing import TypeVar

import torch
from torch import Tensor

from tacit.errors import ConfigError, DataError
from tacit.llm.model.architecture import Architecture
from tacit.llm.parties import PATIENCE_S, Seats, Wait
from tacit.llm.permuted.batch import Batch, Form
from tacit.llm.permuted.blueprint import Blueprint
from tacit.llm.permuted.crew import step_back
from tacit.llm.permuted.forecast import Network, stolen_leak
from tacit.llm.permuted.geometry import KvCache
from tacit.llm.permuted.messages import send_packed
from tacit.llm.permuted.precision import Precision
from tacit.llm.permuted.prepare import PreparedBatch, Preparing
from tacit.llm.permuted.program import parts
from tacit.llm.permuted.setup import (
    MaskedWeights,
    agree_on,
    learn_precision,
    send_key,
    take_weights,
)
from tacit.party import Session
from tacit.result import Leak
from tacit.ring import KEY_BYTES, Prg


@dataclass(frozen=True, kw_only=True)
class Ahead:
    """How material is ordered: steps in one block, blocks beyond the one in use, prompt rows."""

    block: int = 8
    blocks: int = 2
    chunk: int = 256

    def __post_init__(self) -> None:
        if min(self.block, self.blocks, self.chunk) < 1:
            raise ConfigError(
                f"block, blocks and chunk must be at least 1, got {self.block}, {self.blocks}, "
                f"{self.chunk}"
            )


@dataclass(eq=False)
class Memory:
    """What the user keeps of a conversation, enough to go on in another session.

    Attributes:
        number: names it at the owner.
        key: of the generator that the user shares with the dealer.
        cached: the user's masks of keys and values.
        masked_kv: keys and values masked by the owner.
        read: the tokens that the model has read.
        history: every batch that was run, and how many runs of it.
        masked_rows: how many rows of ``masked_kv`` are valid.
        prompt: ChatGLM's count of tokens before ``<sop>``.
        orders: how many batches were ordered; a number is used once.
    """

    number: int
    key: bytes
    cached: KvCache
    masked_kv: KvCache
    read: list[int] = field(default_factory=list)
    history: list[tuple[Batch, int]] = field(default_factory=list)
    masked_rows: int = 0
    prompt: int = 0
    batches: int = 0

    def rewind(self, length: int) -> None:
        """Forget all but the first ``length`` tokens; costs nothing."""
        if not 0 <= length <= len(self.read):
            raise DataError(
                f"a conversation of {len(self.read)} tokens cannot be taken back to {length}"
            )
        del self.read[length:]
        self.masked_rows = min(self.masked_rows, length)


class Client:
    """A user's session with an owner and a dealer; without a precision, at that of the owner.

    Guarantee: the owner and the dealer learn lengths and times, not text; `leaks` lists what the
    user learns of the model.
    """

    def __init__(
        self,
        session: Session,
        architecture: Architecture,
        *,
        precision: Precision | None = None,
        seats: Seats | None = None,
        network: Network | None = None,
        ahead: Ahead | None = None,
        form: Form | None = None,
        device: torch.device | str = "cpu",
        known: MaskedWeights | None = None,
        counts: bool = False,
    ) -> None:
        self.session = session
        self.seats = seats or Seats()
        self.network = network or Network()
        self.ahead = ahead or Ahead()
        self.form = form
        told = learn_precision(session, self.seats.owner)
        precision = precision or told
        agree_on(session, architecture, precision, counts=counts)
        self.masked = take_weights(session, self.seats, architecture, known, device)
        self.plan = Blueprint(architecture, precision, self.masked.weights.device, counts)
        self._count = 0
        self._is_noted = False

    def open(self, memory: Memory | None = None) -> tuple[int, Memory]:
        """Tell the dealer, and through it the owner, of a conversation, new or kept.

        Returns:
            Its number in this session, and what the user keeps of it.
        """
        index, self._count = self._count, self._count + 1
        kept = len(memory.history) if memory is not None else 0
        memory = memory or self._new_memory()
        words = torch.tensor([index, memory.number, kept])
        self.session.send(self.seats.dealer, "llm/open", words, phase="setup")
        tag = f"key{index}/user"
        send_key(self.session, self.seats.dealer, tag, memory.key)
        if kept:
            rows = [torch.cat([torch.tensor([n]), one.words()]) for one, n in memory.history]
            tag = f"ctl{index}/past"
            self.session.send(self.seats.dealer, tag, torch.stack(rows), phase="setup")
        return index, memory

    def record(self, seen: tuple[Leak, ...]) -> None:
        """Write down what a pass showed, and once what a user has from the first one on."""
        self.session.ledger.record(*seen)
        if not self._is_noted:
            self.session.ledger.record(stolen_leak(self.plan.architecture, self.seats))
        self._is_noted = True

    def close(self) -> None:
        """Leave, when all conversations are closed."""
        words = torch.tensor([-1, 0, 0])
        self.session.send(self.seats.dealer, "llm/open", words, phase="setup")

    def _new_memory(self) -> Memory:
        cache = (self.plan.architecture.layers, self.plan.heads, self.plan.device)
        prg = Prg.from_os()
        return Memory(
            number=int(prg.below(1 << 62, 1)),
            key=prg.bytes(KEY_BYTES),
            cached=KvCache(*cache),
            masked_kv=KvCache(*cache),
        )


T = TypeVar("T")


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
        self._out: deque[tuple[Future[PreparedBatch], Future[Tensor]]] = deque()

    def plan(self, batches: Iterator[Batch]) -> None:
        """Set what to order next; what was ordered before and not taken is dropped."""
        self._batches = batches
        self._out.clear()
        self._top_up()

    def take(self, on_wait: Wait) -> tuple[PreparedBatch, Tensor]:
        """Return the next order and its pads when its material is there; order what follows."""
        prepared, arrived = self._out.popleft()
        self._top_up()
        began = monotonic()
        return _await(prepared, on_wait, began), _await(arrived, on_wait, began)

    def close(self) -> None:
        """Tell the dealer, and through it the owner, that nothing more will be ordered."""
        session, seats = self._client.session, self._client.seats
        self._prepare.shutdown()
        self._arrive.shutdown()
        last, tag = torch.full_like(_note(None), 1), f"ctl{self._index}/batch"
        session.send(seats.dealer, tag, last, phase="offline")

    def _top_up(self) -> None:
        while len(self._out) < self._client.ahead.blocks:
            batch = next(self._batches, None)
            if batch is None:
                return
            session, dealer = self._client.session, self._client.seats.dealer
            tag = f"ctl{self._index}/batch"
            session.send(dealer, tag, _note(batch), phase="offline")
            self._out.append(
                (
                    self._prepare.submit(self._make, batch),
                    self._arrive.submit(self._note_arrival, batch),
                )
            )

    def _make(self, batch: Batch) -> PreparedBatch:
        session, owner = self._client.session, self._client.seats.owner
        names = parts(self._client.plan, batch)

        def send(tensors: list[Tensor]) -> None:
            part, items = next(names)
            tag = f"fix{self._index}/{batch.number}.{part}"
            send_packed(session, owner, tag, tensors, items.corrected)

        return self._preparing.prepare(batch, send)

    def _note_arrival(self, batch: Batch) -> Tensor:
        session, seats = self._client.session, self._client.seats
        tag = f"pad{self._index}/{batch.number}"
        pads = session.recv(seats.dealer, tag, (batch.runs,), dtype=torch.int32)
        session.recv(seats.owner, f"ready{self._index}/{batch.number}", (1,))
        return pads


def _note(batch: Batch | None) -> Tensor:
    words = torch.zeros(7, dtype=torch.int64) if batch is None else batch.words()
    return torch.cat([torch.zeros(1, dtype=torch.int64), words])


def _await(future: "Future[T]", on_wait: Wait, began: float) -> T:
    while True:
        try:
            return future.result(timeout=PATIENCE_S)
        except NotYet:
            if future.done():
                raise
            on_wait(monotonic() - began)
