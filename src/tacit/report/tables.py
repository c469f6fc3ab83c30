"""Every table and curve of a report as CSV (RFC 4180, UTF-8): numbers as they were measured."""

import csv
import dataclasses
import io
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from tacit.disk import write_whole
from tacit.errors import InputError
from tacit.report.format import clean
from tacit.report.tally import (
    CostRow,
    compare_costs,
    compare_links,
    group_curves,
    is_alone,
    time_at_work,
)
from tacit.result import Claim, Curve, Leak, Metric, PartyReport, Result, Timing

_FORMULA = re.compile('[\\s"]*[=+@＝＋－＠-]')
"""How a cell begins that a spreadsheet computes; full-width signs do so in East Asian ones."""


class Table(NamedTuple):
    """Rows under heads; None is an empty cell."""

    name: str
    heads: tuple[str, ...]
    rows: tuple[tuple[object, ...], ...]


def list_tables(result: Result) -> tuple[Table, ...]:
    """List every table of a report under names that are file names; empty ones are left out."""
    timings = () if result.forecast is None else result.forecast.timings
    tables = [
        _records("metrics", Metric, result.utility),
        _records("claims", Claim, result.claims),
        _records("learned", Leak, result.leakage),
        _list_links(result),
        _records("cost", CostRow, () if is_alone(result) else compare_costs(result)),
        _records("networks", Timing, timings),
        *_list_parties(result.parties),
        *(
            Table(f"table {one.title}", tuple(head.lstrip("#") for head in one.heads), one.rows)
            for one in result.sheets
        ),
        *map(_list_points, group_curves(result.curves)),
    ]
    return _name_files([table for table in tables if table.rows])


def write_csv(result: Result, folder: Path) -> tuple[Path, ...]:
    """Write one file for every table into a folder, which is made if it is not there.

    Raises:
        InputError: the folder cannot be made or written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot write into {folder}: {error.strerror or error}") from error
    written = []
    for table in list_tables(result):
        path = folder / f"{table.name}.csv"
        write_whole(path, to_csv(table))
        written.append(path)
    return tuple(written)


def to_csv(table: Table) -> str:
    """Write a table as CSV.

    Names come from peers: what a spreadsheet would run as a formula gets an apostrophe in front,
    also behind a semicolon, where spreadsheets of many countries begin another cell.
    """
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\r\n")
    writer.writerow(map(_show, table.heads))
    writer.writerows(map(_show, row) for row in table.rows)
    return file.getvalue()


def _show(cell: object) -> str:
    if cell is None:
        return ""
    if isinstance(cell, tuple):
        cell = "; ".join(map(str, cell))
    return ";".join(map(_disarm, clean(str(cell)).split(";")))


def _disarm(part: str) -> str:
    is_number = re.fullmatch(r"\s*[+-]?[0-9.]+(e[+-]?[0-9]+)?%?", part) is not None
    return f"'{part}" if _FORMULA.match(part) and not is_number else part


def _records(name: str, record: type, values: Iterable[object]) -> Table:
    heads = tuple(field.name for field in dataclasses.fields(record))
    return Table(name, heads, tuple(tuple(getattr(one, head) for head in heads) for one in values))


def _list_links(result: Result) -> Table:
    heads = (
        *("sender", "receiver", "phase", "messages", "payload_bytes"),
        *("forecast_messages", "forecast_payload_bytes"),
    )
    unknown = (None, None)
    rows = [
        (one.sender, one.receiver, one.phase, *(one.metered or unknown), *(one.forecast or unknown))
        for one in compare_links(result)
    ]
    return Table("traffic", heads, tuple(rows))


def _list_parties(parties: Sequence[PartyReport]) -> tuple[Table, Table]:
    whole = _records("parties", PartyReport, parties)
    at = whole.heads.index("spans")
    spent = tuple(
        (*row[:at], time_at_work(party), *row[at + 1 :])
        for row, party in zip(whole.rows, parties, strict=True)
    )
    heads = (*whole.heads[:at], "seconds_at_work", *whole.heads[at + 1 :])
    spans = tuple((p.name, s.name, s.start_s, s.end_s) for p in parties for s in p.spans)
    return (
        Table("parties", heads, spent),
        Table("stages", ("party", "stage", "start_s", "end_s"), spans),
    )


def _list_points(chart: tuple[Curve, ...]) -> Table:
    heads = ("curve", chart[0].x_label, chart[0].y_label)
    points = tuple((curve.name, *point) for curve in chart for point in curve.points)
    return Table(f"curve {chart[0].title}", heads, points)


def _name_files(tables: Sequence[Table]) -> tuple[Table, ...]:
    """Make names that every file system takes, each once."""
    named: dict[str, Table] = {}
    for table in tables:
        stem = re.sub(r"[^a-z0-9]+", "-", table.name.casefold()).strip("-")[:60]
        numbered = (f"{stem}-{number}" for number in range(2, len(tables) + 2))
        name = next(one for one in (stem, *numbered) if one not in named)
        named[name] = table._replace(name=name)
    return tuple(named.values())
