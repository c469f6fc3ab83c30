"""The model owner's end: serves every conversation of a session in threads of its own.

Masks and batches are used once, whatever a user sends: `Turns` says what it may ask next.
"""

import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import final

import torch
from torch import Tensor

from tacit.errors import DisagreementError, FrameError
from tacit.llm.parties import Seats
from tacit.llm.permuted.batch import BATCH_WORDS, Batch, read_batch
from tacit.llm.permuted.crew import Crew, step_back
from tacit.llm.permuted.forecast import material_bytes
from tacit.llm.permuted.geometry import KvCache
from tacit.llm.permuted.material import BatchMaterial, Packed, unpack_batch
from tacit.llm.permuted.messages import CLOSE, COMMAND_BYTES, NAME, RUN, STEP, Channel, recv_packed
from tacit.llm.permuted.prf_stream import PrfStream, pad_table
from tacit.llm.permuted.program import parts
from tacit.llm.permuted.serving import Serving
from tacit.llm.permuted.setup import (
    KeptConversation,
    OwnerVault,
    agree_on,
    give_weights,
    publish_precision,
    send_key,
)
from tacit.party import Session
from tacit.ring import KEY_BYTES, Prg, from_bytes


@final
class Turns:
    """Where a conversation stands at the owner.

    Guarantee: no run of a batch is served twice, and no run's token is named twice; a second
    look through the same order would show more than the ledger says.
    """

    def __init__(self, user: str) -> None:
        self._user = user
        self._at: tuple[Batch, int] | None = None
        self._is_named = True

    def admit(self, op: int, number: int, run: int) -> None:
        """Refuse a command that is out of turn, before its order is looked for."""
        last = -1 if self._at is None else self._at[0].number
        match op:
            case _ if op == CLOSE:
                return
            case _ if op == NAME:
                is_due = not self._is_named
            case _ if op == RUN:
                is_due = number > last and run == 0
            case _ if op == STEP:
                is_due = not self._is_named and self._follows(number, run)
            case _:
                is_due = False
        if not is_due:
            raise FrameError(
                self._user, f"sent command {op} for run {run} of order {number} out of turn"
            )
        self._is_named = True

    def take(self, op: int, batch: Batch, run: int) -> None:
        """Note a run that begins, if its order is of the right kind."""
        if run >= batch.runs or batch.is_prompt != (op == RUN):
            raise FrameError(self._user, f"batch {batch.number} has no run {run} of this kind")
        self._at, self._is_named = (batch, run), False

    def _follows(self, number: int, run: int) -> bool:
        if self._at is None:
            return False
        batch, done = self._at
        if number == batch.number:
            return run == done + 1
        return number > batch.number and run == 0


def serve_owner(session: Session, vault: OwnerVault, *, seats: Seats | None = None) -> None:
    """Serve a user's conversations until it leaves.

    Guarantee: the owner learns the number and the lengths of texts, and when they are asked for.
    """
    seats = seats or Seats()
    publish_precision(session, vault.ring.precision)
    agree_on(session, vault.ring.architecture, vault.ring.precision, counts=vault.counts)
    give_weights(session, seats, vault)
    opened: list[_Conversation] = []
    vault.begin()
    try:
        with Crew(session) as crew:
            _serve_all(session, seats, vault, crew, opened)
    finally:
        vault.end()
        for one in opened:
            one.release()


def _serve_all(
    session: Session, seats: Seats, vault: OwnerVault, crew: Crew, opened: "list[_Conversation]"
) -> None:
    """Start a conversation whenever the user opens one, until it leaves."""
    while True:
        words = session.recv(seats.dealer, "llm/open", (3,))
        index, number, kept = (int(word) for word in words)
        if index < 0:
            return
        opened[:] = [one for one in opened if not one.release_if_over()]
        most = vault.allowance.conversations
        if len(opened) >= most or crew.running > 2 * most:
            raise FrameError(seats.user, f"has more than {most} conversations open at once")
        memory = _keep(vault, seats, number, is_kept=kept > 0)
        one = _Conversation(session, seats, vault, index, memory)
        opened.append(one)
        crew.start(one.take_material, f"material-{index}")
        crew.start(one.serve, f"serve-{index}")


