"""Draw the curves of training/networks.py: private and plaintext trainings in one picture.

``_training_plot.py RESULT.json… --out curves.svg`` draws one panel per model.
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

WIDTH, HEIGHT, LEFT, TOP, BOTTOM = 460, 300, 52, 34, 40
COLOURS = {"plain": "#767676", "permuted3": "#0b6e99", "sealed": "#b3541e"}
DASHES = {"plain": "6 4"}
Point = tuple[float, float]


def main() -> None:
    """Read results and write the picture."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args()
    rows = [row for file in asked.files for row in json.loads(file.read_text())["accuracy"]]
    asked.out.write_text(draw(rows))


def draw(rows: Sequence[dict[str, Any]]) -> str:
    """Return an SVG with one panel per model and length of training."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault(f"{row['model']}, {row['steps']} steps", []).append(row)
    columns = min(2, len(groups))
    lines = -(-len(groups) // columns)
    panels = [
        f'<g transform="translate({WIDTH * (at % columns)} {HEIGHT * (at // columns)})">'
        f"{_panel(title, group)}</g>"
        for at, (title, group) in enumerate(sorted(groups.items()))
    ]
    width, height = WIDTH * columns, HEIGHT * lines
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'font-family="sans-serif" font-size="12">'
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>{"".join(panels)}</svg>\n'
    )


def _panel(title: str, group: Sequence[dict[str, Any]]) -> str:
    curves: list[tuple[str, list[Point]]] = []
    for row in group:
        curves.append(("plain", [(step, 100 * right) for step, _, right in row["plain_curve"]]))
        private = [(step, 100 * right) for step, _, right in row["private_curve"]]
        curves.append((row["protocol"], private))
    heights = [y for _, points in curves for _, y in points]
    low, high = min(heights), max(heights)
    low, high = low - 0.05 * (high - low) - 0.1, high + 0.05 * (high - low) + 0.1
    last = max(x for _, points in curves for x, _ in points)

    def place(x: float, y: float) -> str:
        across = LEFT + x / last * (WIDTH - LEFT - 16)
        up = (y - low) / (high - low) * (HEIGHT - TOP - BOTTOM)
        return f"{across:.1f},{HEIGHT - BOTTOM - up:.1f}"

    drawn = [f'<text x="{LEFT}" y="20" font-weight="bold">{title}</text>']
    for step in range(5):
        y = low + (high - low) * step / 4
        x0, y0 = place(0, y).split(",")
        drawn.append(
            f'<line x1="{x0}" y1="{y0}" x2="{WIDTH - 16}" y2="{y0}" stroke="#e4e4e4"/>'
            f'<text x="{LEFT - 6}" y="{float(y0) + 4}" text-anchor="end">{y:.1f} %</text>'
        )
    for kind, points in curves:
        path = " ".join(place(x, y) for x, y in points)
        dash = f' stroke-dasharray="{DASHES[kind]}"' if kind in DASHES else ""
        drawn.append(
            f'<polyline points="{path}" fill="none" stroke="{COLOURS[kind]}" '
            f'stroke-width="1.6"{dash}/>'
        )
    drawn.append(f'<text x="{WIDTH - 16}" y="{HEIGHT - 22}" text-anchor="end">{last} steps</text>')
    for at, kind in enumerate(dict.fromkeys(kind for kind, _ in curves)):
        drawn.append(
            f'<text x="{LEFT + 90 * at}" y="{HEIGHT - 8}" fill="{COLOURS[kind]}">{kind}</text>'
        )
    return "".join(drawn)


if __name__ == "__main__":
    main()
