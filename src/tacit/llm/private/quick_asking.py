"""The user's passes of one row on CUDA: `Asking`'s words, in few launches."""

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from tacit.llm.private import attention_kernels, kernels
from tacit.llm.private.blueprint import Blueprint
from tacit.llm.private.exchange import Exchange
from tacit.llm.private.parcel import Channel
from tacit.llm.private.playback import Live, Mute, Record, Size, Wire
from tacit.llm.private.prepare import Prepared
from tacit.llm.private.quick import Heading, Slot, blocks, power, slots
from tacit.llm.private.quick_masks import QuickMasks
from tacit.llm.private.ranges import Ranges
from tacit.llm.private.shelf import Shelf

Active = Callable[[list[Tensor]], Tensor]
Attend = Callable[[Prepared, int, int], None]


@dataclass(frozen=True, eq=False)
class Peak:
    """How far the words of a wire went, and how far they may."""

    nbytes: int
    frac_bits: int
    wire: str


@dataclass(eq=False)
class _Stage:
    """Fixed memory for the masks of one run, and what was recorded on it."""

    whole: Tensor
    parts: dict[str, Tensor]
    place: Tensor
    record: Record | None = None
    version: tuple[int, int] = (-1, -1)
    shelves: list[Tensor] = field(default_factory=list)  # kept alive: the record reads them


