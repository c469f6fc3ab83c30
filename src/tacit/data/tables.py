"""A user's own data in CSV, npz, Parquet, Arrow or JSON files, refused unless all of it is finite.

A reader who has a use for missing values asks for them (`allows_missing`), and gets NaN.

Messages name the file, the row and the column, never the value: it may be a patient's.
"""

import csv
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from tacit.data.ids import check_columns, take_ids, write_ids
from tacit.data.rows import Floats, Labels, Rows
from tacit.errors import DataError
from tacit.files import open_arrays, refuse_endless

MOST_CLASSES = 65536
COLUMNAR = (".parquet", ".feather", ".arrow")
"""Files that pyarrow reads, whose columns have types."""


def load_csv(
    path: Path, *, label: str | None, allows_missing: bool = False, id: Sequence[str] = ()
) -> Rows:
    """Load a table of numbers with a line of column names above it.

    The divisors of the result are 1: taken from the data, they would tell the other parties about
    it. A job states public ones in ``prepare``.

    Args:
        path: the file, in UTF-8, with commas between the columns.
        label: the column that holds the labels, whole numbers from 0; None if there is none.
        allows_missing: whether a feature may be missing: an empty cell or "nan", which becomes NaN.
        id: the columns that rows are matched by, texts or whole numbers; they are no features.

    Raises:
        DataError: unreadable, empty, of unequal rows, or with a value that is missing, not a
            number or not finite.
    """
    try:
        with path.open(encoding="utf-8-sig", newline="") as stream:
            found = read_cells(path, stream, "comma-separated")
            empty = "nan" if allows_missing else ""
            names, values, lines, ids = _numbers(path, found, empty, id)
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: not a text in UTF-8 (byte {error.start})") from error
    return from_columns(path, names, values, label, lines, allows_missing, ids)


def read_cells(
    path: Path, text: Iterable[str], kind: str, delimiter: str = ","
) -> Iterator[tuple[int, list[str]]]:
    """Read rows of cells, each with the line that it ends in; the first names the columns.

    Args:
        path: the file, in errors.
        text: its lines.
        kind: of values, in errors.
        delimiter: what stands between two cells.

    Raises:
        DataError: the text is no such table.
    """
    reader = csv.reader(text, strict=True, delimiter=delimiter)
    try:
        for row in reader:
            yield reader.line_num, [cell.strip() for cell in row]
    except csv.Error as error:
        raise DataError(f"{path}: not a table of {kind} values: {error}") from error


def read_npz(path: Path) -> dict[str, np.ndarray[Any, Any]]:  # any shape and dtype, checked later
    """Read all arrays of an npz file, without running any code in it."""
    try:
        with open_arrays(path) as archive:
            found = {name: archive[name] for name in archive.files}
        if not all(isinstance(one, np.ndarray) for one in found.values()):
            raise ValueError("a member that is no array")  # which NumPy gives as bytes
        return found
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}") from error
    except ValueError as error:
        raise DataError(f"{path}: not an npz file of plain arrays") from error


def read_columns(path: Path) -> dict[str, Any]:  # pyarrow brings no types
    """Read the columns of a Parquet, Feather or Arrow file as pyarrow arrays.

    Raises:
        DataError: not such a file, or pyarrow is not installed.
    """
    kind = path.suffix[1:].lower()
    try:
        import pyarrow
        from pyarrow import feather, ipc, parquet
    except ImportError as error:
        needed = f"{path}: {kind} files need pyarrow; run: pip install 'tacit-ml[tables]'"
        raise DataError(needed) from error
    try:
        with path.open("rb") as stream:
            if kind == "parquet":
                table = parquet.read_table(stream)
            elif kind == "arrow" and stream.read(6) != b"ARROW1":  # a stream has no such head
                stream.seek(0)
                table = ipc.open_stream(stream).read_all()
            else:
                stream.seek(0)
                table = feather.read_table(stream)
        return dict(zip(table.column_names, table.columns, strict=True))
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}") from error
    except (pyarrow.ArrowException, ValueError) as error:  # names may be no text
        raise DataError(f"{path}: not a file of kind {kind}") from error


def refuse_workbook(path: Path) -> None:
    """Refuse a workbook of a spreadsheet, whose numbers may have lost digits, and say what to do.

    Raises:
        DataError: it is one, by its ending.
    """
    if path.suffix.lower() in (".xlsx", ".xls", ".xlsm", ".ods"):
        raise DataError(
            f"{path}: workbooks are not read; save the sheet as CSV in UTF-8, with columns of long "
            "numbers (ids) as text"
        )


