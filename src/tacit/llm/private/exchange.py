"""One round trip: the user sees some wires permuted, computes, and sends others back.

A wire is a value x = m + r modulo 2^64: the owner holds m, the dealer knows r, and so does the user
where it made the wire. The owner and the dealer draw the orders, the user and the dealer the
masks; every part of this file draws under the same labels.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from tacit.llm.private.narrow import WORD_BYTES, pack, unpack, wrap
from tacit.llm.private.tape import Tape


@dataclass(frozen=True)
class Reveal:
    """A wire that the user sees, its entries in the secret order named ``order``."""

    name: str
    width: int
    order: str
    frac_bits: int
    nbytes: int = WORD_BYTES


@dataclass(frozen=True)
class Answer:
    """A wire that the user sends back, in the order that it was shown."""

    name: str
    width: int
    order: str
    frac_bits: int
    nbytes: int = WORD_BYTES


@dataclass(frozen=True)
class Exchange:
    """What travels in one round trip, for every row alike.

    Guarantee: the user learns each revealed wire up to a fresh uniform order per row; the owner
    receives uniform words only. The dealer sees neither.
    Cost: one message each way (none back without answers); offline, from the dealer to the
    owner, as many words again.
    """

    label: str
    reveals: tuple[Reveal, ...]
    answers: tuple[Answer, ...]

    @property
    def shown_bytes(self) -> int:
        """Return the payload of the owner's message, per row."""
        return sum(one.width * one.nbytes for one in self.reveals)

    @property
    def answer_bytes(self) -> int:
        """Return the payload of the user's message, per row."""
        return sum(one.width * one.nbytes for one in self.answers)

    @property
    def dealt_bytes(self) -> int:
        """Return what the dealer sends to the owner, per row."""
        return self.shown_bytes + self.answer_bytes

    def orders(self, tape: Tape, rows: int) -> dict[str, Tensor]:
        """Draw the secret orders, as the owner or the dealer: (rows, width) each."""
        widths = {one.order: one.width for one in self.reveals}
        widths |= {one.order: one.width for one in self.answers}
        return {
            order: tape.shuffles(f"{self.label}.{order}", rows, width)
            for order, width in widths.items()
        }

    def veils(self, tape: Tape, rows: int) -> list[Tensor]:
        """Draw what the user takes off each revealed wire."""
        return [
            tape.words(f"{self.label}.{one.name}.veil", rows, one.width) for one in self.reveals
        ]

    def covers(self, tape: Tape, rows: int) -> list[Tensor]:
        """Draw what the user puts on each answer."""
        return [
            tape.words(f"{self.label}.{one.name}.cover", rows, one.width) for one in self.answers
        ]

    def masks(self, tape: Tape, rows: int) -> list[Tensor]:
        """Draw the user's share r of every answered wire."""
        return [
            tape.words(f"{self.label}.{one.name}.mask", rows, one.width) for one in self.answers
        ]

    def deal(
        self, user: Tape, orders: dict[str, Tensor], shares: list[Tensor], rows: int
    ) -> Tensor:
        """Compute what the dealer sends to the owner: uint8 (rows, dealt_bytes).

        Args:
            user: the tape that the user and the dealer share.
            orders: drawn by `orders`.
            shares: r of every revealed wire.
            rows: how many rows.
        """
        parts = []
        for one, share, veil in zip(self.reveals, shares, self.veils(user, rows), strict=True):
            delta = share.gather(1, orders[one.order]) - veil
            parts.append(pack(delta, one.nbytes).flatten(1))
        for answer, cover, mask in zip(
            self.answers, self.covers(user, rows), self.masks(user, rows), strict=True
        ):
            delta = cover - mask.gather(1, orders[answer.order])
            parts.append(pack(delta, answer.nbytes).flatten(1))
        return torch.cat(parts, 1)

    def show(self, orders: dict[str, Tensor], dealt: Tensor, shares: list[Tensor]) -> Tensor:
        """Compute the owner's message from m of every revealed wire: uint8 (rows, shown_bytes)."""
        parts, at = [], 0
        for one, share in zip(self.reveals, shares, strict=True):
            end = at + one.width * one.nbytes
            delta = _words(dealt[:, at:end], one.nbytes)
            parts.append(pack(share.gather(1, orders[one.order]) + delta, one.nbytes).flatten(1))
            at = end
        return torch.cat(parts, 1)

    def see(self, veils: list[Tensor], shown: Tensor) -> list[Tensor]:
        """Take the veils off, as the user: every revealed wire as signed words."""
        out, at = [], 0
        for one, veil in zip(self.reveals, veils, strict=True):
            end = at + one.width * one.nbytes
            words = _words(shown[:, at:end], one.nbytes)
            out.append(wrap(words + veil, one.nbytes))
            at = end
        return out

    def answer(self, covers: list[Tensor], values: list[Tensor]) -> Tensor:
        """Compute the user's message from the words of every answer: uint8."""
        parts = [
            pack(value - cover, one.nbytes).flatten(1)
            for one, value, cover in zip(self.answers, values, covers, strict=True)
        ]
        return torch.cat(parts, 1)

    def take(self, orders: dict[str, Tensor], dealt: Tensor, answer: Tensor) -> list[Tensor]:
        """Put the user's answers in their own order, as the owner: m of every answered wire."""
        out, at = [], 0
        for one in self.answers:
            end = at + one.width * one.nbytes
            delta = dealt[:, self.shown_bytes + at : self.shown_bytes + end]
            words = _words(answer[:, at:end], one.nbytes) + _words(delta, one.nbytes)
            out.append(torch.empty_like(words).scatter_(1, orders[one.order], words))
            at = end
        return out


def _words(octets: Tensor, nbytes: int) -> Tensor:
    """Read packed bytes (rows, width · nbytes) as words (rows, width)."""
    return unpack(octets.reshape(len(octets), -1, nbytes), nbytes)
