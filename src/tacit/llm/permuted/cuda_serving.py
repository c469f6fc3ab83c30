"""The owner's passes of one row on CUDA: `Serving`'s words, in few launches."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from tacit import ring
from tacit.llm.permuted import kernels
from tacit.llm.permuted.blueprint import Blueprint
from tacit.llm.permuted.cuda import Heading, Laid, blocks, lay_out_material
from tacit.llm.permuted.cuda_graph import Capture, Live, MessageLink, MessageSize, Mute
from tacit.llm.permuted.exchange import Exchange
from tacit.llm.permuted.geometry import KvCache
from tacit.llm.permuted.material import BatchMaterial
from tacit.llm.permuted.messages import Channel
from tacit.llm.permuted.program import Function, MatrixProduct, Seen, cut, exchanges, run_layer
from tacit.llm.permuted.weights import Weights

Attend = Callable[[BatchMaterial, int, int, list[Tensor]], Tensor]


@dataclass(eq=False)
class _Stage:
    """Fixed memory for the material of one run, and what was recorded on it.

    Attributes:
        whole: all of it, as it is laid out.
        parts: by name.
        place: where the new token stands.
        stream: what goes in.
        out: what comes out, once a pass is recorded.
    """

    whole: Tensor
    parts: dict[str, Tensor]
    place: Tensor
    stream: Tensor
    out: Tensor | None = None
    record: Capture | None = None
    version: int = -1


class CudaServing:
    """One conversation at the owner, for steps.

    Guarantee: as `Serving`, word for word.
    Cost: as `Serving`.
    """

    def __init__(
        self,
        plan: Blueprint,
        weights: Weights,
        talk: Channel,
        cached: KvCache,
        attend: Attend,
    ) -> None:
        self.plan, self.weights = plan, weights
        self._talk, self.cached, self.attend_slowly = talk, cached, attend
        self.heading = Heading(plan)
        self._ready: dict[int, Laid] = {}
        self._stages: dict[tuple[int, bool], _Stage] = {}
        self._captures = plan.device.type == "cuda"

    def make_ready(self, offline: BatchMaterial) -> None:
        """Lay the material of a batch out, run by run, before it is wanted."""
        self._ready[offline.batch.number] = lay_out_material(self.plan, offline)

    def run(self, offline: BatchMaterial, run: int, stream: Tensor) -> Tensor:
        """Take a stream through all layers."""
        for old in list(self._ready):  # a copy: what stocks up writes there at the same time
            if old < offline.batch.number:
                self._ready.pop(old, None)
        ready, past = self._ready[offline.batch.number], offline.batch.past + run
        stage = self._stage(ready)
        stage.whole.copy_(ready.runs[run])
        stage.place.fill_(past)
        if not ready.is_capturable:
            live = Live(self._talk, past + 1, stream.device)
            return self._pass(live, stage, ready.most, stream.view(-1), (offline, run)).view(1, -1)
        self.cached.reserve(past, ready.most)
        if not self._captures:
            live = Live(self._talk, past + 1, stream.device)
            return self._pass(live, stage, ready.most, stream.view(-1), None).view(1, -1)
        stage.stream.copy_(stream.view(-1))
        if stage.record is None or stage.version != self.cached.version:
            self._capture(stage, ready.most)
            stage.whole.copy_(ready.runs[run])
        assert stage.record is not None  # noqa: S101 - it was made just now
        assert stage.out is not None  # noqa: S101 - with its output
        stage.record.replay(self._talk, past + 1)
        return stage.out.view(1, -1)

    def _stage(self, ready: Laid) -> _Stage:
        """Find the memory for a run, or make it; other memory is let go."""
        key = ready.most, ready.is_capturable
        if key not in self._stages:
            whole = torch.empty_like(ready.runs[0])
            place = whole.new_zeros(1)
            stream = whole.new_zeros(self.plan.architecture.width)
            parts = ready.sheet.parts(whole)
            self._stages = {key: _Stage(whole, parts, place, stream)}
        return self._stages[key]

    def _capture(self, stage: _Stage, most: int) -> None:
        """Capture a pass on a stage; first without recording, so that kernels are compiled."""
        heading, layers = self.heading, range(self.plan.architecture.layers)
        sizes = [one.answer_bytes for layer in layers for one in exchanges(self.plan, layer)]
        sizes += [one.at(most) for one in (heading.seen, heading.weights, heading.result)]
        self._pass(Mute(max(sizes), stage.whole.device), stage, most, stage.stream, None)
        with Capture(stage.whole.device, max(sizes)) as record:
            record.begin()
            stage.out = self._pass(record, stage, most, stage.stream, None)
        stage.record, stage.version = record, self.cached.version

    def _pass(
        self,
        link: MessageLink,
        stage: _Stage,
        most: int,
        stream: Tensor,
        slow: tuple[BatchMaterial, int] | None,
    ) -> Tensor:
        party = _Party(self, link, stage, most, slow)
        for number in range(self.plan.architecture.layers):
            stream = run_layer(party, self.plan, number, stream)
        return stream


class _Party:
    """Walk a pass of one row; values are vectors, and products are added to their material."""

    def __init__(
        self,
        serving: CudaServing,
        link: MessageLink,
        stage: _Stage,
        most: int,
        slow: tuple[BatchMaterial, int] | None,
    ) -> None:
        self._link, self._stage, self._most, self._slow = link, stage, most, slow
        self._weights, self._cached = serving.weights, serving.cached
        self._window_of = serving.plan.architecture.window_of
        self._heading, self._attend_slowly = serving.heading, serving.attend_slowly

    def linear(self, product: MatrixProduct, x: Tensor, skip: Tensor | None = None) -> Tensor:
        """Add a product to what corrects it, in place."""
        out = self._stage.parts[product.name]
        if product.skip is not None and skip is not None:
            name, moved = product.skip.name, 1 << product.skip.bits
            if name:
                out.addcmul_(skip, self._weights.diagonal(name).view(-1), value=moved)
            else:
                out.add_(skip, alpha=moved)
        if self._weights.is_diagonal(product.name):
            return out.addcmul_(x, self._weights.diagonal(product.name).view(-1))
        factor = self._weights.factor(product.name)
        return ring.accumulate(out.view(1, -1), x.view(1, -1), factor).view(-1)

    def look(self, exchange: Exchange, shown: list[Tensor], function: Function) -> list[Tensor]:
        """Show values in a secret permutation, and take the answer; biases are in the material."""
        self.show(exchange, shown, function)
        octets = self._link.recv(MessageSize(exchange.answer_bytes, is_row=True))
        parts, key = self._stage.parts, exchange.label
        answer_correction, places = parts[f"{key}.answer_correction"], parts[f"{key}.answered"]
        out, at, start = torch.empty_like(answer_correction), 0, 0
        for span in exchange.answered:
            kernels.take[blocks(span.width)](
                octets,
                at,
                answer_correction[start:],
                places[start:],
                out,
                span.width,
                NBYTES=span.nbytes,
                BLOCK=kernels.BLOCK,
            )
            at += span.width * span.nbytes
            start += span.width
        return cut(out, [one.width for one in exchange.answers])

    def show(self, exchange: Exchange, shown: list[Tensor], function: Function) -> Seen:
        """Show values in a secret permutation; all but the first lie end to end in memory."""
        values, parts, key = exchange.reveals, self._stage.parts, exchange.label
        places, reveal_correction = parts[f"{key}.shown"], parts[f"{key}.reveal_correction"]
        out, at, start = self._link.empty(exchange.shown_bytes), 0, 0
        for span in exchange.shown:
            kernels.show[blocks(span.width)](
                shown[0],
                shown[min(1, len(shown) - 1)],
                values[0].width,
                values[0].drop,
                values[-1].drop,
                places[start:],
                reveal_correction[start:],
                out,
                at,
                span.width,
                NBYTES=span.nbytes,
                BLOCK=kernels.BLOCK,
            )
            at += span.width * span.nbytes
            start += span.width
        self._link.send(out, MessageSize(exchange.shown_bytes, is_row=True))
        return {}

    def attend(self, layer: int, qkv: list[Tensor]) -> Tensor:
        """Go through attention with the user."""
        if self._slow is None:
            return self._attend(layer, qkv)
        rows = [part.view(1, -1) for part in qkv]
        return self._attend_slowly(*self._slow, layer, rows).view(-1)

    def _attend(self, number: int, qkv: list[Tensor]) -> Tensor:
        heading, link, stage, most = self._heading, self._link, self._stage, self._most
        place, parts = stage.place, stage.parts
        key, value_bytes = f"{number}.attention", self._heading.words.value_bytes
        keys, values = self._cached.whole(number)
        query, masked_qkv = self._post(number, qkv, (keys, values))
        own = heading.scores(query, keys, place, most)
        link.send(masked_qkv, heading.masked_qkv)
        weights, blinded = self._weigh(key, own)
        own = heading.mix(weights, values, place)
        link.send(blinded, heading.weights)
        half = link.recv(heading.result)
        kernels.add[blocks(len(own))](
            half,
            0,
            own,
            parts[f"{key}.rest"],
            own,
            place,
            len(own),
            heading.out_drop,
            ADDS=2,
            IN_CACHE=False,
            NBYTES=value_bytes,
            BLOCK=kernels.BLOCK,
        )
        return own

    def _weigh(self, key: str, own: Tensor) -> tuple[Tensor, Tensor]:
        """Show the scores and take the weights; returns them, and what is sent of them."""
        heading, link, most = self._heading, self._link, self._most
        parts, place = self._stage.parts, self._stage.place
        sizes = {"HEADS": heading.heads.count, "BLOCK": kernels.BLOCK}
        permutation, grid = parts[f"{key}.permutation"], blocks(heading.heads.count * most)
        half, out = link.recv(heading.seen), link.empty(heading.seen.at(most))
        kernels.reshow[grid](
            own,
            half,
            permutation,
            parts[f"{key}.delta"],
            out,
            place,
            NBYTES=heading.words.seen_bytes,
            **sizes,
        )
        link.send(out, heading.seen)
        answer, out = link.recv(heading.weights), link.empty(heading.weights.at(most))
        weights = torch.empty_like(own)
        kernels.reweigh[grid](
            answer,
            parts[f"{key}.answer_correction"],
            permutation,
            parts[f"{key}.weights"],
            weights,
            out,
            place,
            NBYTES=heading.words.value_bytes,
            **sizes,
        )
        return weights, out

    def _post(
        self, number: int, qkv: list[Tensor], caches: tuple[Tensor, Tensor]
    ) -> tuple[Tensor, Tensor]:
        """Turn and keep queries, keys and values; returns the query, and what is sent of all."""
        heading, stage, parts = self._heading, self._stage, self._stage.parts
        query, out, at = torch.empty_like(qkv[0]), self._link.empty(heading.masked_qkv.fixed), 0
        names, key = ("query", "keys", "values"), f"{number}.attention"
        window = self._window_of(number)
        for part, kept, name, nbytes, drop in zip(
            qkv, (query, *caches), names, heading.nbytes, heading.drops, strict=True
        ):
            kernels.mask_heads[blocks(len(part))](
                part,
                parts[f"cos.{window}"],
                parts[f"sin.{window}"],
                parts[f"{key}.{name}"],
                kept,
                out,
                stage.place,
                at,
                len(part),
                drop,
                DIM=heading.heads.dim,
                HALF=0 if name == "values" else heading.half,
                IN_CACHE=name != "query",
                NBYTES=nbytes,
                BLOCK=kernels.BLOCK,
            )
            at += len(part) * nbytes
        return query, out
