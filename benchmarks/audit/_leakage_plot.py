"""Draw figures 5.2 and 5.4c of seed 000 from what `tacit leakage` found.

``tacit leakage JOB.toml --out found.json``, then ``_leakage_plot.py found.json --out leakage.svg``
draws one panel per title of its curves.
"""

import argparse
import json
from collections.abc import Mapping, Sequence
from math import log2
from pathlib import Path
from typing import Any

WIDTH, HEIGHT, LEFT, TOP = 460, 330, 46, 34
LINE = 15
COLOURS = ("#767676", "#0b6e99", "#b3541e", "#2e7d32", "#7b1fa2", "#5d4037")
DASHES = ("", "6 4", "", "2 3", "", "6 4")
Points = Sequence[tuple[float, float]]


def main() -> None:
    """Read a result and write the picture."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args()
    asked.out.write_text(draw(json.loads(asked.file.read_text())["curves"]))


def draw(curves: Sequence[Mapping[str, Any]]) -> str:
    """Return an SVG with one panel per title."""
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for curve in curves:
        groups.setdefault(curve["title"], []).append(curve)
    lines = -(-len(groups) // 2)
    panels = [
        f'<g transform="translate({WIDTH * (at % 2)} {HEIGHT * (at // 2)})">{_panel(*one)}</g>'
        for at, one in enumerate(groups.items())
    ]
    width, height = 2 * WIDTH, HEIGHT * lines
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'font-family="sans-serif" font-size="12">'
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>{"".join(panels)}</svg>\n'
    )


def _panel(title: str, group: Sequence[Mapping[str, Any]]) -> str:
    steps = [x for curve in group for x, _ in curve["points"]]
    # Widths of a projection are powers of two, steps of a training begin at zero.
    is_log = min(steps) > 0
    bottom = HEIGHT - 30 - LINE * len(group)

    def across(x: float) -> float:
        share = log2(x) / log2(max(steps)) if is_log else x / max(steps)
        return LEFT + share * (WIDTH - LEFT - 16)

    def up(y: float) -> float:
        return bottom - (max(y, -0.05) + 0.05) / 1.1 * (bottom - TOP)

    drawn = [f'<text x="{LEFT}" y="20" font-weight="bold">{title.partition(" (")[0]}</text>']
    for tick in (0.0, 0.25, 0.5, 0.75, 1.0):
        drawn.append(
            f'<line x1="{LEFT}" y1="{up(tick):.1f}" x2="{WIDTH - 16}" y2="{up(tick):.1f}" '
            f'stroke="#e4e4e4"/><text x="{LEFT - 6}" y="{up(tick) + 4:.1f}" '
            f'text-anchor="end">{tick:g}</text>'
        )
    for step in sorted(set(steps)):
        drawn.append(
            f'<text x="{across(step):.1f}" y="{bottom + 14}" text-anchor="middle">{step:g}</text>'
        )
    for at, curve in enumerate(group):
        drawn.append(_line(curve["name"], curve["points"], at, across, up, bottom))
    label = (
        f'<text x="{WIDTH - 16}" y="{TOP + 18}" text-anchor="end">{group[0]["x_label"]} →</text>'
    )
    return "".join((*drawn, label))


def _line(name: str, points: Points, at: int, across: Any, up: Any, bottom: float) -> str:
    """Draw one curve and its name below; ``across`` and ``up`` place numbers."""
    path = " ".join(f"{across(x):.1f},{up(y):.1f}" for x, y in points)
    colour, dash = COLOURS[at % len(COLOURS)], DASHES[at % len(DASHES)]
    return (
        f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.6" '
        f'stroke-dasharray="{dash}"/><text x="{LEFT}" y="{bottom + 30 + LINE * at}" '
        f'fill="{colour}">{name}</text>'
    )


if __name__ == "__main__":
    main()
