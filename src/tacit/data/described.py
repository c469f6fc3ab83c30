"""Data as it lies: a small TOML file says where a table is and what its columns mean.

Wherever a data file is taken, such a description is, too. Text becomes one 0/1 feature per value,
dates become days, missing numbers are filled in; which values there are is written down and not
taken from the rows, because the number of features is known to every party. A table may be the
answer of a query, too: sqlite3 asks SQLite, DuckDB its own database or files, and both are locked
so that they only read.
"""

import gzip
import io
import logging
import math
import re
import tomllib
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from datetime import date, datetime
from pathlib import Path
from typing import IO, Any

import numpy as np

from tacit.data.ids import Cells, check_columns, write_ids
from tacit.data.rows import Floats, Rows
from tacit.data.sqlite import ask_sqlite, is_sqlite
from tacit.data.tables import (
    COLUMNAR,
    MOST_CLASSES,
    check_names,
    read_cells,
    read_columns,
    refuse_workbook,
)
from tacit.errors import DataError
from tacit.files import refuse_endless

_EPOCH = date(1970, 1, 1)
_KEYS = ("file", "encoding", "database", "query", "columns", "missing")
_MOST_UNPACKED = 1 << 30
"""What an archive may unpack to, in bytes: 3 MB can hold 3 GB."""
_EXAMPLE = 'for instance: ward = ["north", "south"], admitted = "date", notes = "skip"'


@dataclass(frozen=True, kw_only=True)
class Description:
    """What a description says, with paths taken from where it lies."""

    path: Path
    file: Path | None = None
    encoding: str = "utf-8-sig"
    database: Path | None = None
    query: str | None = None
    columns: Mapping[str, Any] = field(default_factory=dict)  # read by `_features`
    missing: Mapping[str, float] = field(default_factory=dict)


def load_described(path: Path, *, label: str | None, id: Sequence[str] = ()) -> Rows:
    """Load the table that a description names.

    Raises:
        DataError: the description or the table cannot be used; names file, row and column, never a
            value.
    """
    about = _read_description(path)
    table = _read_table(about)
    names = list(table)
    unknown = sorted({*about.columns, *about.missing} - set(names))
    if unknown:
        raise DataError(f"{path}: no column {unknown[0]!r} in the table; found {', '.join(names)}")
    if label is not None and label not in table:
        raise DataError(f"{path}: no column {label!r} for the labels; found {', '.join(names)}")
    check_columns(path, names, id)
    ids = write_ids(path, {one: table[one] for one in id})
    found = (None, ()) if label is None else _labels(about, label, table[label])
    labels, classes = found
    features: dict[str, Floats] = {}
    for name in names:
        if name != label and name not in id:
            features.update(_features(about, name, table[name]))
    values = list(features.values()) or [np.zeros((len(ids), 0))]
    if not (features or ids) or not len(values[0]):
        raise DataError(f"{path}: wanted at least one row and one column of features")
    return Rows(
        name=path.stem,
        features=np.column_stack(values),
        ids=ids,
        labels=None if labels is None else labels,
        columns=tuple(features),
        classes=classes,
    )


def _read_description(path: Path) -> Description:
    refuse_endless(path)
    try:
        raw = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}") from error
    except RecursionError as error:
        raise DataError(f"{path}: nested too deeply") from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise DataError(f"{path}: not a TOML file: {error}") from error
    strange = sorted(set(raw) - set(_KEYS))
    if strange:
        raise DataError(f"{path}: unknown key {strange[0]!r}; known are {', '.join(_KEYS)}")
    for key, kind in (("file", str), ("encoding", str), ("database", str), ("query", str)):
        if key in raw and not isinstance(raw[key], kind):
            raise DataError(f"{path}: {key}: wanted a text, got {type(raw[key]).__name__}")
    for key in ("columns", "missing"):
        if not isinstance(raw.get(key, {}), dict):
            raise DataError(f"{path}: {key}: wanted a table; {_EXAMPLE}")
    if ("file" in raw) == ("query" in raw):
        raise DataError(f"{path}: wanted either a file, or a query with its database")
    if "://" in raw.get("database", ""):
        raise DataError(
            f"{path}: database: wanted a file of DuckDB or SQLite; a server (PostgreSQL, MySQL) is "
            "not asked: let it write CSV, for instance psql's \\copy (SELECT …) TO 'rows.csv' CSV "
            "HEADER, and name that file"
        )
    missing = raw.get("missing", {})
    for name, value in missing.items():
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise DataError(f"{path}: missing.{name}: wanted a number to fill in")
    return Description(
        path=path,
        file=path.parent / raw["file"] if "file" in raw else None,
        encoding=raw.get("encoding", "utf-8-sig"),
        database=path.parent / raw["database"] if "database" in raw else None,
        query=raw.get("query"),
        columns=raw.get("columns", {}),
        missing={name: float(value) for name, value in missing.items()},
    )


