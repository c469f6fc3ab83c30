"""Rows and columns both divided: which owners have which columns of the same rows."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tacit.errors import DataError
from tacit.learners import Parties, Table
from tacit.spec import Problem, Stretch

if TYPE_CHECKING:
    from tacit.jobs.fit_job import FitJob


@dataclass(frozen=True, kw_only=True)
class BlockTable:
    """[data.blocks.NAME]: some rows of the whole table, whose columns several owners have.

    Attributes:
        columns: by owner, which columns of the whole it has, from the first to before the second.
        labels: who has the labels of these rows, where the learner wants labels.
    """

    columns: Mapping[str, Stretch]
    labels: str | None = None

    @property
    def owners(self) -> tuple[str, ...]:
        """Return who has a part of these rows, in the order of their columns, labels alone last."""
        found = sorted(self.columns, key=lambda one: self.columns[one])
        return tuple(dict.fromkeys([*found, *([self.labels] if self.labels else [])]))

    @property
    def width(self) -> int:
        """Return how many columns the whole table has, as far as this block knows."""
        return max((end for _, end in self.columns.values()), default=0)


def check_blocks(job: "FitJob") -> Iterator[Problem]:
    """Yield where blocks overlap, leave holes or do not fit below each other."""
    blocks = job.data.blocks
    if job.data.split != "both":
        if blocks:
            yield Problem("data.blocks", 'for rows and columns both divided: split = "both"')
        return
    if job.data.labels is not None:
        yield Problem("data.labels", "every block names who has its labels; leave it out")
    if len(blocks) < 2:
        yield Problem("data.blocks", f"wanted two blocks of rows or more, got {len(blocks)}")
    for owner in job.data.owners:
        places = [name for name, block in blocks.items() if owner in block.owners]
        if not places:
            yield Problem("data.blocks", f"{owner!r} is in no block: its rows would be left out")
        elif len(places) > 1:
            text = f"{owner!r} is in {' and '.join(places)}: an owner has rows of one block"
            yield Problem("data.blocks", text)
    width = max((block.width for block in blocks.values()), default=0)
    for name, block in blocks.items():
        key, wants = f"data.blocks.{name}", job.learner.target != "none"
        yield from _check_columns(f"{key}.columns", block, width)
        if wants and block.labels is None:
            yield Problem(f"{key}.labels", "missing; wanted the owner of the labels of these rows")
        if not wants and block.labels is not None:
            yield Problem(f"{key}.labels", f"{job.learner.kind} learns without; leave it out")
        for owner in block.owners:
            if owner not in job.data.owners:
                yield Problem(key, f"{owner!r} is none of data.owners")


def _check_columns(key: str, block: BlockTable, width: int) -> Iterator[Problem]:
    """Walk from the first column to the last: every one belongs to one owner."""
    at, before = 0, ""
    for owner, (start, end) in sorted(block.columns.items(), key=lambda one: one[1]):
        if start < at:
            last = min(at, end)
            yield Problem(key, f"{before} and {owner} overlap: both have {_said(start, last)}")
        elif start > at:
            yield Problem(key, f"a hole: nobody has {_said(at, start)}")
        if end > at:
            at, before = end, owner
    if at < width:
        yield Problem(key, f"a hole: nobody has {_said(at, width)}, which another block has")


def _said(start: int, end: int) -> str:
    return f"column {start}" if end == start + 1 else f"columns {start} to {end - 1}"


def put_below(job: "FitJob", parties: Parties, tables: Sequence[Table]) -> Table:
    """Put the tables of all blocks below each other, columns in the order that the job says.

    Raises:
        DataError: an owner brings more or fewer columns than the job says.
    """
    ordered = []
    for (name, block), table in zip(job.blocks, tables, strict=True):
        held = {one.owner: one for one in table.holdings}
        for owner in block.owners:
            start, end = block.columns.get(owner, (0, 0))
            found = held[owner].columns if owner in held else 0
            if found != end - start:
                raise DataError(
                    f"{owner!r} has {end - start} columns by data.blocks.{name}.columns and brings "
                    f"{found}; mend the job file, or choose with data.owners.{owner}.columns"
                )
        ordered.append(replace(table, holdings=tuple(held[one] for one in block.owners)))
    return parties.stack(ordered)
