"""The owner's material for one order, taken apart as it arrives, so that a pass only adds."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from torch import Tensor

from tacit.llm.private.blueprint import Blueprint
from tacit.llm.private.exchange import Exchange, Look
from tacit.llm.private.order import Order
from tacit.llm.private.tape import Tape
from tacit.llm.private.transfer import pads


@dataclass(frozen=True, kw_only=True, eq=False)
class LayerStock:
    """One layer's material.

    Attributes:
        project: of the first exchange.
        feeds: of those behind attention.
        refed: what masks the stream anew in front of a merged norm.
        turned: what masks queries, keys and values, where no exchange does.
        mixed: of attention, run by run.
        after: what masks the stream anew behind the layer.
        corrected: what the user sent.
    """

    project: Look
    feeds: list[Look]
    refed: Tensor | None
    turned: Tensor | None
    mixed: list[list[Tensor]]
    after: Tensor
    corrected: list[Tensor]


@dataclass(frozen=True, kw_only=True, eq=False)
class Stock:
    """The owner's material for one order; the head's and the tail's are what user and dealer sent.

    Attributes:
        order: what was ordered.
        tape: of the owner and the dealer.
        first: what masks the stream in front of the layers, of a prompt.
        layers: by number.
        last: of the norm in front of the scores, where it has an exchange of its own.
        score: of the exchange that shows the scores.
        chosen: of the one that answers it, a row for every run.
        names: which token each score belongs to, a row for every row of scores.
        following: what masks the stream of the token that is chosen.
        output: the user's part of the scores.
        pads: of the names of all tokens.
    """

    order: Order
    tape: Tape
    first: Tensor | None
    layers: list[LayerStock]
    last: Look | None
    score: Look
    chosen: Look
    names: Tensor
    following: Tensor
    output: Tensor
    pads: Tensor

    def rows(self, run: int) -> slice:
        """Return which rows belong to a run."""
        return slice(0, self.order.rows) if self.order.is_prompt else slice(run, run + 1)

    def scored(self, run: int) -> slice:
        """Return which rows of scores belong to a run."""
        return slice(0, self.order.scores) if self.order.is_prompt else slice(run, run + 1)


Parcels = tuple[list[Tensor], list[Tensor]]
"""What the dealer sent, and what the user sent."""


def stock_layer(
    plan: Blueprint, order: Order, layer: int, tape: Tape, parcels: Parcels
) -> LayerStock:
    """Take a layer's material apart, and draw what will be wanted."""
    dealt, corrected = parcels
    left = iter(dealt)
    project, *feeds = (
        _look(one, tape, order.rows, left) for one in (plan.project(layer), *plan.feeds(layer))
    )
    refed = next(left) if plan.is_merged else None
    turned = next(left) if plan.is_lean else None
    mixed = []
    for run in range(order.runs):
        kernel = plan.attention(layer, order, run)
        if not order.is_prompt:
            kernel.draw_owner(tape)
        mixed.append([next(left) for _ in kernel.dealt])
    return LayerStock(
        project=project,
        feeds=feeds,
        refed=refed,
        turned=turned,
        mixed=mixed,
        after=next(left),
        corrected=corrected,
    )


def stock_order(
    plan: Blueprint,
    order: Order,
    tape: Tape,
    *,
    head: Parcels,
    layers: Sequence[LayerStock],
    tail: Parcels,
) -> Stock:
    """Put the material of an order together."""
    left, (output, following) = iter(tail[0]), tail[1]
    last = plan.last_norm()
    norm = None if last is None else _look(last, tape, order.scores, left)
    score, choose = plan.score(), plan.choose()
    orders = score.orders(tape, order.scores)
    names = orders["vocab"]
    shown = score.look(orders, [next(left) for _ in score.dealt(1)])
    chosen = choose.look({"vocab": names[-order.runs :]}, [next(left) for _ in choose.dealt(1)])
    return Stock(
        order=order,
        tape=tape,
        first=head[0][0] + head[1][0] if order.is_prompt else None,
        layers=list(layers),
        last=norm,
        score=shown,
        chosen=chosen,
        names=names,
        following=following + next(left),
        output=output,
        pads=pads(tape, order.runs, plan.architecture.vocab),
    )


def _look(exchange: Exchange, tape: Tape, rows: int, left: Iterator[Tensor]) -> Look:
    dealt = [next(left) for _ in exchange.dealt(rows)]
    return exchange.look(exchange.orders(tape, rows), dealt)
