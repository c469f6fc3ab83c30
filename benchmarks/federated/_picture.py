"""Draw accuracy against ε with intervals, by the lines of our report, as one SVG file."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tacit.report.markup import Markup, concat, percent, tag
from tacit.report.plots import draw_lines, name_colour
from tacit.result import Curve

_WIDTH, _HEIGHT, _HEAD = 760, 330, 48
_GAP = (math.nan, math.nan)
_COLOURS = ("#0a7c86", "#c2570c", "#7a55b8", "#2f7d32", "#b0306a", "#2a62b8", "#8a6d00", "#5b6770")
_STYLE = """
text { font: 12px system-ui, sans-serif; fill: #51626e; }
.title { font-size: 15px; fill: #16242e; }
.axis { stroke: #d5dee3; } .grid { stroke: #d5dee3; stroke-dasharray: 2 4; }
.line { fill: none; stroke-width: 2; stroke-linejoin: round; stroke-linecap: round; }
"""


def write_picture(rows: Sequence[dict[str, Any]], file: Path, *, title: str, delta: float) -> None:
    """Write one line per mode, with a bar over the 95 % interval at every point."""
    modes = list(dict.fromkeys(row["mode"] for row in rows))
    widest = [row["epsilon"] for row in rows if row["mode"] != "none"]
    curves = [
        Curve(
            title=title,
            x_label=f"ε at δ = {delta:g}",
            y_label="accuracy",
            name=mode,
            points=_points([row for row in rows if row["mode"] == mode], mode, widest),
            x_axis="log",
        )
        for mode in modes
    ]
    legend = concat(_key(index, mode) for index, mode in enumerate(modes))
    chart = tag("svg", draw_lines(curves), y=_HEAD, width=_WIDTH, height=_HEIGHT - _HEAD)
    below = tag("text", curves[0].x_label, x="55%", y=_HEIGHT - 6, text_anchor="middle")
    whole = tag(
        "svg",
        tag("style", Markup(_STYLE + _colour_rules())),
        tag("rect", width="100%", height="100%", fill="#ffffff"),
        tag("text", title, x=12, y=20, class_="title"),
        legend,
        chart,
        below,
        xmlns="http://www.w3.org/2000/svg",
        width=_WIDTH,
        height=_HEIGHT,
        viewBox=f"0 0 {_WIDTH} {_HEIGHT}",
    )
    file.write_text(whole)


def _points(
    rows: list[dict[str, Any]], mode: str, widest: list[float]
) -> tuple[tuple[float, float], ...]:
    """Join the means, then draw every interval after a gap."""
    rows = sorted(rows, key=lambda row: row["epsilon"])
    if mode == "none":
        rows = [{**rows[0], "epsilon": end} for end in (min(widest), max(widest))]
    points = [(row["epsilon"], row["mean"]) for row in rows]
    for row in rows:
        if row["low"] is not None:
            points += [_GAP, (row["epsilon"], row["low"]), (row["epsilon"], row["high"])]
    return tuple(points)


def _key(index: int, mode: str) -> Markup:
    start = 0.11 + 0.17 * index
    line = tag(
        "line",
        x1=percent(start),
        x2=percent(start + 0.03),
        y1=36,
        y2=36,
        class_=f"line {name_colour(index)}",
    )
    return concat([line, tag("text", mode, x=percent(start + 0.037), y=40)])


def _colour_rules() -> str:
    return "".join(f".k{at} {{ stroke: {colour}; }}\n" for at, colour in enumerate(_COLOURS))