def _read_table(about: Description) -> Mapping[str, Cells]:
    if about.query is not None and about.database is not None:
        refuse_endless(about.database)
        if is_sqlite(about.database):
            return ask_sqlite(about.query, about.database, about.path)
    if about.query is not None:
        return run_query(about.query, about.database, about.path, [*about.columns, *about.missing])
    assert about.file is not None  # noqa: S101 - one of the two is there
    refuse_endless(about.file)
    refuse_workbook(about.file)
    if about.file.suffix.lower() in COLUMNAR:
        return {name: column.to_pylist() for name, column in read_columns(about.file).items()}
    try:
        text = _read_bytes(about.file).decode(about.encoding)
    except LookupError as error:
        raise DataError(f"{about.path}: encoding: {error}") from error
    except UnicodeDecodeError as error:
        raise DataError(
            f"{about.file}: byte {error.start} is not {about.encoding}; say which encoding it has, "
            'for instance encoding = "gb18030"'
        ) from error
    return _parse(about.file, text)


def _read_bytes(file: Path) -> bytes:
    """Read a CSV file, or the one that is packed in a .gz or .zip."""
    try:
        with ExitStack() as stack:
            packed, kind = stack.enter_context(file.open("rb")), file.suffix.lower()
            if kind == ".gz":
                content = stack.enter_context(gzip.open(packed)).read(_MOST_UNPACKED + 1)
            elif kind == ".zip":
                content = stack.enter_context(_only_table(file, packed)).read(_MOST_UNPACKED + 1)
            else:
                return packed.read()
    except (zipfile.BadZipFile, EOFError, zlib.error) as error:
        raise DataError(f"{file}: the archive is broken") from error
    except OSError as error:
        raise DataError(
            f"cannot read {file}: {error.strerror or 'the archive is broken'}"
        ) from error
    if len(content) > _MOST_UNPACKED:
        raise DataError(
            f"{file} unpacks to more than {_MOST_UNPACKED >> 20} MB, as an archive of a few MB "
            "can; if that is meant, unpack it and name the file"
        )
    return content


@contextmanager
def _only_table(file: Path, packed: IO[bytes]) -> Iterator[IO[bytes]]:
    """Open the one table in a .zip."""
    with zipfile.ZipFile(packed) as archive:
        inside = [one for one in archive.namelist() if one.lower().endswith((".csv", ".tsv"))]
        if len(inside) != 1:
            raise DataError(f"{file}: wanted one .csv in the archive, found {len(inside)}")
        with archive.open(inside[0]) as table:
            yield table


def _parse(file: Path, text: str) -> Mapping[str, Cells]:
    head = text.partition("\n")[0]
    found = read_cells(file, io.StringIO(text), "separated", max(",;\t", key=head.count))
    _, names = next(found, (0, []))
    rows = [(line, row) for line, row in found if row]
    if names:  # of an empty file it is said that there are no rows
        check_names(file, names)
    uneven = next((line for line, row in rows if len(row) != len(names)), None)
    if uneven is not None:
        raise DataError(f"{file}: line {uneven} does not have {len(names)} columns")
    return {name: [row[at] for _, row in rows] for at, name in enumerate(names)}


