"""Pieces of a page that several sections share: tables, legends, lines of a bar chart."""

from collections.abc import Iterable, Sequence

from tacit.report.markup import Markup, concat, tag

_WIDE = 4  # columns: more than a phone shows


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
