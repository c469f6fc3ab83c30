"""How results print: columns in a terminal, a small HTML table in a notebook; text, escaped."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from html import escape

Lines = Iterable[Sequence[str]]


class Shown(ABC):
    """Something that prints as a title and rows of words, and shows no secret in them."""

    @abstractmethod
    def _shown(self) -> tuple[str, Lines]:
        """Return the title and the rows."""

    def __repr__(self) -> str:
        return lines(*self._shown())

    def _repr_html_(self) -> str:
        return table(*self._shown())


def table(title: str, rows: Lines) -> str:
    """Lay rows of text out under a title; the first cell of a row is its head."""
    lines = "".join(
        f"<tr><th style='text-align:left'>{escape(head)}</th>"
        + "".join(f"<td style='text-align:left'>{escape(cell)}</td>" for cell in cells)
        + "</tr>"
        for head, *cells in rows
    )
    caption = f"<caption style='text-align:left'>{escape(title)}</caption>"
    return f"<table>{caption}<tbody>{lines}</tbody></table>"


def lines(title: str, rows: Lines) -> str:
    """Lay the same out as text, in columns."""
    listed = [tuple(row) for row in rows]
    wide = max((len(row[0]) for row in listed), default=0)
    body = (f"  {head:<{wide}}  {'  '.join(cells)}".rstrip() for head, *cells in listed)
    return "\n".join((title, *body))
