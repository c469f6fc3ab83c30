"""Draw what audits of language models found: inversion, extraction and canaries in one picture.

    python benchmarks/run.py audit/_plot RESULT.json… --out picture.svg

Reads the rows of audit_language.py and the summary of audit_canaries.py.
"""

import argparse
import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

from tacit.report.markup import Markup, concat, tag
from tacit.report.plots import draw_lines, name_colour
from tacit.result import Curve

Row = dict[str, Any]
Points = list[tuple[float, float]]
_WIDTH, _HEIGHT, _HEAD, _CHART = 460, 370, 30, 262
_GAP = (math.nan, math.nan)
_COLOURS = ("#0a7c86", "#c2570c", "#7a55b8", "#2f7d32", "#b0306a", "#2a62b8", "#8a6d00", "#5b6770")
_STYLE = """
text { font: 12px system-ui, sans-serif; fill: #51626e; }
.title { font-size: 14px; fill: #16242e; }
.axis { stroke: #d5dee3; } .grid { stroke: #d5dee3; stroke-dasharray: 2 4; }
.line { fill: none; stroke-width: 2; stroke-linejoin: round; stroke-linecap: round; }
"""


def main() -> None:
    """Read results and write the picture."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args()
    found = [json.loads(file.read_text()) for file in asked.files]
    rows = [row for one in found for row in _rows(one)]
    lines = [line for one in found for line in _summary(one)]
    panels = [_by_depth(rows), _by_noise(rows), _by_guesses(rows), _by_copies(rows)]
    asked.out.write_text(_lay_out([*panels, _by_epsilon(lines)] if lines else panels))


def _rows(found: Any) -> Iterator[Row]:
    """Find the rows of audit_language.py, also among other things."""
    if isinstance(found, list):
        yield from (row for row in found if isinstance(row, dict) and "part" in row)
    elif isinstance(found, dict):
        for one in found.values():
            yield from _rows(one)


def _summary(found: Any) -> list[Row]:
    if not isinstance(found, dict):
        return []
    return [*found.get("summary", ()), *_summary(found.get("canaries"))]


def _by_depth(rows: Sequence[Row]) -> list[Curve]:
    parts = [row for row in rows if row["part"] == "depth" and row["name"] != "blind"]
    lines = {
        name: sorted((row["depth"], row["recovered"]) for row in parts if row["name"] == name)
        for name in dict.fromkeys(row["name"] for row in parts)
    }
    return _curves("Tokens recovered, by layers that the user runs", "layers", lines)


def _by_noise(rows: Sequence[Row]) -> list[Curve]:
    parts = [row for row in rows if row["part"] == "noise" and row["name"] != "blind"]
    lines: dict[str, Points] = {}
    for row in parts:
        at = row["noise_per_deviation"]
        lines.setdefault(row["name"], []).append((at, row["tokens"]["value"]))
        if row["name"] == parts[0]["name"]:
            lines.setdefault("next token unchanged", []).append((at, row["next_token_unchanged"]))
    return _curves("The same under noise, cut after 4 layers", "noise per deviation", lines)


def _by_guesses(rows: Sequence[Row]) -> list[Curve]:
    parts = [row for row in rows if row["part"] == "extraction" and _knows(row)]
    lines = {row["name"]: [tuple(point) for point in row["curve"]] for row in parts}
    return _curves("Training texts extracted, by guesses", "guesses", lines, x_axis="log")


def _by_copies(rows: Sequence[Row]) -> list[Curve]:
    parts = [row for row in rows if row["part"] == "extraction" and row["name"] == "plain sampling"]
    lines = {row["model"]: [tuple(point) for point in row["by_repetition"]] for row in parts}
    return _curves("Training texts extracted, by copies", "copies", lines, x_axis="log")


def _knows(row: Row) -> bool:
    return row["model"] == "trained on them"


def _by_epsilon(lines: Sequence[Row]) -> list[Curve]:
    private = [line for line in lines if line["budget"]]
    drawn: dict[str, Points] = {}
    for unit in ("record", "client"):
        own = sorted((line for line in private if line["unit"] == unit), key=lambda x: x["budget"])
        drawn[f"unit: {unit}"] = _with_bars(own, "planted")
    ends = sorted({line["budget"] for line in private})
    drawn["chance"] = [(end, 1 / math.log(2)) for end in (ends[0], ends[-1])]
    title = "Exposure of a canary in 10 copies, of 16.6 bits"
    return _curves(title, "ε at δ = 1e-5", drawn, y_label="bits", x_axis="log")


def _with_bars(lines: Sequence[Row], key: str) -> Points:
    """Join the means, then draw every interval after a gap."""
    points = [(line["budget"], line[key][0]) for line in lines]
    for line in lines:
        points += [_GAP, (line["budget"], line[key][1]), (line["budget"], line[key][2])]
    return points


def _curves(
    title: str,
    x_label: str,
    lines: dict[str, Any],
    *,
    y_label: str = "share",
    x_axis: Literal["linear", "log"] = "linear",
) -> list[Curve]:
    return [
        Curve(title=title, x_label=x_label, y_label=y_label, name=name, points=tuple(points),
              x_axis=x_axis)
        for name, points in lines.items()
    ]  # fmt: skip


def _lay_out(panels: Sequence[Sequence[Curve]]) -> str:
    width, height = 2 * _WIDTH, _HEIGHT * -(-len(panels) // 2)
    rules = "".join(f".k{at} {{ stroke: {colour}; }}\n" for at, colour in enumerate(_COLOURS))
    return tag(
        "svg",
        tag("style", Markup(_STYLE + rules)),
        tag("rect", width="100%", height="100%", fill="#ffffff"),
        concat(_panel(at, curves) for at, curves in enumerate(panels) if curves),
        xmlns="http://www.w3.org/2000/svg",
        width=width,
        height=height,
        viewBox=f"0 0 {width} {height}",
    )


def _panel(at: int, curves: Sequence[Curve]) -> Markup:
    top = _HEAD + 16 * -(-len(curves) // 2)
    return tag(
        "svg",
        tag("text", curves[0].title, x=12, y=20, class_="title"),
        concat(_key(index, curve.name) for index, curve in enumerate(curves)),
        tag("svg", draw_lines(curves), y=top, width=_WIDTH - 12, height=_CHART),
        tag("text", curves[0].x_label, x="55%", y=top + _CHART + 8, text_anchor="middle"),
        x=_WIDTH * (at % 2),
        y=_HEIGHT * (at // 2),
        width=_WIDTH,
        height=_HEIGHT,
    )


def _key(index: int, name: str) -> Markup:
    x, y = 14 + 210 * (index % 2), _HEAD + 8 + 16 * (index // 2)
    line = tag("line", x1=x, x2=x + 14, y1=y - 4, y2=y - 4, class_=f"line {name_colour(index)}")
    return concat([line, tag("text", name, x=x + 18, y=y)])


if __name__ == "__main__":
    main()
