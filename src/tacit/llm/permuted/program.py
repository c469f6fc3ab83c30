"""A pass of the permuted protocol, written once for whoever walks it.

A masked value is a value x = m + r: the owner walks with m, the dealer with r, the user with what
it knows of r. What a party does not hold of a masked value is a tensor without words (`unknown`),
so that all of them walk the same lines. Masked values lie end to end in their last axis. `Listing`
walks without a value, and finds what a pass sends and needs.

The steps are those of PermLLM (document 000, section 6.3): `linear` is algorithm 6.1, a product
with a constant of the owner's; `look` is algorithms 6.3 and 6.4, a function in a secret order;
`attend` is algorithm 6.2, a product with a factor that grows, twice, with 6.4 between; `show` is
steps 1 and 2 of algorithm 6.5. There the user's share depends on what it is sent; here it is drawn
before the text is known. So nothing of 6.1 is left to send, and 6.4 takes two messages, not three.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from tacit.llm.model.architecture import Architecture
from tacit.llm.model.plain import activate
from tacit.llm.permuted.batch import Batch
from tacit.llm.permuted.blueprint import Attention, Blueprint
from tacit.llm.permuted.exchange import Exchange
from tacit.llm.permuted.messages import Item


class Skip(NamedTuple):
    """What of a stream is added to a product: by a diagonal of the owner's if it has a name."""

    name: str
    bits: int  # to the left, where the product has its point
    nbytes: int = 0  # of a word that corrects the diagonal


@dataclass(frozen=True)
class MatrixProduct:
    """A step that multiplies by a matrix of the owner's.

    Attributes:
        name: of the matrix.
        outputs: its width.
        nbytes: of a word that the user and the dealer send for it.
        skip: what is added to it.
        has_bias: whether the owner adds one, if there is one.
        is_fresh: whether the result gets a mask that the user knows.
    """

    name: str
    outputs: int
    nbytes: int
    skip: Skip | None = None
    has_bias: bool = True
    is_fresh: bool = False


def product(plan: Blueprint, layer: int, part: str) -> MatrixProduct:
    """Return the facts of a matrix of a layer."""
    a, p, wide = plan.architecture, plan.precision, plan.wide_bytes
    name = f"{layer}.{part}"
    match part:
        case "qkv":
            nbytes, is_lean = plan.query_bytes if plan.is_lean else wide, plan.is_lean
            outputs = sum(plan.qkv_widths)
            return MatrixProduct(name, outputs, nbytes, has_bias=is_lean, is_fresh=is_lean)
        case "o" | "down" if a.has_post_norm:
            return MatrixProduct(name, a.width, wide)
        case "o" | "post1":
            skip = Skip("", plan.middle_bits - p.stream)
            if a.skips_from_norm:
                skip = Skip(f"{layer}.skip1", skip.bits, p.word_bytes(p.stream))
            return MatrixProduct(name, a.width, wide, skip=skip, is_fresh=plan.is_merged)
        case "up":
            return MatrixProduct(name, sum(plan.branch_widths), plan.branch_bytes)
        case _:  # down, or post2 behind it
            skip = Skip("", p.stream - p.skip)
            if a.skips_from_norm:
                skip = Skip(f"{layer}.skip2", 0, wide)
            return MatrixProduct(name, a.width, wide, skip=skip, is_fresh=True)


def output(plan: Blueprint) -> MatrixProduct:
    """Return the facts of the matrix that gives scores of tokens."""
    return MatrixProduct("output", plan.architecture.vocab, plan.output_bytes)


Seen = Mapping[str, Tensor]
"""Permuted values in the clear, by the name of their masked value."""

Function = Callable[[Architecture, Seen], Seen]
"""What the user computes: from what it is shown to what it answers; places stay as they are."""


class PassParty(Protocol):
    """One party's way through a pass."""

    def linear(self, product: MatrixProduct, x: Tensor, skip: Tensor | None = None) -> Tensor:
        """Multiply by a matrix of the owner's, and add the stream that skips it, if any does."""
        ...

    def look(self, exchange: Exchange, shown: list[Tensor], function: Function) -> list[Tensor]:
        """Have the user compute on permuted values."""
        ...

    def attend(self, layer: int, qkv: list[Tensor]) -> Tensor:
        """Turn queries and keys, keep keys and values, and mix values."""
        ...

    def show(self, exchange: Exchange, shown: list[Tensor], function: Function) -> Seen:
        """Show permuted values; the user alone gets what the function makes of them."""
        ...


