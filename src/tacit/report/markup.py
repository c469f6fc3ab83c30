"""HTML and SVG from function calls: everything that is not markup already is escaped."""

import html
from collections.abc import Iterable
from typing import final

from tacit.report.format import clean

_VOID = frozenset({"br", "hr", "img", "input", "link", "meta"})


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
