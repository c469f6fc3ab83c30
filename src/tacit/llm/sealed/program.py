"""A pass through a language model as a program of secret operations.

The model is the decoder of the GPT and LLaMA papers, with what its families change in it: learned
or rotary positions (Su et al. 2021), LayerNorm or RMSNorm (Zhang and Sennrich 2019), GELU or SwiGLU
(Shazeer 2020), several queries to a key (Ainslie et al. 2023). Rounds are what a pass costs on a
real line, so its steps are put together by what can be opened in one message: a matrix is
multiplied while the norm in front of it is still being worked out, and keys and values, once
opened under their masks, stay open for all later tokens (a matrix that is multiplied often is
masked once; SecureML, Mohassel and Zhang 2017, section 4.1).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import ceil, log2
from typing import Generic, TypedDict, TypeVar

import torch
from torch import Tensor

from tacit.llm.claims import Reveal
from tacit.llm.model.architecture import Architecture
from tacit.llm.parties import Seats
from tacit.llm.sealed.bounds import FRAC_BITS, factor_bits, mixed_bits, stream_bits, weight_shapes
from tacit.llm.sealed.choosing import adjusted, drawn
from tacit.llm.sealed.passes import Pass, swap
from tacit.mpc import PublicInput
from tacit.mpc.functions.norms import RangeWatch, RowProduct
from tacit.mpc.ops import ProtocolOps
from tacit.mpc.share import SPARE_BITS, WORD_BITS, words_of

V = TypeVar("V")


STREAM_BOUND = 2.0**10
"""Beyond this, heads saturate before a norm of their own."""
_SCORE_BITS, _SPARED_BITS = 9, 4
"""Scores up to 2^9 leave queries and keys all their bits, one more for each that these spare.

