"""The owner's and the dealer's ends of sealed inference, and what all three do alike."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import monotonic

import torch
from torch import Tensor

from tacit import ring
from tacit.errors import DisagreementError
from tacit.llm.claims import Reveal
from tacit.llm.model.architecture import Architecture, LanguageModel
from tacit.llm.model.plain import streams
from tacit.llm.parties import Account, Allowance, Seats
from tacit.llm.sealed.bounds import FRAC_BITS, bounds_fact, fold, measure, place, usual_gain
from tacit.llm.sealed.dealing import deal_material, file_bytes, file_facts, keep_material
from tacit.llm.sealed.passes import KvShares, Pass, leaks_of_pass, row_bytes
from tacit.llm.sealed.program import Passing
from tacit.llm.sealed.schedule import Schedule
from tacit.llm.sealed.table import GAIN, Table, plan_all, sit_down
from tacit.mpc import EncodedInput, Plan
from tacit.party import Session, merge
from tacit.result import Leak

_PROBE = 32
"""Tokens of texts that are the same for every model, to see how long rows of streams get."""


@dataclass(eq=False)
class SealedVault:
    """What the owner keeps for one user between sessions: folded weights, bounds, conversations.

    Of the conversations the ``most`` that were used last are kept, fewer if the user's account has
    no room for them.
    """

    architecture: Architecture
    weights: Mapping[str, Tensor | EncodedInput] = field(repr=False)
    bounds: dict[str, float]
    gain: int
    reveal: Reveal = "token"
    conversations: dict[int, KvShares] = field(default_factory=dict, repr=False)
    most: int = 16
    allowance: Allowance = field(default_factory=Allowance)
    account: Account = field(default_factory=Account)
    left_at: float | None = None
    material: Path | None = None
    """Where the keys of what was dealt for this user lie; None if nothing is dealt ahead."""

    def for_user(
        self, account: Account | None = None, material: Path | None = None
    ) -> "SealedVault":
        """Return a vault of the same model for another user."""
        mine = replace(self, conversations={}, account=account or Account())
        mine.left_at, mine.material = None, material
        return mine

    def find(self, number: int) -> KvShares:
        """Return a conversation, or begin it; the one used longest ago makes room."""
        found = self.conversations.pop(number, None) or KvShares()
        self.conversations[number] = found
        while len(self.conversations) > self.most:
            del self.conversations[next(iter(self.conversations))]
        return found

    def charge(self, step: Pass, *, open_bytes: int, user: str) -> None:
        """Count the bytes that are kept after a pass; conversations used longest ago make room.

        What the session has open, ``open_bytes``, all parties forget alike and not for want of
        room.

        Raises:
            FrameError: there is no room.
        """
        while True:
            size = self._kept_bytes(step.rows) + open_bytes
            is_alone = len(self.conversations) < 2
            if is_alone or self.account.fits(size - self.account.used):
                break
            del self.conversations[next(iter(self.conversations))]
        self.account.settle(size, user=user)

    def leave(self) -> None:
        """Count what is left when a session is over: shares, and nothing that it had open."""
        self.account.give(max(0, self.account.used - self._kept_bytes()))
        self.left_at = monotonic()

    def _kept_bytes(self, more: int = 0) -> int:
        rows = sum(one.length for one in self.conversations.values()) + more
        return row_bytes(self.architecture) * rows

    def sweep(self) -> None:
        """Forget the conversations of a session that ended too long ago to be taken up again."""
        if self.left_at is not None and monotonic() - self.left_at > self.allowance.keep_s:
            self.forget()

    def forget(self) -> None:
        """Forget all conversations."""
        self.conversations.clear()
        self.account.clear()


def open_sealed_vault(
    model: LanguageModel, *, reveal: Reveal = "token", probes: Sequence[Sequence[int]] = ()
) -> SealedVault:
    """Prepare a model for sealed use, a layer at a time.

    Cost: memory for the words of every weight, 2 bytes each where a matrix has none from 1/2 on,
    else 4; and for the largest matrix a few times.

    Args:
        model: the model.
        reveal: what users are shown.
        probes: texts, as tokens, on which to measure how long rows get, beside four that are the
            same for every model: rows from a quarter of the shortest to at least twice the longest
            are in range, and what is not is refused.
    """
    a, gain = model.architecture, usual_gain(model)
    length = min(_PROBE, a.context)
    # A few ids begin texts, and the first token of a text has by far the longest rows.
    usual = [[first, *(torch.arange(1, length) * 7919 % a.vocab).tolist()] for first in range(4)]
    sizes = [
        (2.0**gain * shortest, 2.0**gain * longest)
        for shortest, longest in _lengths(model, [*usual, *map(list, probes)])
    ]
    weights, found = dict[str, Tensor | EncodedInput](), dict[str, float]()
    # As in the checkpoint: a word keeps fewer bits of a weight than a float does.
    for part in fold(model, gain_bits=gain, dtype=torch.float32):
        weights |= {name: _kept(name, values) for name, values in part.items()}
        found |= measure(a, part)
        part.clear()  # or the floats of this layer would wait for those of the next
    return SealedVault(a, weights, place(a, found, sizes), gain, reveal)


def _kept(name: str, values: Tensor) -> Tensor | EncodedInput:
    """Encode what is multiplied, once; what is added is little, and encoded in every pass."""
    if name == "positions" or name.endswith(".bias"):
        return values
    # A matrix lies with its columns in one piece: so a single row is multiplied fastest.
    rows = values.t() if values.ndim == 2 and values.stride(0) == 1 else values
    panels = rows.split_with_sizes(ring.panel_rows(tuple(rows.shape)))
    words = ring.encode_narrow(panels, tuple(rows.shape), frac_bits=FRAC_BITS)
    return EncodedInput(words if rows is values else words.t(), FRAC_BITS)


def _lengths(model: LanguageModel, probes: list[list[int]]) -> list[tuple[float, float]]:
    """Return the smallest and the largest root of a mean square of rows, layer by layer."""
    layers = zip(*streams(model, probes), strict=True)
    roots = [[rows.double().square().mean(-1).sqrt() for rows in layer] for layer in layers]
    return [
        (min(float(one.min()) for one in layer), max(float(one.max()) for one in layer))
        for layer in roots
    ]


def serve_sealed_owner(
    session: Session, vault: SealedVault, *, seats: Seats | None = None, device: str = "cpu"
) -> None:
    """Take part in a user's passes until it leaves; weights lie on the device.

    Guarantee: that of `sealed`: the owner learns how many tokens are read and written, and when.
    """
    seats = seats or Seats()
    a, reveal = vault.architecture, vault.reveal
    known = (vault.bounds, vault.gain)
    table = sit_down(session, a, reveal=reveal, seats=seats, known=known, device=device)
    vault.left_at = None
    try:
        _pass_on(table, vault, seats)
    finally:
        vault.leave()


def _pass_on(table: Table, vault: SealedVault, seats: Seats) -> None:
    while (step := table.hear()) is not None:
        if isinstance(step, Schedule):
            plans = step.plan_bytes(vault.architecture)
            with vault.account.lent(plans, user=seats.user):
                keep_material(table, step, folder=vault.material)
            continue
        kv = vault.find(step.conversation)
        if step.past > kv.length:
            raise DisagreementError(
                seats.user, "asks for a conversation that is not kept here; it has to begin anew"
            )
        # Before, not after: if the pass breaks, rows taken back must not pass for new ones.
        kv.rewind(step.past)
        vault.charge(step, open_bytes=table.open_bytes(step), user=seats.user)
        vault.account.spend(step.rows, user=seats.user)
        outcome = table.compute(step, read_by(vault, step), kv.shares)
        kv.extend(step.past, outcome.keys, outcome.values)


def serve_sealed_dealer(
    session: Session,
    architecture: Architecture,
    *,
    reveal: Reveal = "token",
    seats: Seats | None = None,
    device: str = "cpu",
    account: Account | None = None,
) -> None:
    """Deal for a user's passes until it leaves.

    Guarantee: the dealer learns how many tokens are read and written, and when. Masks of keys and
    values are counted in the ``account`` before they are drawn.
    """
    seats, account = seats or Seats(), account or Account()
    table = sit_down(session, architecture, reveal=reveal, seats=seats, device=device)
    try:
        while (step := table.hear()) is not None:
            account.settle(table.open_bytes(step), user=seats.user)
            if isinstance(step, Schedule):
                deal_material(table, step, device=device)
            else:
                table.deal(step)
    finally:
        account.clear()


def read_by(vault: SealedVault, step: Pass) -> Mapping[str, Tensor | EncodedInput]:
    """Return the owner's part of what a pass reads."""
    positions = vault.weights.get("positions")
    if not isinstance(positions, Tensor):
        return vault.weights
    return {**vault.weights, "positions": positions[step.places()]}


