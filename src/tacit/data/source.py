"""Where a party's rows come from: a known set, a file, or what it hands over in Python.

Tables of a job file name them: `RowsTable` one data set, `OwnerTable` that of one owner among
several. What rows of any kind of job are, is read and brought into its form in `Source`.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from tacit.data.catalogue import load_dataset
from tacit.data.described import load_described
from tacit.data.ids import listed, take_ids
from tacit.data.memory import Handed, take_rows
from tacit.data.partition import Part, split
from tacit.data.prepare import NOT_PREPARED, PREPARED, Prepare, prepare_rows
from tacit.data.rows import Floats, Rows
from tacit.data.tables import COLUMNAR, load_columns, load_csv, load_npz, refuse_workbook
from tacit.errors import ConfigError, DataError
from tacit.files import check_file, refuse_endless
from tacit.spec import LOCAL, Names, Positive, Share, Stretch, refuse

FLAT = (-1,)
"""The shape of rows whose values stand in one line, whatever they were."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Given:
    """What a party hands over in Python: it takes the place of the files that its job names.

    Attributes:
        x: rows of features.
        y: the class of each row.
        weights: of its model, by name; or its share of every weight.
    """

    x: Handed | None = None
    y: Handed | None = None
    weights: Mapping[str, Any] | None = None  # tensors, which this room does not import

    def check(self, me: str, *, rows: bool, model: bool) -> None:
        """Refuse what a job has no use for from this party: it would be left out without a word.

        Raises:
            ConfigError: it gives rows and owns none in this job, or a model.
        """
        if self.has_rows and not rows:
            raise ConfigError(f"{me!r} owns no rows in this job, but gives some; leave x and y out")
        if self.weights is not None and not model:
            raise ConfigError(f"{me!r} owns no model in this job, but gives one; leave model out")

    @property
    def has_rows(self) -> bool:
        """Tell whether rows, or their classes, are given."""
        return self.x is not None or self.y is not None


NOTHING = Given()


