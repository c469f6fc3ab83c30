"""The owner's passes of one row on CUDA: `Serving`'s words, in few launches."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from tacit import ring
from tacit.llm.private import attention_kernels, kernels
from tacit.llm.private.blueprint import Blueprint
from tacit.llm.private.exchange import Exchange
from tacit.llm.private.parcel import Channel
from tacit.llm.private.playback import Live, Mute, Record, Size, Wire
from tacit.llm.private.quick import Heading, Sheet, blocks
from tacit.llm.private.quick_stock import lay_out
from tacit.llm.private.shelf import Shelf
from tacit.llm.private.stock import Stock
from tacit.llm.private.weights import Weights

Attend = Callable[[Stock, int, int, list[Tensor]], Tensor]


@dataclass(eq=False)
class _Stage:
    """Fixed memory for the material of one run, and what was recorded on it.

    Attributes:
        sheet: how it is laid out.
        whole: all of it.
        parts: by name.
        place: where the new token stands.
        stream: what goes in.
        out: what comes out, once a pass is recorded.
    """

    sheet: Sheet
    whole: Tensor
    parts: dict[str, Tensor]
    place: Tensor
    stream: Tensor
    out: Tensor | None = None
    record: Record | None = None
    version: int = -1


@dataclass(frozen=True, eq=False)
class _Ready:
    """An order's material, laid out for every run."""

    most: int
    is_steady: bool
    sheet: Sheet
    runs: list[Tensor] = field(default_factory=list)


