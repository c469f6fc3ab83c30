"""Rows out of a query: DuckDB, which reads a database or files, locked so that it only reads."""

import logging
import re
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from tacit.errors import DataError
from tacit.files import refuse_endless

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
    if database is not None:
        refuse_endless(database)
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
