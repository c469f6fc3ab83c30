"""Tables of a job file that name rows: of one data set, or of an owner among several."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from tacit.data.source import FLAT, Source
from tacit.spec import LOCAL, Positive, Share, Stretch, refuse


@dataclass(frozen=True, kw_only=True)
class RowsTable:
    """Rows out of a known data set or a file of the owner's."""

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

    ``rows`` and ``columns`` take a stretch of it, from the first to before the second; with a
    public set this is how owners divide it to try things out. ``scale`` divides the columns of a
    file, so that they keep within ``data.bound``; the owner alone needs it. ``book`` is a file in
    which it counts what private trainings spend on these rows, up to ``most_epsilon`` together.
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