@dataclass(frozen=True, kw_only=True)
class Source:
    """Where rows come from and which of them are meant, in the words of a job file.

    Attributes:
        set: the name of a known set, or
        file: the owner's own file, which also describes a query; see `tacit.data.load_file`.
        label: the column of the file that holds the classes, or the numbers to be learned.
        has_numbers: whether labels are numbers.
        part: the rows to train on, those to test on, or all.
        test_share: of the rows, to test on.
        id: the column that rows are matched by, or several; they are no features.
        rows, columns: a stretch, from the first to before the second.
        shape: of a row; as it lies if not given.
        prepare: what is done to the values of columns, in their own units.
        key: what errors call the table of the job.
    """

    set: str | None = None
    file: Path | None = None
    label: str | None = None
    has_numbers: bool = False
    part: Part = "all"
    test_share: float | None = None
    id: str | Sequence[str] | None = None
    rows: Sequence[int] | None = None
    columns: Sequence[int] | None = None
    shape: tuple[int, ...] | None = None
    prepare: Prepare = field(default_factory=dict)
    key: str = "data"

    @classmethod
    def of(cls, table: object, **others: Any) -> "Source":
        """Return what a table of settings names: its fields that are called as ours are."""
        named = {one.name for one in fields(cls)}
        return cls(**{name: value for name, value in vars(table).items() if name in named} | others)

    def check(self) -> None:
        """Make sure, cheaply, that rows are named, and that a file of them is there.

        Raises:
            ConfigError: no rows are named.
            DataError: there is no such file.
        """
        if self.set is None and self.file is None:
            raise ConfigError(f"{self.key}: wanted 'set' or 'file', got neither")
        check_file(self.file, f"{self.key}.file")

    def whole(self, search: Sequence[Path] = (), given: Given = NOTHING) -> Rows:
        """Load all rows that are named, or take those given in their place.

        Args:
            search: the folders that may hold known sets, from `tacit.data.search_path`.
            given: what the party hands over in Python.

        Raises:
            ConfigError: no rows are named and none are given, or both a known set and others.
            DataError: they cannot be read.
        """
        self.refuse_given(given)
        label, by = None if self.has_numbers else self.label, listed(self.id)
        lax = bool(self.prepare)  # what is missing may be imputed
        if given.has_rows and self.has_numbers and given.y is not None:
            y = np.asarray(given.y, dtype=np.float64)
            return replace(take_rows(given.x, id=by, allows_missing=lax), labels=y)
        if given.has_rows:
            found = take_rows(given.x, given.y, label=label, id=by, allows_missing=lax)
        elif self.set is not None:
            found = take_ids(load_dataset(self.set, search), by)
        elif self.file is not None:
            found = load_file(self.file, label=label, id=by, allows_missing=lax)
        else:
            raise ConfigError(
                f"{self.key}: wanted 'set' or 'file', or rows given in Python, got none of them"
            )
        return self._with_numbers(found) if self.has_numbers else found

    def load(self, search: Sequence[Path] = (), given: Given = NOTHING) -> Rows:
        """Load the rows that are meant, in the form that is wanted, with an id each.

        Without a column of ids these are the places of the rows.

        Raises:
            ConfigError: no rows are named and none are given, or both a known set and others.
            DataError: they cannot be read, are fewer than is asked for, or not finite.
        """
        found = split(self.whole(search, given), part=self.part, test_share=self.test_share)
        if not found.ids:
            found = replace(found, ids=tuple(str(row) for row in range(len(found))))
        if self.rows is not None:
            found = found.take(stretch(self.rows, len(found), f"{self.key}.rows"))
        if self.shape is not None:
            found = replace(found, features=shaped(found.features, self.shape, "data.shape"))
        if self.columns is not None:
            kept = stretch(self.columns, found.features.shape[1], f"{self.key}.columns")
            found = _stretched(found, kept)
        if not len(found):
            raise DataError(f"{self.key}: no rows are left")
        found = self.prepared(found)
        if not np.isfinite(found.features).all():
            owner = self.key.rpartition(".")[2]
            raise DataError(f"the data of {owner!r} holds NaN or infinite values; clean it first")
        return found if self.set is None else replace(found, columns=())

    def prepared(self, found: Rows) -> Rows:
        """Do to rows, without id and label, what is stated."""
        return prepare_rows(found, self.prepare, f"{self.key}.prepare")

    def refuse_given(self, given: Given) -> None:
        """Refuse rows where all parties have agreed on those of a known set.

        Raises:
            ConfigError: some are given.
        """
        if self.set is not None and given.has_rows:
            raise ConfigError(
                f"{self.key}.set: all parties have agreed on the rows of {self.set!r}; leave it "
                "out of everyone's job file to bring rows of your own"
            )

    def _with_numbers(self, found: Rows) -> Rows:
        """Take the numbers to be learned: a known set's classes, or the column of that name."""
        if self.set is not None:
            assert found.labels is not None  # noqa: S101 - known sets are labelled
            return replace(found, labels=found.labels.astype(np.float64))
        if self.label is None or self.label not in found.columns:
            raise DataError(
                f"{self.key}.label: wanted the column of numbers to learn, one of "
                f"{', '.join(found.columns)}, got {self.label!r}"
            )
        numbers = np.ascontiguousarray(found.features[:, found.columns.index(self.label)])
        if np.isnan(numbers).any():
            raise DataError(f"{self.key}.label: numbers to learn are missing in {self.label!r}")
        return replace(found.without(self.label), labels=numbers)


def load_file(
    path: Path,
    *,
    label: str | None,
    allows_missing: bool = False,
    id: str | Sequence[str] | None = None,
) -> Rows:
    """Load a user's own data by the file's ending.

    These are ``.csv``, ``.npz``, ``.parquet``, ``.feather``, ``.arrow`` and ``.toml``.

    A TOML file describes a table of more than numbers; see docs/howto/data.md.

    Args:
        path: the file.
        label: the column that holds the labels; None if there is none.
        allows_missing: whether features may be missing (an empty cell, NaN, null); they become
            NaN. A TOML file says itself what to fill in.
        id: the column that rows are matched by, or several together; see `tacit.data.ids`.

    Raises:
        DataError: another ending, or what the loader of that ending refuses.
    """
    refuse_endless(path)
    refuse_workbook(path)
    loaders = {".csv": load_csv, ".npz": load_npz, **dict.fromkeys(COLUMNAR, load_columns)}
    kind = path.suffix.lower()
    if kind == ".toml":
        return load_described(path, label=label, id=listed(id))
    if kind not in loaders:
        raise DataError(f"{path}: wanted a file ending in {', '.join(loaders)}, .toml")
    return loaders[kind](path, label=label, allows_missing=allows_missing, id=listed(id))