def read_texts(file: Path, *, label: str | None) -> tuple[list[str], Labels]:
    """Read texts and classes of lines of JSON: "text", and "label" or a key of another name.

    Raises:
        DataError: a line is something else.
    """
    texts, classes = [], []
    refuse_endless(file)
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"cannot read {file}: {error}") from error
    for number, line in enumerate(lines, start=1):
        try:
            found = json.loads(line)
            text, one = found["text"], found[label or "label"]
        except (ValueError, KeyError, TypeError) as error:
            raise DataError(
                f'{file}:{number}: wanted {{"text": "…", "{label or "label"}": 0}}'
            ) from error
        if not isinstance(text, str) or not isinstance(one, int) or isinstance(one, bool):
            raise DataError(f"{file}:{number}: wanted a text, and a class as a whole number from 0")
        texts.append(text)
        classes.append(one)
    if not texts:
        raise DataError(f"{file}: wanted lines of JSON, got none")
    return texts, np.array(classes, dtype=np.int64)


def _numbers(
    path: Path, found: Iterator[tuple[int, list[str]]], empty: str, id: Sequence[str]
) -> tuple[list[str], Floats, list[int], tuple[str, ...]]:
    """Read names, numbers, the lines they end in, and ids; an empty cell is read as `empty`."""
    _, names = next(found, (0, []))
    check_names(path, names)
    check_columns(path, names, id)
    kept = [at for at, name in enumerate(names) if name not in id]
    named = [names[at] for at in kept]
    cells: dict[str, list[str]] = {one: [] for one in id}
    rows: list[list[float]] = []
    lines: list[int] = []
    blank = None
    for line, row in found:
        if not row:
            blank = blank or line
            continue
        if blank is not None:
            raise DataError(f"{path}: line {blank} is blank, with rows after it")
        if len(row) != len(names):
            raise DataError(f"{path}: line {line} has {len(row)} columns, wanted {len(names)}")
        rows.append(_parse_row(path, [row[at] or empty for at in kept], named, line))
        for one, column in cells.items():
            column.append(row[names.index(one)])
        lines.append(line)
    values = np.array(rows, np.float64).reshape(len(rows), len(named))
    return named, values, lines, write_ids(path, cells, lines)


def _parse_row(path: Path, row: list[str], names: list[str], line: int) -> list[float]:
    try:
        values = [float(cell) for cell in row]
    except ValueError:
        values = None
    # Python reads 1_000 as a number; a table that holds it means something else.
    if values is not None and "_" not in "".join(row):
        return values
    culprit = next(name for name, cell in zip(names, row, strict=True) if not _is_number(cell))
    raise DataError(f"{path}: line {line}, column {culprit!r}: wanted a number")


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return "_" not in cell


def load_npz(
    path: Path, *, label: str | None, allows_missing: bool = False, id: Sequence[str] = ()
) -> Rows:
    """Load an array ``features`` of two or three dimensions, labels and ids by the names given.

    Raises:
        DataError: the arrays are not there, or anything that `load_csv` refuses.
    """
    arrays = read_npz(path)
    if "features" not in arrays or (label is not None and label not in arrays):
        wanted = "'features'" if label is None else f"'features' and {label!r}"
        raise DataError(f"{path}: wanted arrays named {wanted}, found {sorted(arrays)}")
    features = arrays["features"]
    if features.dtype.kind not in "biuf" or features.ndim not in (2, 3) or features.size == 0:
        raise DataError(
            f"{path}: wanted features as numbers in 2 or 3 dimensions, not empty, got "
            f"{features.dtype} of shape {features.shape}"
        )
    features = features.astype(np.float64)
    check_finite(path, features, None, None, allows_missing)
    labels = None if label is None else check_labels(path, arrays[label], label, None)
    names = tuple(f"feature {i}" for i in range(features.shape[1])) if features.ndim == 2 else ()
    rows = named_rows(path, features, labels, names)
    if not all(one in arrays for one in id):
        return take_ids(rows, id)
    uneven = next((one for one in id if arrays[one].shape != (len(rows),)), None)
    if uneven is not None:
        raise DataError(f"{path}: wanted one id per row in {uneven!r}, got {arrays[uneven].shape}")
    return replace(rows, ids=write_ids(path, {one: arrays[one].tolist() for one in id}))


