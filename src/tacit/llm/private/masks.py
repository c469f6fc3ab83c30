"""The user's share of every wire of an order: drawn by the user and by the dealer, alike."""

from dataclasses import dataclass

import torch
from torch import Tensor

from tacit.llm.private.blueprint import Blueprint
from tacit.llm.private.order import Order
from tacit.llm.private.shelf import Shelf
from tacit.llm.private.tape import Tape


@dataclass(frozen=True, eq=False)
class LayerMasks:
    """r of the wires of one layer, (rows, width) each; heads apart where attention needs it.

    Attributes:
        stream: where the layer starts.
        query: turned queries, (rows, heads, dim).
        normed: the first norm's output, where the skip or the queries start there.
        out: attention's output.
        mixed: the same without its low bits, as the next product reads it.
        fed: what the feed-forward part reads: the second norm's output, or the stream before it.
        kept: the stream behind attention, where the skip starts there.
        active: the activation's output.
        after: where the next layer starts.
    """

    stream: Tensor
    query: Tensor
    normed: Tensor | None
    out: Tensor
    mixed: Tensor
    fed: Tensor
    kept: Tensor | None
    active: Tensor
    after: Tensor


def draw_layer(
    plan: Blueprint, tape: Tape, order: Order, layer: int, stream: Tensor, shelf: Shelf
) -> LayerMasks:
    """Draw the masks of a layer; those of its keys and values go onto the shelf."""
    rows, heads = order.rows, plan.heads
    if plan.is_lean:
        normed = plan.project(layer).masks(tape, rows)
        q, k, v = qkv_masks(plan, tape, layer, rows).split_with_sizes(
            [plan.inner, plan.kv, plan.kv], 1
        )
    else:
        q, k, v, *normed = plan.project(layer).masks(tape, rows)
    query, keys = q.reshape(rows, heads.count, -1), k.reshape(rows, heads.groups, -1)
    rotation = plan.rotation(order)
    if rotation is not None:
        query, keys = rotation.apply(query, slice(None)), rotation.apply(keys, slice(None))
    if plan.is_merged:
        fed = tape.words(f"{layer}.fed.mask", rows, plan.architecture.width)
        active, *kept = plan.merge(layer).masks(tape, rows)
    else:
        fed, *kept = plan.middle(layer).masks(tape, rows)
        (active,) = plan.activate(layer).masks(tape, rows)
    query, keys = drop_bits(query, plan.turn_drop), drop_bits(keys, plan.turn_drop)
    values = drop_bits(v.reshape(rows, heads.groups, -1), plan.value_drop)
    shelf.put(layer, order.past, keys, values)
    out = tape.words(f"{layer}.out.mask", rows, plan.inner)
    return LayerMasks(
        stream=stream,
        query=query,
        normed=normed[0] if normed else None,
        out=out,
        mixed=drop_bits(out, plan.out_drop),
        fed=fed,
        kept=kept[0] if kept else None,
        active=active,
        after=tape.words(f"{layer}.after.mask", rows, plan.architecture.width),
    )


def qkv_masks(plan: Blueprint, tape: Tape, layer: int, rows: int) -> Tensor:
    """Draw r of queries, keys and values that no exchange gives a mask."""
    return tape.words(f"{layer}.qkv.mask", rows, plan.inner + 2 * plan.kv)


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


def scored_rows(order: Order) -> slice:
    """Return which rows of an order get scores."""
    return slice(order.rows - order.scores, order.rows)
