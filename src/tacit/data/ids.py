"""Ids that rows are matched by: cells of one column, or of several, brought to one way of writing.

Owners write the same id in different files and programs. Equal are: letters and digits of another
width or composition (Unicode NFKC: "Ｃ１７" is "C17"), blanks at the ends, a whole number and its
text, and a number with zeros behind its point ("17.0" and "1.70e+01" are 17). All else counts:
case, leading zeros, blanks inside and signs. Whole numbers of any size are exact; a float beyond
2^53, and a number that a spreadsheet has shortened to "1.1E+17", has lost digits and is refused,
because two people would get one id.
"""

import csv
import io
import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any
from uuid import UUID

import numpy as np

from tacit.data.rows import Rows
from tacit.errors import DataError

Cells = Sequence[Any]
"""What a file, a column of Parquet, a database or a program gives."""
_LARGEST_EXACT = 1 << 53  # whole numbers are exact in double precision below this
_WITH_POINT = re.compile(r"[+-]?[0-9]+\.[0-9]+")
_SHORTENED = re.compile(r"[+-]?[0-9]+(\.[0-9]+)?[eE]\+[0-9]+")
_LOST = "a number that has lost digits; keep ids of 16 digits and more as text, or as whole numbers"
_FRACTION = "wanted a text or a whole number as id, got a number with a fraction"
_LONGEST = 10**1000  # what Python writes without complaint


def listed(columns: str | Sequence[str] | None) -> tuple[str, ...]:
    """Return the columns that rows are matched by, of which one may stand alone."""
    return (columns,) if isinstance(columns, str) else tuple(columns or ())


def check_columns(where: object, names: Sequence[str], id: Sequence[str]) -> None:
    """Refuse columns to match by that are not there.

    Raises:
        DataError: names the first of them, and those that are there.
    """
    lost = next((one for one in id if one not in names), None)
    if lost is not None:
        raise DataError(
            f"{where} has no column {lost!r} to match rows by; it has "
            f"{', '.join(names) or 'pictures'}"
        )


def write_ids(
    where: object,
    columns: Mapping[str, Cells],
    lines: Sequence[int] | None = None,
) -> tuple[str, ...]:
    """Write the id of every row in the one way that is matched.

    Ids of several columns are divided by ``|``; one that a cell holds, and a backslash, has a
    backslash before it, so that no two different ids are written alike.

    Args:
        where: the file, in errors.
        columns: the cells of each column, by its name.
        lines: of the file, in which rows end.

    Raises:
        DataError: a cell is empty, or neither text nor a whole number; names its row and column,
            never what it holds.
    """
    written: list[list[str]] = []
    for name, cells in columns.items():
        written.append(texts := [])
        for row, cell in enumerate(cells):
            try:
                texts.append(_write(cell))
            except _UnusableError as error:
                place = f"row {row + 1}" if lines is None else f"line {lines[row]}"
                raise DataError(f"{where}: {place}, column {name!r}: {error}") from None
    if len(written) == 1:
        return tuple(written[0])
    marked = (
        [re.sub(r"[\\|]", r"\\\g<0>", one) for one in row] for row in zip(*written, strict=True)
    )
    return tuple("|".join(row) for row in marked)


def take_ids(found: Rows, id: Sequence[str]) -> Rows:
    """Take ids out of columns of numbers, which are no features then.

    Raises:
        DataError: there are no such columns, or they hold no whole numbers below 2^53.
    """
    if found.ids and not set(id) & set(found.columns):
        return found  # as whoever made these rows took them apart
    check_columns(found.name, found.columns, id)
    values = found.unscaled()
    cells = {one: values[:, found.columns.index(one)].tolist() for one in id}
    return replace(found.without(*id), ids=write_ids(found.name, cells))


def quoted(id: str) -> str:
    """Write an id as a cell of a CSV file."""
    text = io.StringIO()
    csv.writer(text, lineterminator="").writerow([id])
    return text.getvalue()


class _UnusableError(Exception):
    """Says what was wanted of a cell."""


def _write(cell: Any) -> str:
    if isinstance(cell, np.generic):
        cell = cell.item()
    if isinstance(cell, float | Decimal | int) and cell == cell and not isinstance(cell, bool):
        return _whole(cell)
    if isinstance(cell, datetime) and cell.time() == time() and cell.tzinfo is None:
        cell = cell.date()  # as spreadsheets and data frames keep a date
    if isinstance(cell, float | Decimal | None) or type(cell).__name__ in ("NAType", "NaTType"):
        cell = ""
    if isinstance(cell, date | UUID):
        return str(cell)
    if not isinstance(cell, str):
        raise _UnusableError(f"wanted a text or a whole number as id, got {type(cell).__name__}")
    text = cell if cell.isascii() else unicodedata.normalize("NFKC", cell)
    text = text.strip()
    if not text:
        raise _UnusableError("wanted an id, the cell is empty; leave such rows out")
    if not text.isascii() and any("\ud800" <= letter <= "\udfff" for letter in text):
        raise _UnusableError("wanted a text in Unicode")
    if _SHORTENED.fullmatch(text):
        # "1.200000e+01", as NumPy writes 12, has all its digits; "1.1E+17" has two of eighteen.
        digits, _, power = text.lower().partition("e+")
        if len(digits.lstrip("+-").replace(".", "")) <= int(power[:4]):
            raise _UnusableError(_LOST)
        return _whole(float(text))
    if _WITH_POINT.fullmatch(text):
        whole, _, behind = text.partition(".")
        if behind.strip("0"):
            raise _UnusableError(_FRACTION)
        digits = whole.lstrip("+-0")
        if len(digits) > 16 or int(digits or 0) >= _LARGEST_EXACT:
            raise _UnusableError(_LOST)
        return whole
    return text


def _whole(number: float | Decimal | int) -> str:
    most = _LARGEST_EXACT if isinstance(number, float) else _LONGEST
    if not -most < number < most:
        raise _UnusableError(_LOST)
    if number != int(number):
        raise _UnusableError(_FRACTION)
    return str(int(number))
