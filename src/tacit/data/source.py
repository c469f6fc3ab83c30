"""Data sets by name, wherever they lie, and a user's own files."""

import difflib
import os
from collections.abc import Sequence
from pathlib import Path

from tacit.data.catalogue import (
    BUILT_IN,
    FILES,
    Arrays,
    Table,
    load_arrays,
    load_built_in,
    load_table,
)
from tacit.data.dataset import Dataset, Part, split
from tacit.data.described import load_described
from tacit.data.sheets import Sheets, load_sheets
from tacit.data.tables import load_csv, load_npz, load_parquet
from tacit.errors import DataError
from tacit.files import refuse_endless

__all__ = [
    "Dataset",
    "Part",
    "known_names",
    "load",
    "load_csv",
    "load_data",
    "load_file",
    "search_path",
    "split",
]


def load_data(
    name: str | None = None,
    *,
    file: Path | None = None,
    label: str | None = None,
    search: Sequence[Path] = (),
) -> Dataset:
    """Load a data set by its name, or a user's own file.

    Args:
        name: one of `known_names()`.
        file: instead of it, a file that `load_file` takes.
        label: the column of the file that holds the classes.
        search: the folders to look in for a name, from `search_path`.

    Raises:
        DataError: neither or both are given, or what is given cannot be read.
    """
    if name is not None and file is None:
        return load(name, search)
    if file is not None and name is None:
        return load_file(file, label=label)
    raise DataError(f"wanted the name of a data set or a file, got {name!r} and {file}")


def load_file(path: Path, *, label: str | None, allows_missing: bool = False) -> Dataset:
    """Load a user's own data by the file's ending: ``.csv``, ``.npz``, ``.parquet`` or ``.toml``.

    A TOML file describes a table of more than numbers; see `tacit.data.described`.

    Args:
        path: the file.
        label: the column that holds the labels; None if there is none.
        allows_missing: whether features may be missing (an empty cell, NaN, null); they become
            NaN. A TOML file says itself what to fill in.

    Raises:
        DataError: another ending, or what the loader of that ending refuses.
    """
    refuse_endless(path)
    loaders = {".csv": load_csv, ".npz": load_npz, ".parquet": load_parquet}
    kind = path.suffix.lower()
    if kind == ".toml":
        return load_described(path, label=label)
    if kind not in loaders:
        raise DataError(f"{path}: wanted a file ending in {', '.join(loaders)}, .toml")
    return loaders[kind](path, label=label, allows_missing=allows_missing)


def search_path(environment_value: str | None, start: Path, cache: Path) -> tuple[Path, ...]:
    """List the folders in which data sets are looked for, in order.

    Args:
        environment_value: what $TACIT_DATA holds: a folder, or several as in $PATH.
        start: where the search for a ``shared/data`` folder begins, going up.
        cache: the user's cache folder, looked at last.
    """
    named = [Path(part) for part in (environment_value or "").split(os.pathsep) if part]
    start = start.resolve()
    shared = (above / "shared" / "data" for above in (start, *start.parents))
    first = next((folder for folder in shared if folder.is_dir()), None)
    return (*named, *([] if first is None else [first]), cache)


def known_names() -> tuple[str, ...]:
    """List the names that `load` knows."""
    return tuple(sorted({*BUILT_IN, *FILES}))


def load(name: str, search: Sequence[Path]) -> Dataset:
    """Load a data set by name; underscores and hyphens mean the same.

    Args:
        name: one of `known_names()`.
        search: the folders to look in, from `search_path`. Built-in sets need none.

    Raises:
        DataError: no such name, not found in any folder, or not the file that was published.
    """
    key = name.lower().replace("_", "-")
    if key in BUILT_IN:
        return load_built_in(key, BUILT_IN[key])
    entry = FILES.get(key)
    if entry is None:
        close = difflib.get_close_matches(key, known_names(), n=3)
        hint = f"; did you mean {' or '.join(close)}?" if close else "."
        raise DataError(f"no data set {name!r}{hint} Known are: {', '.join(known_names())}")
    path = _find(key, entry, search)
    if isinstance(entry, Table):
        return load_table(key, entry, path)
    if isinstance(entry, Sheets):
        return load_sheets(key, entry, path)
    return load_arrays(key, entry, path)


def _find(key: str, entry: Arrays | Sheets | Table, search: Sequence[Path]) -> Path:
    base = Path(entry.file).name
    names = [entry.file, base, *([entry.labels] if isinstance(entry, Sheets) else [])]
    for path in (folder / name for folder in search for name in names):
        if path.is_file():
            return path
    searched = [str(folder) + ("" if folder.is_dir() else " (no such folder)") for folder in search]
    raise DataError(
        f"data set {key!r} not found; searched for {entry.file} or {base} in: "
        f"{', '.join(searched) or 'no folder'}. Get it from {entry.source} (licence: "
        f"{entry.licence}), and put it there as {base}, or name its folder in $TACIT_DATA"
    )
