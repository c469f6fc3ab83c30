"""One round trip: the user sees some wires permuted, computes, and sends others back.

A wire is a value x = m + r modulo 2^64: the owner holds m, the dealer knows r, and so does the user
where it made the wire. The owner and the dealer draw the orders, the user and the dealer the
masks; every part of this file draws under the same labels.
"""

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from tacit.llm.permuted.narrow import WORD_BYTES, Item, pack, unpack, wrap
from tacit.llm.permuted.tape import Tape


@dataclass(frozen=True)
class Reveal:
    """A wire that the user sees, its entries in the secret order named ``order``.

    Both shares lose their lowest ``drop`` bits first. In the smaller ring that is left, the sum of
    two shares without their low bits is the value without its low bits, or one less, and never
    anything else; adding one back makes a rounding up or down that is right on average.

    A wire of several ``heads`` keeps each of them together: its order is one of heads, the same for
    all wires of a ``group``, and one within each head.
    """

    name: str
    width: int
    order: str
    frac_bits: int
    nbytes: int = WORD_BYTES
    drop: int = 0
    heads: int = 0
    group: str = ""

    @property
    def seen_bits(self) -> int:
        """Return the fraction bits that the user sees."""
        return self.frac_bits - self.drop


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
    bias: str = ""  # what the owner adds to the first answers, if it has it

    @cached_property
    def shown(self) -> list["Span"]:
        """Return how the revealed wires are packed."""
        return spans(self.reveals)

    @cached_property
    def answered(self) -> list["Span"]:
        """Return how the answers are packed."""
        return spans(self.answers)

    @cached_property
    def shown_bytes(self) -> int:
        """Return the payload of the owner's message, per row."""
        return sum(one.width * one.nbytes for one in self.reveals)

    @cached_property
    def answer_bytes(self) -> int:
        """Return the payload of the user's message, per row."""
        return sum(one.width * one.nbytes for one in self.answers)

    def dealt(self, rows: int) -> list[Item]:
        """List what the dealer sends to the owner."""
        both = [*self.shown, *self.answered]
        return [Item((rows, span.width), span.nbytes) for span in both]

    def orders(self, tape: Tape, rows: int) -> dict[str, Tensor]:
        """Draw the secret orders, as the owner or the dealer: (rows, width) each."""
        wires: dict[str, Reveal | Answer] = {one.order: one for one in self.answers}
        wires |= {one.order: one for one in self.reveals}
        return {
            order: self._shuffled(tape, rows, one)
            if isinstance(one, Reveal) and one.heads
            else tape.shuffles(f"{self.label}.{order}", rows, one.width)
            for order, one in wires.items()
        }

    def _shuffled(self, tape: Tape, rows: int, wire: Reveal) -> Tensor:
        """Draw an order of heads, and one within each."""
        dim = wire.width // wire.heads
        heads = tape.shuffles(f"{self.label}.{wire.group}", rows, wire.heads).unsqueeze(2)
        within = tape.shuffles(f"{self.label}.{wire.order}", rows * wire.heads, dim)
        return (heads * dim + within.view(rows, wire.heads, dim)).flatten(1)

    def look(self, orders: dict[str, Tensor], dealt: list[Tensor]) -> "Look":
        """Lay the owner's material end to end, as `show` and `take` want it."""
        shown = len(self.shown)
        return Look(
            shown=_places(self.reveals, orders),
            answered=_places(self.answers, orders),
            veiled=_row(dealt[:shown]),
            covered=_row(dealt[shown:]),
        )

    def veil(self, tape: Tape, rows: int) -> Tensor:
        """Draw what the user takes off all revealed wires, laid end to end."""
        return tape.words(f"{self.label}.veil", rows, sum(one.width for one in self.reveals))

    def cover(self, tape: Tape, rows: int) -> Tensor:
        """Draw what the user puts on all answers, laid end to end."""
        return tape.words(f"{self.label}.cover", rows, sum(one.width for one in self.answers))

    def masks(self, tape: Tape, rows: int) -> list[Tensor]:
        """Draw the user's share r of every answered wire."""
        return [
            tape.words(f"{self.label}.{one.name}.mask", rows, one.width) for one in self.answers
        ]

    def deal(
        self, user: Tape, orders: dict[str, Tensor], shares: list[Tensor], rows: int
    ) -> list[Tensor]:
        """Compute what the dealer sends to the owner, as `dealt` lists it.

        Args:
            user: the tape that the user and the dealer share.
            orders: drawn by `orders`.
            shares: r of every revealed wire.
            rows: how many rows.
        """
        out: list[Tensor] = []
        if self.reveals:
            shown = self._lined_up(shares).gather(1, _places(self.reveals, orders))
            out += _cut(shown - self.veil(user, rows), self.shown)
        if self.answers:
            masks = _row(self.masks(user, rows)).gather(1, _places(self.answers, orders))
            out += _cut(self.cover(user, rows) - masks, self.answered)
        return out

    def show(self, look: "Look", shares: list[Tensor]) -> Tensor:
        """Compute the owner's message from m of every revealed wire: uint8 (rows, shown_bytes)."""
        words = self._lined_up(shares).gather(1, look.shown).add_(look.veiled)
        return _packed(words, self.shown)

    def see(self, veil: Tensor, shown: Tensor) -> list[Tensor]:
        """Take the veil off, as the user: every revealed wire as signed words."""
        out: list[Tensor] = []
        for span, words, mask in zip(
            self.shown,
            _unpacked(shown, self.shown),
            _cut(veil, self.shown),
            strict=True,
        ):
            seen = words + mask
            seen = wrap(seen.add_(1) if span.is_cut else seen, span.nbytes)
            out += seen.split_with_sizes(span.widths, 1)
        return out

    def answer(self, cover: Tensor, values: list[Tensor]) -> Tensor:
        """Compute the user's message from the words of every answer: uint8."""
        return _packed(_row(values) - cover, self.answered)

    def take(self, look: "Look", answer: Tensor) -> list[Tensor]:
        """Put the user's answers in their own order, as the owner: m of every answered wire."""
        words = _row(_unpacked(answer, self.answered)) + look.covered
        out = torch.empty_like(words).scatter_(1, look.answered, words)
        return list(out.split_with_sizes([one.width for one in self.answers], 1))

    def _lined_up(self, shares: list[Tensor]) -> Tensor:
        """Lay shares of the revealed wires end to end, without their low bits."""
        cut = [
            share >> one.drop if one.drop else share
            for one, share in zip(self.reveals, shares, strict=True)
        ]
        return _row(cut) if len(cut) > 1 else cut[0]