def _keep(vault: OwnerVault, seats: Seats, number: int, *, is_kept: bool) -> KeptConversation:
    """Find a conversation that goes on, or begin to keep a new one."""
    known = vault.conversations.get(number)
    if is_kept:
        if known is None:
            raise DisagreementError(
                seats.user, "asks for a conversation that is not kept here; it has to begin anew"
            )
        vault.keep(number, known)
        return known
    if known is not None:
        raise FrameError(seats.user, "gave a new conversation the name of another")
    plan = vault.plan
    charge = partial(vault.charge, user=seats.user)
    cache = KvCache(plan.architecture.layers, plan.heads, plan.device, charge=charge)
    kept = KeptConversation(Prg.from_os().bytes(KEY_BYTES), cache)
    vault.keep(number, kept)
    return kept


class _Conversation:
    """One conversation: a thread takes material as it comes, another runs passes."""

    def __init__(
        self, session: Session, seats: Seats, vault: OwnerVault, index: int, kept: KeptConversation
    ) -> None:
        self._session, self._seats, self._vault, self._index = session, seats, vault, index
        self._plan = vault.plan
        self._kept = kept
        self._holder = kept.take_over()
        self._prg = Prg(kept.key)
        send_key(session, seats.dealer, f"key{index}/owner", kept.key)
        self._talk = Channel(session, seats.user, f"run{index}", self._plan.device)
        self._serving = Serving(
            self._plan, vault.weights, vault.ring.biases, self._talk, kept.cached
        )
        self._changed = threading.Condition()
        self._offline: dict[int, BatchMaterial] = {}
        self._charged: dict[int, int] = {}
        self._is_over = False
        self._is_closed = False

    def take_material(self) -> None:
        """Take the material of every batch, and tell the user when it is complete."""
        step_back()
        try:
            self._take_all()
        finally:
            with self._changed:
                self._is_over = True
                self._changed.notify_all()

    def _take_all(self) -> None:
        user, tag = self._seats.user, f"ctl{self._index}/batch"
        while True:
            words = self._session.recv(self._seats.dealer, tag, (1 + BATCH_WORDS,))
            if int(words[0]):
                return
            batch = read_batch(words[1:], sender=user, architecture=self._plan.architecture)
            self._kept.take_batch(batch.number, holder=self._holder, user=user)
            self._charge(batch)
            offline = self._receive(batch)
            self._serving.make_ready(offline)
            with self._changed:
                self._offline[batch.number] = offline
                self._changed.notify_all()
            ready = torch.tensor([batch.number])
            self._session.send(user, f"ready{self._index}/{batch.number}", ready, phase="offline")

    def _charge(self, batch: Batch) -> None:
        """Count a batch's material before any of it is taken."""
        user, most = self._seats.user, self._vault.allowance.batches
        most_bytes = self._vault.account.most
        nbytes, _ = material_bytes(self._plan, batch, sender=user, most=most_bytes)
        if len(self._charged) >= most:
            raise FrameError(user, f"made more than {most} batches without using any of them")
        self._vault.charge(nbytes, user=user)
        self._vault.account.spend(batch.rows, user=user)
        with self._changed:
            self._charged[batch.number] = nbytes

    def release_if_over(self) -> bool:
        """Give the memory of material back if the conversation has ended; say whether it has."""
        with self._changed:
            is_over = self._is_over and self._is_closed
        if is_over:
            self.release()
        return is_over

    def release(self) -> None:
        """Give the memory of material back: no thread uses it any more."""
        with self._changed:
            self._vault.account.give(sum(self._charged.values()))
            self._charged.clear()
            self._offline.clear()

    def serve(self) -> None:
        """Run passes until the user closes the conversation."""
        try:
            self._serve()
        finally:
            with self._changed:
                self._is_closed = True

    def _serve(self) -> None:
        previous: tuple[BatchMaterial, int] | None = None
        turns = Turns(self._seats.user)
        while True:
            op, number, run, shift, hot, tally = self._command(turns)
            if op == CLOSE:
                if self._holder == self._kept.holder:
                    self._kept.is_open = False
                return
            if op != RUN and previous is not None:
                self._talk.after_send = self._namer(*previous, shift)
            if op == NAME:
                self._talk.flush()
                continue
            offline = self._wait_for(number)
            turns.take(op, offline.batch, run)
            if previous is None or op == RUN:
                stream = self._serving.embed_prompt(offline, hot, tally)
            else:
                stream = self._serving.embed_choice(*previous, hot)
            self._serving.run(offline, run, stream)
            previous = offline, run

    def _command(self, turns: Turns) -> tuple[int, int, int, int, Tensor, Tensor]:
        """Receive what to do next, and the masked one-hot rows and counts that come with it."""
        user, tag = self._seats.user, f"run{self._index}/next"
        frame = self._session.links[user].recv(tag)
        size, wide = frame.shape[0] if frame.shape else 0, self._plan.wide_bytes
        if frame.dtype != "u8" or len(frame.shape) != 1 or size < COMMAND_BYTES:
            raise FrameError(user, f"{tag}: wanted a command, got {frame.dtype}{frame.shape}")
        octets = from_bytes(frame.data, frame.dtype, frame.shape)
        head = octets[:COMMAND_BYTES].clone().view(torch.int64)
        op, number, run, shift = (int(word) for word in head)
        turns.admit(op, number, run)
        rows = self._wait_for(number).batch.rows if op == RUN else int(op == STEP)
        row_bytes = self._plan.architecture.vocab * wide
        tally_bytes = self._plan.tally_bytes if op == RUN else 0
        if size != COMMAND_BYTES + rows * row_bytes + tally_bytes:
            raise FrameError(user, f"{tag}: command {op} came with {size} bytes")
        body = octets[COMMAND_BYTES:].to(self._plan.device)
        hot, tally = body.split_with_sizes([rows * row_bytes, tally_bytes])
        return op, number, run, shift, hot.view(rows, row_bytes), tally

    def _wait_for(self, number: int) -> BatchMaterial:
        """Return the material of a batch, and forget those before it."""
        with self._changed:
            self._changed.wait_for(lambda: number in self._offline or self._is_over)
            if number not in self._offline:
                raise DisagreementError(self._seats.user, f"runs batch {number}, never ordered")
            for old in [one for one in self._offline if one < number]:
                del self._offline[old]
                self._vault.account.give(self._charged.pop(old))
            return self._offline[number]

    def _namer(self, offline: BatchMaterial, run: int, shift: int) -> Callable[[], None]:
        """Return what sends the padded permutation of a run, after something more urgent."""
        permutation = offline.names[offline.batch.scores - offline.batch.runs + run]

        def send() -> None:
            message = pad_table(permutation, offline.pads[run], shift % len(permutation))
            tag = f"id{self._index}/table"
            self._session.send(self._seats.user, tag, message)

        return send

    def _receive(self, batch: Batch) -> BatchMaterial:
        session, plan, seats = self._session, self._plan, self._seats
        prf = PrfStream(self._prg.fork(f"batch {batch.number}"), keeps=True, device=plan.device)

        def receive() -> Iterator[Packed]:
            for part, items in parts(plan, batch):
                name = f"{self._index}/{batch.number}.{part}"
                yield (
                    recv_packed(session, seats.dealer, f"deal{name}", items.dealt, plan.device),
                    recv_packed(session, seats.user, f"fix{name}", items.corrected, plan.device),
                )

        return unpack_batch(plan, batch, prf, receive(), self._serving.biases)
