"""The user's offline work: what it holds of every wire, and what the owner needs of it."""

from collections.abc import Iterator
from dataclasses import dataclass

from torch import Tensor

from tacit.llm.private.blueprint import Blueprint
from tacit.llm.private.masks import (
    LayerMasks,
    draw_layer,
    first_stream,
    next_streams,
    noise,
    scored_rows,
)
from tacit.llm.private.narrow import Item
from tacit.llm.private.order import Order
from tacit.llm.private.quick import is_quick
from tacit.llm.private.quick_masks import QuickMasks, lay_out_masks
from tacit.llm.private.shelf import Shelf
from tacit.llm.private.tape import Tape
from tacit.llm.private.weights import Weights
from tacit.ring import Prg


@dataclass(frozen=True, eq=False)
class Prepared:
    """An order that can be run: its tape, and the masks of its queries by layer.

    For steps on CUDA, ``quick`` has the masks of every run laid out.
    """

    order: Order
    tape: Tape
    queries: list[Tensor]
    quick: QuickMasks | None = None


class Preparing:
    """One conversation of the user, offline: computes (W − U)·r − w for every matrix.

    Guarantee: each correction is uniform to the owner: w is drawn by the user and the dealer.
    Cost: the products of every masked matrix, once per row; 0 online messages.
    """

    def __init__(self, plan: Blueprint, masked: Weights, *, prg: Prg, cached: Shelf) -> None:
        self._plan = plan
        self._weights = masked
        self._prg = prg
        self._cached = cached
        self._before: Tensor | None = None

    def prepare(self, order: Order) -> Iterator[tuple[list[Tensor], list[Item]] | Prepared]:
        """Yield the parcels of an order for the owner, and at the end what is needed to run it."""
        plan = self._plan
        prg = self._prg.fork(f"order {order.number}")
        tape = Tape(prg, keeps=True, device=plan.device)
        stream = first_stream(plan, tape, order, self._before)
        self._before = next_streams(plan, tape, order)[-1:]
        queries = []
        yield self._head(tape, order), plan.corrected_head(order)
        for layer in range(plan.architecture.layers):
            masks = draw_layer(plan, tape, order, layer, stream, self._cached)
            yield self._layer(tape, layer, masks), plan.corrected(order)
            self._draw(tape, order, layer)
            stream = masks.after
            queries.append(masks.query)
        yield self._tail(tape, order, stream), plan.corrected_tail(order)
        quick = None
        if not order.is_prompt and is_quick(plan):
            quick = lay_out_masks(plan, order, tape, queries)
        yield Prepared(order, tape, queries, quick)

    def _draw(self, tape: Tape, order: Order, layer: int) -> None:
        """Draw what will be wanted online."""
        plan = self._plan
        for exchange in (plan.project(layer), *plan.feeds(layer)):
            exchange.veil(tape, order.rows)
            exchange.cover(tape, order.rows)
        if not order.is_prompt:
            for run in range(order.runs):
                plan.attention(layer, order, run).draw_user(tape)

    def _linear(self, tape: Tape, name: str, share: Tensor) -> Tensor:
        out = self._weights.apply(name, share)
        return out - noise(tape, name, *out.shape)

    def _head(self, tape: Tape, order: Order) -> list[Tensor]:
        if not order.is_prompt:
            return []
        hot = tape.words("first.hot.mask", order.rows, self._plan.architecture.vocab)
        return [self._linear(tape, "embed", hot)]

    def _layer(self, tape: Tape, layer: int, masks: LayerMasks) -> list[Tensor]:
        is_lean, normed = self._plan.is_lean, masks.normed
        out = [
            self._linear(
                tape,
                f"{layer}.qkv",
                normed if is_lean and normed is not None else masks.stream,
            ),
            self._linear(tape, f"{layer}.o", masks.mixed),
            self._linear(tape, f"{layer}.up", masks.fed),
            self._linear(tape, f"{layer}.down", masks.active),
        ]
        if normed is not None and self._plan.architecture.skips_from_norm:
            out.append(self._linear(tape, f"{layer}.skip1", normed))
            out.append(self._linear(tape, f"{layer}.skip2", masks.fed))
        return out

    def _tail(self, tape: Tape, order: Order, stream: Tensor) -> list[Tensor]:
        plan = self._plan
        last, share = plan.last_norm(), stream[scored_rows(order)]
        if last is not None:
            share = last.masks(tape, order.scores)[0]
        hot = plan.choose().masks(tape, order.runs)[0]
        after = self._weights.apply("embed", hot)
        return [
            self._linear(tape, "output", share),
            after - noise(tape, "next.embed", *after.shape),
        ]
