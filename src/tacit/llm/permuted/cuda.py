"""A pass with one row on CUDA, in few launches: what owner and user have in common.

`Serving` and `Asking` say what is computed; here the same words come out of `kernels`. The material
of a run is laid out as one vector when it arrives, and copied to a fixed place before the run: so
every kernel of a pass reads and writes where it did before, and a pass can be recorded once and
played again.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from math import prod

import torch
from torch import Tensor

from tacit.llm.permuted import kernels
from tacit.llm.permuted.attention import Incremental
from tacit.llm.permuted.batch import Batch
from tacit.llm.permuted.blueprint import Blueprint
from tacit.llm.permuted.cuda_graph import MessageLink, MessageSize
from tacit.llm.permuted.exchange import AnsweredValue, Exchange, LookMaterial, spans
from tacit.llm.permuted.material import BatchMaterial
from tacit.llm.permuted.prf_stream import PrfStream
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

    answer: AnsweredValue
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
        self.seen = MessageSize(0, heads.count * words.seen_bytes)
        self.weights = MessageSize(0, heads.count * words.value_bytes)
        self.result = MessageSize(plan.inner * words.value_bytes)
        self.widths = (plan.inner, plan.kv, plan.kv)
        self.nbytes = (words.key_bytes, words.key_bytes, words.value_bytes)
        self.masked_qkv = MessageSize(sum(map(prod, zip(self.widths, self.nbytes, strict=True))))

    def scores(self, query: Tensor, keys: Tensor, place: Tensor, most: int) -> Tensor:
        """Multiply a query with all keys: (heads · n,), without the bits that nobody sees."""
        count = self.heads.count
        out = query.new_empty(count * most)
        kernels.scores[(count, -(-most // _SCORED))](
            query, keys, out, place, self.words.drop, **self._sizes, WIDE=self._wide, BLOCK=_SCORED
        )
        return out

    def score_shares(
        self, link: MessageLink, factors: Sequence[Tensor], place: Tensor, most: int
    ) -> None:
        """Send the user's part of the scores: a · r + q · p, and what splits it off."""
        count, nbytes = self.heads.count, self.words.seen_bytes
        out = link.empty(self.seen.at(most))
        kernels.score_shares[(count, -(-most // _SCORED))](
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
        kernels.mix[(count, -(-dim // _NUMBERS))](
            weights, values, out, place, **self._sizes, WIDE=_NUMBERS, BLOCK=_MIXED
        )
        return out

    def mixed(self, link: MessageLink, factors: Sequence[Tensor], place: Tensor) -> None:
        """Send the user's part of the weighed values, from two products."""
        count, dim, nbytes = self.heads.count, self.heads.dim, self.words.value_bytes
        out = link.empty(self.result.fixed)
        kernels.mixed[(count, -(-dim // _NUMBERS))](
            *factors,
            out,
            place,
            **self._sizes,
            WIDE=_NUMBERS,
            NBYTES=nbytes,
            BLOCK=_MIXED,
        )
        link.send(out, self.result)


_ALIGNED = 16  # words: kernels may count on it
_USER = ("score_shares", "reveal_mask", "answer_mask", "weights")
_GROWING = {*_USER, "permutation", "delta", "answer_correction"}
"""Vectors of attention with a number for every head and key: they have room for longer texts."""


class VectorSheet:
    """Where the vectors of a run lie in the one that holds them all."""

    def __init__(self, sizes: Mapping[str, int]) -> None:
        self._places: dict[str, tuple[int, int]] = {}
        at = 0
        for name, size in sizes.items():
            self._places[name] = at, size
            at += -(-size // _ALIGNED) * _ALIGNED
        self._most = _ALIGNED + max(sizes.values())

    def fill(self, parts: Mapping[str, Tensor]) -> Tensor:
        """Lay the vectors of a run out; they may be shorter than their places."""
        pieces = list[Tensor]()
        some = next(iter(parts.values()))
        zeros = torch.zeros(self._most, dtype=torch.int64, device=some.device)
        for name, (_, size) in self._places.items():
            part = parts[name].reshape(-1)
            pieces.append(part)
            if missing := -(-size // _ALIGNED) * _ALIGNED - len(part):
                pieces.append(zeros[:missing])
        return torch.cat(pieces)

    def parts(self, whole: Tensor) -> dict[str, Tensor]:
        """Find the vectors in what `fill` made."""
        return {name: whole.narrow(0, at, size) for name, (at, size) in self._places.items()}


@dataclass(frozen=True, eq=False)
class Laid:
    """A batch, laid out for every run.

    Attributes:
        most: the longest text it is laid out for.
        is_capturable: whether attention is among it, so that a pass can be recorded.
        sheet: how it lies.
        runs: the vectors of every run.
    """

    most: int
    is_capturable: bool
    sheet: VectorSheet
    runs: list[Tensor]


def lay_out_masks(plan: Blueprint, batch: Batch, prf: PrfStream, queries: list[Tensor]) -> Laid:
    """Lay out the user's masks; ``queries`` are those of queries, by layer."""
    capturable = is_capturable(plan, batch)
    rows: list[dict[str, Tensor]] = [{} for _ in range(batch.runs)]
    for number, query in enumerate(queries):
        for exchange in exchanges(plan, number):
            reveal_mask = exchange.reveal_mask(prf, batch.rows)
            answer_mask = exchange.answer_mask(prf, batch.rows)
            for run, row in enumerate(rows):
                row[f"{exchange.label}.reveal_mask"] = reveal_mask[run]
                row[f"{exchange.label}.answer_mask"] = answer_mask[run]
        if not capturable:
            continue
        for run, row in enumerate(rows):
            kernel = plan.attention(number, batch, run)
            assert isinstance(kernel, Incremental)  # noqa: S101 - it is capturable
            count, heads, key = kernel.layout.count, plan.heads, f"{number}.attention"
            for name in _USER:
                row[f"{key}.{name}"] = prf.words(f"{kernel.label}.{name}", count)
            row[f"{key}.rest"] = prf.words(f"{kernel.label}.rest", 1, heads.count, heads.dim)
            row[f"{key}.query"] = query[run]
    return _laid(plan, batch, rows, is_capturable=capturable)


def lay_out_material(plan: Blueprint, offline: BatchMaterial) -> Laid:
    """Lay out the owner's material: sums, looks and, where it can be recorded, attention."""
    capturable = is_capturable(plan, offline.batch)
    rows: list[dict[str, Tensor]] = [{} for _ in range(offline.batch.runs)]
    for number, material in enumerate(offline.layers):
        whole = material.sums | {
            f"{label}.{part.name}": getattr(look, part.name)
            for label, look in material.looks.items()
            for part in fields(LookMaterial)
        }
        for run, row in enumerate(rows):
            row.update({name: words[run] for name, words in whole.items()})
            if capturable:
                row.update(_attention(plan, offline, number, run))
    _turn(plan, offline, rows)
    return _laid(plan, offline.batch, rows, is_capturable=capturable)


def _laid(
    plan: Blueprint, batch: Batch, rows: list[dict[str, Tensor]], *, is_capturable: bool
) -> Laid:
    most = room(batch.end)
    sheet = VectorSheet(
        {
            name: most * plan.heads.count
            if name.partition(".attention.")[2] in _GROWING
            else words.numel()
            for name, words in rows[0].items()
        }
    )
    return Laid(most, is_capturable, sheet, [sheet.fill(row) for row in rows])


def _attention(plan: Blueprint, offline: BatchMaterial, number: int, run: int) -> dict[str, Tensor]:
    """Draw and sort the material of one step's attention."""
    kernel = plan.attention(number, offline.batch, run)
    assert isinstance(kernel, Incremental)  # noqa: S101 - it is capturable
    prf = offline.prf
    query, weights = kernel.owner_masks(prf)
    keys, values = kernel.kv_masks(prf)
    delta, answer_correction, rest = offline.layers[number].mixed[run]
    parts = {
        "permutation": kernel.layout.shuffled(prf, kernel.label),
        "query": query,
        "keys": keys,
        "values": values,
        "weights": weights,
        "delta": delta,
        "answer_correction": answer_correction,
        "rest": rest,
    }
    return {f"{number}.attention.{name}": words for name, words in parts.items()}


def _turn(plan: Blueprint, offline: BatchMaterial, rows: list[dict[str, Tensor]]) -> None:
    """Add the angles of every run and kind of layer; a model without them has a zero there."""
    none = torch.zeros(len(rows), 1, dtype=torch.int64, device=plan.device)
    for layer in range(plan.architecture.layers):
        cos, sin = plan.angles(offline.batch, layer) or (none, none)
        window = plan.architecture.window_of(layer)
        for run, row in enumerate(rows):
            row[f"cos.{window}"], row[f"sin.{window}"] = cos[run], sin[run]
