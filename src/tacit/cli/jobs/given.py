"""Where a party's rows come from: a known set, a file, or what it hands over in Python."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from torch import Tensor

from tacit.data import Dataset, load_data
from tacit.data.tables import Table, take_rows
from tacit.errors import ConfigError, DataError


class Named(Protocol):
    """A table of a job file that says where rows come from."""

    @property
    def set(self) -> str | None:
        """The name of a known set."""
        ...

    @property
    def file(self) -> Path | None:
        """The owner's own file."""
        ...

    @property
    def label(self) -> str | None:
        """The column of the file that holds the classes."""
        ...


@dataclass(frozen=True, kw_only=True, eq=False)
class Given:
    """What a party hands over in Python: it takes the place of the files that its job names.

    Attributes:
        x: rows of features.
        y: the class of each row.
        weights: of its model, by name; or its share of every weight.
    """

    x: Table | None = None
    y: Table | None = None
    weights: Mapping[str, Tensor] | None = None

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

    def refuse_rows(self, known: str, key: str) -> None:
        """Refuse rows where all parties have agreed on those of a known set.

        Raises:
            ConfigError: some are given.
        """
        if self.has_rows:
            raise ConfigError(
                f"{key}.set: all parties have agreed on the rows of {known!r}; leave it out of "
                "everyone's job file to bring rows of your own"
            )


NOTHING = Given()


def load_source(source: Named, key: str, search: Sequence[Path], given: Given = NOTHING) -> Dataset:
    """Load the rows that a table of a job names, or take those given in their place.

    Raises:
        ConfigError: the table names none and none are given, or both a known set and others.
        DataError: they cannot be read.
    """
    if source.set is not None:
        given.refuse_rows(source.set, key)
    elif given.has_rows:
        return take_rows(given.x, given.y, label=source.label)
    elif source.file is None:
        raise ConfigError(
            f"{key}: wanted 'set' or 'file', or rows given in Python, got none of them"
        )
    return load_data(source.set, file=source.file, label=source.label, search=search)


def check_source(source: Named, key: str) -> None:
    """Make sure, cheaply, that a table names rows, and that a file of them is there."""
    if source.set is None and source.file is None:
        raise ConfigError(f"{key}: wanted 'set' or 'file', got neither")
    check_file(source.file, f"{key}.file")


def check_file(path: Path | None, key: str) -> None:
    """Make sure that a file that a key names is there."""
    if path is not None and not path.is_file():
        raise DataError(f"{key}: no such file: {path} (looked for from {Path.cwd()})")