class QuickAsking:
    """One conversation of the user, for steps.

    Guarantee: as `Asking`.
    Cost: as `Asking`.
    """

    def __init__(
        self,
        plan: Blueprint,
        talk: Channel,
        cached: Shelf,
        posted: Shelf,
        active: Active,
        attend: Attend,
    ) -> None:
        self._plan, self._talk = plan, talk
        self._cached, self._posted = cached, posted
        self._active, self._attend_slowly = active, attend
        self._heading = Heading(plan)
        self._projects = [plan.project(layer) for layer in range(plan.architecture.layers)]
        self._feeds = plan.feeds(0)  # alike in all layers
        exchanges = (*self._projects, *self._feeds)
        self._slots = {one.label: slots(one) for one in exchanges}
        a, device = plan.architecture, plan.device
        self._eps = torch.tensor([a.norm_eps], dtype=torch.float64, device=device)
        self._peaks = torch.zeros(a.layers * 8, dtype=torch.int64, device=device)
        self._marks = self._peaks.unbind(0)
        self._stats = torch.zeros(a.layers * 8, 2, dtype=torch.float64, device=device)
        self._first = 0  # of the marks of the exchange that was seen last
        self._noted: list[Peak] = []
        self._stages: dict[tuple[int, bool], _Stage] = {}
        self._shown_bytes = max(one.shown_bytes for one in exchanges)
        self._records = device.type == "cuda"

    def run(self, prepared: Prepared, run: int, masks: QuickMasks) -> None:
        """Go through all layers."""
        past, device = prepared.order.past + run, self._plan.device
        stage = self._stage(masks)
        stage.whole.copy_(masks.runs[run])
        stage.place.fill_(past)
        self._peaks.zero_()
        live = Live(self._talk, past + 1, device)
        if not masks.is_steady:
            self._pass(live, stage, masks.most, (prepared, run))
            return
        self._posted.reserve(past, masks.most)
        if not self._records:
            self._pass(live, stage, masks.most, None)
            return
        version = self._cached.version, self._posted.version
        if stage.record is None or stage.version != version:
            stage.record, stage.version = self._recorded(stage, masks.most), version
            self._peaks.zero_()
        stage.record.play(self._talk, past + 1)

    def note(self, ranges: Ranges) -> None:
        """Note how far every wire of the last run went."""
        width = self._plan.architecture.width
        for number, (peak, most) in enumerate(zip(self._noted, self._marks, strict=False)):
            ranges.note_words(most.view(1), peak.nbytes, peak.frac_bits, peak.wire)
            if peak.wire in ranges.streams:
                mean, sigma = self._stats[number]
                length = (width * (sigma.square() + mean.square())).sqrt()
                ranges.note_row(most.double() * 2.0**-peak.frac_bits, length, peak.wire)

    def _stage(self, masks: QuickMasks) -> _Stage:
        """Find the memory for a run, or make it; other memory is let go."""
        key = masks.most, masks.is_steady
        if key not in self._stages:
            whole = torch.empty_like(masks.runs[0])
            self._stages = {key: _Stage(whole, masks.sheet.parts(whole), whole.new_zeros(1))}
        return self._stages[key]

    def _recorded(self, stage: _Stage, most: int) -> Record:
        """Record a pass on a stage; first without recording, so that kernels are compiled."""
        heading = self._heading
        sizes = [one.at(most) for one in (heading.seen, heading.weights, heading.posts)]
        room = max(self._shown_bytes, *sizes)
        self._pass(Mute(room, stage.whole.device), stage, most, None)
        stage.shelves = []
        with Record(stage.whole.device, room) as record:
            self._pass(record, stage, most, None)
        return record

    def _pass(
        self, wire: Wire, stage: _Stage, most: int, slow: tuple[Prepared, int] | None
    ) -> None:
        self._noted = []
        for number, project in enumerate(self._projects):
            self._normalise(wire, project, stage.parts, f"{number}.project")
            if slow is None:
                self._attend(wire, stage, most, number)
            else:
                self._attend_slowly(*slow, number)
            self._feed(wire, stage.parts, number)

    def _feed(self, wire: Wire, parts: dict[str, Tensor], number: int) -> None:
        """Answer behind attention."""
        width, key = self._plan.architecture.width, f"{number}.feed"
        if len(self._feeds) == 2:
            middle, activate = self._feeds
            self._normalise(wire, middle, parts, f"{key}0")
            seen = self._see(wire, activate, parts, f"{key}1")
            active = self._active(list(seen.chunk(len(activate.reveals))))
            self._answer(wire, activate, parts[f"{key}1.cover"], None, (active,))
            return
        (merge,) = self._feeds
        seen = self._see(wire, merge, parts, f"{key}0")
        branches = (seen[width:] / self._spread(seen)[1]).chunk(len(merge.reveals) - 1)
        active = self._active(list(branches))
        self._answer(wire, merge, parts[f"{key}0.cover"], None, (active, seen))

    def _normalise(
        self, wire: Wire, exchange: Exchange, parts: dict[str, Tensor], key: str
    ) -> None:
        """Answer to a norm's input: it normalised, it as it was, or what else is divided by σ."""
        seen = self._see(wire, exchange, parts, key)
        values, start = list[Tensor](), self._plan.architecture.width
        for one in exchange.answers:
            if one.name in ("h", "x"):
                values.append(seen)
            else:
                values.append(seen[start:])
                start += one.width
        self._answer(wire, exchange, parts[f"{key}.cover"], self._spread(seen), tuple(values))

    def _see(self, wire: Wire, exchange: Exchange, parts: dict[str, Tensor], key: str) -> Tensor:
        """Receive what is shown, as doubles laid end to end."""
        self._first = len(self._noted)
        octets = wire.recv(Size(exchange.shown_bytes, is_row=True))
        veil, wires = parts[f"{key}.veil"], iter(exchange.reveals)
        out = torch.empty(len(veil), dtype=torch.float64, device=octets.device)
        at, start = 0, 0
        for span in exchange.shown:
            reveal, *_ = [next(wires) for _ in span.widths]
            kernels.see[blocks(span.width)](
                octets,
                at,
                veil[start:],
                out[start:],
                self._note(span.nbytes, reveal.seen_bits, f"{key}.{reveal.name}"),
                span.width,
                int(span.is_cut),
                2.0**-reveal.seen_bits,
                NBYTES=span.nbytes,
                BLOCK=kernels.BLOCK,
            )
            at += span.width * span.nbytes
            start += span.width
        return out

    def _note(self, nbytes: int, frac_bits: int, wire: str) -> Tensor:
        """Return where to note how far a wire goes."""
        mark = self._marks[len(self._noted)]
        self._noted.append(Peak(nbytes, frac_bits, wire))
        return mark

    def _spread(self, seen: Tensor) -> Tensor:
        """Return mean and σ of the stream, which lies first in what was seen last."""
        a = self._plan.architecture
        stats = self._stats[self._first]
        kernels.spread[(1,)](
            seen, self._eps, stats, a.width, IS_LAYER=a.norm == "layer", WHOLE=power(a.width)
        )
        return stats

    def _answer(
        self,
        wire: Wire,
        exchange: Exchange,
        cover: Tensor,
        stats: Tensor | None,
        values: tuple[Tensor, ...],
    ) -> None:
        """Encode and send answers; with ``stats``, all but the stream itself are divided by σ."""
        out = wire.empty(exchange.answer_bytes)
        for slot, value in zip(self._slots[exchange.label], values, strict=True):
            _encode(slot, value, stats, cover[slot.start :], out)
        wire.send(out, Size(exchange.answer_bytes, is_row=True))

    def _attend(self, wire: Wire, stage: _Stage, most: int, number: int) -> None:
        heading, place, words = self._heading, stage.place, self._heading.words
        masks = {
            name: stage.parts[f"{number}.attention.{name}"]
            for name in ("query", "halves", "veil", "cover", "weights", "rest")
        }
        keys, values = self._cached.whole(number)
        posted_keys, posted_values = self._posted.whole(number)
        stage.shelves += [keys, posted_keys]
        asked = self._take_posts(wire, place, (keys, values), (posted_keys, posted_values))
        factors = (asked, keys, masks["query"], posted_keys, masks["halves"])
        heading.halves(wire, factors, place, most)
        octets, out = wire.recv(heading.seen), wire.empty(heading.weights.at(most))
        attention_kernels.weigh[(heading.heads.count,)](
            octets,
            masks["veil"],
            masks["cover"],
            out,
            self._note(words.seen_bytes, words.seen_bits, f"{number}.scores"),
            place,
            2.0**-words.seen_bits,
            2.0**words.weight_bits,
            SEEN=words.seen_bytes,
            NBYTES=words.value_bytes,
            WHOLE=most,
        )
        wire.send(out, heading.weights)
        octets = wire.recv(heading.weights)
        factors = (masks["weights"], posted_values, octets, values, masks["rest"])
        heading.mixed(wire, factors, place)

    def _take_posts(
        self,
        wire: Wire,
        place: Tensor,
        masks: tuple[Tensor, Tensor],
        posted: tuple[Tensor, Tensor],
    ) -> Tensor:
        """Receive the new query, key and value, blinded; the latter two go onto the shelf."""
        heading = self._heading
        octets, at = wire.recv(heading.posts), 0
        asked = torch.empty(heading.inner, dtype=torch.int64, device=octets.device)
        for out, added, width, nbytes in zip(
            (asked, *posted), (asked, *masks), heading.widths, heading.nbytes, strict=True
        ):
            is_kept = out is not asked
            kernels.add[blocks(width)](
                octets,
                at,
                added,
                added,
                out,
                place,
                width,
                0,
                ADDS=int(is_kept),
                SHELVES=is_kept,
                NBYTES=nbytes,
                BLOCK=kernels.BLOCK,
            )
            at += width * nbytes
        return asked


def _encode(slot: Slot, value: Tensor, stats: Tensor | None, cover: Tensor, out: Tensor) -> None:
    one = slot.answer
    kernels.answer[blocks(one.width)](
        value,
        value if stats is None else stats,
        cover,
        out,
        slot.at,
        slot.first,
        slot.total,
        one.width,
        2.0**one.frac_bits,
        CENTRES=stats is not None and one.name == "h",
        DIVIDES=stats is not None and one.name != "x",
        NBYTES=one.nbytes,
        BLOCK=kernels.BLOCK,
    )
