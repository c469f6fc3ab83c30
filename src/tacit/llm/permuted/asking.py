"""The user's online work: sees permuted values, computes what is not linear, answers."""

from collections.abc import Collection, Sequence

import torch
from torch import Tensor

from tacit import ring
from tacit.llm.permuted.attention import Resent
from tacit.llm.permuted.blueprint import Blueprint
from tacit.llm.permuted.cuda import has_kernels
from tacit.llm.permuted.cuda_asking import CudaAsking
from tacit.llm.permuted.exchange import Exchange
from tacit.llm.permuted.geometry import KvCache
from tacit.llm.permuted.masks import Ranges, first_tally
from tacit.llm.permuted.messages import Channel, encode, pack
from tacit.llm.permuted.prepare import PreparedBatch
from tacit.llm.permuted.program import Function, MatrixProduct, Seen, run_end, run_layer, unknown

Shown = tuple[Tensor, Tensor | None]
"""Scores of all tokens, and how often each came before if that is shown: (rows, vocab)."""


class Asking:
    """One conversation of the user, online.

    Guarantee: what it sees of the model is what the ledger lists: activations, scores and norms in
    fresh secret permutations. None for the weights: who answers otherwise than here can compute
    them.
    Cost: messages as `Blueprint` lists them.
    """

    def __init__(self, plan: Blueprint, talk: Channel, cached: KvCache, masked_kv: KvCache) -> None:
        self.plan, self.talk, self.ranges = plan, talk, Ranges(plan)
        self.cached, self.masked_kv = cached, masked_kv
        self._cuda: CudaAsking | None = None
        if has_kernels(plan):
            self._cuda = CudaAsking(plan, talk, cached, masked_kv, self._attend)

    def prompt(self, prepared: PreparedBatch, ids: Sequence[int], seen: Collection[int]) -> Tensor:
        """Return what the owner is sent of the tokens of a prompt, as bytes.

        ``seen`` are the tokens that count as having come before; none if nothing is counted.
        """
        plan, vocab = self.plan, self.plan.architecture.vocab
        hot = -prepared.prf.words("first.hot.mask", len(ids), vocab)
        hot[torch.arange(len(ids)), torch.tensor(ids)] += 1  # indices are small: from the host
        octets = pack(hot, plan.wide_bytes).reshape(-1)
        if not plan.counts:
            return octets
        tally = -first_tally(plan, prepared.prf)
        tally[0, torch.tensor(sorted(seen), dtype=torch.int64)] += 1
        return torch.cat([octets, pack(tally, plan.count_bytes).reshape(-1)])

    def choice(self, prepared: PreparedBatch, run: int, place: int) -> Tensor:
        """Return what the owner is sent of a chosen place, as bytes."""
        choose = self.plan.choose()
        answer_mask = choose.answer_mask(prepared.prf, prepared.batch.runs)
        hot = torch.zeros_like(answer_mask[:1])
        hot[0, place] = 1
        return choose.answer(answer_mask[run : run + 1], [hot])

    def run(self, prepared: PreparedBatch, run: int) -> Shown:
        """Go through all layers, and return the scores in the order of this run."""
        plan, batch, cuda = self.plan, prepared.batch, None
        if self._cuda is not None and prepared.cuda is not None:
            cuda = self._cuda
            cuda.run(prepared, run, prepared.cuda)
        else:
            party = UserParty(self, prepared, run, batch.rows_of(run), batch.rows)
            for layer in range(plan.architecture.layers):
                run_layer(party, plan, layer, party.stream)
        rows = batch.scored_by(run)
        party = UserParty(self, prepared, run, rows, batch.scores)
        seen = run_end(party, plan, party.stream, scored=rows.stop - rows.start)
        if cuda is not None:
            cuda.note(self.ranges)
        self.ranges.check()
        return seen["scores"].cpu(), seen["counts"].cpu() if plan.counts else None

    def _attend(self, prepared: PreparedBatch, run: int, layer: int) -> None:
        batch = prepared.batch
        UserParty(self, prepared, run, batch.rows_of(run), batch.rows).attend(layer, [])


class UserParty:
    """Walk a pass with what is shown: values in secret permutations, which it computes on."""

    def __init__(
        self, asking: Asking, prepared: PreparedBatch, run: int, rows: slice, total: int
    ) -> None:
        """Walk a run of a batch, with its rows of what was drawn for ``total`` of them."""
        self._asking, self._prepared, self._run = asking, prepared, run
        self._rows, self._total = rows, total
        self._plan, self._talk, self._ranges = asking.plan, asking.talk, asking.ranges

    @property
    def stream(self) -> Tensor:
        """Return the stream, of which nothing is known but its shape."""
        return self._unknown(self._plan.architecture.width)

    def _unknown(self, width: int) -> Tensor:
        return unknown(self._rows.stop - self._rows.start, width)

    def linear(self, product: MatrixProduct, x: Tensor, skip: Tensor | None = None) -> Tensor:
        """Leave it to the owner."""
        return self._unknown(product.outputs)

    def look(self, exchange: Exchange, shown: list[Tensor], function: Function) -> list[Tensor]:
        """See values in a secret permutation, compute, and answer in it."""
        self._answer(exchange, function(self._plan.architecture, self._see(exchange)))
        return [self._unknown(one.width) for one in exchange.answers]

    def attend(self, layer: int, qkv: list[Tensor]) -> Tensor:
        """Go through attention with the owner."""
        plan, asking, rows, batch = self._plan, self._asking, self._rows, self._prepared.batch
        prf, kernel = self._prepared.prf, plan.attention(layer, batch, self._run)
        if isinstance(kernel, Resent):
            seen = kernel.ask(self._talk, prf)
        else:
            masked_kv = batch.masked_before(self._run)
            keys, values, seen = kernel.ask(
                self._talk,
                prf,
                query=self._prepared.queries[layer][rows],
                cached=asking.cached.upto(layer, batch.past + rows.stop),
                masked_kv=asking.masked_kv.upto(layer, masked_kv),
            )
            asking.masked_kv.put(layer, masked_kv, keys, values)
        words = plan.words
        self._ranges.note_words(seen, words.seen_bytes, words.seen_bits, f"{layer}.scores")
        return self._unknown(plan.inner)

    def show(self, exchange: Exchange, shown: list[Tensor], function: Function) -> Seen:
        """See values in a secret permutation, and compute."""
        return function(self._plan.architecture, self._see(exchange))

    def _answer(self, exchange: Exchange, values: Seen) -> None:
        answer_mask = exchange.answer_mask(self._prepared.prf, self._total)[self._rows]
        words = [encode(values[one.name], one.frac_bits) for one in exchange.answers]
        self._talk.send_bytes(exchange.answer(answer_mask, words))

    def _see(self, exchange: Exchange) -> Seen:
        """Receive what is shown, as doubles."""
        rows = self._rows
        reveal_mask = exchange.reveal_mask(self._prepared.prf, self._total)[rows]
        octets = self._talk.recv_bytes(rows.stop - rows.start, exchange.shown_bytes)
        seen = dict[str, Tensor]()
        for reveal, words in zip(exchange.reveals, exchange.see(reveal_mask, octets), strict=True):
            value = f"{exchange.label}.{reveal.name}"
            self._ranges.note_words(words, reveal.nbytes, reveal.seen_bits, value)
            seen[reveal.name] = ring.decode(words, frac_bits=reveal.seen_bits)
            if value in self._ranges.streams:
                self._ranges.note_stream(seen[reveal.name], value)
        return seen