def load_columns(
    path: Path, *, label: str | None, allows_missing: bool = False, id: Sequence[str] = ()
) -> Rows:
    """Load a table of numbers from a Parquet, Feather or Arrow file.

    Raises:
        DataError: a column holds something else, or anything that `load_csv` refuses.
    """
    columns = read_columns(path)
    check_names(path, list(columns))
    check_columns(path, list(columns), id)
    ids = write_ids(path, {one: columns.pop(one).to_pylist() for one in id})
    arrays = []
    from pyarrow import float64, types  # which is there, as columns have been read

    for name, column in columns.items():
        kind = column.type
        if not (types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind)):
            raise DataError(f"{path}: column {name!r}: wanted numbers, the column holds {kind}")
        # A missing value becomes NaN, and is refused as such unless it is allowed.
        arrays.append(column.cast(float64(), safe=False).to_numpy())
    values = np.stack(arrays, axis=1) if arrays else np.zeros((len(ids), 0))
    return from_columns(path, list(columns), values, label, None, allows_missing, ids)


def from_columns(
    path: Path,
    names: list[str],
    values: Floats,
    label: str | None,
    lines: Sequence[int] | None,
    allows_missing: bool = False,
    ids: tuple[str, ...] = (),
) -> Rows:
    """Make rows of columns of numbers, of which one may hold the labels.

    Raises:
        DataError: there is no row, no such column, or no other; or a value cannot be used.
    """
    if len(values) == 0:
        raise DataError(f"{path}: wanted at least one row, found none")
    if label is not None and label not in names:
        raise DataError(f"{path}: no column {label!r} for the labels; found {', '.join(names)}")
    check_finite(path, values, names, lines, allows_missing)
    kept = [i for i, name in enumerate(names) if name != label]
    if not kept and not ids:
        raise DataError(f"{path}: wanted at least one column beside the labels, found none")
    labels = None
    if label is not None:
        labels = check_labels(path, values[:, names.index(label)], label, lines)
    found = named_rows(path, values[:, kept], labels, tuple(names[i] for i in kept))
    return replace(found, ids=ids)


def named_rows(
    path: Path, features: Floats, labels: Labels | None, columns: tuple[str, ...]
) -> Rows:
    """Name rows after where they lie, and their classes by numbers."""
    count = 0 if labels is None else int(labels.max(initial=-1)) + 1
    return Rows(
        name=path.stem,
        features=np.ascontiguousarray(features),
        labels=None if labels is None else labels,
        columns=columns,
        classes=tuple(str(label) for label in range(count)),
    )


def check_names(path: Path, names: list[str]) -> None:
    """Refuse columns without names of their own."""
    if not names:
        raise DataError(f"{path}: empty, wanted a line of column names")
    if not all(names) or len(set(names)) < len(names):
        raise DataError(f"{path}: wanted columns with names of their own, found {names}")


def check_finite(
    path: Path,
    values: Floats,
    names: list[str] | None,
    lines: Sequence[int] | None,
    allows_missing: bool = False,
) -> None:
    """Refuse values that are not finite; missing ones (NaN) only if they are not allowed."""
    bad = np.argwhere(np.isinf(values) if allows_missing else ~np.isfinite(values))
    if bad.size == 0:
        return
    row, *place = (int(index) for index in bad[0])
    where = _row(row, lines)
    column = repr(names[place[0]]) if names else ", ".join(str(index) for index in place)
    raise DataError(
        f"{path}: {where}, column {column}: wanted a finite number, the value is missing, NaN or "
        f"infinite ({len(bad)} such in all)"
    )


def check_labels(
    path: Path, values: np.ndarray[Any, Any], label: str, lines: Sequence[int] | None
) -> Labels:
    """Refuse labels that are no classes, whole numbers from 0."""
    if values.ndim != 1 or values.dtype.kind not in "biuf":
        raise DataError(
            f"{path}: wanted labels {label!r} as a list of whole numbers, got {values.dtype} of "
            f"shape {values.shape}"
        )
    # Also false for NaN.
    is_class = (values >= 0) & (values < MOST_CLASSES) & (values == np.floor(values))
    if not is_class.all():
        where = _row(int(np.argmin(is_class)), lines)
        raise DataError(
            f"{path}: {where}, column {label!r}: wanted a label, a whole number from 0 to "
            f"{MOST_CLASSES - 1}"
        )
    return values.astype(np.int64)


def _row(index: int, lines: Sequence[int] | None) -> str:
    return f"row {index + 1}" if lines is None else f"line {lines[index]}"