def run_layer(party: PassParty, plan: Blueprint, layer: int, x: Tensor) -> Tensor:
    """Take a stream through one layer."""
    a, project = plan.architecture, plan.project(layer)
    to_qkv, to_up = product(plan, layer, "qkv"), product(plan, layer, "up")
    h: list[Tensor]
    if plan.is_lean:
        h = party.look(project, [x], normalise)
        qkv = cut(party.linear(to_qkv, h[0]), plan.qkv_widths)
    else:
        # W·(x / σ) = (W·x) / σ: the product need not wait for the norm, so one look does for both.
        raw = cut(party.linear(to_qkv, x), plan.qkv_widths)
        function = normalise_heads if a.has_qk_norm else normalise
        query, key, value, *h = party.look(project, [x, *raw], function)
        qkv = [query, key, value]
    mixed = party.attend(layer, qkv)  # 2 messages, or 6 where only new rows travel
    x = _added(party, plan, layer, "o", mixed, h[0] if a.skips_from_norm else x)
    if plan.is_merged:  # the same once more: the user divides both branches by σ itself
        branches = cut(party.linear(to_up, x), plan.branch_widths)
        active, skip = party.look(plan.merge(layer), [x, *branches], merged)
    else:
        skip, *kept = party.look(plan.middle(layer), [x], normalise)
        branches = cut(party.linear(to_up, skip), plan.branch_widths)
        (active,) = party.look(plan.activate(layer), branches, activated)
        skip = kept[0] if kept else skip
    return _added(party, plan, layer, "down", active, skip)


def _added(
    party: PassParty, plan: Blueprint, layer: int, part: str, x: Tensor, skip: Tensor
) -> Tensor:
    """Multiply, normalise if the model does, and add the stream that skips it."""
    matrix = product(plan, layer, part)
    if not plan.architecture.has_post_norm:
        return party.linear(matrix, x, skip=skip)
    number = 1 if part == "o" else 2
    out = party.linear(matrix, x)
    (h,) = party.look(plan.post(layer, number), [out], normalise)
    return party.linear(product(plan, layer, f"post{number}"), h, skip=skip)


def run_end(
    party: PassParty, plan: Blueprint, x: Tensor, *, scored: int, counts: Tensor | None = None
) -> Seen:
    """Show the scores behind the last ``scored`` rows, and counts of tokens beside them if asked.

    ``counts`` are what a party holds of them, if that is more than their shape.
    """
    last, scores, beside, x = plan.last_norm(), output(plan), list[Tensor](), x[-scored:]
    if plan.counts:
        beside = [unknown(scored, plan.architecture.vocab) if counts is None else counts]
    if last is None:
        return party.show(plan.score(), [x, party.linear(scores, x), *beside], normalise)
    (h,) = party.look(last, [x], normalise)
    shown = [party.linear(scores, h), *beside]
    return party.show(plan.score(), shown, lambda a, seen: seen)


def cut(x: Tensor, widths: Sequence[int]) -> list[Tensor]:
    """Cut masked values apart that lie end to end."""
    return list(x.split_with_sizes(list(widths), -1))


def unknown(rows: int, width: int) -> Tensor:
    """Return a masked value of which a party holds nothing but the shape."""
    return torch.empty((rows, width), dtype=torch.int64, device="meta")


def normalise(a: Architecture, seen: Seen) -> Seen:
    """Return ``h``, the normalised stream, ``x`` as it was, and all else divided by its norm."""
    h, sigma = normalised(a, seen["x"])
    kept = ("x", "counts")
    return {"h": h} | {name: x if name in kept else x / sigma for name, x in seen.items()}


def normalise_heads(a: Architecture, seen: Seen) -> Seen:
    """Normalise the stream, and each head of queries and keys behind it.

    Heads are shown twice, with the weights of their norm and without; they stand in one order.
    """
    out = dict(normalise(a, seen))
    for name in ("q", "k"):
        bare, heads = (
            one.reshape(*one.shape[:-1], -1, a.head_dim)
            for one in (out.pop(f"{name} norm"), out[name])
        )
        sigma = (bare.square().mean(-1, keepdim=True) + a.norm_eps).sqrt()
        out[name] = (heads / sigma).flatten(-2)
    return out


def activated(a: Architecture, seen: Seen) -> Seen:
    """Return ``y``, the activation of one branch or of two, which the next matrix reads."""
    return {"y": activate(a, seen["up"], seen.get("gate"))}


