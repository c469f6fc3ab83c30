"""The user's online work: sees permuted values, computes what is not linear, answers."""

from collections.abc import Collection, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from tacit import ring
from tacit.llm.private.blueprint import Blueprint
from tacit.llm.private.exchange import Exchange
from tacit.llm.private.masks import first_tally
from tacit.llm.private.narrow import encode, pack
from tacit.llm.private.parcel import Channel
from tacit.llm.private.prepare import Prepared
from tacit.llm.private.quick import is_quick
from tacit.llm.private.quick_asking import QuickAsking
from tacit.llm.private.ranges import Ranges
from tacit.llm.private.resent import Resent
from tacit.llm.private.shelf import Shelf


class Shown(NamedTuple):
    """Scores of all tokens, and how often each came before if that is shown: (rows, vocab)."""

    scores: Tensor
    counts: Tensor | None


class Asking:
    """One conversation of the user, online.

    Guarantee: what it sees of the model is what the ledger lists: activations, scores and norms
    in fresh secret orders. None for the weights: who answers otherwise than here can compute them.
    Cost: messages as `Blueprint` lists them.
    """

    def __init__(self, plan: Blueprint, talk: Channel, cached: Shelf, posted: Shelf) -> None:
        self._plan = plan
        self._talk = talk
        self._cached = cached
        self._posted = posted
        self._ranges = Ranges(plan)
        self._quick: QuickAsking | None = None
        if is_quick(plan):
            self._quick = QuickAsking(plan, talk, cached, posted, self._active, self._attend)

    def prompt(self, prepared: Prepared, ids: Sequence[int], seen: Collection[int]) -> Tensor:
        """Return what the owner is sent of the tokens of a prompt, as bytes.

        ``seen`` are the tokens that count as having come before; none if nothing is counted.
        """
        plan, vocab = self._plan, self._plan.architecture.vocab
        hot = -prepared.tape.words("first.hot.mask", len(ids), vocab)
        hot[torch.arange(len(ids)), torch.tensor(ids)] += 1  # indices are small: from the host
        octets = pack(hot, plan.wide_bytes).reshape(-1)
        if not plan.counts:
            return octets
        tally = -first_tally(plan, prepared.tape)
        tally[0, torch.tensor(sorted(seen), dtype=torch.int64)] += 1
        return torch.cat([octets, pack(tally, plan.count_bytes).reshape(-1)])

    def choice(self, prepared: Prepared, run: int, place: int) -> Tensor:
        """Return what the owner is sent of a chosen place, as bytes."""
        choose = self._plan.choose()
        cover = choose.cover(prepared.tape, prepared.order.runs)
        hot = torch.zeros_like(cover[:1])
        hot[0, place] = 1
        return choose.answer(cover[run : run + 1], [hot])

    def run(self, prepared: Prepared, run: int) -> Shown:
        """Go through all layers, and return the scores in the order of this run."""
        quick = self._quick if prepared.quick is not None else None
        if quick is not None and prepared.quick is not None:
            quick.run(prepared, run, prepared.quick)
        else:
            for layer in range(self._plan.architecture.layers):
                self._layer(prepared, run, layer)
        scores, *counts = self._score(prepared, run)
        if quick is not None:
            quick.note(self._ranges)
        self._ranges.check()
        return Shown(scores.cpu(), counts[0].cpu() if counts else None)

    def _layer(self, prepared: Prepared, run: int, layer: int) -> None:
        self._project(prepared, run, layer)
        self._attend(prepared, run, layer)
        if self._plan.is_merged:
            self._merge(prepared, run, layer)
        else:
            self._middle(prepared, run, layer)
            self._activate(prepared, run, layer)

    def _see(self, exchange: Exchange, prepared: Prepared, run: int, *, total: int) -> list[Tensor]:
        """Receive what is shown, as doubles; ``total`` rows were drawn for the whole order."""
        rows = _rows(prepared, run, total)
        veil = exchange.veil(prepared.tape, total)[rows]
        shown = self._talk.recv_bytes(rows.stop - rows.start, exchange.shown_bytes)
        out = []
        for reveal, words in zip(exchange.reveals, exchange.see(veil, shown), strict=True):
            wire = f"{exchange.label}.{reveal.name}"
            self._ranges.note_words(words, reveal.nbytes, reveal.seen_bits, wire)
            out.append(ring.decode(words, frac_bits=reveal.seen_bits))
            if wire in self._ranges.streams:
                self._ranges.note_stream(out[-1], wire)
        return out

    def _answer(
        self, exchange: Exchange, prepared: Prepared, run: int, *values: Tensor, total: int
    ) -> None:
        rows = _rows(prepared, run, total)
        cover = exchange.cover(prepared.tape, total)[rows]
        words = [
            encode(value, answer.frac_bits)
            for answer, value in zip(exchange.answers, values, strict=True)
        ]
        self._talk.send_bytes(exchange.answer(cover, words))

    def _norm(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the normalised rows, and what they were divided by."""
        a = self._plan.architecture
        if a.norm == "layer":
            x = x - x.mean(1, keepdim=True)
        sigma = (x.square().mean(1, keepdim=True) + a.norm_eps).sqrt()
        return x / sigma, sigma

    def _project(self, prepared: Prepared, run: int, layer: int) -> None:
        exchange, total = self._plan.project(layer), prepared.order.rows
        x, *qkv = self._see(exchange, prepared, run, total=total)
        h, sigma = self._norm(x)
        values = [part / sigma for part in qkv]
        if any(answer.name == "h" for answer in exchange.answers):
            values.append(h)
        self._answer(exchange, prepared, run, *values, total=total)

    def _attend(self, prepared: Prepared, run: int, layer: int) -> None:
        order, tape = prepared.order, prepared.tape
        kernel = self._plan.attention(layer, order, run)
        if isinstance(kernel, Resent):
            seen = kernel.ask(self._talk, tape)
        else:
            rows = _rows(prepared, run, order.rows)
            posted = order.posted_before(run)
            keys, values, seen = kernel.ask(
                self._talk,
                tape,
                query=prepared.queries[layer][rows],
                cached=self._cached.upto(layer, order.past + rows.stop),
                posted=self._posted.upto(layer, posted),
            )
            self._posted.put(layer, posted, keys, values)
        words = self._plan.words
        self._ranges.note_words(seen, words.seen_bytes, words.seen_bits, f"{layer}.scores")

    def _middle(self, prepared: Prepared, run: int, layer: int) -> None:
        exchange, total = self._plan.middle(layer), prepared.order.rows
        (x,) = self._see(exchange, prepared, run, total=total)
        h, _ = self._norm(x)
        values = (h,) if self._plan.architecture.skips_from_norm else (h, x)
        self._answer(exchange, prepared, run, *values, total=total)

    def _activate(self, prepared: Prepared, run: int, layer: int) -> None:
        exchange, total = self._plan.activate(layer), prepared.order.rows
        branches = self._see(exchange, prepared, run, total=total)
        self._answer(exchange, prepared, run, self._active(branches), total=total)

    def _merge(self, prepared: Prepared, run: int, layer: int) -> None:
        exchange, total = self._plan.merge(layer), prepared.order.rows
        x, *branches = self._see(exchange, prepared, run, total=total)
        _, sigma = self._norm(x)
        active = self._active([branch / sigma for branch in branches])
        self._answer(exchange, prepared, run, active, x, total=total)

    def _active(self, branches: list[Tensor]) -> Tensor:
        match self._plan.architecture.activation:
            case "swiglu":
                return functional.silu(branches[0]) * branches[1]
            case "gelu":
                return functional.gelu(branches[0])
            case "gelu_tanh":
                return functional.gelu(branches[0], approximate="tanh")

    def _score(self, prepared: Prepared, run: int) -> list[Tensor]:
        """Return the scores, and the counts if they are shown."""
        plan, total = self._plan, prepared.order.scores
        last = plan.last_norm()
        if last is not None:
            (x,) = self._see(last, prepared, run, total=total)
            h, _ = self._norm(x)
            self._answer(last, prepared, run, h, total=total)
            return self._see(plan.score(), prepared, run, total=total)
        x, scores, *counts = self._see(plan.score(), prepared, run, total=total)
        _, sigma = self._norm(x)
        return [scores / sigma, *counts]


def _rows(prepared: Prepared, run: int, total: int) -> slice:
    return slice(0, total) if prepared.order.is_prompt else slice(run, run + 1)
