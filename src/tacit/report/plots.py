"""Plot geometry: bars, intervals, spans and line charts as SVG that scales without its text.

Lengths are percentages of the width, so a chart fits a phone and a printed page alike while its
text keeps the size of the page.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from tacit.report.format import show_number
from tacit.report.markup import Markup, concat, percent, tag
from tacit.result import Curve, Metric

_COLOURS = 8  # classes k0 … k7 in the style sheet

_LEFT, _WIDTH = 0.11, 0.87  # the plot area of a line chart within its width
_TOP, _HEIGHT = 12, 220
_GRID = 1000  # resolution of the inner coordinate system


@dataclass(frozen=True)
class Scale:
    """A linear map from values to the unit interval."""

    low: float
    high: float

    def place(self, value: float) -> float:
        """Return where a value lies, 0 to 1; values outside go to the nearer end."""
        # Halved, because high − low of two finite doubles may overflow.
        width = self.high / 2 - self.low / 2
        ratio = (value / 2 - self.low / 2) / width if width > 0 else 0.5
        return min(max(ratio, 0.0), 1.0)


def fit_scale(values: Sequence[float], *, margin: float = 0.0) -> Scale:
    """Make a scale that holds all finite values, with a margin on both sides."""
    finite = [value for value in values if math.isfinite(value)]
    if not finite:
        return Scale(0.0, 1.0)
    low, high = min(finite), max(finite)
    pad = (high / 2 - low / 2) * 2 * margin or (abs(high) * 0.05 or 0.5) * (high == low)
    bottom, top = low - pad, high + pad
    if not (math.isfinite(bottom) and math.isfinite(top)):
        return Scale(low, high)
    if low >= 0 and high <= 1:  # a fraction stays one
        bottom, top = max(bottom, 0.0), min(top, 1.0)
    return Scale(bottom, top)


def list_ticks(scale: Scale, count: int = 5) -> tuple[float, ...]:
    """List round numbers within a scale, about as many as asked for."""
    width = scale.high - scale.low
    if not 0 < width < math.inf:
        return (scale.low,)
    rough = width / count
    power = 10.0 ** math.floor(math.log10(rough)) if rough > 1e-300 else 0.0
    if power == 0 or abs(scale.low) / power > 1e12:
        return (scale.low, scale.high)
    step = next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= rough * 0.999)
    first, last = math.ceil(scale.low / step - 1e-9), math.floor(scale.high / step + 1e-9)
    return tuple(
        round(index * step, 12) if step > 1e-9 else index * step for index in range(first, last + 1)
    )


def name_colour(index: int) -> str:
    """Name the style-sheet classes of the n-th line or stage; dashed once the colours run out."""
    return f"k{index % _COLOURS}{' dashed' if index // _COLOURS % 2 else ''}"


def draw_bar(parts: Sequence[tuple[float, str]], *, label: str) -> Markup:
    """Draw a horizontal bar of parts, each a share of the full width and a style-sheet class."""
    start, bars = 0.0, []
    for share, css in parts:
        share = min(max(share, 0.0), 1.0 - start) if math.isfinite(share) else 0.0
        width = percent(max(share, 0.004 if share > 0 else 0.0))
        bars.append(tag("rect", x=percent(start), y=0, width=width, height="100%", class_=css))
        start += share
    return _track(label, *bars, height=12)


def draw_interval(metric: Metric, scale: Scale) -> Markup:
    """Draw a metric's value on its 95 % interval, with a mark at the plaintext reference."""
    marks = [tag("line", x1="0%", x2="100%", y1=16, y2=16, class_="axis")]
    if _is_known(metric.low) and _is_known(metric.high):
        low, high = scale.place(metric.low or 0.0), scale.place(metric.high or 0.0)
        width = percent(max(high - low, 0.003))
        marks.append(tag("rect", x=percent(low), y=9, width=width, height=14, rx=4, class_="band"))
    if _is_known(metric.reference):
        at = percent(scale.place(metric.reference or 0.0))
        marks.append(tag("line", x1=at, x2=at, y1=3, y2=29, class_="reference"))
    if _is_known(metric.value):
        at = percent(scale.place(metric.value or 0.0))
        marks.append(tag("circle", cx=at, cy=16, r=6, class_="dot"))
    return _track(f"{metric.name}: value, interval and reference", *marks, height=32)


def draw_span(start: float, end: float, *, css: str, label: str) -> Markup:
    """Draw one stage between two shares of the time axis, in a style-sheet class."""
    width = percent(max(end - start, 0.004))
    bar = tag(
        "rect",
        x=percent(min(start, 0.996)),
        y=2,
        width=width,
        height=12,
        rx=2,
        class_=f"fill {css}",
    )
    return _track(label, tag("line", x1="0%", x2="100%", y1=8, y2=8, class_="axis"), bar, height=16)


