"""How learners on shares grow with rows, columns, bins and owners, one at a time.

``python benchmarks/run.py learners/_growth --out docs/images/learners-growth.svg`` measures CPU
seconds of one boosted tree of depth 4 and of five iterations of k-means (four clusters), protocol
"sealed", all parties in one process, planning included; it prints the figures and draws them.
"""

import argparse
import json
from math import log10
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
from sklearn.base import clone

from tacit import learners
from tacit.learners import Learner, Local

BASE = {"rows": 10_000, "columns": 16, "bins": 16, "owners": 2}
SIZES = {
    "rows": (2_500, 10_000, 40_000, 160_000),
    "columns": (4, 16, 64),
    "bins": (8, 16, 32, 64),
    "owners": (2, 3, 4),
}
WIDTH, HEIGHT, LEFT, BOTTOM, TOP = 300, 220, 46, 34, 30
COLOURS = {"one boosted tree": "#0b6e99", "k-means": "#b3541e"}


def main() -> None:
    """Measure, print and draw."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args()
    found: dict[str, dict[str, list[tuple[int, float]]]] = {}
    for what, sizes in SIZES.items():
        for size in sizes:
            at = BASE | {what: size}
            for name, model in _models(at["bins"]).items():
                if what == "bins" and name == "k-means":
                    continue
                seconds = measured(model, at["rows"], at["columns"], at["owners"])
                found.setdefault(what, {}).setdefault(name, []).append((size, seconds))
    print(json.dumps(found))
    asked.out.write_text(draw(found))


def _models(bins: int) -> dict[str, Learner]:
    tree = learners.GradientBoostingClassifier(1, max_depth=4, max_bins=bins)
    return {"one boosted tree": tree, "k-means": learners.KMeans(4, max_iter=5, init="random")}


def measured(model: Learner, rows: int, columns: int, owners: int) -> float:
    """Return CPU seconds of one fit."""
    coins = np.random.default_rng(0)
    x = coins.normal(size=(rows, columns))
    y = (x[:, 0] + coins.normal(size=rows) > 0).astype(float)
    names = [f"owner{at}" for at in range(owners)]
    parts: dict[str, Any] = dict(zip(names, np.array_split(x, owners, axis=1), strict=True))
    parts[names[-1]] = parts[names[-1]], y
    with Local(*names) as parties:
        data = parties.columns(parts)
        begun = process_time()
        clone(model).fit(data, parties)
        return process_time() - begun


def draw(found: dict[str, dict[str, list[tuple[int, float]]]]) -> str:
    """Return an SVG with one panel for each thing that grows, both axes logarithmic."""
    panels = [
        f'<g transform="translate({WIDTH * (at % 2)} {HEIGHT * (at // 2)})">{_panel(*one)}</g>'
        for at, one in enumerate(found.items())
    ]
    width, height = 2 * WIDTH, 2 * HEIGHT
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'font-family="sans-serif" font-size="11"><rect width="{width}" height="{height}" '
        f'fill="#ffffff"/>{"".join(panels)}</svg>\n'
    )


def _panel(title: str, curves: dict[str, list[tuple[int, float]]]) -> str:
    sizes = sorted({size for points in curves.values() for size, _ in points})
    times = [seconds for points in curves.values() for _, seconds in points]
    low, high = log10(min(times)) - 0.1, log10(max(times)) + 0.1

    def place(size: int, seconds: float) -> tuple[float, float]:
        along = log10(size / sizes[0]) / log10(sizes[-1] / sizes[0])
        up = (log10(seconds) - low) / (high - low)
        x = LEFT + along * (WIDTH - LEFT - 40)
        return x, HEIGHT - BOTTOM - up * (HEIGHT - TOP - BOTTOM)

    parts = [f'<text x="{LEFT}" y="16" font-weight="bold">{title}: CPU seconds</text>']
    for size in sizes:
        x, _ = place(size, min(times))
        y = HEIGHT - BOTTOM + 16
        parts.append(f'<text x="{x:.0f}" y="{y}" text-anchor="middle">{size:,}</text>')
    for name, points in curves.items():
        colour, spots = COLOURS[name], [place(*one) for one in points]
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y in spots)
        parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"/>')
        for (x, y), (_, seconds) in zip(spots, points, strict=True):
            parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>')
            parts.append(f'<text x="{x + 5:.1f}" y="{y - 5:.1f}">{seconds:.2g}</text>')
        x, y = spots[0]
        parts.append(f'<text x="{x:.0f}" y="{y + 16:.0f}" fill="{colour}">{name}</text>')
    return "".join(parts)


if __name__ == "__main__":
    main()
