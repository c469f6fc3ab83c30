"""Tables of a job file that name rows: of one data set, or of an owner among several."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from tacit.data.source import FLAT, Source
from tacit.spec import LOCAL, Positive, Share, Stretch, refuse


@dataclass(frozen=True, kw_only=True)
class RowsTable:
    """Rows out of a known data set or a file of the owner's.

    Attributes:
        set: a data set known by name, for instance breast-cancer; either this or ``file``.
        file: the owner's own file: .csv, .npz or .parquet, or a description of a table.
        label: the column of ``file`` with the classes.
        part: which rows of a known set.
        test_share: the share of its rows that are test rows; the published division, else 0.3, if
            not given.
    """

    set: str | None = None
    file: Path | None = field(default=None, metadata=LOCAL)
    label: str | None = None
    part: Literal["train", "test", "all"] = "all"
    test_share: Share | None = None

    def __post_init__(self) -> None:
        check_named(self.set, self.file, self.label)

    def source(self, key: str) -> Source:
        """Return where the rows come from."""
        return Source.of(self, key=key)


@dataclass(frozen=True, kw_only=True)
class OwnerTable:
    """[data.owners.NAME]: where one owner's part of the data comes from.

    Attributes:
        set: a data set known by name, for instance breast-cancer; either this or ``file``.
        file: the owner's own file: .csv, .npz or .parquet, or a description of a table.
        label: the column of ``file`` with the classes, or with the numbers to learn.
        id: the column by which rows of several owners are matched.
        rows: a stretch of the rows: the first, and the one after the last. With a known set this is
            how owners divide it to try things out.
        columns: a stretch of the columns, likewise.
        scale: divisors of the columns of a file, without id and label, so that they keep within
            ``data.bound``; a known set has its own.
        book: a file in which this owner counts what trainings with [privacy] spend on these rows,
            asked before a row is shared.
        most_epsilon: what all trainings in the book may spend together; more is refused.
    """

    set: str | None = None
    file: Path | None = field(default=None, metadata=LOCAL)
    label: str | None = None
    id: str | None = None
    rows: Stretch | None = None
    columns: Stretch | None = None
    scale: tuple[Positive, ...] | None = field(default=None, metadata=LOCAL)
    book: Path | None = field(default=None, metadata=LOCAL)
    most_epsilon: Positive | None = field(default=None, metadata=LOCAL)

    def __post_init__(self) -> None:
        if (self.book is None) != (self.most_epsilon is None):
            refuse("book", "wanted both 'book' and 'most_epsilon', or neither")
        check_scale(self.scale, self.set)
        check_named(self.set, self.file, self.label)

    def source(self, owner: str, *, shape: tuple[int, ...] = FLAT) -> Source:
        """Return where the rows come from, and in which form they are wanted."""
        return Source.of(self, shape=shape, key=f"data.owners.{owner}")


def check_named(known: str | None, file: Path | None, label: str | None) -> None:
    """Refuse a table that names rows twice, or a column of a known set."""
    if known is not None and file is not None:
        refuse("file", "wanted either 'set' or 'file', got both")
    if known is not None and label is not None:
        refuse("label", "names a column of 'file'; a set has its labels")


def check_scale(scale: tuple[float, ...] | None, known: str | None) -> None:
    """Refuse divisors of columns that belong to a known set, which has its own."""
    if scale is not None and known is not None:
        refuse("scale", "belongs to 'file'; a set has its own divisors")
