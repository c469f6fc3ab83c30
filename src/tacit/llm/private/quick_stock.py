"""The owner's material of an order of steps, laid out run by run for `quick_serving`."""

from collections.abc import Mapping

import torch
from torch import Tensor

from tacit.llm.private.blueprint import Blueprint
from tacit.llm.private.exchange import Look
from tacit.llm.private.incremental import Incremental
from tacit.llm.private.quick import Sheet, room
from tacit.llm.private.stock import LayerStock, Stock

Biases = Mapping[str, Tensor]


def lay_out(plan: Blueprint, stock: Stock, biases: Biases) -> tuple[int, bool, Sheet, list[Tensor]]:
    """Lay out the material of an order.

    What does not depend on the text is added up: constants to corrections, corrections to each
    other.

    Returns:
        The longest text it is laid out for, whether attention is among it, how it lies, and the
        material of every run.
    """
    order = stock.order
    kernels = [plan.attention(0, order, run) for run in range(order.runs)]
    is_steady = all(isinstance(one, Incremental) and one.fresh == 1 for one in kernels)
    most = room(order.end)
    rows: list[dict[str, Tensor]] = [{} for _ in range(order.runs)]
    for number, material in enumerate(stock.layers):
        whole = _layer(plan, number, material, biases)
        for run, row in enumerate(rows):
            row.update({name: words[run] for name, words in whole.items()})
            if is_steady:
                row.update(_attention(plan, stock, number, run))
    _turn(plan, stock, rows)
    sizes = {name: words.numel() for name, words in rows[0].items()}
    for name in sizes:
        if name.endswith(("attention.order", ".delta", "attention.covered", ".weights")):
            sizes[name] = most * plan.heads.count
    sheet = Sheet(sizes)
    return most, is_steady, sheet, [sheet.fill(row) for row in rows]


def _layer(plan: Blueprint, number: int, material: LayerStock, biases: Biases) -> dict[str, Tensor]:
    """Return the material of a layer, (runs, …) each."""
    p, (qkv, out, up, down, *skips) = plan.precision, material.corrected

    def with_bias(name: str, words: Tensor) -> Tensor:
        bias = biases.get(f"{number}.{name}")
        return words if bias is None else words + bias

    out, down = with_bias("o", out), with_bias("down", down) + material.after
    if skips:
        out = out + (skips[0] << (plan.middle_bits - p.stream))
        down = down + skips[1]
    if material.refed is not None:
        out = out + material.refed
    project = material.project
    if material.turned is not None:
        qkv = with_bias("qkv", qkv) + material.turned
    else:
        project = _biased(project, biases.get(f"{number}.qkv"))
    sums = {"qkv": qkv, "o": out, "up": with_bias("up", up), "down": down}
    whole = {f"{number}.{name}": words for name, words in sums.items()}
    looks = {"project": project}
    looks |= {f"feed{index}": look for index, look in enumerate(material.feeds)}
    for name, look in looks.items():
        for part in ("shown", "veiled", "answered", "covered"):
            whole[f"{number}.{name}.{part}"] = getattr(look, part)
    return whole


def _biased(look: Look, bias: Tensor | None) -> Look:
    """Let the answers bring the biases of queries, keys and values with them."""
    if bias is None:
        return look
    whole = torch.zeros(look.answered.shape[1], dtype=torch.int64, device=bias.device)
    whole[: len(bias)] = bias
    return Look(look.shown, look.answered, look.veiled, look.covered + whole[look.answered])


def _attention(plan: Blueprint, stock: Stock, number: int, run: int) -> dict[str, Tensor]:
    """Draw and sort the material of one step's attention."""
    kernel = plan.attention(number, stock.order, run)
    assert isinstance(kernel, Incremental)  # noqa: S101 - asked before
    tape = stock.tape
    query, weights = kernel.owner_masks(tape)
    keys, values = kernel.post(tape)
    delta, covered, rest = stock.layers[number].mixed[run]
    parts = {
        "order": kernel.layout.shuffled(tape, kernel.label),
        "query": query,
        "keys": keys,
        "values": values,
        "weights": weights,
        "delta": delta,
        "covered": covered,
        "rest": rest,
    }
    return {f"{number}.attention.{name}": words for name, words in parts.items()}


def _turn(plan: Blueprint, stock: Stock, rows: list[dict[str, Tensor]]) -> None:
    """Add the angles of every run; a model without them has a zero there."""
    rotation = plan.rotation(stock.order)
    for run, row in enumerate(rows):
        for name in ("cos", "sin"):
            none = torch.zeros(1, dtype=torch.int64, device=plan.device)
            row[name] = none if rotation is None else getattr(rotation, name)[run]
