"""Small HTML tables, as notebooks show what an object is: text alone, escaped."""

from collections.abc import Iterable, Sequence
from html import escape


def table(title: str, rows: Iterable[Sequence[str]]) -> str:
    """Lay rows of text out under a title; the first cell of a row is its head."""
    lines = "".join(
        f"<tr><th style='text-align:left'>{escape(head)}</th>"
        + "".join(f"<td style='text-align:left'>{escape(cell)}</td>" for cell in cells)
        + "</tr>"
        for head, *cells in rows
    )
    caption = f"<caption style='text-align:left'>{escape(title)}</caption>"
    return f"<table>{caption}<tbody>{lines}</tbody></table>"


def lines(title: str, rows: Iterable[Sequence[str]]) -> str:
    """Lay the same out as text, in columns."""
    listed = [tuple(row) for row in rows]
    wide = max((len(row[0]) for row in listed), default=0)
    body = (f"  {head:<{wide}}  {'  '.join(cells)}".rstrip() for head, *cells in listed)
    return "\n".join((title, *body))
