"""The user's session with an owner and a dealer, and what it keeps between sessions."""

from dataclasses import dataclass, field
from typing import Literal

import torch

from tacit.errors import ConfigError
from tacit.llm.model.architecture import Architecture
from tacit.llm.permuted.batch import Batch, Form
from tacit.llm.permuted.blueprint import Blueprint
from tacit.llm.permuted.claims import told_leaks
from tacit.llm.permuted.forecast import Network
from tacit.llm.permuted.kv_cache import KvCache
from tacit.llm.permuted.precision import Precision
from tacit.llm.permuted.seats import Seats, channel
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

Naming = Literal["transfer", "bfv"]
"""How the user learns which token it chose: prepared oblivious transfer, or encryption."""


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
        naming: Naming = "transfer",
        device: torch.device | str = "cpu",
        known: MaskedWeights | None = None,
        counts: bool = False,
    ) -> None:
        self.session = session
        self.seats = seats or Seats()
        self.network = network or Network()
        self.ahead = ahead or Ahead()
        self.form = form
        self.naming = naming
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
        tag = f"{channel('key', index)}/user"
        send_key(self.session, self.seats.dealer, tag, memory.key)
        if kept:
            rows = [torch.cat([torch.tensor([n]), one.words()]) for one, n in memory.history]
            tag = f"{channel('ctl', index)}/past"
            self.session.send(self.seats.dealer, tag, torch.stack(rows), phase="setup")
        return index, memory

    def record(self, seen: tuple[Leak, ...]) -> None:
        """Write down what a pass showed, and once what was told before the first one."""
        told = () if self._is_noted else told_leaks(self.plan.architecture, self.seats)
        self._is_noted = True
        self.session.ledger.record(*seen, *told)

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
