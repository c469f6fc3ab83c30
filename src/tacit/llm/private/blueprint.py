"""The steps of one pass through a model, as all three parties and the plan know them."""

from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from torch import Tensor

from tacit.llm.architecture import Architecture
from tacit.llm.private.exchange import Answer, Exchange, Reveal
from tacit.llm.private.geometry import Heads, heads_of, rows_of
from tacit.llm.private.half import Half
from tacit.llm.private.incremental import Incremental
from tacit.llm.private.narrow import WORD_BYTES
from tacit.llm.private.order import Order
from tacit.llm.private.precision import Precision
from tacit.llm.private.resent import Resent, Weighting
from tacit.llm.rotary import rotate, turns

Attention = Incremental | Half | Resent


class Item(NamedTuple):
    """A tensor in a parcel: its shape, and the bytes of its words (0 for plain bytes)."""

    shape: tuple[int, ...]
    nbytes: int = WORD_BYTES


@dataclass(frozen=True)
class Blueprint:
    """The exchanges of every layer, and what travels offline for an order."""

    architecture: Architecture
    precision: Precision

    @property
    def heads(self) -> Heads:
        """Return the heads of the model."""
        return heads_of(self.architecture)

    @property
    def inner(self) -> int:
        """Return the width of all heads together."""
        return self.heads.count * self.heads.dim

    @property
    def kv(self) -> int:
        """Return the width of a key."""
        return self.heads.groups * self.heads.dim

    @property
    def is_raw_output(self) -> bool:
        """Say whether scores are computed from the stream before its norm."""
        return self.architecture.norm == "rms"

    @property
    def output_bytes(self) -> int:
        """Return the bytes of a word of the scores."""
        return self.wide_bytes if self.is_raw_output else self.precision.narrow_bytes

    @property
    def output_bits(self) -> int:
        """Return the fraction bits of the scores, before any division by the norm."""
        return self.precision.raw if self.is_raw_output else self.precision.stream

    @property
    def wide_bytes(self) -> int:
        """Return the bytes of a word on wires that lead to no product of two activations.

        The stream is never read with more than the bits of the wires behind it, so its own
        words, and those of all that is added to it, need no more either.
        """
        p = self.precision
        most = max(p.raw, p.middle, p.merged if self.is_merged else 0)
        return min(WORD_BYTES, -(-(most + p.span) // 8))

    def project(self, layer: int) -> Exchange:
        """Norm, and queries, keys and values back with few bits."""
        a, p = self.architecture, self.precision
        wide = self.wide_bytes
        widths = {"q": self.inner, "k": self.kv, "v": self.kv}
        answers = [Answer(name, width, name, p.query) for name, width in widths.items()]
        if a.skips_from_norm:
            answers.append(Answer("h", a.width, "x", p.activation, wide))
        reveals = [Reveal(name, width, name, p.raw, wide) for name, width in widths.items()]
        return Exchange(
            f"{layer}.project",
            (Reveal("x", a.width, "x", p.stream, wide), *reveals),
            tuple(answers),
        )

    def middle(self, layer: int) -> Exchange:
        """Norm behind attention, and the stream back with few bits."""
        a, p = self.architecture, self.precision
        wide = self.wide_bytes
        answers = [Answer("h", a.width, "x", p.activation, wide)]
        if not a.skips_from_norm:
            answers.append(Answer("x", a.width, "x", p.skip, wide))
        reveal = Reveal("x", a.width, "x", p.middle, wide)
        return Exchange(f"{layer}.middle", (reveal,), tuple(answers))

    def activate(self, layer: int) -> Exchange:
        """Activation; both branches of a gated one in the same order."""
        a, p = self.architecture, self.precision
        names = ("gate", "up") if a.has_gate else ("up",)
        reveals = tuple(Reveal(name, a.ffn, "f", p.stream, p.narrow_bytes) for name in names)
        return Exchange(
            f"{layer}.act", reveals, (Answer("y", a.ffn, "f", p.activation, self.wide_bytes),)
        )

    @property
    def is_merged(self) -> bool:
        """Say whether the norm behind attention rides with the activation.

        The user divides by the norm itself, so nothing may be added between norm and activation.
        """
        a = self.architecture
        return a.norm == "rms" and not a.has_bias and self.precision.can_merge

    def merge(self, layer: int) -> Exchange:
        """Norm behind attention and activation in one: the stream, both branches before it."""
        a, p = self.architecture, self.precision
        wide, names = self.wide_bytes, ("gate", "up") if a.has_gate else ("up",)
        reveals = tuple(Reveal(name, a.ffn, "f", p.merged, wide) for name in names)
        answers = (
            Answer("y", a.ffn, "f", p.activation, wide),
            Answer("x", a.width, "x", p.skip, wide),
        )
        return Exchange(
            f"{layer}.merge", (Reveal("x", a.width, "x", p.middle, wide), *reveals), answers
        )

    def feeds(self, layer: int) -> tuple[Exchange, ...]:
        """Return the exchanges behind attention."""
        if self.is_merged:
            return (self.merge(layer),)
        return self.middle(layer), self.activate(layer)

    @property
    def branch_bytes(self) -> int:
        """Return the bytes of a word in front of an activation."""
        return self.wide_bytes if self.is_merged else self.precision.narrow_bytes

    def last_norm(self) -> Exchange | None:
        """Norm in front of the scores, where its constants keep it from riding with them."""
        if self.is_raw_output:
            return None
        a, p = self.architecture, self.precision
        reveal = Reveal("x", a.width, "x", p.stream, self.wide_bytes)
        answer = Answer("h", a.width, "x", p.activation, self.wide_bytes)
        return Exchange("last", (reveal,), (answer,))

    def score(self) -> Exchange:
        """Scores of the next token; with the stream, where its norm is still to be taken."""
        a, p = self.architecture, self.precision
        scores = Reveal("scores", a.vocab, "vocab", self.output_bits, self.output_bytes)
        if self.is_raw_output:
            return Exchange(
                "out", (Reveal("x", a.width, "x", p.stream, self.wide_bytes), scores), ()
            )
        return Exchange("out", (scores,), ())

    def choose(self) -> Exchange:
        """The chosen token back, one-hot in the order in which the scores were shown."""
        return Exchange(
            "out",
            (),
            (Answer("hot", self.architecture.vocab, "vocab", 0, self.wide_bytes),),
        )

    def attention(self, layer: int, order: Order, run: int) -> Attention:
        """Return the attention of one layer in one run of an order."""
        a, p, label = self.architecture, self.precision, f"{layer}.{run}.attention"
        bits = p.scores if a.positions != "learned" else 2 * p.query
        past, rows = (order.past, order.rows) if order.is_prompt else (order.past + run, 1)
        fresh = past + rows - order.posted_before(run)
        weighting = Weighting(label, self.heads, past + rows, bits, p.attention)
        if order.form == "resent":
            return Resent(weighting)
        if order.form == "half":
            return Half(weighting, fresh)
        layout = rows_of(a, past, rows, order.prompt)
        return Incremental(label, self.heads, layout, fresh, bits, p.attention)

    def rotation(self, order: Order) -> "Rotation | None":
        """Return what turns the new queries and keys of an order, if anything does."""
        a = self.architecture
        if a.positions == "learned":
            return None
        return _rotation(a, self.precision.rotation, order.past, order.rows, order.prompt)

    def dealt(self, order: Order, layer: int) -> list[Item]:
        """List what the dealer sends to the owner for a layer."""
        a, rows, wide = self.architecture, order.rows, self.wide_bytes
        exchanges = (self.project(layer), *self.feeds(layer))
        runs = range(order.runs)
        return [
            *(Item((rows, one.dealt_bytes), 0) for one in exchanges),
            *([Item((rows, a.width), wide)] * self.is_merged),
            *(Item((self.attention(layer, order, run).dealt_words,)) for run in runs),
            Item((rows, a.width), wide),
        ]

    def corrected(self, order: Order) -> list[Item]:
        """List what the user sends to the owner for a layer: (W − U)·r − w of every matrix."""
        a, rows, wide = self.architecture, order.rows, self.wide_bytes
        branches = 2 if a.has_gate else 1
        skips = [Item((rows, a.width), wide)] * (2 if a.skips_from_norm else 0)
        return [
            Item((rows, self.inner + 2 * self.kv), wide),
            Item((rows, a.width), wide),
            Item((rows, branches * a.ffn), self.branch_bytes),
            Item((rows, a.width), wide),
            *skips,
        ]

    def dealt_head(self, order: Order) -> list[Item]:
        """List what the dealer sends before the first layer."""
        shape = (order.rows, self.architecture.width)
        return [Item(shape, self.wide_bytes)] if order.is_prompt else []

    corrected_head = dealt_head

    def dealt_tail(self, order: Order) -> list[Item]:
        """List what the dealer sends behind the last layer."""
        last, rows = self.last_norm(), order.scores
        norm = [] if last is None else [Item((rows, last.dealt_bytes), 0)]
        return [
            *norm,
            Item((rows, self.score().dealt_bytes), 0),
            Item((order.runs, self.choose().dealt_bytes), 0),
            Item((order.runs, self.architecture.width), self.wide_bytes),
        ]

    def corrected_tail(self, order: Order) -> list[Item]:
        """List what the user sends behind the last layer."""
        a = self.architecture
        return [
            Item((order.scores, a.vocab), self.output_bytes),
            Item((order.runs, a.width), self.wide_bytes),
        ]


@dataclass(frozen=True, eq=False)
class Rotation:
    """Public angles as integers; turning shares turns the value."""

    architecture: Architecture
    cos: Tensor
    sin: Tensor

    def apply(self, words: Tensor, row: slice) -> Tensor:
        """Turn (rows, heads, dim) by the angles of some of the rows."""
        cos, sin = (part[row].unsqueeze(1) for part in (self.cos, self.sin))
        return rotate(self.architecture, words, cos, sin)


@lru_cache(maxsize=16)
def _rotation(a: Architecture, bits: int, past: int, rows: int, prompt: int) -> Rotation:
    cos, sin = turns(a, start=past, count=rows, prompt=prompt)
    return Rotation(a, *((part.double() * 2.0**bits).round().long() for part in (cos, sin)))