Behind a norm they have 20 bits too many, which a cut takes off the ring: of 62 bits 42 are left, 32
for the fraction of a score and 10 for scores below 2^10. Bounds are powers of two: 2^9.
"""


class NormFacts(TypedDict, Generic[V]):
    """What a norm is told."""

    eps: float
    largest_mean: float
    centred: bool
    watch: RangeWatch[V]


@dataclass(frozen=True)
class PassOutcome(Generic[V]):
    """What a pass leaves: keys and values of every layer, and what was shown.

    ``strange`` counts, for the user, rows that were out of range and rows of scores that saturated.
    """

    keys: list[V]
    values: list[V]
    shown: Tensor | None
    strange: Tensor | None = None


@dataclass(frozen=True, kw_only=True)
class Passing:
    """The public facts of a model and of a pass, which say everything that will be computed."""

    architecture: Architecture
    bounds: Mapping[str, float]
    gain_bits: int
    reveal: Reveal
    seats: Seats = field(default_factory=Seats)
    is_dealt: bool = False
    """Whether the dealer is gone: then its noise lies in shares with the material."""

    def run(self, ops: ProtocolOps[V], step: Pass, *, resumes: bool = False) -> PassOutcome[V]:
        """Compute one pass, on shapes or on shares.

        Nothing depends on where the new tokens stand but what `told` says: one plan serves all
        passes of as many rows and as much room. If it ``resumes`` a conversation, what another
        session has opened is opened once more: those masks are gone with it.

        Guarantee: that of `sealed`: neither side learns anything but the token (or the scores),
        which the user does. Bounds of values are public. Functions are approximated, see
        `tacit.mpc.functions`; nothing wraps around as long as their errors are below a quarter.
        Cost: what the plan says.
        """
        a, w = self.architecture, self._weights(ops)
        x = self._embedded(ops, w, step)
        keys, values, answer = list[V](), list[V](), None
        watch = RangeWatch[V]()
        for i in range(a.layers):
            key, value, attended, skip = self._attend(ops, w, step, i, x, watch, resumes=resumes)
            keys.append(key)
            values.append(value)
            if attended is None or skip is None:
                break
            x = self._fed(ops, w, i, ops.add(skip, attended), watch)
        else:
            answer = self._answer(ops, w, step, x, watch)
        count = ops.out_of_range(watch)  # first, so that both are opened in one round
        what, why = "the next token", "it is the answer"
        if self.reveal == "scores":
            what, why = "scores of every token", "it chooses the next"
        shown = (
            None if answer is None else ops.open(answer, to=(self.seats.user,), what=what, why=why)
        )
        strange = ops.open(
            count,
            to=(self.seats.user,),
            what="how many rows were out of range, and how many saturated: none, as a rule",
            why="a token that may be wrong is not to pass for right",
        )
        return PassOutcome(keys, values, shown, strange)

    def inputs(self, ids: list[int]) -> dict[str, Tensor]:
        """Return the user's part of what a pass reads."""
        hot = torch.zeros(len(ids), self.architecture.vocab, dtype=torch.float64)
        hot[torch.arange(len(ids)), torch.tensor(ids)] = 1
        return {"hot": hot}

    def _weights(self, ops: ProtocolOps[V]) -> dict[str, V]:
        """Take the weights: those of products as they were opened in the session's first pass."""
        return {
            name: (ops.input if name.endswith(".bias") else ops.weight)(
                name, owner=self.seats.owner, shape=shape, bound=self.bounds[name]
            )
            for name, shape in weight_shapes(self.architecture).items()
        }

    def _embedded(self, ops: ProtocolOps[V], w: Mapping[str, V], step: Pass) -> V:
        a = self.architecture
        shape = (step.rows, a.vocab)
        # A row of one-hot numbers times the embedding: nobody sees which row was read. Whole
        # numbers, so the product needs no truncation.
        hot = ops.input("hot", owner=self.seats.user, shape=shape, bound=1.0, frac_bits=0)
        x = ops.restate(ops.pick(hot, w["embed"]), bound=self.bounds["embed"])
        if a.positions != "learned":
            return x
        bound = self.bounds["positions"]
        shape = (step.rows, a.width)
        return ops.add(x, ops.input("positions", owner=self.seats.owner, shape=shape, bound=bound))

    def _attend(
        self,
        ops: ProtocolOps[V],
        w: Mapping[str, V],
        step: Pass,
        i: int,
        x: V,
        watch: RangeWatch[V],
        *,
        resumes: bool,
    ) -> tuple[V, V, V | None, V | None]:
        """Return new keys and values, and attention's output and the skip beside it.

        Behind the last keys and values nothing is computed if no token is wanted.
        """
        a, rows = self.architecture, step.rows
        (both, value), normal = self._behind_norm(
            ops,
            w,
            f"{i}.norm1",
            f"{i}.qkv",
            x,
            watch,
            lambda joined: self._heads(ops, step, i, joined),
        )
        if a.has_qk_norm:
            both = self._turned(ops, step, i, self._normed_heads(ops, w, i, both))
        query, key = self._open_for_scores(ops, i, both)
        groups, shared = a.kv_heads, a.heads // a.kv_heads
        # Queries that share a key stand below each other: one product per key, not per query.
        stacked = ops.reshape(query, (1, groups, shared * rows, a.head_dim))
        truncated = ops.post(value, is_exact=True)
        keys = self._recalled(ops, step, f"{i}.k", key, resumes=resumes)(stacked)
        truncated()
        value = self._stated(ops, ops.rescaled(value), f"{i}.v")
        values = self._recalled(ops, step, f"{i}.v", value, resumes=resumes)
        if i + 1 == a.layers and not step.is_scored:
            values()
            return key, value, None, None
        most = self.bounds[f"{i}.scores"]
        scores = ops.matmul_within(stacked, ops.transpose(keys, 2, 3), bound=most)
        # The causal mask is public and comes with each pass, as it says where tokens stand: the
        # plan does not depend on it. The scale 1 / √d is in the queries' weights (see `fold`).
        seen = PublicInput(f"seen.{a.window_of(i)}", (shared * rows, step.room), 0, 1)
        bits = mixed_bits(self._stream_bits, step.room)
        mixed = ops.attention_mixed(scores, seen, values, frac_bits=bits, watch=watch)
        mixed = ops.transpose(ops.reshape(mixed, (1, a.heads, rows, a.head_dim)), 1, 2)
        mixed = ops.reshape(mixed, (rows, a.heads * a.head_dim))
        out = self._into_stream(ops, w, f"{i}.o", mixed, bound=self.bounds[f"{i}.attended"])
        skip = self._skip(ops, w, f"{i}.skip1", x, normal)
        return key, value, self._post_norm(ops, w, i, 1, out, watch), skip

    def _behind_norm(
        self,
        ops: ProtocolOps[V],
        w: Mapping[str, V],
        norm: str,
        name: str,
        x: V,
        watch: RangeWatch[V],
        parts: Callable[[V], list[RowProduct[V]]],
    ) -> tuple[list[V], Callable[[], V]]:
        """Return the parts of an affine map of normalised rows, and what gives the rows."""
        layer = norm.split(".")[0]
        kinds = ("q", "k", "v") if name.endswith("qkv") else ("up", "gate")
        most = max(self.bounds.get(f"{layer}.{kind}", 0.0) for kind in kinds)
        outs, normal = ops.product_behind_norm(
            x,
            w[f"{name}.weight"],
            bound=most,
            parts=parts,
            turns=name.endswith("qkv") and self._is_turned_early,
            **self._norm_facts(norm, watch),
        )
        if f"{name}.bias" in w:
            bias = ops.reshape(w[f"{name}.bias"], (1, -1))
            both = zip(outs, parts(bias), strict=True)
            outs = [ops.add(one, own.value) for one, own in both]
        return outs, normal

    def _heads(self, ops: ProtocolOps[V], step: Pass, i: int, joined: V) -> list[RowProduct[V]]:
        """Cut queries and keys, turned if they have no norm of their own, and values."""
        a, bounds = self.architecture, self.bounds
        both = _cut(ops, joined, 0, a.heads + a.kv_heads, a.head_dim)
        value = _cut(ops, joined, a.heads + a.kv_heads, a.heads + 2 * a.kv_heads, a.head_dim)
        if self._is_turned_early:
            both = self._turned(ops, step, i, both)
        # Turning two numbers of at most b gives at most √2 b; 2 b, as bounds are powers of two.
        most = 2 * max(bounds[f"{i}.q"], bounds[f"{i}.k"])
        spared = max(0, ceil(log2(bounds[f"{i}.scores"])) - _SCORE_BITS)
        spared = spared if spared <= _SPARED_BITS and not a.has_qk_norm else 0
        return [RowProduct(both, most, spared), RowProduct(value, bounds[f"{i}.v"])]

    def _post_norm(
        self, ops: ProtocolOps[V], w: Mapping[str, V], i: int, part: int, x: V, watch: RangeWatch[V]
    ) -> V:
        """Normalise what is added to the stream, where a model does."""
        if not self.architecture.has_post_norm:
            return x
        h = self._norm(ops, f"{i}.{'attended' if part == 1 else 'fed'}", x, watch)
        return ops.mul(h, w[f"{i}.post{part}.weight"])

    def _normed_heads(self, ops: ProtocolOps[V], w: Mapping[str, V], i: int, both: V) -> V:
        """Normalise queries and keys head by head."""
        a = self.architecture
        # Not behind a norm, so no bound follows from weights: what is larger saturates.
        h = ops.rms_norm(ops.cap(both, bound=STREAM_BOUND), eps=a.norm_eps)
        query = ops.take(h, range(a.heads), dim=1)
        key = ops.take(h, range(a.heads, a.heads + a.kv_heads), dim=1)
        parts = (ops.mul(query, w[f"{i}.q_norm.weight"]), ops.mul(key, w[f"{i}.k_norm.weight"]))
        return ops.normalise_scale(ops.concatenate(parts, dim=1))

    @property
    def _is_turned_early(self) -> bool:
        """Tell whether queries and keys are turned before their row is normalised: it is linear."""
        return self.architecture.positions != "learned" and not self.architecture.has_qk_norm

    def _turned(self, ops: ProtocolOps[V], step: Pass, i: int, both: V) -> V:
        """Turn heads (1, heads, rows, dim) by their positions, as they are."""
        a, window = self.architecture, self.architecture.window_of(i)
        if a.positions == "learned":
            return both
        # x cos + swapped(x) sin, the sign of the swap being in the sine (Su et al. 2021, eq. 34):
        # public numbers, so no round and no material.
        places, _ = swap(a)
        cos, sin = (
            PublicInput(f"{name}.{window}", (step.rows, a.head_dim), FRAC_BITS, 1 << FRAC_BITS)
            for name in ("cos", "sin")
        )
        swapped = ops.take(both, places, dim=3)
        sides = ops.weigh(both, cos, truncates=False), ops.weigh(swapped, sin, truncates=False)
        return ops.add(*sides)

    def _open_for_scores(self, ops: ProtocolOps[V], i: int, both: V) -> tuple[V, V]:
        """Return queries and keys that can be opened for their product as they are."""
        a, known = self.architecture, ops.number(both, "scores")
        # Scores have the fraction bits of both factors: they must fit below the spare bits that
        # keep a truncation from wrapping, in the ring that is left when the factors are opened cut
        # to FRAC_BITS (`mpc.arithmetic.rescaled`): it is as many bits smaller as are cut off.
        room = WORD_BITS - SPARE_BITS - (known.frac_bits - FRAC_BITS)
        if words_of(self.bounds[f"{i}.scores"], 2 * FRAC_BITS) >= 1 << room:
            both = ops.normalise_scale(both)  # one round more, where scores can be large
        query = ops.take(both, range(a.heads), dim=1)
        key = ops.take(both, range(a.heads, a.heads + a.kv_heads), dim=1)
        # Keys get one bound for all positions: kept ones are joined with new ones.
        key = ops.restate(key, bound=2 * self.bounds[f"{i}.k"])
        return self._stated(ops, query, f"{i}.q", 2), key

    def _recalled(
        self, ops: ProtocolOps[V], step: Pass, name: str, new: V, *, resumes: bool
    ) -> Callable[..., V]:
        """Begin to open new keys or values; what comes back puts them behind those that are open.

        It waits for them, and opens what it is given in the same round, if nothing came between.
        """
        if resumes:
            a, known = self.architecture, ops.number(new, "resuming")
            shape = (1, a.kv_heads, step.past, a.head_dim)
            old = ops.resume(name, shape=shape, bound=known.bound, frac_bits=known.frac_bits)
            new = ops.concatenate((old, new), dim=2)
        wait = ops.post(new)

        def join(*beside: V) -> V:
            ops.opened(*beside)
            wait()
            return ops.grow({name: new}, length=step.room, dim=2)[0]

        return join

    def _fed(
        self, ops: ProtocolOps[V], w: Mapping[str, V], i: int, x: V, watch: RangeWatch[V]
    ) -> V:
        a = self.architecture
        kinds = ("gate", "up") if a.has_gate else ("up",)

        def parts(joined: V) -> list[RowProduct[V]]:
            cuts = (range(at * a.ffn, (at + 1) * a.ffn) for at in range(len(kinds)))
            return [
                RowProduct(ops.take(joined, cut, dim=1), self.bounds[f"{i}.{kind}"])
                for kind, cut in zip(kinds, cuts, strict=True)
            ]

        (*gates, up), normal = self._behind_norm(ops, w, f"{i}.norm2", f"{i}.up", x, watch, parts)
        up = self._stated(ops, up, f"{i}.up")
        if gates:
            gate = self._stated(ops, gates[0], f"{i}.gate")
            curve = ops.elementwise_rescaling("silu" if a.activation == "swiglu" else "gelu", gate)
            most, bits = self.bounds[f"{i}.active"], factor_bits(self._stream_bits)
            active = ops.mul_rescaling(up, curve, bound=most, frac_bits=bits)
        else:
            active = ops.elementwise_rescaling("gelu", up)
        out = self._into_stream(ops, w, f"{i}.down", active, bound=self.bounds[f"{i}.fed"])
        out = self._post_norm(ops, w, i, 2, out, watch)
        return ops.add(self._skip(ops, w, f"{i}.skip2", x, normal), out)

    def _answer(
        self, ops: ProtocolOps[V], w: Mapping[str, V], step: Pass, x: V, watch: RangeWatch[V]
    ) -> V:
        """Give the scores of the next token, or the best of them."""
        # Of the last row alone: the vocabulary is the widest matrix of the model.
        last = ops.take(x, (step.rows - 1,), dim=0)
        h = self._norm(ops, "norm", last, watch)
        scores = self._affine(ops, w, "output", h, bound=self.bounds["logits"])
        scores = ops.normalise_scale(scores)
        if self.reveal == "scores":
            return scores
        if self.reveal == "sample":
            scores = self._drawn(ops, scores)
        else:
            scores = adjusted(ops, scores, user=self.seats.user)
        return ops.argmax(scores, dim=-1)

    def _drawn(self, ops: ProtocolOps[V], scores: V) -> V:
        dealer = None if self.is_dealt else self.seats.dealer
        return drawn(ops, scores, user=self.seats.user, dealer=dealer)

    def _skip(
        self, ops: ProtocolOps[V], w: Mapping[str, V], name: str, x: V, normal: Callable[[], V]
    ) -> V:
        if not self.architecture.skips_from_norm:
            return x
        return ops.add(ops.mul(normal(), w[f"{name}.weight"]), w[f"{name}.bias"])

    def _norm(self, ops: ProtocolOps[V], name: str, x: V, watch: RangeWatch[V]) -> V:
        """Normalise rows, of which the longest of a probe is known."""
        return ops.norm_within(x, **self._norm_facts(name, watch))

    def _norm_facts(self, name: str, watch: RangeWatch[V]) -> NormFacts[V]:
        a = self.architecture
        return {
            # The stream is larger by 2^gain_bits, its mean square by 4^gain_bits.
            "eps": a.norm_eps * 4.0**self.gain_bits,
            "largest_mean": self.bounds[name] ** 2,
            "centred": a.norm == "layer",
            "watch": watch,
        }

    def _affine(
        self, ops: ProtocolOps[V], w: Mapping[str, V], name: str, x: V, *, bound: float
    ) -> V:
        out = ops.matmul_within(x, w[f"{name}.weight"], bound=bound)
        return ops.add(out, w[f"{name}.bias"]) if f"{name}.bias" in w else out

    def _into_stream(
        self, ops: ProtocolOps[V], w: Mapping[str, V], name: str, x: V, *, bound: float
    ) -> V:
        """Multiply with the matrix whose product is added to the stream."""
        known = ops.number(x, name)
        # Else the truncation of what is multiplied is left out, and that of the product does both.
        if known.frac_bits > self._stream_bits or known.ring_bits < WORD_BITS:
            x = ops.normalise_scale(x)  # one round more, for products of the whole word
        return self._affine(ops, w, name, x, bound=bound)

    @property
    def _stream_bits(self) -> int:
        return stream_bits(self.architecture, self.bounds)

    def _stated(self, ops: ProtocolOps[V], x: V, name: str, factor: float = 1.0) -> V:
        """Give a value the bound that the owner published, if that is smaller."""
        bound = factor * self.bounds[name]
        known = ops.number(x, "bounding").bound
        return ops.restate(x, bound=bound) if bound < known else x


def _cut(ops: ProtocolOps[V], joined: V, first: int, last: int, dim: int) -> V:
    """Take some heads out of rows (tokens, all heads), as (1, heads, tokens, dim)."""
    rows = ops.shape(joined)[0]
    part = ops.take(joined, range(first * dim, last * dim), dim=1)
    return ops.transpose(ops.reshape(part, (1, rows, last - first, dim)), 1, 2)
