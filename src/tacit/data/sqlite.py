"""A query asked of an SQLite database by Python's own sqlite3, locked so that it only reads."""

import logging
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote

from tacit.data.tables import check_names
from tacit.errors import DataError

_HEAD = b"SQLite format 3\0"  # as every such file begins
_READS = {
    sqlite3.SQLITE_SELECT,
    sqlite3.SQLITE_READ,
    sqlite3.SQLITE_FUNCTION,
    sqlite3.SQLITE_RECURSIVE,
}
_OF_THE_QUERY = ("no such table", "no such column", "near ", "ambiguous column")
"""How errors begin that repeat words of the query; others may hold cells."""
_log = logging.getLogger(__name__)


def is_sqlite(database: Path) -> bool:
    """Tell whether a file is an SQLite database; one that cannot be read is left to its reader."""
    try:
        with database.open("rb") as stream:
            return stream.read(len(_HEAD)) == _HEAD
    except OSError:
        return False


def ask_sqlite(query: str, database: Path, where: Path) -> dict[str, list[Any]]:
    """Ask an SQLite database, and return the cells of every column.

    Guarantee: one SELECT on a connection that is opened to read, whose authorizer lets it read
    tables of this database and call built-in functions, and nothing else: no other file is
    attached, no setting changed, and extensions are off, as Python has them.

    Args:
        query: one SELECT.
        database: the file.
        where: the description that the query stands in.

    Raises:
        DataError: the query does more than read, or fails; names no cell.
    """
    denied: list[int] = []

    def may(action: int, *_: object) -> int:
        if action in _READS:
            return sqlite3.SQLITE_OK
        denied.append(action)
        return sqlite3.SQLITE_DENY

    try:
        address = f"file:{quote(str(database.resolve()))}?mode=ro"
        with closing(sqlite3.connect(address, uri=True)) as link:
            link.execute("PRAGMA trusted_schema = OFF")  # views may not call what writes
            link.set_authorizer(may)
            found = link.execute(query)
            heads = [column[0] for column in found.description or ()]
            rows = found.fetchall()
    except (sqlite3.Error, sqlite3.Warning) as error:
        _log.debug("%s: query: %s", where, error)
        if denied or "one statement at a time" in str(error):
            raise DataError(f"{where}: query: wanted one SELECT that only reads") from None
        kind = getattr(error, "sqlite_errorname", None) or type(error).__name__
        said = str(error) if str(error).startswith(_OF_THE_QUERY) else f"an error of kind {kind}"
        raise DataError(
            f"{where}: query: SQLite found {said}; `tacit --debug` shows SQLite's own words, which "
            "may hold values of cells"
        ) from None
    if not heads:
        raise DataError(f"{where}: query: wanted one SELECT, found none")
    check_names(where, heads)
    return {name: [row[at] for row in rows] for at, name in enumerate(heads)}