@dataclass(frozen=True, eq=False)
class Look:
    """The owner's part of an exchange, all wires laid end to end.

    Attributes:
        shown: where each place of what is shown comes from.
        answered: where each place of the answers goes to.
        veiled: the dealer's part of what is shown.
        covered: the dealer's part of the answers.
    """

    shown: Tensor
    answered: Tensor
    veiled: Tensor
    covered: Tensor

    def at(self, rows: slice) -> "Look":
        """Return the part of some of the rows."""
        return Look(self.shown[rows], self.answered[rows], self.veiled[rows], self.covered[rows])


@dataclass(frozen=True)
class Span:
    """Neighbouring wires with words of one length and scale: they are packed together."""

    nbytes: int
    seen_bits: int
    is_cut: bool
    widths: list[int]

    @cached_property
    def width(self) -> int:
        """Return how many words there are."""
        return sum(self.widths)


Wires = tuple[Reveal, ...] | tuple[Answer, ...]


def spans(wires: Wires) -> list[Span]:
    """Group neighbouring wires that are packed together."""
    out: list[Span] = []
    for one in wires:
        bits, is_cut = (one.seen_bits, one.drop > 0) if isinstance(one, Reveal) else (0, False)
        last = out[-1] if out else None
        if last and (last.nbytes, last.seen_bits, last.is_cut) == (one.nbytes, bits, is_cut):
            last.widths.append(one.width)
        else:
            out.append(Span(one.nbytes, bits, is_cut, [one.width]))
    return out


def _cut(words: Tensor, found: list[Span]) -> list[Tensor]:
    """Cut words laid end to end into spans."""
    return list(words.split_with_sizes([span.width for span in found], 1))


def _packed(words: Tensor, found: list[Span]) -> Tensor:
    parts = zip(found, _cut(words, found), strict=True)
    return _row([pack(part, span.nbytes) for span, part in parts])


def _unpacked(octets: Tensor, found: list[Span]) -> list[Tensor]:
    parts = octets.split_with_sizes([span.width * span.nbytes for span in found], 1)
    return [unpack(part, span.nbytes) for span, part in zip(found, parts, strict=True)]


def _places(wires: Wires, orders: dict[str, Tensor]) -> Tensor:
    """Return the orders of wires that lie end to end, as one."""
    out, at = [], 0
    for one in wires:
        out.append(orders[one.order] + at)
        at += one.width
    return _row(out)


def _row(parts: list[Tensor]) -> Tensor:
    if not parts:
        return torch.empty((0, 0), dtype=torch.int64)
    return parts[0] if len(parts) == 1 else torch.cat(parts, 1)
