"""The picture of the parties and the traffic between them."""

import math
import textwrap
from collections.abc import Sequence
from typing import NamedTuple

from tacit.report.format import clean, shorten, show_bytes
from tacit.report.markup import Markup, tag
from tacit.report.tally import Link, compare_links, list_parties
from tacit.result import Phase, Result

_NODE = (164.0, 70.0)
_LINE = 16.0
_ROLE_WIDTH = 19  # characters: what fits into a node in a wide system font
_MOST_LABELS = 16  # beyond this, numbers would cover the arrows; the table has them all
_LABEL_LINE = 19.0
_PLACES = (0.5, 0.42, 0.58, 0.34, 0.66, 0.26, 0.74, 0.2, 0.8)
_HEADINGS = "→↘↓↙←↖↑↗"
_ORDER: dict[Phase, int] = {"setup": 0, "offline": 1, "online": 2}


class _Point(NamedTuple):
    x: float
    y: float


class _Arrow(NamedTuple):
    """One direction of one pair in one phase, on its own lane beside the others of the pair."""

    link: Link
    payload: int
    lane: float


class Box(NamedTuple):
    """A rectangle by its middle and its size."""

    x: float
    y: float
    width: float
    height: float

    def meets(self, other: "Box") -> bool:
        """Say whether two rectangles share a point."""
        return (
            abs(self.x - other.x) * 2 < self.width + other.width
            and abs(self.y - other.y) * 2 < self.height + other.height
        )


_Bundle = list[tuple[_Arrow, _Point, _Point]]  # the arrows of one pair, with their ends


def draw_network(result: Result) -> Markup:
    """Draw a node per party and an arrow per direction and phase, as wide as its bytes."""
    names = list_parties(result)
    if not names:
        return Markup("")
    size, centres = _lay_out(names)
    arrows = _plan_arrows(result, names)
    is_dense = len(arrows) > _MOST_LABELS
    widest = (3.5 if is_dense else 8.5) / max((arrow.payload for arrow in arrows), default=1)
    shapes = [_draw_arrow(arrow, centres, 1.5 + widest * arrow.payload) for arrow in arrows]
    labels = [] if is_dense else _draw_labels(arrows, centres)
    roles = {party.name: party.role for party in result.parties}
    nodes = [_draw_node(name, roles.get(name, "did not report"), centres[name]) for name in names]
    return tag(
        "svg",
        tag("title", "The parties and the traffic between them"),
        tag("desc", "; ".join(map(_tell, arrows)) or "No payload was sent."),
        *shapes,
        *nodes,
        *labels,
        role="img",
        viewBox=f"0 0 {size.x:.0f} {size.y:.0f}",
        class_="network dense" if is_dense else "network",
    )


def _lay_out(names: Sequence[str]) -> tuple[_Point, dict[str, _Point]]:
    """Put the parties on an ellipse, the first at the lower left; two side by side, one alone."""
    count = len(names)
    if count == 1:
        return _Point(640, 120), {names[0]: _Point(320, 60)}
    stretch = max(1.0, count / 8)
    rx, ry = (250.0, 165.0) if count < 5 else (330.0 * stretch, 230.0 * stretch)
    ry *= count > 2
    angles = [math.radians(90 + 180 / count - 360 / count * index) for index in range(count)]
    spots = [_Point(rx * math.cos(angle), ry * math.sin(angle)) for angle in angles]
    top, bottom = min(spot.y for spot in spots), max(spot.y for spot in spots)
    room = 70.0 if count == 2 else 42.0
    middle = rx + _NODE[0] / 2 + 6
    placed = {
        name: _Point(middle + spot.x, spot.y - top + room)
        for name, spot in zip(names, spots, strict=True)
    }
    return _Point(2 * middle, bottom - top + 2 * room), placed


def _plan_arrows(result: Result, names: Sequence[str]) -> list[_Arrow]:
    rank = {name: index for index, name in enumerate(names)}
    lanes: dict[frozenset[str], list[tuple[Link, int]]] = {}
    for link in compare_links(result):
        volume = link.metered or link.forecast
        if volume is not None and volume[1] > 0 and link.phase != "setup":
            ends = frozenset((link.sender, link.receiver))
            lanes.setdefault(ends, []).append((link, volume[1]))
    gap = 8.0 if sum(map(len, lanes.values())) > _MOST_LABELS else 14.0
    arrows = []
    for pair in lanes.values():
        pair.sort(key=lambda item: (rank[item[0].sender], _ORDER[item[0].phase]))
        for index, (link, payload) in enumerate(pair):
            shift = index - (len(pair) - 1) / 2
            arrows.append(_Arrow(link, payload, shift * gap))
    return arrows


def _ends(arrow: _Arrow, centres: dict[str, _Point]) -> tuple[_Point, _Point]:
    """Return where an arrow leaves and arrives, on its lane and outside both nodes."""
    a, b = centres[arrow.link.sender], centres[arrow.link.receiver]
    length = math.dist(a, b) or 1.0
    dx, dy = (b.x - a.x) / length, (b.y - a.y) / length
    # A lane belongs to the pair: the way back must not mirror it onto the way there.
    side = arrow.lane if (a.x, a.y) <= (b.x, b.y) else -arrow.lane
    off_x, off_y = -dy * side, dx * side
    return (
        _leave(a, _Point(off_x, off_y), _Point(dx, dy)),
        _leave(b, _Point(off_x, off_y), _Point(-dx, -dy)),
    )


