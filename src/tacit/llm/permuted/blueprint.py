"""The steps of one pass through a model, as all three parties and the plan know them."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache, wraps
from typing import Concatenate, ParamSpec

import torch
from torch import Tensor

from tacit.llm.model.architecture import Architecture
from tacit.llm.model.rotary import turns
from tacit.llm.permuted.attention import Incremental, Resent
from tacit.llm.permuted.batch import Batch
from tacit.llm.permuted.exchange import AnsweredValue, Exchange, ShownValue
from tacit.llm.permuted.geometry import Heads, rows_of
from tacit.llm.permuted.messages import WORD_BYTES
from tacit.llm.permuted.precision import (
    OUT_SPARE,
    QUERY_SPARE,
    Precision,
    WordSizes,
)

Attention = Incremental | Resent


P = ParamSpec("P")


def _once(
    make: Callable[Concatenate["Blueprint", P], Exchange],
) -> Callable[Concatenate["Blueprint", P], Exchange]:
    """Make an exchange when it is first asked for: a pass asks for each many times."""

    @wraps(make)
    def made(plan: "Blueprint", /, *args: P.args, **named: P.kwargs) -> Exchange:
        key = make.__name__, *args
        if key not in plan._made:
            plan._made[key] = make(plan, *args, **named)
        return plan._made[key]

    return made


@dataclass(frozen=True)
class Blueprint:
    """The exchanges of every layer, and the bits of its masked values.

    The device is where the party that holds the blueprint computes. With ``counts`` the user is
    shown, beside the scores and in their order, how often each token came before.
    """

    architecture: Architecture
    precision: Precision
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    counts: bool = False

    @cached_property
    def heads(self) -> Heads:
        """Return the heads of the model."""
        a = self.architecture
        return Heads(a.kv_heads, a.heads // a.kv_heads, a.head_dim)

    @cached_property
    def inner(self) -> int:
        """Return the width of all heads together."""
        return self.heads.count * self.heads.dim

    @cached_property
    def kv(self) -> int:
        """Return the width of a key."""
        return self.heads.groups * self.heads.dim

    @cached_property
    def qkv_widths(self) -> tuple[int, ...]:
        """Return the widths of queries, keys and values, and of what has the norms of heads.

        Queries and keys that are normalised come twice: with the weights of their norm, which the
        user answers divided, and without, to know by what.
        """
        twice = (self.inner, self.kv) if self.architecture.has_qk_norm else ()
        return self.inner, self.kv, self.kv, *twice

    @cached_property
    def branch_widths(self) -> tuple[int, ...]:
        """Return the widths of what an activation reads."""
        return (self.architecture.ffn,) * (2 if self.architecture.has_gate else 1)

    @cached_property
    def is_raw_output(self) -> bool:
        """Say whether scores are computed from the stream before its norm."""
        return self.architecture.norm == "rms"

    @cached_property
    def output_bytes(self) -> int:
        """Return the bytes of a word of the scores, as the owner holds them."""
        return self.wide_bytes if self.is_raw_output else self.precision.narrow_bytes

    @cached_property
    def output_bits(self) -> int:
        """Return the fraction bits of the scores, before any division by the norm."""
        return self.precision.raw if self.is_raw_output else self.precision.stream

    @cached_property
    def count_bytes(self) -> int:
        """Return the bytes of a word that counts tokens: a count is far below its end."""
        return 2 if self.architecture.context < 1 << 13 else 4

    @cached_property
    def tally_bytes(self) -> int:
        """Return the bytes of the counts that come with a prompt."""
        return self.architecture.vocab * self.count_bytes if self.counts else 0

    @cached_property
    def wide_bytes(self) -> int:
        """Return the bytes of a word on masked values that lead to no product of two activations.

        The stream is never read with more than the bits of the masked values behind it.
        """
        p = self.precision
        if self.is_lean:
            return p.word_bytes(max(p.stream, self.middle_bits))
        most = max(p.raw, p.middle, p.merged if self.is_merged else 0)
        return p.word_bytes(most)

    @cached_property
    def is_lean(self) -> bool:
        """Say whether the owner computes queries, keys and values from the norm's output.

        Then the user does not see them, and both parties drop the low bits of their shares.
        Without that, the owner computes them from the stream, and the user divides them by σ.
        """
        return self.architecture.norm == "layer" and self.precision.is_lean

    @cached_property
    def is_certain(self) -> bool:
        """Say whether the user can tell from what it sees that no value has wrapped."""
        return self.precision.gain > 0 and not self.is_lean

    @cached_property
    def mixed_bits(self) -> int:
        """Return the bits of what attention adds to the stream."""
        return self.precision.lean_middle if self.is_lean else self.precision.middle

    @cached_property
    def middle_bits(self) -> int:
        """Return the bits of the stream behind attention."""
        return self.precision.stream if self.architecture.has_post_norm else self.mixed_bits

    @cached_property
    def turn_drop(self) -> int:
        """Return how many low bits queries and keys lose once they are turned."""
        p, is_turned = self.precision, self.architecture.positions != "learned"
        if self.is_lean:
            return p.stream + (p.rotation if is_turned else 0) - p.query - QUERY_SPARE
        return p.turn_drop if is_turned else 0

    @cached_property
    def value_drop(self) -> int:
        """Return how many low bits values lose."""
        return self.precision.stream - self.precision.query if self.is_lean else 0

    @cached_property
    def out_drop(self) -> int:
        """Return how many low bits the output of attention loses."""
        return self.precision.attention - OUT_SPARE if self.is_lean else 0

    @cached_property
    def query_bytes(self) -> int:
        """Return the bytes of a word of queries and keys before they are turned."""
        if self.is_lean:
            return WORD_BYTES
        return -(-(self.words.score_bits + self.words.span + self.turn_drop) // 8)

    @cached_property
    def skip_bytes(self) -> int:
        """Return the bytes of a word of the stream that comes back with few bits.

        It moves up to where the stream has its point, and its words get longer on the way.
        """
        p = self.precision
        return min(WORD_BYTES, -(-(8 * self.wide_bytes - (p.stream - p.skip)) // 8))

    @cached_property
    def words(self) -> WordSizes:
        """Return the bits and bytes of attention."""
        p, is_turned = self.precision, self.architecture.positions != "learned"
        bits = p.stream if self.is_lean else p.query
        bits += (p.rotation if is_turned else 0) - self.turn_drop
        return p.words(2 * bits, -(-(8 * self.wide_bytes + self.out_drop) // 8))

    @cached_property
    def _made(self) -> dict[tuple[object, ...], Exchange]:
        return {}

    def _reveal(
        self, name: str, width: int, permutation: str, frac_bits: int, look: int, *, span: int = 0
    ) -> ShownValue:
        """Show a masked value with at least ``look`` bits, as many as fit the bytes that takes."""
        span = min(span or self.precision.reach, 8 * WORD_BYTES - frac_bits)
        nbytes = min(8 * WORD_BYTES, min(look, frac_bits) + span + 7) // 8
        drop = max(0, frac_bits + span - 8 * nbytes)
        return ShownValue(name, width, permutation, frac_bits, nbytes, drop)

    def _stream(self, look: int) -> ShownValue:
        """Show the stream where a layer starts, or behind the last."""
        a, p = self.architecture, self.precision
        return self._reveal("x", a.width, "x", p.stream, look, span=p.stream_span)

    def _raw_look(self, layer: int) -> int:
        """Return the bits to show of a masked value before the user divides it by the norm.

        A stream that takes its skip from a norm's output, scaled up, has a norm above 1; only the
        first layer reads what comes from the tokens themselves.
        """
        a, p = self.architecture, self.precision
        return p.look if a.skips_from_norm and a.residual_scale > 1 and layer else p.raw_look

    @_once
    def project(self, layer: int) -> Exchange:
        """Norm; unless lean, queries, keys and values with it, and back with few bits."""
        a, p = self.architecture, self.precision
        look, keys = self._raw_look(layer), self.query_bytes
        if self.is_lean:
            stream = self._stream(look)
            answer = AnsweredValue("h", a.width, "x", p.activation, keys)
            return Exchange(f"{layer}.project", (stream,), (answer,))
        parts = [
            ("q", self.inner, keys),
            ("k", self.kv, keys),
            ("v", self.kv, self.words.value_bytes),
        ]
        answers = [
            AnsweredValue(name, width, name, p.query, nbytes) for name, width, nbytes in parts
        ]
        if a.skips_from_norm:  # it goes no further than the next look
            answers.append(AnsweredValue("h", a.width, "x", p.activation, p.word_bytes(p.stream)))
        names = ("q", "k", "v", "q norm", "k norm")
        reveals = [
            self._reveal(name, width, name, p.raw, look)
            for name, width in zip(names, self.qkv_widths, strict=False)
        ]
        if a.has_qk_norm:
            heads = {"q": a.heads, "k": a.kv_heads}
            reveals = [
                replace(one, heads=heads[one.name[0]], group=f"{one.name[0]} heads")
                if one.name[0] in heads
                else one
                for one in reveals
            ]
        stream, bias = self._stream(look), f"{layer}.qkv"
        return Exchange(f"{layer}.project", (stream, *reveals), tuple(answers), bias)

    @_once
    def post(self, layer: int, part: int) -> Exchange:
        """Norm of what attention (1) or the mlp (2) adds to the stream."""
        a, p = self.architecture, self.precision
        bits, span = (p.middle, p.reach) if part == 1 else (p.stream, p.stream_span)
        reveal = self._reveal("x", a.width, "x", bits, p.raw_look, span=span)
        answer = AnsweredValue("h", a.width, "x", p.activation, self.wide_bytes)
        return Exchange(f"{layer}.post{part}", (reveal,), (answer,))

    @_once
    def middle(self, layer: int) -> Exchange:
        """Norm behind attention, and the stream back with few bits."""
        a, p = self.architecture, self.precision
        if a.skips_from_norm:
            answers = [AnsweredValue("h", a.width, "x", p.activation, self.wide_bytes)]
            look = p.look if a.residual_scale > 1 else p.raw_look
        else:
            answers = [AnsweredValue("h", a.width, "x", p.activation, p.narrow_bytes)]
            answers.append(AnsweredValue("x", a.width, "x", p.skip, self.skip_bytes))
            look = max(p.raw_look, p.skip)
        reveal = self._reveal("x", a.width, "x", self.middle_bits, look)
        return Exchange(f"{layer}.middle", (reveal,), tuple(answers))

    @_once
    def activate(self, layer: int) -> Exchange:
        """Activation; both branches of a gated one in the same order."""
        a, p = self.architecture, self.precision
        names = ("gate", "up") if a.has_gate else ("up",)
        reveals = tuple(
            self._reveal(name, a.ffn, "f", p.stream, p.look, span=p.span) for name in names
        )
        return Exchange(
            f"{layer}.act",
            reveals,
            (AnsweredValue("y", a.ffn, "f", p.activation, self.wide_bytes),),
        )

    @cached_property
    def is_merged(self) -> bool:
        """Say whether the norm behind attention rides with the activation.

        The user divides by the norm itself, so nothing may be added between norm and activation.
        """
        a = self.architecture
        is_bare = a.norm == "rms" and not (a.has_bias or a.has_post_norm)
        return is_bare and self.precision.can_merge

    @_once
    def merge(self, layer: int) -> Exchange:
        """Norm behind attention and activation in one: the stream, both branches before it."""
        a, p = self.architecture, self.precision
        names = ("gate", "up") if a.has_gate else ("up",)
        stream = self._reveal("x", a.width, "x", p.middle, max(p.raw_look, p.skip))
        reveals = (self._reveal(name, a.ffn, "f", p.merged, p.raw_look) for name in names)
        answers = (
            AnsweredValue("y", a.ffn, "f", p.activation, self.wide_bytes),
            AnsweredValue("x", a.width, "x", p.skip, self.skip_bytes),
        )
        return Exchange(f"{layer}.merge", (stream, *reveals), answers)

    @cached_property
    def branch_bytes(self) -> int:
        """Return the bytes of a word in front of an activation."""
        return self.wide_bytes if self.is_merged else self.precision.narrow_bytes

    def last_norm(self) -> Exchange | None:
        """Norm in front of the scores, where its constants keep it from riding with them."""
        if self.is_raw_output:
            return None
        a, p = self.architecture, self.precision
        reveal = self._stream(p.raw_look)
        answer = AnsweredValue("h", a.width, "x", p.activation, p.narrow_bytes)
        return Exchange("last", (reveal,), (answer,))

    def score(self) -> Exchange:
        """Scores of the next token; with the stream, where its norm is still to be taken."""
        a, p = self.architecture, self.precision
        look = p.raw_look if self.is_raw_output else p.look
        span = p.reach if self.is_raw_output else p.span
        reveals = [self._reveal("scores", a.vocab, "vocab", self.output_bits, look, span=span)]
        if self.is_raw_output:
            reveals.insert(0, self._stream(look))
        if self.counts:
            reveals.append(ShownValue("counts", a.vocab, "vocab", 0, self.count_bytes))
        return Exchange("out", tuple(reveals), ())

    def choose(self) -> Exchange:
        """The chosen token back, one-hot in the order in which the scores were shown."""
        return Exchange(
            "out",
            (),
            (AnsweredValue("hot", self.architecture.vocab, "vocab", 0, self.wide_bytes),),
        )

    def attention(self, layer: int, batch: Batch, run: int) -> Attention:
        """Return the attention of one layer in one run of a batch."""
        a, label = self.architecture, f"{layer}.{run}.attention"
        window = a.window_of(layer)
        past, rows = (batch.past, batch.rows) if batch.is_prompt else (batch.past + run, 1)
        if batch.form == "resent":
            seen = min(past + rows, window or past + rows)
            return Resent(label, self.heads, seen, self.words)
        fresh = past + rows - batch.masked_before(run)
        layout = rows_of(a, past, rows, batch.prompt, window, self.device)
        return Incremental(label, self.heads, layout, fresh, self.words)

    def angles(self, batch: Batch, layer: int) -> tuple[Tensor, Tensor] | None:
        """Return the cosines and sines that turn new queries and keys, if anything does.

        They are public, and integers here: turning shares turns the value.
        """
        a = self.architecture
        if a.positions == "learned":
            return None
        bits = self.precision.rotation
        window = a.window_of(layer)
        return _angles(a, bits, batch.past, batch.rows, batch.prompt, window, self.device)


@lru_cache(maxsize=16)
def _angles(
    a: Architecture, bits: int, past: int, rows: int, prompt: int, window: int, device: torch.device
) -> tuple[Tensor, Tensor]:
    cos, sin = (
        (part.double() * 2.0**bits).round().long().to(device)
        for part in turns(a, start=past, count=rows, prompt=prompt, window=window)
    )
    return cos, sin
