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
        normed: the first norm's output, where the skip starts there.
        out: attention's output.
        fed: what the feed-forward part reads: the second norm's output, or the stream before it.
        kept: the stream behind attention, where the skip starts there.
        active: the activation's output.
        after: where the next layer starts.
    """

    stream: Tensor
    query: Tensor
    normed: Tensor | None
    out: Tensor
    fed: Tensor
    kept: Tensor | None
    active: Tensor
    after: Tensor


def draw_layer(
    plan: Blueprint, tape: Tape, order: Order, layer: int, stream: Tensor, shelf: Shelf
) -> LayerMasks:
    """Draw the masks of a layer; those of its keys and values go onto the shelf."""
    rows, heads = order.rows, plan.heads
    q, k, v, *normed = plan.project(layer).masks(tape, rows)
    query, keys = q.view(rows, heads.count, -1), k.view(rows, heads.groups, -1)
    rotation = plan.rotation(order)
    if rotation is not None:
        query, keys = rotation.apply(query, slice(None)), rotation.apply(keys, slice(None))
    if plan.is_merged:
        fed = tape.words(f"{layer}.fed.mask", rows, plan.architecture.width)
        active, *kept = plan.merge(layer).masks(tape, rows)
    else:
        fed, *kept = plan.middle(layer).masks(tape, rows)
        (active,) = plan.activate(layer).masks(tape, rows)
    shelf.put(layer, order.past, keys, v.view(rows, heads.groups, -1))
    return LayerMasks(
        stream=stream,
        query=query,
        normed=normed[0] if normed else None,
        out=tape.words(f"{layer}.out.mask", rows, plan.inner),
        fed=fed,
        kept=kept[0] if kept else None,
        active=active,
        after=tape.words(f"{layer}.after.mask", rows, plan.architecture.width),
    )


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


def scored_rows(order: Order) -> slice:
    """Return which rows of an order get scores."""
    return slice(order.rows - order.scores, order.rows)
