"""The owner's material of a batch of steps, laid out run by run for `cuda_serving`."""

from dataclasses import fields

import torch
from torch import Tensor

from tacit.llm.permuted.blueprint import Blueprint
from tacit.llm.permuted.cuda import Sheet, is_capturable, room
from tacit.llm.permuted.exchange import Look
from tacit.llm.permuted.incremental import Incremental
from tacit.llm.permuted.material import BatchMaterial, LayerMaterial


def lay_out(plan: Blueprint, offline: BatchMaterial) -> tuple[int, bool, Sheet, list[Tensor]]:
    """Lay out the material of a batch.

    Returns:
        The longest text it is laid out for, whether attention is among it, how it lies, and the
        material of every run.
    """
    batch = offline.batch
    capturable, most = is_capturable(plan, batch), room(batch.end)
    rows: list[dict[str, Tensor]] = [{} for _ in range(batch.runs)]
    for number, material in enumerate(offline.layers):
        whole = _layer(material)
        for run, row in enumerate(rows):
            row.update({name: words[run] for name, words in whole.items()})
            if capturable:
                row.update(_attention(plan, offline, number, run))
    _turn(plan, offline, rows)
    sizes = {name: words.numel() for name, words in rows[0].items()}
    for name in sizes:
        if name.endswith(
            ("attention.permutation", ".delta", "attention.answer_correction", ".weights")
        ):
            sizes[name] = most * plan.heads.count
    sheet = Sheet(sizes)
    return most, capturable, sheet, [sheet.fill(row) for row in rows]


def _layer(material: LayerMaterial) -> dict[str, Tensor]:
    """Return the material of a layer, (runs, …) each."""
    looks = {
        f"{label}.{part.name}": getattr(look, part.name)
        for label, look in material.looks.items()
        for part in fields(Look)
    }
    return material.sums | looks


def _attention(plan: Blueprint, offline: BatchMaterial, number: int, run: int) -> dict[str, Tensor]:
    """Draw and sort the material of one step's attention."""
    kernel = plan.attention(number, offline.batch, run)
    assert isinstance(kernel, Incremental)  # noqa: S101 - asked before
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
