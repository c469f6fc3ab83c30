"""HTML and SVG from function calls: everything that is not markup already is escaped."""

import html
from collections.abc import Iterable, Sequence
from typing import final

from tacit.report.format import clean

_VOID = frozenset({"br", "hr", "img", "input", "link", "meta"})
_WIDE = 4  # columns: more than a phone shows


@final
class Markup(str):
    """Text that is HTML already; only this module and the style sheet make it."""

    __slots__ = ()


Attribute = str | int | float | None


def tag(name: str, /, *children: str, **attributes: Attribute) -> Markup:
    """Make an element.

    Args:
        name: the element's name.
        children: markup goes in as it is, any other text is escaped.
        attributes: `class_` is written class and `stroke_width` stroke-width; None is left out.
    """
    opening = f"<{name}{''.join(_attribute(*item) for item in attributes.items())}>"
    if name in _VOID:
        return Markup(opening)
    return Markup(f"{opening}{concat(children)}</{name}>")


def concat(children: Iterable[str]) -> Markup:
    """Join markup and text, escaping the text."""
    return Markup("".join(map(escape, children)))


def escape(text: str) -> Markup:
    """Make a text harmless; markup stays as it is."""
    if isinstance(text, Markup):
        return text
    return Markup(html.escape(clean(text)))


def keep_lines(text: str) -> Markup:
    """Make a text of several lines harmless and keep its lines, for where they are shown."""
    return Markup("\n".join(map(escape, text.splitlines())))


def percent(share: float) -> str:
    """Write a share of one as an SVG length."""
    return f"{round(100 * share, 3):g}%"


def _attribute(name: str, value: Attribute) -> str:
    if value is None:
        return ""
    shown = f"{round(value, 2):g}" if isinstance(value, float) else str(value)
    return f' {name.rstrip("_").replace("_", "-")}="{html.escape(clean(shown))}"'


def lay_table(
    heads: Sequence[str], rows: Iterable[Sequence[str]], *, caption: str | None = None
) -> Markup:
    """Lay out a table; a column whose head starts with # holds numbers."""
    css = ["number" if head.startswith("#") else None for head in heads]
    top = [
        tag("th", head.lstrip("#"), scope="col", class_=each)
        for head, each in zip(heads, css, strict=True)
    ]
    body = [
        tag("tr", *(tag("td", cell, class_=each) for cell, each in zip(row, css, strict=True)))
        for row in rows
    ]
    table = tag(
        "table",
        tag("caption", caption) if caption else "",
        tag("thead", tag("tr", *top)),
        tag("tbody", *body),
    )
    # Reachable by keyboard, because a narrow screen scrolls it; there it says so.
    box = tag("div", table, class_="scroll", tabindex=0)
    is_wide = len(heads) >= _WIDE
    return concat([tag("p", "Scroll sideways for more →", class_="hint"), box]) if is_wide else box


def lay_legend(entries: Sequence[tuple[str, str]]) -> Markup:
    """Lay out a legend from style-sheet classes and their meanings."""
    return tag(
        "ul",
        *(tag("li", tag("i", class_=f"key {css}"), text) for css, text in entries),
        class_="legend",
    )


def lay_bar(label: str, bar: Markup, value: str) -> Markup:
    """Lay out one line of a bar chart: what, how much to the eye, how much in figures."""
    return tag(
        "div",
        tag("span", label, class_="bar-label"),
        tag("span", bar, class_="bar"),
        tag("span", value, class_="bar-value"),
        class_="bar-row",
    )
