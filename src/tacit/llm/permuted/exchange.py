"""One round trip: the user sees some masked values permuted, computes, and sends others back.

A masked value is a value x = m + r modulo 2^64: the owner holds m, the dealer knows r, and so does
the user where it made the masked value. The owner and the dealer draw the permutations, the user
and the dealer the masks; every part of this file draws under the same labels.

Algorithm 6.4 of document 000, with its two runs of algorithm 6.3. Step 4 of the first run is gone:
the user's share r is itself drawn beforehand, so r takes the place of r0 and nothing is left to
send.
"""

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from tacit.llm.permuted.messages import WORD_BYTES, Item, pack, unpack, wrap
from tacit.llm.permuted.prf_stream import PrfStream


@dataclass(frozen=True)
class ShownValue:
    """A masked value that the user sees, its entries in the secret permutation of that name.

    Both shares lose their lowest ``drop`` bits first. In the smaller ring that is left, the sum of
    two shares without their low bits is the value without its low bits, or one less, and never
    anything else; adding one back makes a rounding up or down that is right on average.

    A masked value of several ``heads`` keeps each of them together: its permutation is one of
    heads, the same for all masked values of a ``group``, and one within each head.
    """

    name: str
    width: int
    permutation: str
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
class AnsweredValue:
    """A masked value that the user sends back, in the order that it was shown."""

    name: str
    width: int
    permutation: str
    frac_bits: int
    nbytes: int = WORD_BYTES


@dataclass(frozen=True)
class Exchange:
    """What travels in one round trip, for every row alike.

    Guarantee: the user learns each revealed masked value up to a fresh uniform permutation per row;
    the owner receives uniform words only. The dealer sees neither.
    Cost: one message each way (none back without answers); offline, from the dealer to the
    owner, as many words again.
    """

    label: str
    reveals: tuple[ShownValue, ...]
    answers: tuple[AnsweredValue, ...]
    bias: str = ""  # what the owner adds to the first answers, if it has it

    @cached_property
    def shown(self) -> list["PackedSpan"]:
        """Return how the revealed masked values are packed."""
        return spans(self.reveals)

    @cached_property
    def answered(self) -> list["PackedSpan"]:
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

    def permutations(self, prf: PrfStream, rows: int) -> dict[str, Tensor]:
        """Draw the secret permutations, as the owner or the dealer: (rows, width) each."""
        values: dict[str, ShownValue | AnsweredValue] = {
            one.permutation: one for one in self.answers
        }
        values |= {one.permutation: one for one in self.reveals}
        return {
            permutation: self._shuffled(prf, rows, one)
            if isinstance(one, ShownValue) and one.heads
            else prf.shuffles(f"{self.label}.{permutation}", rows, one.width)
            for permutation, one in values.items()
        }

    def _shuffled(self, prf: PrfStream, rows: int, value: ShownValue) -> Tensor:
        """Draw an order of heads, and one within each."""
        dim = value.width // value.heads
        heads = prf.shuffles(f"{self.label}.{value.group}", rows, value.heads).unsqueeze(2)
        within = prf.shuffles(f"{self.label}.{value.permutation}", rows * value.heads, dim)
        return (heads * dim + within.view(rows, value.heads, dim)).flatten(1)

    def look(self, permutations: dict[str, Tensor], dealt: list[Tensor]) -> "LookMaterial":
        """Lay the owner's material end to end, as `show` and `take` want it."""
        shown = len(self.shown)
        return LookMaterial(
            shown=_places(self.reveals, permutations),
            answered=_places(self.answers, permutations),
            reveal_correction=_row(dealt[:shown]),
            answer_correction=_row(dealt[shown:]),
        )

    def reveal_mask(self, prf: PrfStream, rows: int) -> Tensor:
        """Draw what the user takes off all revealed masked values, laid end to end."""
        return prf.words(f"{self.label}.reveal_mask", rows, sum(one.width for one in self.reveals))

    def answer_mask(self, prf: PrfStream, rows: int) -> Tensor:
        """Draw what the user puts on all answers, laid end to end."""
        return prf.words(f"{self.label}.answer_mask", rows, sum(one.width for one in self.answers))

    def masks(self, prf: PrfStream, rows: int) -> list[Tensor]:
        """Draw the user's share r of every answered masked value."""
        return [prf.words(f"{self.label}.{one.name}.mask", rows, one.width) for one in self.answers]

    def deal(
        self, user: PrfStream, permutations: dict[str, Tensor], shares: list[Tensor], rows: int
    ) -> list[Tensor]:
        """Compute what the dealer sends to the owner, as `dealt` lists it.

        Args:
            user: the prf that the user and the dealer share.
            permutations: drawn by `permutations`.
            shares: r of every revealed masked value.
            rows: how many rows.
        """
        out: list[Tensor] = []
        if self.reveals:
            # Step 2 of algorithm 6.3: π[r0] − r1, with r for r0 and what the user takes off for r1.
            shown = self._lined_up(shares).gather(1, _places(self.reveals, permutations))
            out += _cut(shown - self.reveal_mask(user, rows), self.shown)
        if self.answers:
            # The same for the way back, step 4 of algorithm 6.4: the owner undoes π itself.
            masks = _row(self.masks(user, rows)).gather(1, _places(self.answers, permutations))
            out += _cut(self.answer_mask(user, rows) - masks, self.answered)
        return out

    def show(self, look: "LookMaterial", shares: list[Tensor]) -> Tensor:
        """Compute the owner's message from m of every revealed value: uint8 (rows, shown_bytes)."""
        words = self._lined_up(shares).gather(1, look.shown).add_(look.reveal_correction)
        return _packed(words, self.shown)

    def see(self, reveal_mask: Tensor, shown: Tensor) -> list[Tensor]:
        """Take the mask off, as the user: every revealed masked value as signed words."""
        out: list[Tensor] = []
        for span, words, mask in zip(
            self.shown,
            _unpacked(shown, self.shown),
            _cut(reveal_mask, self.shown),
            strict=True,
        ):
            seen = words + mask
            seen = wrap(seen.add_(1) if span.is_cut else seen, span.nbytes)
            out += seen.split_with_sizes(span.widths, 1)
        return out

    def answer(self, answer_mask: Tensor, values: list[Tensor]) -> Tensor:
        """Compute the user's message from the words of every answer: uint8."""
        return _packed(_row(values) - answer_mask, self.answered)

    def take(self, look: "LookMaterial", answer: Tensor) -> list[Tensor]:
        """Put the user's answers in their own order, as the owner: m of every answered value."""
        words = _row(_unpacked(answer, self.answered)) + look.answer_correction
        out = torch.empty_like(words).scatter_(1, look.answered, words)
        return list(out.split_with_sizes([one.width for one in self.answers], 1))

    def _lined_up(self, shares: list[Tensor]) -> Tensor:
        """Lay shares of the revealed masked values end to end, without their low bits."""
        cut = [
            share >> one.drop if one.drop else share
            for one, share in zip(self.reveals, shares, strict=True)
        ]
        return _row(cut) if len(cut) > 1 else cut[0]