def _features(about: Description, name: str, cells: Cells) -> dict[str, Floats]:
    """Turn one column into features."""
    kind = about.columns.get(name, "number")
    if kind == "skip":
        return {}
    if isinstance(kind, list):
        places = _places(about, name, cells, kind)
        return {f"{name} = {value}": (places == at) * 1.0 for at, value in enumerate(kind)}
    if kind == "date" or (isinstance(kind, dict) and set(kind) == {"date"}):
        form = None if kind == "date" else str(kind["date"])
        return _filled(
            about, name, [_days(about, name, row, one, form) for row, one in _rows(cells)]
        )
    if kind == "number":
        return _filled(about, name, [_number(about, name, row, one) for row, one in _rows(cells)])
    raise DataError(
        f'{about.path}: columns.{name}: wanted a list of texts, "date", {{ date = "%d.%m.%Y" }}, '
        '"number" or "skip"'
    )


def _labels(about: Description, name: str, cells: Cells) -> tuple[Any, tuple[str, ...]]:
    kind = about.columns.get(name, "number")
    if isinstance(kind, list):
        return _places(about, name, cells, kind), tuple(map(str, kind))
    values = [_number(about, name, row, one) for row, one in _rows(cells)]
    for row, value in enumerate(values, start=1):
        if not (0 <= value < MOST_CLASSES and value == math.floor(value)):
            raise DataError(
                f"{about.path}: row {row}, column {name!r}: wanted a label, a whole number from 0; "
                "or list its texts in [columns]"
            )
    found = np.array(values, np.int64)
    return found, tuple(str(one) for one in range(int(found.max(initial=-1)) + 1))


def _places(about: Description, name: str, cells: Cells, known: list[Any]) -> Any:
    if len(set(map(str, known))) < len(known) or not known:
        raise DataError(f"{about.path}: columns.{name}: wanted different values, at least one")
    at = {str(value): place for place, value in enumerate(known)}
    found = []
    for row, cell in _rows(cells):
        place = at.get(_text(cell))
        if place is None:
            raise DataError(
                f"{about.path}: row {row}, column {name!r}: a value that columns.{name} does not "
                f"list ({len(known)} are listed)"
            )
        found.append(place)
    return np.array(found, np.int64)


def _filled(about: Description, name: str, values: list[float]) -> dict[str, Floats]:
    """Fill missing numbers in, with a feature beside that says so, or refuse them."""
    column = np.array(values, np.float64)
    is_missing = np.isnan(column)
    if name in about.missing:
        column = np.where(is_missing, about.missing[name], column)
        return {name: column, f"{name} missing": is_missing * 1.0}
    if is_missing.any():
        row = int(np.argmax(is_missing)) + 1
        raise DataError(
            f"{about.path}: row {row}, column {name!r}: the value is missing "
            f"({int(is_missing.sum())} such in all); say what to fill in: missing.{name} = 0"
        )
    return {name: column}


def _number(about: Description, name: str, row: int, cell: object) -> float:
    if cell is None or cell == "":
        return math.nan
    try:
        value = float(cell)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        value = math.inf
    if math.isinf(value) or "_" in str(cell):
        raise DataError(f"{about.path}: row {row}, column {name!r}: wanted a number; {_EXAMPLE}")
    return value


def _days(about: Description, name: str, row: int, cell: object, form: str | None) -> float:
    if cell is None or cell == "":
        return math.nan
    if isinstance(cell, datetime):
        return (cell.date() - _EPOCH).days + 0.0
    if isinstance(cell, date):
        return (cell - _EPOCH).days + 0.0
    try:
        text = str(cell)
        found = datetime.fromisoformat(text) if form is None else datetime.strptime(text, form)
    except ValueError:
        wanted = "a date such as 2026-05-31" if form is None else f"a date such as {form}"
        raise DataError(f"{about.path}: row {row}, column {name!r}: wanted {wanted}") from None
    return (found.date() - _EPOCH).days + 0.0


def _text(cell: object) -> str:
    return "" if cell is None else str(cell)


def _rows(cells: Cells) -> list[tuple[int, Any]]:
    return list(enumerate(cells, start=1))


