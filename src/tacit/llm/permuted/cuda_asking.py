"""The user's passes of one row on CUDA: `Asking`'s words, in few launches."""

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from tacit.llm.permuted import kernels
from tacit.llm.permuted.blueprint import Blueprint
from tacit.llm.permuted.cuda import Heading, Laid, Slot, blocks, power, slots
from tacit.llm.permuted.cuda_graph import Capture, Live, MessageLink, MessageSize, Mute
from tacit.llm.permuted.exchange import Exchange
from tacit.llm.permuted.geometry import KvCache
from tacit.llm.permuted.masks import Ranges
from tacit.llm.permuted.messages import Channel
from tacit.llm.permuted.prepare import PreparedBatch
from tacit.llm.permuted.program import (
    Function,
    MatrixProduct,
    Seen,
    cut,
    exchanges,
    normalise,
    run_layer,
    unknown,
)

Attend = Callable[[PreparedBatch, int, int], None]
_MARKS = 16  # masked values of one layer whose ends are noted, at most


@dataclass(eq=False)
class _Stage:
    """Fixed memory for the masks of one run, and what was recorded on it."""

    whole: Tensor
    parts: dict[str, Tensor]
    place: Tensor
    record: Capture | None = None
    version: tuple[int, int] = (-1, -1)
    caches: list[Tensor] = field(default_factory=list)  # kept alive: the record reads them


class CudaAsking:
    """One conversation of the user, for steps.

    Guarantee: as `Asking`.
    Cost: as `Asking`.
    """

    def __init__(
        self,
        plan: Blueprint,
        talk: Channel,
        cached: KvCache,
        masked_kv: KvCache,
        attend: Attend,
    ) -> None:
        self._plan, self._talk = plan, talk
        self.cached, self.masked_kv, self.attend_slowly = cached, masked_kv, attend
        self.heading = Heading(plan)
        self.architecture = a = plan.architecture
        device = plan.device
        found = [one for layer in range(a.layers) for one in exchanges(plan, layer)]
        self.slots = {one.label: slots(one) for one in found}
        self._eps = torch.tensor([a.norm_eps], dtype=torch.float64, device=device)
        self._peaks = torch.zeros(_MARKS * a.layers, dtype=torch.int64, device=device)
        self._marks = self._peaks.unbind(0)
        self._stats = torch.zeros(_MARKS * a.layers, 2, dtype=torch.float64, device=device)
        self._noted: list[tuple[int, int, str]] = []  # bytes, fraction bits, name
        self._stages: dict[tuple[int, bool], _Stage] = {}
        self._shown_bytes = max(one.shown_bytes for one in found)
        self._captures = device.type == "cuda"

    def run(self, prepared: PreparedBatch, run: int, masks: Laid) -> None:
        """Go through all layers."""
        past, device = prepared.batch.past + run, self._plan.device
        stage = self._stage(masks)
        stage.whole.copy_(masks.runs[run])
        stage.place.fill_(past)
        self._peaks.zero_()
        live = Live(self._talk, past + 1, device)
        if not masks.is_capturable:
            self._pass(live, stage, masks.most, (prepared, run))
            return
        self.masked_kv.reserve(past, masks.most)
        if not self._captures:
            self._pass(live, stage, masks.most, None)
            return
        version = self.cached.version, self.masked_kv.version
        if stage.record is None or stage.version != version:
            stage.record, stage.version = self._captured(stage, masks.most), version
            self._peaks.zero_()
        stage.record.replay(self._talk, past + 1)

    def note(self, ranges: Ranges) -> None:
        """Note how far every masked value of the last run went."""
        width = self._plan.architecture.width
        for number, (peak, most) in enumerate(zip(self._noted, self._marks, strict=False)):
            _, frac_bits, value = peak
            ranges.note_words(most.view(1), *peak)
            if value in ranges.streams:
                mean, sigma = self._stats[number]
                length = (width * (sigma.square() + mean.square())).sqrt()
                ranges.note_row(most.double() * 2.0**-frac_bits, length, value)

    def _stage(self, masks: Laid) -> _Stage:
        """Find the memory for a run, or make it; other memory is let go."""
        key = masks.most, masks.is_capturable
        if key not in self._stages:
            whole = torch.empty_like(masks.runs[0])
            self._stages = {key: _Stage(whole, masks.sheet.parts(whole), whole.new_zeros(1))}
        return self._stages[key]

    def _captured(self, stage: _Stage, most: int) -> Capture:
        """Capture a pass on a stage; first without recording, so that kernels are compiled."""
        heading = self.heading
        sizes = [one.at(most) for one in (heading.seen, heading.weights, heading.masked_qkv)]
        room = max(self._shown_bytes, *sizes)
        self._pass(Mute(room, stage.whole.device), stage, most, None)
        stage.caches = []
        with Capture(stage.whole.device, room) as record:
            self._pass(record, stage, most, None)
        return record

    def _pass(
        self, link: MessageLink, stage: _Stage, most: int, slow: tuple[PreparedBatch, int] | None
    ) -> None:
        self._noted = []
        a, party = self._plan.architecture, _Party(self, link, stage, most, slow)
        for number in range(a.layers):
            run_layer(party, self._plan, number, unknown(1, a.width))

    def mark(self, nbytes: int, frac_bits: int, value: str) -> Tensor:
        """Return where to note how far a masked value goes."""
        mark = self._marks[len(self._noted)]
        self._noted.append((nbytes, frac_bits, value))
        return mark

    def spread(self, stream: Tensor, first: int) -> Tensor:
        """Return mean and σ of the stream, noted beside the mark of that number."""
        a, stats = self._plan.architecture, self._stats[first]
        kernels.spread[(1,)](
            stream, self._eps, stats, a.width, IS_LAYER=a.norm == "layer", WHOLE=power(a.width)
        )
        return stats

    @property
    def marked(self) -> int:
        """Return how many masked values were noted."""
        return len(self._noted)