@dataclass(frozen=True, eq=False)
class LookMaterial:
    """The owner's part of an exchange, all masked values laid end to end.

    Attributes:
        shown: where each place of what is shown comes from.
        answered: where each place of the answers goes to.
        reveal_correction: the dealer's part of what is shown.
        answer_correction: the dealer's part of the answers.
    """

    shown: Tensor
    answered: Tensor
    reveal_correction: Tensor
    answer_correction: Tensor

    def at(self, rows: slice) -> "LookMaterial":
        """Return the part of some of the rows."""
        return LookMaterial(
            self.shown[rows],
            self.answered[rows],
            self.reveal_correction[rows],
            self.answer_correction[rows],
        )


@dataclass(frozen=True)
class PackedSpan:
    """Neighbouring masked values with words of one length and scale: they are packed together."""

    nbytes: int
    seen_bits: int
    is_cut: bool
    widths: list[int]

    @cached_property
    def width(self) -> int:
        """Return how many words there are."""
        return sum(self.widths)


Values = tuple[ShownValue, ...] | tuple[AnsweredValue, ...]


def spans(values: Values) -> list[PackedSpan]:
    """Group neighbouring masked values that are packed together."""
    out: list[PackedSpan] = []
    for one in values:
        bits, is_cut = (one.seen_bits, one.drop > 0) if isinstance(one, ShownValue) else (0, False)
        last = out[-1] if out else None
        if last and (last.nbytes, last.seen_bits, last.is_cut) == (one.nbytes, bits, is_cut):
            last.widths.append(one.width)
        else:
            out.append(PackedSpan(one.nbytes, bits, is_cut, [one.width]))
    return out


def _cut(words: Tensor, found: list[PackedSpan]) -> list[Tensor]:
    """Cut words laid end to end into spans."""
    return list(words.split_with_sizes([span.width for span in found], 1))


def _packed(words: Tensor, found: list[PackedSpan]) -> Tensor:
    parts = zip(found, _cut(words, found), strict=True)
    return _row([pack(part, span.nbytes) for span, part in parts])


def _unpacked(octets: Tensor, found: list[PackedSpan]) -> list[Tensor]:
    parts = octets.split_with_sizes([span.width * span.nbytes for span in found], 1)
    return [unpack(part, span.nbytes) for span, part in zip(found, parts, strict=True)]


def _places(values: Values, permutations: dict[str, Tensor]) -> Tensor:
    """Return the orders of masked values that lie end to end, as one."""
    out, at = [], 0
    for one in values:
        out.append(permutations[one.permutation] + at)
        at += one.width
    return _row(out)


def _row(parts: list[Tensor]) -> Tensor:
    if not parts:
        return torch.empty((0, 0), dtype=torch.int64)
    return parts[0] if len(parts) == 1 else torch.cat(parts, 1)
