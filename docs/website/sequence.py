"""Draw who sends what to whom: a sequence diagram as one SVG file, for light and dark."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

_WIDTH, _TOP, _HEAD = 760, 16, 48
_LINE, _LETTER = 15, 6.1  # height of a line of text, width of a letter at 11.5 px
_STYLE = """
.ground{fill:#fff}.line{stroke:#b6c2c6;stroke-dasharray:2 4}.box{fill:#e3f0f1;stroke:#0b6670}
.name{font-weight:600;font-size:13px}.small{font-size:11px}.band{fill:#eef2f4}
text{font:11.5px system-ui,"Noto Sans",sans-serif;fill:#1b2a2f}
.title{font-weight:600}.faint{fill:#586a71}
.sent{stroke:#0b6670;stroke-width:1.6}.before{stroke:#7a5ba8;stroke-width:1.6;stroke-dasharray:6 4}
.head{fill:#0b6670}.headb{fill:#7a5ba8}
.sees{fill:#fff2d6;stroke:#b77a12}.gets{fill:#e2f3e5;stroke:#2c7a3f}
@media(prefers-color-scheme:dark){.ground{fill:#1b2428}.line{stroke:#4d5c62}
.box{fill:#17383c;stroke:#5fb3bb}
.band{fill:#26323a}text{fill:#e3eaec}.faint{fill:#9fb0b6}.sent{stroke:#62bcc5}.head{fill:#62bcc5}
.before{stroke:#b79be0}.headb{fill:#b79be0}.sees{fill:#43340f;stroke:#d5a03a}
.gets{fill:#173a20;stroke:#62b577}}
"""


@dataclass(frozen=True)
class Party:
    """A column: a party and what it has."""

    name: str
    has: str = ""


@dataclass(frozen=True)
class Stage:
    """A band across the picture: what begins here."""

    title: str


@dataclass(frozen=True)
class Sent:
    """A message, or two that cross in one round; ``back`` comes the other way, or the same."""

    sender: str
    receiver: str
    what: str
    back: str = ""
    is_before: bool = False
    is_both: bool = False


@dataclass(frozen=True)
class Sees:
    """What a party comes to know; a warning unless it is the declared result."""

    party: str
    what: str
    is_result: bool = False


Row = Stage | Sent | Sees


@dataclass(frozen=True)
class Diagram:
    """A picture: its title, its columns, and what happens from top to bottom."""

    title: str
    parties: tuple[Party, ...]
    rows: tuple[Row, ...]


def draw(diagram: Diagram) -> str:
    """Return the picture as SVG."""
    step = _WIDTH / len(diagram.parties)
    columns = {one.name: step * (at + 0.5) for at, one in enumerate(diagram.parties)}
    parts, y = [], float(_TOP + _HEAD + 14)
    for row in diagram.rows:
        drawn, height = _draw_row(row, y, columns, step)
        parts += drawn
        y += height
    bottom = round(y + 10)
    heads = [part for one in diagram.parties for part in _head(one, columns[one.name], step)]
    lines = [
        f'<line class="line" x1="{x:.0f}" y1="{_TOP + _HEAD}" x2="{x:.0f}" y2="{bottom}"/>'
        for x in columns.values()
    ]
    size = f'width="{_WIDTH}" height="{bottom + 8}"'
    title = escape(diagram.title)
    opening = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {bottom + 8}" {size} '
        f'role="img" aria-label="{title}">\n<title>{title}</title>\n<style>{_STYLE}</style>'
    )
    ground = f'<rect class="ground" {size} rx="8"/>'
    return "\n".join([opening, ground, *lines, *heads, *parts, "</svg>\n"])


def _head(party: Party, x: float, step: float) -> list[str]:
    wide = min(step - 16, 216)
    return [
        _box("box", x - wide / 2, _TOP, wide, _HEAD),
        f'<text class="name" x="{x:.0f}" y="{_TOP + 20}" text-anchor="middle">'
        f"{escape(party.name)}</text>",
        f'<text class="small faint" x="{x:.0f}" y="{_TOP + 37}" text-anchor="middle">'
        f"{escape(party.has)}</text>",
    ]


def _box(kind: str, x: float, y: float, wide: float, high: float) -> str:
    size = f'width="{wide:.0f}" height="{high:.0f}"'
    return f'<rect class="{kind}" x="{x:.0f}" y="{y:.0f}" {size} rx="5"/>'


def _draw_row(
    row: Row, y: float, columns: dict[str, float], step: float
) -> tuple[list[str], float]:
    if isinstance(row, Stage):
        return [
            _box("band", 8, y + 6, _WIDTH - 16, 22),
            f'<text class="title" x="18" y="{y + 21:.0f}">{escape(row.title)}</text>',
        ], 34.0
    if isinstance(row, Sees):
        return _note(row, y, columns[row.party], step)
    return _arrow(row, y, columns[row.sender], columns[row.receiver])


def _note(row: Sees, y: float, x: float, step: float) -> tuple[list[str], float]:
    lines = _wrap(row.what, min(step * 1.15, 300) - 24)
    wide = max(len(line) for line in lines) * _LETTER + 20
    left = min(max(x - wide / 2, 8), _WIDTH - 8 - wide)
    high = len(lines) * _LINE + 8
    kind = "gets" if row.is_result else "sees"
    box = _box(kind, left, y + 6, wide, high)
    return [box, *_text(lines, left + wide / 2, y + 21, "middle")], high + 12.0


def _arrow(row: Sent, y: float, start: float, end: float) -> tuple[list[str], float]:
    sign = 1 if end > start else -1
    lines = _wrap(row.what, abs(end - start) - 30)
    below = _wrap(row.back, abs(end - start) - 30) if row.back else []
    at = y + len(lines) * _LINE + 9
    kind, head = ("before", "headb") if row.is_before else ("sent", "head")
    tip = end - sign * 2
    tail = start + sign * 2
    parts = _text(lines, (start + end) / 2, y + 15, "middle")
    parts.append(
        f'<line class="{kind}" x1="{tail:.0f}" y1="{at:.0f}" x2="{tip:.0f}" y2="{at:.0f}"/>'
    )
    parts.append(_triangle(tip, at, sign, head))
    if below or row.is_both:
        parts.append(_triangle(tail, at, -sign, head))
        parts += _text(below, (start + end) / 2, at + 14, "middle")
    return parts, len(lines) * _LINE + len(below) * _LINE + 16.0


def _triangle(x: float, y: float, sign: int, kind: str) -> str:
    return f'<path class="{kind}" d="M{x:.0f} {y:.0f}l{-9 * sign} -4.5v9z"/>'


def _text(lines: Sequence[str], x: float, y: float, anchor: str) -> list[str]:
    return [
        f'<text x="{x:.0f}" y="{y + at * _LINE:.0f}" text-anchor="{anchor}">{escape(line)}</text>'
        for at, line in enumerate(lines)
    ]


def _wrap(text: str, wide: float) -> list[str]:
    """Break a text into lines that are not wider than so many pixels."""
    lines: list[str] = [""]
    for word in text.split(" "):
        longer = f"{lines[-1]} {word}".strip()
        if len(longer) * _LETTER <= wide or not lines[-1]:
            lines[-1] = longer
        else:
            lines.append(word)
    return lines
