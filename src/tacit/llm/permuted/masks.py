"""The user's share of every wire of an order: drawn by the user and by the dealer, alike."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from tacit.llm.permuted.blueprint import Blueprint
from tacit.llm.permuted.order import Order
from tacit.llm.permuted.tape import Tape

Drop = Callable[[Tensor, int], Tensor]
"""Drop low bits of one party's share."""


class Turned(NamedTuple):
    """One party's share of new queries, keys and values, (rows, heads, dim) each."""

    query: Tensor
    keys: Tensor
    values: Tensor


def turn(
    plan: Blueprint, order: Order, layer: int, rows: slice, qkv: list[Tensor], drop: Drop
) -> Turned:
    """Turn queries and keys by their positions, and drop the bits that attention does without."""
    query, keys, values = (part.reshape(len(part), -1, plan.heads.dim) for part in qkv)
    rotation = plan.rotation(order, layer)
    if rotation is not None:
        query, keys = rotation.apply(query, rows), rotation.apply(keys, rows)
    query, keys = drop(query, plan.turn_drop), drop(keys, plan.turn_drop)
    return Turned(query, keys, drop(values, plan.value_drop))


def attended(plan: Blueprint, tape: Tape, layer: int, rows: int) -> Tensor:
    """Draw r of attention's output."""
    return tape.words(f"{layer}.out.mask", rows, plan.inner)


def fresh(tape: Tape, name: str, rows: int, width: int) -> Tensor:
    """Draw r of a product that gets a mask of its own."""
    return tape.words(f"{name}.mask", rows, width)


def drop_bits(share: Tensor, bits: int) -> Tensor:
    """Drop low bits of the user's share; the owner drops as many of its own.

    In the smaller ring that is left, the sum of both is the value without its low bits, or one
    less; the one that is added here makes it right on average.
    """
    return (share >> bits) + 1 if bits else share


def noise(tape: Tape, name: str, rows: int, width: int) -> Tensor:
    """Draw w, which hides (W − U)·r − w and U·r + w from the owner."""
    return tape.words(f"{name}.noise", rows, width)


def first_stream(plan: Blueprint, tape: Tape, order: Order, before: Tensor | None) -> Tensor:
    """Return r of the stream in front of the first layer.

    For a prompt it is drawn; a step continues from the token that the step before it chose, so
    its mask is the one that was drawn there.
    """
    width = plan.architecture.width
    if order.is_prompt:
        return tape.words("first.mask", order.rows, width)
    assert before is not None  # noqa: S101 - the first order of a conversation is a prompt
    return torch.cat([before, next_streams(plan, tape, order)[:-1]])


def next_streams(plan: Blueprint, tape: Tape, order: Order) -> Tensor:
    """Draw r of the stream that follows each run."""
    return tape.words("next.mask", order.runs, plan.architecture.width)


def first_tally(plan: Blueprint, tape: Tape) -> Tensor:
    """Draw r of the counts that come with a prompt."""
    return tape.words("first.counts.mask", 1, plan.architecture.vocab)


def tallies(
    plan: Blueprint, tape: Tape, order: Order, before: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Return r of the counts at every row of scores, and after the last token is chosen.

    A prompt starts anew; every chosen token adds the mask of its one-hot row.
    """
    chosen = plan.choose().masks(tape, order.runs)[0]
    if order.is_prompt:
        first = first_tally(plan, tape)
        return first.expand(order.scores, -1), first + chosen
    assert before is not None  # noqa: S101 - the first order of a conversation is a prompt
    sums = before + chosen.cumsum(0)
    return torch.cat([before, sums[:-1]]), sums[-1:]