_LOCKED = {
    # What one reads before running must not run: no code is fetched or loaded by a query, and
    # names of tables are not looked up among the variables of this process.
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "allow_community_extensions": "false",
    "python_enable_replacements": "false",
}
_AS_PART = "FROM query(?)"
_ACTS = ("COPY_TO_FILE", "JSON_EXECUTE_SERIALIZED_SQL")
"""What a plan calls its parts that do more than read."""
_log = logging.getLogger(__name__)


def run_query(
    query: str, database: Path | None, where: Path, columns: Sequence[str]
) -> dict[str, list[Any]]:
    """Ask a database, or files beside the description, and return the cells of every column.

    Args:
        query: one SELECT.
        database: the database; none to read files alone.
        where: the description that the query stands in.
        columns: names that an error may repeat.

    Raises:
        DataError: DuckDB is missing or refuses, or the query does more than read.
    """
    try:
        import duckdb
    except ModuleNotFoundError as error:
        raise DataError(
            f"{where}: a query needs DuckDB; run: pip install 'tacit-ml[sql]'"
        ) from error
    names = list(columns)
    try:
        with closing(
            duckdb.connect(
                str(database or ":memory:"),
                read_only=database is not None,
                config=dict(_LOCKED),
            )
        ) as link:
            _check_it_only_reads(query, database, where, duckdb, link)
            known = link.execute("SELECT column_name FROM duckdb_columns()").fetchall()
            names += [one for (one,) in known]
            found = link.execute(_AS_PART, [query])
            heads = [column[0] for column in found.description]
            rows = found.fetchall()
    except duckdb.Error as error:
        # Its text holds cells, in the first line already; whoever asks for log messages sees it.
        _log.debug("%s: query: %s", where, error)
        raise DataError(f"{where}: query: {_said(duckdb, error, names)}") from None
    return {name: [row[at] for row in rows] for at, name in enumerate(heads)}


def _check_it_only_reads(
    query: str, database: Path | None, where: Path, duckdb: Any, link: Any
) -> None:
    """Lock a connection, and refuse a query that does more than read what belongs to it.

    Guarantee: one SELECT, by a connection that loads no extension, opens no file outside the
    folders of the description and of its database, and cannot be told otherwise. Such a SELECT can
    still write where a COPY is a part of it, so that it is asked as the part of another one, where
    DuckDB has none, and without the one function that runs statements out of a text.
    """
    kinds = [one.type for one in link.extract_statements(query)]
    if kinds != [duckdb.StatementType.SELECT]:
        found = ", ".join(kind.name for kind in kinds) or "none"
        raise DataError(f"{where}: query: wanted one SELECT, found {found}")
    folders = {str(one.resolve().parent) for one in (where, database) if one is not None}
    link.execute(f"SET allowed_directories = [{', '.join(map(_quoted, sorted(folders)))}]")
    link.execute("SET enable_external_access = false")
    link.execute("SET lock_configuration = true")
    (plan,) = link.execute(f"EXPLAIN (FORMAT JSON) {_AS_PART}", [query]).fetchall()
    acts = next((one for one in _ACTS if one in plan[1].upper()), None)
    if acts is not None:
        raise DataError(f"{where}: query: wanted one SELECT that only reads, found {acts}")


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _said(duckdb: Any, error: Exception, names: Sequence[str]) -> str:
    """Say what kind of error it is and at which column, never in DuckDB's words."""
    kind = type(error).__name__.removesuffix("Exception")
    at = next(
        (one for one in names if re.search(rf"\bcolumn \"?{re.escape(one)}\b", str(error))), None
    )
    where = "" if at is None else f" at column {at!r}"
    advice = "`tacit --debug` shows DuckDB's own words, which may hold values of cells"
    if isinstance(error, duckdb.PermissionException):
        advice = "a query reads its database and files in the folder of its description alone"
    elif isinstance(error, duckdb.IOException | duckdb.CatalogException) and (
        "extension" in str(error) or "not a valid DuckDB" in str(error)
    ):
        advice = (
            "DuckDB would have to load an extension, which is not done: export the table to a file"
        )
    return f"DuckDB found an error of kind {kind}{where}; {advice}"
