"""The user's masks of an order of steps, laid out run by run for `quick_asking`."""

from dataclasses import dataclass

from torch import Tensor

from tacit.llm.private.blueprint import Blueprint
from tacit.llm.private.exchange import Exchange
from tacit.llm.private.incremental import Incremental
from tacit.llm.private.order import Order
from tacit.llm.private.quick import Sheet, room
from tacit.llm.private.tape import Tape


@dataclass(frozen=True, eq=False)
class QuickMasks:
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


def lay_out_masks(plan: Blueprint, order: Order, tape: Tape, queries: list[Tensor]) -> QuickMasks:
    """Lay an order's masks out, before they are wanted."""
    kernels = [plan.attention(0, order, run) for run in range(order.runs)]
    is_steady = all(isinstance(one, Incremental) and one.fresh == 1 for one in kernels)
    most = room(order.end)
    rows: list[dict[str, Tensor]] = [{} for _ in range(order.runs)]
    for number, query in enumerate(queries):
        for name, exchange in _exchanges(plan, number).items():
            veil, cover = exchange.veil(tape, order.rows), exchange.cover(tape, order.rows)
            for run, row in enumerate(rows):
                row[f"{number}.{name}.veil"], row[f"{number}.{name}.cover"] = veil[run], cover[run]
        for run, row in enumerate(rows):
            if is_steady:
                row.update(_attention(plan, order, tape, number, run))
                row[f"{number}.attention.query"] = query[run]
    sizes = {name: words.numel() for name, words in rows[0].items()}
    for name in sizes:
        if name.endswith((".halves", "attention.veil", "attention.cover", ".weights")):
            sizes[name] = most * plan.heads.count
    sheet = Sheet(sizes)
    return QuickMasks(most, is_steady, sheet, [sheet.fill(row) for row in rows])


def _exchanges(plan: Blueprint, number: int) -> dict[str, Exchange]:
    feeds = {f"feed{index}": one for index, one in enumerate(plan.feeds(number))}
    return {"project": plan.project(number)} | feeds


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
