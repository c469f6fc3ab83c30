"""What owner and user need of a batch of steps on CUDA, laid out run by run before it is wanted.

All vectors of a run lie in one, which is copied to a fixed place when the run begins: a graph that
was recorded once then finds everything where it was.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields

import torch
from torch import Tensor

from tacit.llm.permuted.batch import Batch
from tacit.llm.permuted.blueprint import Blueprint
from tacit.llm.permuted.cuda import is_capturable, room
from tacit.llm.permuted.exchange import Look
from tacit.llm.permuted.incremental import Incremental
from tacit.llm.permuted.material import BatchMaterial
from tacit.llm.permuted.prf_stream import PrfStream
from tacit.llm.permuted.program import exchanges

_ALIGNED = 16  # words: kernels may count on it
_USER = ("score_shares", "reveal_mask", "answer_mask", "weights")
_GROWING = {*_USER, "permutation", "delta", "answer_correction"}
"""Vectors of attention with a number for every head and key: they have room for longer texts."""


class Sheet:
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
    sheet: Sheet
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
            for part in fields(Look)
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
    sheet = Sheet(
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
        rotation, window = plan.rotation(offline.batch, layer), plan.architecture.window_of(layer)
        for run, row in enumerate(rows):
            for name in ("cos", "sin"):
                angles = none if rotation is None else getattr(rotation, name)
                row[f"{name}.{window}"] = angles[run]