def draw_axis(
    scale: Scale, labels: Sequence[tuple[float, str]], *, label: str = "time axis"
) -> Markup:
    """Draw a row of tick labels under tracks."""
    marks = []
    for value, text in labels:
        at = scale.place(value)
        anchor = "start" if at < 0.06 else "end" if at > 0.94 else "middle"
        marks.append(tag("line", x1=percent(at), x2=percent(at), y1=0, y2=5, class_="axis"))
        marks.append(tag("text", text, x=percent(at), y=18, text_anchor=anchor, class_="tick"))
    return _track(label, *marks, height=22)


def draw_lines(curves: Sequence[Curve]) -> Markup:
    """Draw curves that share their axes in one chart."""
    first = curves[0]
    placed = [replace(curve, points=_place_points(curve, first)) for curve in curves]
    points = [point for curve in placed for point in curve.points if all(map(math.isfinite, point))]
    across = fit_scale([x for x, _ in points])
    along = fit_scale([y for _, y in points], margin=0.06)
    names = ", ".join(curve.name for curve in curves)
    inner = tag(
        "svg",
        *(_draw_line(curve, index, across, along) for index, curve in enumerate(placed)),
        x=percent(_LEFT),
        y=_TOP,
        width=percent(_WIDTH),
        height=_HEIGHT,
        viewBox=f"0 0 {_GRID} {_GRID}",
        preserveAspectRatio="none",
        overflow="visible",
    )
    return tag(
        "svg",
        tag("title", first.title),
        tag("desc", f"{first.y_label} against {first.x_label} for {names}"),
        _draw_grid(across, along, first),
        inner,
        role="img",
        width="100%",
        height=_TOP + _HEIGHT + 26,
        class_="lines",
    )


def _is_known(value: float | None) -> bool:
    return value is not None and math.isfinite(value)


def _track(label: str, *marks: Markup, height: int) -> Markup:
    return tag(
        "svg", tag("title", label), *marks, role="img", width="100%", height=height, class_="track"
    )


def _draw_line(curve: Curve, index: int, across: Scale, along: Scale) -> Markup:
    """Draw one curve; a point that is not finite breaks the line, a lonely one is a dot."""
    commands, is_down = [], False
    for x, y in curve.points:
        if not (math.isfinite(x) and math.isfinite(y)):
            is_down = False
            continue
        place = f"{across.place(x) * _GRID:.1f} {_GRID - along.place(y) * _GRID:.1f}"
        commands.append(f"L{place}" if is_down else f"M{place}h0")
        is_down = curve.style == "line"
    return tag(
        "path",
        d=" ".join(commands),
        class_=f"line {'dots ' if curve.style == 'dots' else ''}{name_colour(index)}",
        vector_effect="non-scaling-stroke",
    )


def _place_points(curve: Curve, axes: Curve) -> tuple[tuple[float, float], ...]:
    """Turn points into what is drawn on the axes; what a logarithm cannot show becomes a gap."""
    maps = [_log10 if kind == "log" else float for kind in (axes.x_axis, axes.y_axis)]
    return tuple((maps[0](x), maps[1](y)) for x, y in curve.points)


def _log10(value: float) -> float:
    return math.log10(value) if value > 0 and math.isfinite(value) else math.nan


def _list_marks(scale: Scale, kind: str, count: int) -> list[tuple[float, str]]:
    """List where the ticks of an axis go and what stands beside them."""
    if kind == "linear":
        return [(tick, show_number(tick)) for tick in list_ticks(scale, count)]
    decades = [float(n) for n in range(math.ceil(scale.low), math.floor(scale.high) + 1)]
    thinned = decades[:: max(1, len(decades) // (count + 1))]
    if len(thinned) < 2:
        thinned = [scale.low, scale.high]
    # The margin of a scale may reach beyond what a double holds.
    return [(tick, show_number(float(f"{10 ** min(tick, 308.0):.2g}"))) for tick in thinned]


def _draw_grid(across: Scale, along: Scale, axes: Curve) -> Markup:
    marks, right, bottom = [], percent(_LEFT + _WIDTH), _TOP + _HEIGHT
    for tick, text in _list_marks(along, axes.y_axis, 5):
        y = bottom - along.place(tick) * _HEIGHT
        marks.append(tag("line", x1=percent(_LEFT), x2=right, y1=y, y2=y, class_="grid"))
        marks.append(
            tag(
                "text",
                text,
                x=percent(_LEFT - 0.01),
                y=y + 4.0,
                text_anchor="end",
                class_="tick",
            )
        )
    for tick, text in _list_marks(across, axes.x_axis, 4):
        at = across.place(tick)
        x = percent(_LEFT + at * _WIDTH)
        # A long number under the end of the axis would be cut off.
        anchor = "end" if at > 0.94 and len(text) > 5 else "middle"
        marks.append(tag("line", x1=x, x2=x, y1=bottom, y2=bottom + 5, class_="axis"))
        marks.append(tag("text", text, x=x, y=bottom + 20, text_anchor=anchor, class_="tick"))
    marks.append(tag("line", x1=percent(_LEFT), x2=right, y1=bottom, y2=bottom, class_="axis"))
    return concat(marks)