def merged(a: Architecture, seen: Seen) -> Seen:
    """Return ``y`` of branches divided by the norm of the stream, and the stream as it was."""
    return {"x": seen["x"]} | dict(activated(a, normalise(a, seen)))


def normalised(a: Architecture, x: Tensor) -> tuple[Tensor, Tensor]:
    """Return normalised rows, and what they were divided by."""
    if a.norm == "layer":
        x = x - x.mean(-1, keepdim=True)
    sigma = (x.square().mean(-1, keepdim=True) + a.norm_eps).sqrt()
    return x / sigma, sigma


@dataclass(frozen=True)
class Items:
    """The words of one packed message each: the dealer's to the owner, and the user's to it."""

    dealt: list[Item] = field(default_factory=list)
    corrected: list[Item] = field(default_factory=list)


class Listing:
    """Walk a pass without a value, and note what it takes."""

    def __init__(self, plan: Blueprint, batch: Batch, rows: int) -> None:
        self._plan, self._batch, self._rows = plan, batch, rows
        self.items = Items()
        self.exchanges: list[Exchange] = []
        self.attention: list[Attention] = []

    def linear(self, product: MatrixProduct, x: Tensor, skip: Tensor | None = None) -> Tensor:
        """Note the corrections of a product: (W − U)·r − w, and a fresh mask of its result."""
        item = Item((self._rows, product.outputs), product.nbytes)
        self.items.corrected.append(item)
        if product.skip is not None and product.skip.name:
            self.items.corrected.append(Item(item.shape, product.skip.nbytes))
        if product.is_fresh:
            self.items.dealt.append(item)
        return unknown(*item.shape)

    def look(self, exchange: Exchange, shown: list[Tensor], function: Function) -> list[Tensor]:
        """Note an exchange."""
        self.show(exchange, shown, function)
        return [unknown(self._rows, one.width) for one in exchange.answers]

    def attend(self, layer: int, qkv: list[Tensor]) -> Tensor:
        """Note the attention of every run."""
        runs = range(self._batch.runs)
        self.attention += [self._plan.attention(layer, self._batch, run) for run in runs]
        self.items.dealt.extend(item for one in self.attention for item in one.dealt)
        return unknown(self._rows, self._plan.inner)

    def show(self, exchange: Exchange, shown: list[Tensor], function: Function) -> Seen:
        """Note an exchange."""
        self.exchanges.append(exchange)
        self.items.dealt.extend(exchange.dealt(self._rows))
        return {}


def list_layer(plan: Blueprint, batch: Batch, layer: int) -> Listing:
    """List what a layer takes."""
    out = Listing(plan, batch, batch.rows)
    run_layer(out, plan, layer, unknown(batch.rows, plan.architecture.width))
    return out


def list_end(plan: Blueprint, batch: Batch) -> Listing:
    """List what the scores take."""
    rows = batch.scores
    out = Listing(plan, batch, rows)
    run_end(out, plan, unknown(rows, plan.architecture.width), scored=rows)
    return out


def first_items(plan: Blueprint, batch: Batch) -> Items:
    """List what comes before the first layer: for the embedding of a prompt."""
    if not batch.is_prompt:
        return Items()
    item = Item((batch.rows, plan.architecture.width), plan.wide_bytes)
    return Items([item], [item])


def last_items(plan: Blueprint, batch: Batch) -> Items:
    """List what comes behind the last layer: for scores, and for the token that is chosen."""
    items, after = list_end(plan, batch).items, (batch.runs, plan.architecture.width)
    embedded = Item(after, plan.wide_bytes)
    chosen = plan.choose().dealt(batch.runs)
    return Items([*items.dealt, *chosen, embedded], [*items.corrected, embedded])


def parts(plan: Blueprint, batch: Batch) -> Iterator[tuple[str, Items]]:
    """Name and list the messages of a batch: before the layers, one for each, and behind them."""
    yield "head", first_items(plan, batch)
    for layer in range(plan.architecture.layers):
        yield str(layer), list_layer(plan, batch, layer).items
    yield "tail", last_items(plan, batch)


@lru_cache(maxsize=1024)
def exchanges(plan: Blueprint, layer: int) -> list[Exchange]:
    """List the exchanges of a layer, in their order; attention is between two of them."""
    step = Batch(number=0, past=0, rows=1, prompt=0, masked_kv=0, form="resent")
    return list_layer(plan, step, layer).exchanges