def plan_passes(vault: SealedVault, passes: Sequence[Pass]) -> tuple[Plan, ...]:
    """Plan the passes of a session in their order; the first also opens the weights under masks.

    Cost: 0 rounds, 0 bits.
    """
    return plan_all(_passing(vault), passes)


def foresee(
    vault: SealedVault, passes: Sequence[Pass], plans: Sequence[Plan], *, reveal: Reveal = "token"
) -> tuple[Leak, ...]:
    """List what a session with these passes, as `plan_passes` plans them, tells everyone."""
    seats = Seats()
    parties = (seats.owner, seats.user, seats.dealer)
    told = bounds_fact(vault.architecture).leaks(seats.owner, parties)
    told += GAIN.leaks(seats.owner, parties)
    return merge(
        (
            *told,
            *(leak for step in passes for leak in leaks_of_pass(step, reveal, seats, parties)),
            *(leak for plan in plans for leak in plan.leaks),
        )
    )


def forecast_file(vault: SealedVault, schedule: Schedule) -> int:
    """Return how large the user's file of a session that is dealt ahead will be.

    Cost: 0 rounds, 0 bits.
    """
    passing = _passing(vault, is_dealt=True)
    plans = plan_all(passing, schedule.passes())
    return file_bytes(file_facts(schedule, plans, passing, passing.seats.user))


def _passing(vault: SealedVault, *, is_dealt: bool = False) -> Passing:
    return Passing(
        architecture=vault.architecture,
        bounds=vault.bounds,
        gain_bits=vault.gain,
        reveal=vault.reveal,
        is_dealt=is_dealt,
    )
