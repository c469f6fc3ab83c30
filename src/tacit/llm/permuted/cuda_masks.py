"""The user's masks of an order of steps, laid out run by run for `cuda_asking`."""

from dataclasses import dataclass

from torch import Tensor

from tacit.llm.permuted.blueprint import Blueprint
from tacit.llm.permuted.cuda import Sheet, is_steady, room
from tacit.llm.permuted.incremental import Incremental
from tacit.llm.permuted.listing import exchanges
from tacit.llm.permuted.order import Order
from tacit.llm.permuted.tape import Tape


@dataclass(frozen=True, eq=False)
class CudaMasks:
    """An order's masks, laid out for every run.

    Attributes:
        most: the longest text they are laid out for.
        is_steady: whether attention is among them.
        sheet: how they lie.
        runs: the masks of every run.
    """

    most: int
    is_steady: bool
    sheet: Sheet
    runs: list[Tensor]


def lay_out_masks(plan: Blueprint, order: Order, tape: Tape, queries: list[Tensor]) -> CudaMasks:
    """Lay an order's masks out, before they are wanted."""
    steady, most = is_steady(plan, order), room(order.end)
    rows: list[dict[str, Tensor]] = [{} for _ in range(order.runs)]
    for number, query in enumerate(queries):
        for exchange in exchanges(plan, number):
            veil, cover = exchange.veil(tape, order.rows), exchange.cover(tape, order.rows)
            for run, row in enumerate(rows):
                row[f"{exchange.label}.veil"] = veil[run]
                row[f"{exchange.label}.cover"] = cover[run]
        for run, row in enumerate(rows):
            if steady:
                row.update(_attention(plan, order, tape, number, run))
                row[f"{number}.attention.query"] = query[run]
    sizes = {name: words.numel() for name, words in rows[0].items()}
    for name in sizes:
        if name.endswith((".halves", "attention.veil", "attention.cover", ".weights")):
            sizes[name] = most * plan.heads.count
    sheet = Sheet(sizes)
    return CudaMasks(most, steady, sheet, [sheet.fill(row) for row in rows])


def _attention(
    plan: Blueprint, order: Order, tape: Tape, number: int, run: int
) -> dict[str, Tensor]:
    kernel = plan.attention(number, order, run)
    assert isinstance(kernel, Incremental)  # noqa: S101 - asked before
    count, label = kernel.layout.count, kernel.label
    out = {
        f"{number}.attention.{name}": tape.words(f"{label}.{name}", count)
        for name in ("halves", "veil", "cover", "weights")
    }
    heads = plan.heads
    out[f"{number}.attention.rest"] = tape.words(f"{label}.rest", 1, heads.count, heads.dim)
    return out
