"""The user's offline work: what it holds of every masked value, and what the owner needs of it."""

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from tacit.llm.permuted.batch import Batch
from tacit.llm.permuted.blueprint import Blueprint
from tacit.llm.permuted.cuda import Laid, has_kernels, lay_out_masks
from tacit.llm.permuted.exchange import Exchange
from tacit.llm.permuted.geometry import KvCache
from tacit.llm.permuted.masks import (
    attended,
    drop_bits,
    first_stream,
    fresh,
    next_streams,
    noise,
    turn,
)
from tacit.llm.permuted.prf_stream import PrfStream
from tacit.llm.permuted.program import (
    Function,
    MatrixProduct,
    Seen,
    run_end,
    run_layer,
    unknown,
)
from tacit.llm.permuted.weights import Weights
from tacit.ring import Prg


@dataclass(frozen=True, eq=False)
class PreparedBatch:
    """An order that can be run: its prf, and the masks of its queries by layer.

    For steps on CUDA, ``cuda`` has the masks of every run laid out.
    """

    batch: Batch
    prf: PrfStream
    queries: list[Tensor]
    cuda: Laid | None = None


class Preparing:
    """One conversation of the user, offline: computes (W − U)·r − w for every matrix.

    Guarantee: each correction is uniform to the owner: w is drawn by the user and the dealer.
    Cost: the products of every masked matrix, once per row; 0 online messages.
    """

    def __init__(self, plan: Blueprint, masked: Weights, *, prg: Prg, cached: KvCache) -> None:
        self._plan = plan
        self._weights = masked
        self._prg = prg
        self._cached = cached
        self._before: Tensor | None = None

    def prepare(self, batch: Batch, send: Callable[[list[Tensor]], None]) -> PreparedBatch:
        """Send the corrections of a batch, in its `parts`, and return what runs it."""
        plan = self._plan
        prg = self._prg.fork(f"batch {batch.number}")
        prf = PrfStream(prg, keeps=True, device=plan.device)
        stream = first_stream(plan, prf, batch, self._before)
        self._before = next_streams(plan, prf, batch)[-1:]
        queries = list[Tensor]()
        send(self._first(prf, batch))
        for layer in range(plan.architecture.layers):
            party = Masking(plan, batch, prf, batch.rows, self._cached, self._weights)
            stream = run_layer(party, plan, layer, stream)
            send(party.corrected)
            queries += party.queries
        send(self._last(prf, batch, stream))
        cuda = None
        if not batch.is_prompt and has_kernels(plan):
            cuda = lay_out_masks(plan, batch, prf, queries)
        return PreparedBatch(batch, prf, queries, cuda)

    def _first(self, prf: PrfStream, batch: Batch) -> list[Tensor]:
        if not batch.is_prompt:
            return []
        hot = prf.words("first.hot.mask", batch.rows, self._plan.architecture.vocab)
        return [_corrected(self._weights, prf, "embed", hot)]

    def _last(self, prf: PrfStream, batch: Batch, stream: Tensor) -> list[Tensor]:
        plan, rows = self._plan, batch.scores
        party = Masking(plan, batch, prf, rows, self._cached, self._weights)
        run_end(party, plan, stream, scored=rows)
        hot = plan.choose().masks(prf, batch.runs)[0]
        after = self._weights.apply("embed", hot)
        return [*party.corrected, after - noise(prf, "next.embed", *after.shape)]


class Masking:
    """Walk a pass with r of every masked value that the user knows, and correct products with it.

    Without weights the masks alone are drawn, and those of keys and values put where they belong.
    """

    def __init__(
        self,
        plan: Blueprint,
        batch: Batch,
        prf: PrfStream,
        rows: int,
        cached: KvCache,
        weights: Weights | None = None,
    ) -> None:
        self._plan, self._batch, self._prf, self._rows = plan, batch, prf, rows
        self._cached, self._weights = cached, weights
        self.corrected: list[Tensor] = []
        self.queries: list[Tensor] = []

    def linear(self, product: MatrixProduct, x: Tensor, skip: Tensor | None = None) -> Tensor:
        """Compute (W − U)·r − w; r of the result is the dealer's alone, unless it is fresh."""
        if self._weights is not None:
            self.corrected.append(_corrected(self._weights, self._prf, product.name, x))
            if product.skip is not None and product.skip.name and skip is not None:
                name = product.skip.name
                self.corrected.append(_corrected(self._weights, self._prf, name, skip))
        shape = (self._rows, product.outputs)
        return fresh(self._prf, product.name, *shape) if product.is_fresh else unknown(*shape)

    def look(self, exchange: Exchange, shown: list[Tensor], function: Function) -> list[Tensor]:
        """Draw r of the answers, and what will be wanted online."""
        self.show(exchange, shown, function)
        if self._weights is not None:
            exchange.answer_mask(self._prf, self._rows)
        return exchange.masks(self._prf, self._rows)

    def attend(self, layer: int, qkv: list[Tensor]) -> Tensor:
        """Keep r of keys and values, and draw that of the output."""
        plan, batch = self._plan, self._batch
        query, keys, values = turn(plan, batch, layer, slice(None), qkv, drop_bits)
        self._cached.put(layer, batch.past, keys, values)
        self.queries.append(query)
        if self._weights is not None and not batch.is_prompt:
            for run in range(batch.runs):
                plan.attention(layer, batch, run).draw_user(self._prf)
        return drop_bits(attended(plan, self._prf, layer, self._rows), plan.out_drop)

    def show(self, exchange: Exchange, shown: list[Tensor], function: Function) -> Seen:
        """Draw what will be wanted online."""
        if self._weights is not None:
            exchange.reveal_mask(self._prf, self._rows)
        return {}


def _corrected(weights: Weights, prf: PrfStream, name: str, share: Tensor) -> Tensor:
    # Step 6 of algorithm 6.1 with V = r, before there is a text; w hides r from the owner, which
    # knows W − U. It adds this to W·m: what it lacks of W·(m + r) is U·r + w, r of the product.
    out = weights.apply(name, share)
    return out - noise(prf, name, *out.shape)
