"""What a pass sends and needs, found by walking it: material, exchanges, and sizes of messages."""

from dataclasses import dataclass, field
from functools import lru_cache

from torch import Tensor

from tacit.llm.permuted.batch import Batch
from tacit.llm.permuted.blueprint import Attention, Blueprint
from tacit.llm.permuted.exchange import Exchange
from tacit.llm.permuted.messages import Item
from tacit.llm.permuted.program import Function, Product, Seen, run_end, run_layer, unknown


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

    def linear(self, product: Product, x: Tensor, skip: Tensor | None = None) -> Tensor:
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
    a, rows = plan.architecture, batch.scores
    out = Listing(plan, batch, rows)
    counts = [unknown(rows, a.vocab)] * plan.counts
    run_end(out, plan, unknown(rows, a.width), scored=rows, counts=counts)
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


def all_items(plan: Blueprint, batch: Batch) -> list[Items]:
    """List the messages of a batch: in front of the layers, one for each, and behind them."""
    layers = [list_layer(plan, batch, i).items for i in range(plan.architecture.layers)]
    return [first_items(plan, batch), *layers, last_items(plan, batch)]


@lru_cache(maxsize=1024)
def exchanges(plan: Blueprint, layer: int) -> list[Exchange]:
    """List the exchanges of a layer, in their order; attention is between two of them."""
    step = Batch(number=0, past=0, rows=1, prompt=0, masked_kv=0, form="resent")
    return list_layer(plan, step, layer).exchanges