def _leave(centre: _Point, offset: _Point, heading: _Point) -> _Point:
    """Walk from a point in a node along a heading until just outside the node's border."""
    half_x, half_y = _NODE[0] / 2 + 7, _NODE[1] / 2 + 7
    steps = []
    if abs(heading.x) > 1e-9:
        steps.append((math.copysign(half_x, heading.x) - offset.x) / heading.x)
    if abs(heading.y) > 1e-9:
        steps.append((math.copysign(half_y, heading.y) - offset.y) / heading.y)
    step = max(min(steps, default=0.0), 0.0)
    return _Point(centre.x + offset.x + heading.x * step, centre.y + offset.y + heading.y * step)


def _draw_arrow(arrow: _Arrow, centres: dict[str, _Point], width: float) -> Markup:
    start, end = _ends(arrow, centres)
    head = 8.0 + width
    length = math.dist(start, end) or 1.0
    dx, dy = (end.x - start.x) / length, (end.y - start.y) / length
    neck = _Point(end.x - dx * head, end.y - dy * head)
    wing = 0.45 * head + 0.15 * width
    corners = (
        end,
        _Point(neck.x - dy * wing, neck.y + dx * wing),
        _Point(neck.x + dy * wing, neck.y - dx * wing),
    )
    points = " ".join(f"{corner.x:.1f},{corner.y:.1f}" for corner in corners)
    return tag(
        "g",
        tag("title", _tell(arrow)),
        tag("line", x1=start.x, y1=start.y, x2=neck.x, y2=neck.y, stroke_width=width),
        tag("polygon", points=points),
        class_=f"arrow {arrow.link.phase}",
    )


def _draw_labels(arrows: Sequence[_Arrow], centres: dict[str, _Point]) -> list[Markup]:
    """Write the bytes of every pair on one plate, which lies on no other plate and no node."""
    bundles: dict[frozenset[str], _Bundle] = {}
    for arrow in arrows:
        pair = frozenset((arrow.link.sender, arrow.link.receiver))
        bundles.setdefault(pair, []).append((arrow, *_ends(arrow, centres)))
    taken = [Box(spot.x, spot.y, _NODE[0] + 8, _NODE[1] + 8) for spot in centres.values()]
    plates = []
    for pair, bundle in bundles.items():
        foreign = [ends[1:] for other, each in bundles.items() if other != pair for ends in each]
        box = _place_label(bundle, centres, taken, foreign)
        if box is not None:  # else the table has the numbers
            taken.append(box)
            plates.append(_draw_plate(bundle, box))
    return plates


def _place_label(
    bundle: _Bundle,
    centres: dict[str, _Point],
    taken: Sequence[Box],
    foreign: Sequence[tuple[_Point, _Point]],
) -> Box | None:
    """Find the place along a bundle that is free and lies on the fewest arrows of others."""
    # Wide enough for a bold digit of any system font.
    width = 9.0 * max(len(_label(*each)) for each in bundle) + 12
    height = _LABEL_LINE * len(bundle) + 4
    a, b = _ends(bundle[0][0]._replace(lane=0.0), centres)
    spots = [Box(a.x + (b.x - a.x) * t, a.y + (b.y - a.y) * t, width, height) for t in _PLACES]
    free = [spot for spot in spots if not any(map(spot.meets, taken))]
    return min(free, key=lambda spot: sum(_crosses(spot, *ends) for ends in foreign), default=None)


def _crosses(box: Box, start: _Point, end: _Point) -> bool:
    """Say whether an arrow runs through a rectangle; every four pixels are close enough."""
    steps = max(int(math.dist(start, end) / 4), 1)
    points = (
        (start.x + (end.x - start.x) * k / steps, start.y + (end.y - start.y) * k / steps)
        for k in range(steps + 1)
    )
    return any(
        abs(x - box.x) * 2 < box.width + 8 and abs(y - box.y) * 2 < box.height + 8
        for x, y in points
    )


def _label(arrow: _Arrow, start: _Point, end: _Point) -> str:
    turn = math.atan2(end.y - start.y, end.x - start.x) / (math.pi / 4)
    return f"{_HEADINGS[round(turn) % 8]} {show_bytes(arrow.payload)}"


def _draw_plate(bundle: _Bundle, box: Box) -> Markup:
    top = box.y - box.height / 2
    lines = [
        tag(
            "text",
            _label(*each),
            x=box.x,
            y=top + _LABEL_LINE * (index + 1) - 3,
            text_anchor="middle",
            class_=each[0].link.phase,
        )
        for index, each in enumerate(bundle)
    ]
    plate = tag(
        "rect",
        x=box.x - box.width / 2,
        y=top,
        width=box.width,
        height=box.height,
        rx=4,
        class_="plate",
    )
    return tag("g", plate, *lines, class_="amount")


def _draw_node(name: str, role: str, centre: _Point) -> Markup:
    width, height = _NODE
    lines = textwrap.wrap(clean(role), _ROLE_WIDTH, max_lines=2, placeholder="…")
    top = centre.y + 5 - _LINE / 2 * len(lines)  # the baseline of the name; all lines in the middle
    return tag(
        "g",
        tag("title", f"{name}: {role}"),
        tag(
            "rect",
            x=centre.x - width / 2,
            y=centre.y - height / 2,
            width=width,
            height=height,
            rx=10,
            class_="node",
        ),
        tag(
            "text",
            shorten(name, 15),
            x=centre.x,
            y=top,
            text_anchor="middle",
            class_="name",
        ),
        *(
            tag(
                "text", line, x=centre.x, y=top + 2 + _LINE * i, text_anchor="middle", class_="role"
            )
            for i, line in enumerate(lines, 1)
        ),
    )


def _tell(arrow: _Arrow) -> str:
    link = arrow.link
    source = "" if link.metered is not None else " (forecast, not metered)"
    return f"{link.sender} to {link.receiver}, {link.phase}: {show_bytes(arrow.payload)}{source}"
