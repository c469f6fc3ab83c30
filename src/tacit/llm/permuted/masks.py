"""The user's share of masked values, and whether what it saw of them can have wrapped around.

The shares are drawn by the user and by the dealer, alike. Values are kept modulo the size of a
word. With a precision that was fitted to the model (`Blueprint.is_certain`) every masked value has
room for all that the weights allow, but for two kinds whose room depends on the text: the stream
behind attention, and products with the stream before its norm. Both follow from the stream in
front, which the user sees and which cannot have wrapped: so it can tell (`Ranges`).

With any other precision a value is refused from a quarter of its range on. That notices every
value up to seven times as large; beyond that one in four is taken for a smaller one.
"""

from collections.abc import Callable
from functools import cached_property
from typing import final

import torch
from torch import Tensor

from tacit.errors import RangeError
from tacit.llm.model.rotary import rotate
from tacit.llm.permuted.batch import Batch
from tacit.llm.permuted.blueprint import Blueprint
from tacit.llm.permuted.precision import WORD_BITS
from tacit.llm.permuted.prf_stream import PrfStream

Drop = Callable[[Tensor, int], Tensor]
"""Drop low bits of one party's share."""


def turn(
    plan: Blueprint, batch: Batch, layer: int, rows: slice, qkv: list[Tensor], drop: Drop
) -> tuple[Tensor, Tensor, Tensor]:
    """Turn queries and keys by their positions, and drop the bits that attention does without.

    Returns:
        One party's share of new queries, keys and values, (rows, heads, dim) each.
    """
    query, keys, values = (part.reshape(len(part), -1, plan.heads.dim) for part in qkv)
    if (angles := plan.angles(batch, layer)) is not None:
        cos, sin = (part[rows].unsqueeze(1) for part in angles)
        query, keys = (rotate(plan.architecture, part, cos, sin) for part in (query, keys))
    query, keys = drop(query, plan.turn_drop), drop(keys, plan.turn_drop)
    return query, keys, drop(values, plan.value_drop)


def attended(plan: Blueprint, prf: PrfStream, layer: int, rows: int) -> Tensor:
    """Draw r of attention's output."""
    return prf.words(f"{layer}.out.mask", rows, plan.inner)


def fresh(prf: PrfStream, name: str, rows: int, width: int) -> Tensor:
    """Draw r of a product that gets a mask of its own."""
    return prf.words(f"{name}.mask", rows, width)


def drop_bits(share: Tensor, bits: int) -> Tensor:
    """Drop low bits of the user's share; the owner drops as many of its own.

    In the smaller ring that is left, the sum of both is the value without its low bits, or one
    less; the one that is added here makes it right on average.
    """
    return (share >> bits) + 1 if bits else share


def noise(prf: PrfStream, name: str, rows: int, width: int) -> Tensor:
    """Draw w, which hides (W − U)·r − w and U·r + w from the owner."""
    return prf.words(f"{name}.noise", rows, width)


def first_stream(plan: Blueprint, prf: PrfStream, batch: Batch, before: Tensor | None) -> Tensor:
    """Return r of the stream in front of the first layer.

    For a prompt it is drawn; a step continues from the token that the step before it chose, so
    its mask is the one that was drawn there.
    """
    width = plan.architecture.width
    if batch.is_prompt:
        return prf.words("first.mask", batch.rows, width)
    assert before is not None  # noqa: S101 - the first batch of a conversation is a prompt
    return torch.cat([before, next_streams(plan, prf, batch)[:-1]])


def next_streams(plan: Blueprint, prf: PrfStream, batch: Batch) -> Tensor:
    """Draw r of the stream that follows each run."""
    return prf.words("next.mask", batch.runs, plan.architecture.width)


def first_tally(plan: Blueprint, prf: PrfStream) -> Tensor:
    """Draw r of the counts that come with a prompt."""
    return prf.words("first.counts.mask", 1, plan.architecture.vocab)


def tallies(
    plan: Blueprint, prf: PrfStream, batch: Batch, before: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Return r of the counts at every row of scores, and after the last token is chosen.

    A prompt starts anew; every chosen token adds the mask of its one-hot row.
    """
    chosen = plan.choose().masks(prf, batch.runs)[0]
    if batch.is_prompt:
        first = first_tally(plan, prf)
        return first.expand(batch.scores, -1), first + chosen
    assert before is not None  # noqa: S101 - the first batch of a conversation is a prompt
    sums = before + chosen.cumsum(0)
    return torch.cat([before, sums[:-1]]), sums[-1:]


@final
class Ranges:
    """What a pass showed, noted as it comes and looked at once, at its end: a device may be slow.

    Guarantee: where `Blueprint.is_certain`, a pass that `check` lets through has no value that
    wrapped; otherwise one that goes beyond seven times the limit is missed once in four times.
    """

    def __init__(self, plan: Blueprint) -> None:
        self._plan = plan
        self._words: list[tuple[Tensor, int, int, str]] = []
        self._rows: list[tuple[Tensor, Tensor, str]] = []

    @cached_property
    def streams(self) -> frozenset[str]:
        """Return the masked values from which it follows that others have not wrapped."""
        if not self._plan.is_certain:
            return frozenset()
        layers = range(self._plan.architecture.layers)
        last = ["out.x"] if self._plan.is_raw_output else []
        return frozenset([*(f"{layer}.project.x" for layer in layers), *last])

    def note_words(self, words: Tensor, nbytes: int, frac_bits: int, value: str) -> None:
        """Note the range of a masked value."""
        if not self._plan.is_certain:
            self._words.append((torch.stack(torch.aminmax(words)), nbytes, frac_bits, value))

    def note_stream(self, x: Tensor, value: str) -> None:
        """Note how far the stream goes, in any place and in all."""
        self.note_row(x.abs().max(), x.norm(dim=-1).max(), value)

    def note_row(self, most: Tensor, length: Tensor, value: str) -> None:
        """Note the largest place and the length of the stream."""
        self._rows.append((most, length, value))

    def check(self) -> None:
        """Refuse a pass whose values may have gone over the end of a word.

        Raises:
            RangeError: names the masked value.
        """
        words, self._words = self._words, []
        rows, self._rows = self._rows, []
        if words:
            ends = torch.stack([ends for ends, *_ in words]).tolist()
            for (_, nbytes, bits, value), (low, high) in zip(words, ends, strict=True):
                # A quarter of the range, L: what is up to 7·L large and wraps, by 8·L, is above
                # L still.
                if max(-low, high) >= 1 << (8 * nbytes - 3):
                    raise RangeError(
                        f"a value in {value} comes near 2^{8 * nbytes - 1 - bits}, where words of "
                        f"{nbytes} bytes with {bits} fraction bits end; use a Precision with "
                        "fewer bits or a wider span"
                    )
        if rows:
            sizes = torch.stack([part for one in rows for part in one[:2]]).view(-1, 2).tolist()
            for (_, _, value), (most, length) in zip(rows, sizes, strict=True):
                self._check_row(most, length, value)

    def _check_row(self, most: float, length: float, value: str) -> None:
        p, is_last = self._plan.precision, value == "out.x"
        gain = p.output_gain if is_last else p.gain
        if length * 2.0**gain >= 2.0 ** (WORD_BITS - 1 - p.raw) or (
            not is_last and most >= 2.0 ** (p.reach - 2)
        ):
            raise RangeError(
                f"the stream in {value} is {length:.3g} long and reaches {most:.3g}: what is "
                "computed from it might not fit a word; this text goes further than what the "
                "model was measured on, let the owner use --precision wide"
            )
