"""The user's masks of a batch of steps, laid out run by run for `cuda_asking`."""

from dataclasses import dataclass

from torch import Tensor

from tacit.llm.permuted.batch import Batch
from tacit.llm.permuted.blueprint import Blueprint
from tacit.llm.permuted.cuda import Sheet, is_capturable, room
from tacit.llm.permuted.incremental import Incremental
from tacit.llm.permuted.prf_stream import PrfStream
from tacit.llm.permuted.program import exchanges


@dataclass(frozen=True, eq=False)
class CudaMasks:
    """A batch's masks, laid out for every run.

    Attributes:
        most: the longest text they are laid out for.
        is_capturable: whether attention is among them.
        sheet: how they lie.
        runs: the masks of every run.
    """

    most: int
    is_capturable: bool
    sheet: Sheet
    runs: list[Tensor]


def lay_out_masks(
    plan: Blueprint, batch: Batch, prf: PrfStream, queries: list[Tensor]
) -> CudaMasks:
    """Lay a batch's masks out, before they are wanted."""
    capturable, most = is_capturable(plan, batch), room(batch.end)
    rows: list[dict[str, Tensor]] = [{} for _ in range(batch.runs)]
    for number, query in enumerate(queries):
        for exchange in exchanges(plan, number):
            reveal_mask, answer_mask = (
                exchange.reveal_mask(prf, batch.rows),
                exchange.answer_mask(prf, batch.rows),
            )
            for run, row in enumerate(rows):
                row[f"{exchange.label}.reveal_mask"] = reveal_mask[run]
                row[f"{exchange.label}.answer_mask"] = answer_mask[run]
        for run, row in enumerate(rows):
            if capturable:
                row.update(_attention(plan, batch, prf, number, run))
                row[f"{number}.attention.query"] = query[run]
    sizes = {name: words.numel() for name, words in rows[0].items()}
    for name in sizes:
        if name.endswith(
            (".score_shares", "attention.reveal_mask", "attention.answer_mask", ".weights")
        ):
            sizes[name] = most * plan.heads.count
    sheet = Sheet(sizes)
    return CudaMasks(most, capturable, sheet, [sheet.fill(row) for row in rows])


def _attention(
    plan: Blueprint, batch: Batch, prf: PrfStream, number: int, run: int
) -> dict[str, Tensor]:
    kernel = plan.attention(number, batch, run)
    assert isinstance(kernel, Incremental)  # noqa: S101 - asked before
    count, label = kernel.layout.count, kernel.label
    out = {
        f"{number}.attention.{name}": prf.words(f"{label}.{name}", count)
        for name in ("score_shares", "reveal_mask", "answer_mask", "weights")
    }
    heads = plan.heads
    out[f"{number}.attention.rest"] = prf.words(f"{label}.rest", 1, heads.count, heads.dim)
    return out
