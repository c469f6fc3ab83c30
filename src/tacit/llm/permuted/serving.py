"""The owner's online work: plain products with its weights, and one message per step."""

from collections.abc import Mapping

import torch
from torch import Tensor

from tacit.llm.permuted.attention import Resent
from tacit.llm.permuted.blueprint import Blueprint
from tacit.llm.permuted.cuda import has_kernels
from tacit.llm.permuted.cuda_serving import CudaServing
from tacit.llm.permuted.exchange import Exchange, LookMaterial
from tacit.llm.permuted.geometry import KvCache
from tacit.llm.permuted.masks import turn
from tacit.llm.permuted.material import BatchMaterial, LayerMaterial
from tacit.llm.permuted.messages import Channel, unpack
from tacit.llm.permuted.program import Function, MatrixProduct, Seen, run_end, run_layer
from tacit.llm.permuted.weights import Weights


class Serving:
    """One conversation at the owner, online: m of every masked value.

    Guarantee: everything it receives is uniform: the user's text leaves no trace but its length.
    Cost: one product with every matrix per row; messages as `Blueprint` lists them.
    """

    def __init__(
        self,
        plan: Blueprint,
        weights: Weights,
        biases: Mapping[str, Tensor],
        talk: Channel,
        cached: KvCache,
    ) -> None:
        self.plan, self.weights, self.talk, self.cached = plan, weights, talk, cached
        self.biases = {name: bias.to(plan.device) for name, bias in biases.items()}
        self._cuda: CudaServing | None = None
        if has_kernels(plan):
            self._cuda = CudaServing(plan, weights, talk, cached, self._attend)
        self._counts: Tensor | None = None

    def make_ready(self, offline: BatchMaterial) -> None:
        """Do beforehand what a run of steps would have to do with its material."""
        if self._cuda is not None and not offline.batch.is_prompt:
            self._cuda.make_ready(offline)

    def embed_prompt(self, offline: BatchMaterial, hot: Tensor, tally: Tensor) -> Tensor:
        """Return the owner's share of the stream for the tokens of a prompt.

        ``tally`` is the user's masked count of all tokens so far; empty if nothing is counted.
        """
        assert offline.first is not None  # noqa: S101 - the batch is a prompt
        if self.plan.counts:
            self._counts = unpack(tally.view(1, -1), self.plan.count_bytes)
        words = unpack(hot, self.plan.wide_bytes)
        stream = self.weights.apply("embed", words) + offline.first
        return self._placed(stream, offline.batch.past)

    def embed_choice(self, offline: BatchMaterial, run: int, answer: Tensor) -> Tensor:
        """Return the owner's share of the stream for the token that was chosen after a run."""
        at = slice(run, run + 1)
        (hot,) = self.plan.choose().take(offline.chosen.at(at), answer)
        if self._counts is not None:
            self._counts = self._counts + hot
        stream = self.weights.apply("embed", hot) + offline.following[at]
        past = offline.batch.end if offline.batch.is_prompt else offline.batch.past + run + 1
        return self._placed(stream, past)

    def run(self, offline: BatchMaterial, run: int, stream: Tensor) -> None:
        """Take a stream through all layers and show the scores."""
        plan, rows = self.plan, offline.batch.scored_by(run)
        if self._cuda is not None and not offline.batch.is_prompt:
            stream = self._cuda.run(offline, run, stream)
        else:
            for layer, material in enumerate(offline.layers):
                party = OwnerParty(self, offline, run, material, offline.batch.rows_of(run))
                stream = run_layer(party, plan, layer, stream)
        scored = rows.stop - rows.start
        counts = None if self._counts is None else self._counts.expand(scored, -1)
        party = OwnerParty(self, offline, run, offline.end, rows)
        run_end(party, plan, stream, scored=scored, counts=counts)

    def _attend(self, offline: BatchMaterial, run: int, layer: int, qkv: list[Tensor]) -> Tensor:
        rows = offline.batch.rows_of(run)
        return OwnerParty(self, offline, run, offline.layers[layer], rows).attend(layer, qkv)

    def _placed(self, stream: Tensor, at: int) -> Tensor:
        """Add learned positions, where a model has them."""
        positions = self.biases.get("positions")
        return stream if positions is None else stream + positions[at : at + len(stream)]


class OwnerParty:
    """Walk a pass with m of every masked value, one message at every exchange."""

    def __init__(
        self,
        serving: Serving,
        offline: BatchMaterial,
        run: int,
        material: LayerMaterial,
        rows: slice,
    ) -> None:
        """Walk a run of a batch, with its rows of the material of a layer or of the end."""
        self._serving, self._plan, self._talk = serving, serving.plan, serving.talk
        self._offline, self._run, self._material, self._rows = offline, run, material, rows

    def linear(self, product: MatrixProduct, x: Tensor, skip: Tensor | None = None) -> Tensor:
        """Multiply, and add what user and dealer sent: step 5 of algorithm 6.1."""
        weights = self._serving.weights
        out = weights.apply(product.name, x) + self._material.sums[product.name][self._rows]
        if product.skip is None or skip is None:
            return out
        if product.skip.name:
            skip = weights.apply(product.skip.name, skip)
        return out + (skip << product.skip.bits)

    def look(self, exchange: Exchange, shown: list[Tensor], function: Function) -> list[Tensor]:
        """Show masked values in a secret permutation, and take the answer."""
        self.show(exchange, shown, function)
        answer = self._talk.recv_bytes(len(shown[0]), exchange.answer_bytes)
        return exchange.take(self._look(exchange), answer)

    def attend(self, layer: int, qkv: list[Tensor]) -> Tensor:
        """Keep shares of keys and values, and go through attention with the user."""
        plan, run, rows, cache = self._plan, self._run, self._rows, self._serving.cached
        batch, dealt, prf = self._offline.batch, self._material.mixed[run], self._offline.prf
        past = batch.past + rows.start
        query, keys, values = turn(plan, batch, layer, rows, qkv, torch.bitwise_right_shift)
        cache.put(layer, past, keys, values)
        cached = cache.upto(layer, past + len(keys))
        kernel = plan.attention(layer, batch, run)
        if isinstance(kernel, Resent):
            out = kernel.serve(self._talk, prf, dealt, query=query, cached=cached)
        else:
            masked_kv = batch.masked_before(run)
            out = kernel.serve(
                self._talk, prf, dealt, query=query, cached=cached, masked_kv=masked_kv
            )
        return out >> plan.out_drop

    def show(self, exchange: Exchange, shown: list[Tensor], function: Function) -> Seen:
        """Show masked values in a secret permutation."""
        self._talk.send_bytes(exchange.show(self._look(exchange), shown))
        return {}

    def _look(self, exchange: Exchange) -> LookMaterial:
        return self._material.looks[exchange.label].at(self._rows)