class QuickServing:
    """One conversation at the owner, for steps.

    Guarantee: as `Serving`, word for word.
    Cost: as `Serving`.
    """

    def __init__(
        self,
        plan: Blueprint,
        weights: Weights,
        biases: Mapping[str, Tensor],
        talk: Channel,
        cached: Shelf,
        attend: Attend,
    ) -> None:
        self._plan, self._weights, self._biases = plan, weights, biases
        self._talk, self._cached, self._attend_slowly = talk, cached, attend
        self._heading = Heading(plan)
        self._projects = [plan.project(layer) for layer in range(plan.architecture.layers)]
        self._feeds = plan.feeds(0)  # alike in all layers
        self._ready: dict[int, _Ready] = {}
        self._stages: dict[tuple[int, bool], _Stage] = {}
        self._moved = 1 << (plan.middle_bits - plan.precision.stream)
        self._is_lean = plan.is_lean
        self._records = plan.device.type == "cuda"

    def make_ready(self, stock: Stock) -> None:
        """Lay the material of an order out, run by run, before it is wanted."""
        most, is_steady, sheet, runs = lay_out(self._plan, stock, self._biases)
        self._ready[stock.order.number] = _Ready(most, is_steady, sheet, runs)

    def run(self, stock: Stock, run: int, stream: Tensor) -> Tensor:
        """Take a stream through all layers."""
        for old in list(self._ready):  # a copy: what stocks up writes there at the same time
            if old < stock.order.number:
                self._ready.pop(old, None)
        ready, past = self._ready[stock.order.number], stock.order.past + run
        stage = self._stage(ready)
        stage.whole.copy_(ready.runs[run])
        stage.place.fill_(past)
        if not ready.is_steady:
            live = Live(self._talk, past + 1, stream.device)
            return self._pass(live, stage, ready.most, stream.view(-1), (stock, run)).view(1, -1)
        self._cached.reserve(past, ready.most)
        if not self._records:
            live = Live(self._talk, past + 1, stream.device)
            return self._pass(live, stage, ready.most, stream.view(-1), None).view(1, -1)
        stage.stream.copy_(stream.view(-1))
        if stage.record is None or stage.version != self._cached.version:
            self._record(stage, ready.most)
            stage.whole.copy_(ready.runs[run])
        assert stage.record is not None  # noqa: S101 - it was made just now
        assert stage.out is not None  # noqa: S101 - with its output
        stage.record.play(self._talk, past + 1)
        return stage.out.view(1, -1)

    def _stage(self, ready: _Ready) -> _Stage:
        """Find the memory for a run, or make it; other memory is let go."""
        key = ready.most, ready.is_steady
        if key not in self._stages:
            whole = torch.empty_like(ready.runs[0])
            place = whole.new_zeros(1)
            stream = whole.new_zeros(self._plan.architecture.width)
            parts = ready.sheet.parts(whole)
            self._stages = {key: _Stage(ready.sheet, whole, parts, place, stream)}
        return self._stages[key]

    def _record(self, stage: _Stage, most: int) -> None:
        """Record a pass on a stage; first without recording, so that kernels are compiled."""
        exchanges = (*self._projects, *self._feeds)
        heading = self._heading
        sizes = [one.answer_bytes for one in exchanges]
        sizes += [one.at(most) for one in (heading.seen, heading.weights, heading.result)]
        self._pass(Mute(max(sizes), stage.whole.device), stage, most, stage.stream, None)
        with Record(stage.whole.device, max(sizes)) as record:
            record.begin()
            stage.out = self._pass(record, stage, most, stage.stream, None)
        stage.record, stage.version = record, self._cached.version

    def _pass(
        self,
        wire: Wire,
        stage: _Stage,
        most: int,
        stream: Tensor,
        slow: tuple[Stock, int] | None,
    ) -> Tensor:
        for number in range(len(self._projects)):
            stream = self._layer(wire, stage, most, number, stream, slow)
        return stream

    def _layer(
        self,
        wire: Wire,
        stage: _Stage,
        most: int,
        number: int,
        stream: Tensor,
        slow: tuple[Stock, int] | None,
    ) -> Tensor:
        parts, project, name = stage.parts, self._projects[number], f"{number}.qkv"
        key = f"{number}.project"
        if self._is_lean:
            self._show(wire, project, parts, key, stream)
            normed = self._take(wire, project, parts, key)
            words = self._product(name, parts, normed)
        else:
            qkv = self._product(name, parts, stream)
            self._show(wire, project, parts, key, stream, qkv)
            words = self._take(wire, project, parts, key)
            normed = words[self._plan.inner + 2 * self._plan.kv :]
        if slow is None:
            out = self._attend(wire, stage, most, number, words)
        else:
            rows = [part.view(1, -1) for part in self._cut(words)]
            out = self._attend_slowly(*slow, number, rows).view(-1)
        kept = parts[f"{number}.o"]
        if self._plan.architecture.skips_from_norm:
            kept.addcmul_(
                normed, self._weights.diagonal(f"{number}.skip1").view(-1), value=self._moved
            )
        else:
            kept.add_(stream, alpha=self._moved)
        return self._feed(wire, parts, number, self._product(f"{number}.o", parts, out))

    def _feed(self, wire: Wire, parts: dict[str, Tensor], number: int, stream: Tensor) -> Tensor:
        """Go on behind attention, to where the next layer starts."""
        plan, p, down = self._plan, self._plan.precision, parts[f"{number}.down"]
        width, key = plan.architecture.width, f"{number}.feed"
        if len(self._feeds) == 1:
            (merge,) = self._feeds
            up = self._product(f"{number}.up", parts, stream)
            self._show(wire, merge, parts, f"{key}0", stream, up)
            words = self._take(wire, merge, parts, f"{key}0")
            active, skip = words[: plan.architecture.ffn], words[plan.architecture.ffn :]
        else:
            middle, activate = self._feeds
            self._show(wire, middle, parts, f"{key}0", stream)
            words = self._take(wire, middle, parts, f"{key}0")
            h, skip = words[:width], words[width:]
            self._show(wire, activate, parts, f"{key}1", self._product(f"{number}.up", parts, h))
            active = self._take(wire, activate, parts, f"{key}1")
        if plan.architecture.skips_from_norm:
            down.addcmul_(h, self._weights.diagonal(f"{number}.skip2").view(-1))
        else:
            down.add_(skip, alpha=1 << (p.stream - p.skip))
        return self._product(f"{number}.down", parts, active)

    def _product(self, name: str, parts: dict[str, Tensor], row: Tensor) -> Tensor:
        """Add a product to what corrects it, in place."""
        out = parts[name].view(1, -1)
        return ring.accumulate(out, row.view(1, -1), self._weights.factor(name)).view(-1)

    def _cut(self, words: Tensor) -> tuple[Tensor, ...]:
        """Cut queries, keys and values apart."""
        widths = self._heading.widths
        return words[: sum(widths)].split_with_sizes(widths)

    def _show(
        self,
        wire: Wire,
        exchange: Exchange,
        parts: dict[str, Tensor],
        key: str,
        first: Tensor,
        second: Tensor | None = None,
    ) -> None:
        wires, shown, veiled = exchange.reveals, parts[f"{key}.shown"], parts[f"{key}.veiled"]
        out, at, start = wire.empty(exchange.shown_bytes), 0, 0
        for span in exchange.shown:
            kernels.show[blocks(span.width)](
                first,
                first if second is None else second,
                len(shown) if second is None else wires[0].width,
                wires[0].drop,
                wires[-1].drop,
                shown[start:],
                veiled[start:],
                out,
                at,
                span.width,
                NBYTES=span.nbytes,
                BLOCK=kernels.BLOCK,
            )
            at += span.width * span.nbytes
            start += span.width
        wire.send(out, Size(exchange.shown_bytes, is_row=True))

    def _take(self, wire: Wire, exchange: Exchange, parts: dict[str, Tensor], key: str) -> Tensor:
        octets = wire.recv(Size(exchange.answer_bytes, is_row=True))
        covered, places = parts[f"{key}.covered"], parts[f"{key}.answered"]
        out, at, start = torch.empty_like(covered), 0, 0
        for span in exchange.answered:
            kernels.take[blocks(span.width)](
                octets,
                at,
                covered[start:],
                places[start:],
                out,
                span.width,
                NBYTES=span.nbytes,
                BLOCK=kernels.BLOCK,
            )
            at += span.width * span.nbytes
            start += span.width
        return out

    def _attend(self, wire: Wire, stage: _Stage, most: int, number: int, words: Tensor) -> Tensor:
        heading, place, parts = self._heading, stage.place, stage.parts
        key, value_bytes = f"{number}.attention", self._heading.words.value_bytes
        keys, values = self._cached.whole(number)
        query, posts = self._post(wire, stage, key, self._cut(words), (keys, values))
        own = heading.scores(query, keys, place, most)
        wire.send(posts, heading.posts)
        weights, blinded = self._weigh(wire, stage, most, key, own)
        own = heading.mix(weights, values, place)
        wire.send(blinded, heading.weights)
        half = wire.recv(heading.result)
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
            SHELVES=False,
            NBYTES=value_bytes,
            BLOCK=kernels.BLOCK,
        )
        return own

    def _weigh(
        self, wire: Wire, stage: _Stage, most: int, key: str, own: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Show the scores and take the weights; returns them, and what is sent of them."""
        heading, parts, place = self._heading, stage.parts, stage.place
        sizes = {"HEADS": heading.heads.count, "BLOCK": kernels.BLOCK}
        order, grid = parts[f"{key}.order"], blocks(heading.heads.count * most)
        half, out = wire.recv(heading.seen), wire.empty(heading.seen.at(most))
        attention_kernels.reshow[grid](
            own,
            half,
            order,
            parts[f"{key}.delta"],
            out,
            place,
            NBYTES=heading.words.seen_bytes,
            **sizes,
        )
        wire.send(out, heading.seen)
        answer, out = wire.recv(heading.weights), wire.empty(heading.weights.at(most))
        weights = torch.empty_like(own)
        attention_kernels.reweigh[grid](
            answer,
            parts[f"{key}.covered"],
            order,
            parts[f"{key}.weights"],
            weights,
            out,
            place,
            NBYTES=heading.words.value_bytes,
            **sizes,
        )
        return weights, out

    def _post(
        self,
        wire: Wire,
        stage: _Stage,
        key: str,
        qkv: tuple[Tensor, ...],
        shelves: tuple[Tensor, Tensor],
    ) -> tuple[Tensor, Tensor]:
        """Turn and keep queries, keys and values; returns the query, and what is sent of all."""
        heading, parts = self._heading, stage.parts
        query, out, at = torch.empty_like(qkv[0]), wire.empty(heading.posts.fixed), 0
        names = ("query", "keys", "values")
        for part, kept, name, nbytes, drop in zip(
            qkv, (query, *shelves), names, heading.nbytes, heading.drops, strict=True
        ):
            attention_kernels.post[blocks(len(part))](
                part,
                parts["cos"],
                parts["sin"],
                parts[f"{key}.{name}"],
                kept,
                out,
                stage.place,
                at,
                len(part),
                drop,
                DIM=heading.heads.dim,
                HALF=0 if name == "values" else heading.half,
                SHELVES=name != "query",
                NBYTES=nbytes,
                BLOCK=kernels.BLOCK,
            )
            at += len(part) * nbytes
        return query, out