def stretch(pair: Sequence[int] | None, count: int, key: str) -> slice:
    """Return the part of rows or columns that a job names; all of them if it names none.

    Raises:
        DataError: it goes beyond what there is.
    """
    first, end = pair or (0, count)
    if end > count:
        raise DataError(
            f"{key}: wanted at most [{first}, {count}], as there are {count}, got {end}"
        )
    return slice(first, end)


def shaped(features: Floats, shape: Sequence[int], key: str) -> Floats:
    """Give every row the shape that a key of the job wants.

    Raises:
        DataError: the rows have another number of values.
    """
    if tuple(shape) == FLAT:
        return features.reshape(len(features), math.prod(features.shape[1:]))
    wanted, got = math.prod(shape), math.prod(features.shape[1:])
    if got != wanted:
        raise DataError(f"{key}: wanted rows of {wanted} values, shape {list(shape)}, got {got}")
    return features.reshape(len(features), *shape)


def _stretched(found: Rows, kept: slice) -> Rows:
    scale = found.scale
    if isinstance(scale, tuple) and len(scale) == found.features.shape[1]:
        scale = scale[kept]
    features = np.ascontiguousarray(found.features[:, kept])
    return replace(found, features=features, columns=found.columns[kept], scale=scale)


@dataclass(frozen=True, kw_only=True)
class RowsTable:
    """Rows out of a known data set or a file of the owner's.

    Attributes:
        set: a data set known by name, for instance breast-cancer; either this or ``file``.
        file: the owner's own file: .csv, .npz, .parquet, .feather or .arrow, or a description of a
            table.
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
        file: the owner's own file: .csv, .npz, .parquet, .feather or .arrow, or a description of a
            table.
        label: the column of ``file`` with the classes, or with the numbers to learn.
        id: the column by which rows of several owners are matched, or a list of columns that
            make an id together; texts or whole numbers.
        rows: a stretch of the rows: the first, and the one after the last. With a known set this is
            how owners divide it to try things out.
        columns: a stretch of the columns, likewise.
        prepare: where columns are divided: what is done to the values of each of this owner's, for
            instance so that they keep within ``data.bound``; see [data.prepare.COLUMN].
        book: a file in which this owner counts what trainings with [privacy] spend on these rows,
            asked before a row is shared.
        most_epsilon: what all trainings in the book may spend together; more is refused.
    """

    set: str | None = None
    file: Path | None = field(default=None, metadata=LOCAL)
    label: str | None = None
    id: Names | None = None
    rows: Stretch | None = None
    columns: Stretch | None = None
    prepare: Prepare = field(default_factory=dict, metadata=PREPARED)
    book: Path | None = field(default=None, metadata=LOCAL)
    most_epsilon: Positive | None = field(default=None, metadata=LOCAL)

    def __post_init__(self) -> None:
        if (self.book is None) != (self.most_epsilon is None):
            refuse("book", "wanted both 'book' and 'most_epsilon', or neither")
        check_named(self.set, self.file, self.label)

    def source(
        self, owner: str, *, prepare: Prepare = NOT_PREPARED, shape: tuple[int, ...] = FLAT
    ) -> Source:
        """Return where the rows come from, and in which form they are wanted.

        Args:
            owner: who has the table.
            prepare: what all owners of rows do to the values of columns.
            shape: of a row.
        """
        key = f"data.owners.{owner}"
        return Source.of(self, shape=shape, prepare=self.prepare or prepare, key=key)


def check_prepared(split: str, prepare: Prepare, owners: Mapping[str, OwnerTable]) -> None:
    """Refuse what owners of rows would do to their columns otherwise than the others.

    Args:
        split: what is divided: "rows", or columns.
        prepare: what is stated for all owners.
        owners: of the data.
    """
    if split != "rows" and prepare:
        refuse("prepare", "owners have columns of their own: put it into data.owners.NAME.prepare")
    for name, table in owners.items():
        if split == "rows" and table.prepare:
            text = "all owners of rows prepare them alike: put it into data.prepare"
            refuse(f"owners.{name}.prepare", text)


def check_named(known: str | None, file: Path | None, label: str | None) -> None:
    """Refuse a table that names rows twice, or a column of a known set."""
    if known is not None and file is not None:
        refuse("file", "wanted either 'set' or 'file', got both")
    if known is not None and label is not None:
        refuse("label", "names a column of 'file'; a set has its labels")
