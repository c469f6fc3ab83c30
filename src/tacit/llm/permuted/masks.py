"""The user's share of every masked value of a batch: drawn by the user and by the dealer, alike."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from tacit.llm.permuted.batch import Batch
from tacit.llm.permuted.blueprint import Blueprint
from tacit.llm.permuted.prf_stream import PrfStream

Drop = Callable[[Tensor, int], Tensor]
"""Drop low bits of one party's share."""


class Turned(NamedTuple):
    """One party's share of new queries, keys and values, (rows, heads, dim) each."""

    query: Tensor
    keys: Tensor
    values: Tensor


def turn(
    plan: Blueprint, batch: Batch, layer: int, rows: slice, qkv: list[Tensor], drop: Drop
) -> Turned:
    """Turn queries and keys by their positions, and drop the bits that attention does without."""
    query, keys, values = (part.reshape(len(part), -1, plan.heads.dim) for part in qkv)
    rotation = plan.rotation(batch, layer)
    if rotation is not None:
        query, keys = rotation.apply(query, rows), rotation.apply(keys, rows)
    query, keys = drop(query, plan.turn_drop), drop(keys, plan.turn_drop)
    return Turned(query, keys, drop(values, plan.value_drop))


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