class _Party:
    """Walk a pass of one row; masked values that are shown are vectors."""

    def __init__(
        self,
        asking: CudaAsking,
        link: MessageLink,
        stage: _Stage,
        most: int,
        slow: tuple[PreparedBatch, int] | None,
    ) -> None:
        self._asking, self._link, self._stage, self._most = asking, link, stage, most
        self._slow, self._heading = slow, asking.heading

    def linear(self, product: MatrixProduct, x: Tensor, skip: Tensor | None = None) -> Tensor:
        """Leave it to the owner."""
        return unknown(1, product.outputs)

    def look(self, exchange: Exchange, shown: list[Tensor], function: Function) -> list[Tensor]:
        """See values in a secret permutation, compute, and answer in it; a norm is one kernel."""
        first = self._asking.marked
        values, stats = self._see(exchange), None
        if "x" in values:
            stats = self._asking.spread(values["x"], first)
        if function is normalise:
            values = {"h": values["x"]} | values
        else:
            values, stats = dict(function(self._asking.architecture, values)), None
        answer_mask = self._stage.parts[f"{exchange.label}.answer_mask"]
        out = self._link.empty(exchange.answer_bytes)
        for slot in self._asking.slots[exchange.label]:
            _encode(slot, values[slot.answer.name], stats, answer_mask[slot.start :], out)
        self._link.send(out, MessageSize(exchange.answer_bytes, is_row=True))
        return [unknown(1, one.width) for one in exchange.answers]

    def attend(self, layer: int, qkv: list[Tensor]) -> Tensor:
        """Go through attention with the owner."""
        if self._slow is None:
            self._attend(layer)
        else:
            self._asking.attend_slowly(*self._slow, layer)
        return unknown(1, self._heading.inner)

    def show(self, exchange: Exchange, shown: list[Tensor], function: Function) -> Seen:
        """See values in a secret permutation, and compute."""
        return function(self._asking.architecture, self._see(exchange))

    def _see(self, exchange: Exchange) -> dict[str, Tensor]:
        """Receive what is shown, as doubles that lie end to end."""
        octets = self._link.recv(MessageSize(exchange.shown_bytes, is_row=True))
        reveal_mask, reveals = (
            self._stage.parts[f"{exchange.label}.reveal_mask"],
            iter(exchange.reveals),
        )
        out = torch.empty(len(reveal_mask), dtype=torch.float64, device=octets.device)
        at, start = 0, 0
        for span in exchange.shown:
            reveal, *_ = [next(reveals) for _ in span.widths]
            kernels.see[blocks(span.width)](
                octets,
                at,
                reveal_mask[start:],
                out[start:],
                self._asking.mark(span.nbytes, reveal.seen_bits, f"{exchange.label}.{reveal.name}"),
                span.width,
                int(span.is_cut),
                2.0**-reveal.seen_bits,
                NBYTES=span.nbytes,
                BLOCK=kernels.BLOCK,
            )
            at += span.width * span.nbytes
            start += span.width
        parts = cut(out, [one.width for one in exchange.reveals])
        return {one.name: part for one, part in zip(exchange.reveals, parts, strict=True)}

    def _attend(self, number: int) -> None:
        heading, link, stage, most = self._heading, self._link, self._stage, self._most
        place, words = stage.place, heading.words
        masks = {
            name: stage.parts[f"{number}.attention.{name}"]
            for name in ("query", "score_shares", "reveal_mask", "answer_mask", "weights", "rest")
        }
        keys, values = self._asking.cached.whole(number)
        masked_keys, masked_values = self._asking.masked_kv.whole(number)
        stage.caches += [keys, masked_keys]
        asked = self._take_masked_qkv((keys, values), (masked_keys, masked_values))
        factors = (asked, keys, masks["query"], masked_keys, masks["score_shares"])
        heading.score_shares(link, factors, place, most)
        octets, out = link.recv(heading.seen), link.empty(heading.weights.at(most))
        kernels.weigh[(heading.heads.count,)](
            octets,
            masks["reveal_mask"],
            masks["answer_mask"],
            out,
            self._asking.mark(words.seen_bytes, words.seen_bits, f"{number}.scores"),
            place,
            2.0**-words.seen_bits,
            2.0**words.weight_bits,
            SEEN=words.seen_bytes,
            NBYTES=words.value_bytes,
            WHOLE=most,
        )
        link.send(out, heading.weights)
        octets = link.recv(heading.weights)
        factors = (masks["weights"], masked_values, octets, values, masks["rest"])
        heading.mixed(link, factors, place)

    def _take_masked_qkv(
        self, masks: tuple[Tensor, Tensor], masked_kv: tuple[Tensor, Tensor]
    ) -> Tensor:
        """Receive the new query, key and value, blinded; the latter two go onto the cache."""
        heading, place = self._heading, self._stage.place
        octets, at = self._link.recv(heading.masked_qkv), 0
        asked = torch.empty(heading.inner, dtype=torch.int64, device=octets.device)
        for out, added, width, nbytes in zip(
            (asked, *masked_kv), (asked, *masks), heading.widths, heading.nbytes, strict=True
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
                IN_CACHE=is_kept,
                NBYTES=nbytes,
                BLOCK=kernels.BLOCK,
            )
            at += width * nbytes
        return asked


def _encode(
    slot: Slot, value: Tensor, stats: Tensor | None, answer_mask: Tensor, out: Tensor
) -> None:
    one = slot.answer
    kernels.answer[blocks(one.width)](
        value,
        value if stats is None else stats,
        answer_mask,
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
