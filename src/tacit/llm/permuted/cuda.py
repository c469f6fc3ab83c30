"""A pass with one row on CUDA, in few launches: what owner and user have in common.

`Serving` and `Asking` say what is computed; here the same words come out of `kernels`. The material
of a run is laid out as one vector when it arrives, and copied to a fixed place before the run: so
every kernel of a pass reads and writes where it did before, and a pass can be recorded once and
played again.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from torch import Tensor

from tacit.llm.permuted import attention_kernels, kernels
from tacit.llm.permuted.batch import Batch
from tacit.llm.permuted.blueprint import Blueprint
from tacit.llm.permuted.cuda_graph import MessageLink, Size
from tacit.llm.permuted.exchange import Answer, Exchange, spans
from tacit.llm.permuted.incremental import Incremental
from tacit.llm.permuted.program import exchanges

_SCORED = 16  # keys of one program
_MIXED = 32
_NUMBERS = 32  # entries of a head in one program
_SHORT = 128


def blocks(n: int) -> tuple[int]:
    """Return the grid for n entries."""
    return (-(-n // kernels.BLOCK),)


def power(n: int) -> int:
    """Return the next power of two."""
    return 1 << (n - 1).bit_length()


def room(tokens: int) -> int:
    """Return the length of text that passes are laid out for, as few different ones as may be."""
    return max(_SHORT, power(tokens))


def has_kernels(plan: Blueprint) -> bool:
    """Say whether a party computes passes of one row by kernels."""
    return kernels.is_available(plan.device) and is_plain(plan)


def is_plain(plan: Blueprint) -> bool:
    """Say whether all values but the first of an exchange lose as many bits, as kernels want it."""
    return all(
        len({one.drop for one in exchange.reveals[1:]}) <= 1
        for layer in range(plan.architecture.layers)
        for exchange in exchanges(plan, layer)
    )


def is_capturable(plan: Blueprint, batch: Batch) -> bool:
    """Say whether kernels compute the attention of all steps: one new row over all keys."""
    found = (
        plan.attention(layer, batch, run)
        for run in range(batch.runs)
        for layer in range(plan.architecture.layers)
    )
    return all(
        isinstance(one, Incremental) and one.fresh == 1 and one.layout.is_full for one in found
    )


@dataclass(frozen=True, eq=False)
class Slot:
    """Where an answer lies in its message: its span's first byte, its place and size there."""

    answer: Answer
    at: int
    first: int
    total: int
    start: int  # in all answers laid end to end


def slots(exchange: Exchange) -> list[Slot]:
    """Lay the answers of an exchange out."""
    values, out, at, start = iter(exchange.answers), list[Slot](), 0, 0
    for span in spans(exchange.answers):
        first = 0
        for width in span.widths:
            out.append(Slot(next(values), at, first, span.width, start))
            first += width
            start += width
        at += span.width * span.nbytes
    return out


class Heading:
    """Attention of one row: the sizes that its kernels are compiled for."""

    def __init__(self, plan: Blueprint) -> None:
        heads, words = plan.heads, plan.words
        self.heads, self.words, self.inner, self.kv = heads, words, plan.inner, plan.kv
        self.drops = (plan.turn_drop, plan.turn_drop, plan.value_drop)
        self.out_drop = plan.out_drop
        self._sizes = {"GROUPS": heads.groups, "SIZE": heads.size, "DIM": heads.dim}
        self._wide = power(heads.dim)
        kinds = {"learned": 0, "rotary": 1, "rotary2d": 2}[plan.architecture.positions]
        self.half = heads.dim // (2 * kinds) if kinds else 0
        self.seen = Size(0, heads.count * words.seen_bytes)
        self.weights = Size(0, heads.count * words.value_bytes)
        self.result = Size(plan.inner * words.value_bytes)
        self.widths = (plan.inner, plan.kv, plan.kv)
        self.nbytes = (words.key_bytes, words.key_bytes, words.value_bytes)
        self.masked_qkv = Size(sum(map(prod, zip(self.widths, self.nbytes, strict=True))))

    def scores(self, query: Tensor, keys: Tensor, place: Tensor, most: int) -> Tensor:
        """Multiply a query with all keys: (heads · n,), without the bits that nobody sees."""
        count = self.heads.count
        out = query.new_empty(count * most)
        attention_kernels.scores[(count, -(-most // _SCORED))](
            query, keys, out, place, self.words.drop, **self._sizes, WIDE=self._wide, BLOCK=_SCORED
        )
        return out

    def score_shares(
        self, link: MessageLink, factors: Sequence[Tensor], place: Tensor, most: int
    ) -> None:
        """Send the user's part of the scores: a · r + q · p, and what splits it off."""
        count, nbytes = self.heads.count, self.words.seen_bytes
        out = link.empty(self.seen.at(most))
        attention_kernels.score_shares[(count, -(-most // _SCORED))](
            *factors,
            out,
            place,
            self.words.drop,
            **self._sizes,
            WIDE=self._wide,
            NBYTES=nbytes,
            BLOCK=_SCORED,
        )
        link.send(out, self.seen)

    def mix(self, weights: Tensor, values: Tensor, place: Tensor) -> Tensor:
        """Weigh values: (heads · dim,)."""
        count, dim = self.heads.count, self.heads.dim
        out = weights.new_empty(count * dim)
        attention_kernels.mix[(count, -(-dim // _NUMBERS))](
            weights, values, out, place, **self._sizes, WIDE=_NUMBERS, BLOCK=_MIXED
        )
        return out

    def mixed(self, link: MessageLink, factors: Sequence[Tensor], place: Tensor) -> None:
        """Send the user's part of the weighed values, from two products."""
        count, dim, nbytes = self.heads.count, self.heads.dim, self.words.value_bytes
        out = link.empty(self.result.fixed)
        attention_kernels.mixed[(count, -(-dim // _NUMBERS))](
            *factors,
            out,
            place,
            **self._sizes,
            WIDE=_NUMBERS,
            NBYTES=nbytes,
            BLOCK=_MIXED,
        )
        link.send(out, self.result)
