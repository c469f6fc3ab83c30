"""What a proof costs against the number of trees, their depth, the features and the radius.

Random forests on MNIST; one quantity varies, the others stay at 50 trees, depth 8, 784 features
and ε 0.03. Fewer features are larger pixels: means over squares.
"""

import argparse
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from importlib import resources
from pathlib import Path

import numpy as np
from verify._models import Measured, Spec, load_rows, make_model, measure

from tacit.report.markup import Markup, tag
from tacit.report.plots import draw_lines, name_colour
from tacit.result import Curve
from tacit.verify import Ensemble, import_ensemble

STEPS = {
    "trees": (12, 25, 50, 100, 200, 400),
    "depth": (3, 5, 8, 12, 16, 24),
    "side": (4, 7, 14, 28),
    "eps": (0.003, 0.01, 0.03, 0.1, 0.3),
}
LABELS = {"trees": "trees", "depth": "depth", "side": "pixels a side", "eps": "ε"}


@dataclass(frozen=True)
class Point:
    """A model and a radius."""

    trees: int = 50
    depth: int = 8
    side: int = 28
    eps: float = 0.03


def points(quick: bool) -> Iterator[tuple[str, Point]]:
    """Vary one quantity at a time."""
    for name, values in STEPS.items():
        for value in values[:2] if quick else values:
            yield name, replace(Point(), **{name: value})


def main() -> None:
    """Measure every point, print a table, and draw it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="two points a curve, few rows")
    parser.add_argument("--rows", type=int, default=200)
    parser.add_argument("--train-rows", type=int, default=12_000)
    parser.add_argument("--out", type=Path, help="write the figures as JSON")
    parser.add_argument("--page", type=Path, help="write the plots as HTML")
    parser.add_argument("--picture", type=Path, help="write the plots as one SVG")
    chosen = parser.parse_args()
    if chosen.quick:
        chosen.rows, chosen.train_rows = 20, 2000
    found = []
    for name, point in points(chosen.quick):
        one = run(point, chosen.rows, chosen.train_rows)
        found.append({"varied": name} | asdict(point) | asdict(one))
        print(
            f"{name:6} {getattr(point, name):<6g} robust {one.robust:6.1%} "
            f"unsolved {one.unsolved:5.1%} median {one.median_ms:8.3f} ms p95 {one.p95_ms:9.3f}",
            flush=True,
        )
    if chosen.out is not None:
        chosen.out.write_text(json.dumps(found, indent=1))
    if chosen.page is not None:
        chosen.page.write_text(draw(found), encoding="utf-8")
    if chosen.picture is not None:
        chosen.picture.write_text(draw_picture(found), encoding="utf-8")


def run(point: Point, count: int, train_rows: int) -> Measured:
    """Train the point's model and verify rows of the test set."""
    spec = Spec("mnist", "forest", point.trees, point.depth, train_rows=train_rows)
    x, y, held_x, held_y = load_rows(replace(spec, trees=1, depth=1))
    model = make_model(spec).fit(shrink(x, point.side), y)
    ensemble: Ensemble = import_ensemble(model)
    return measure(ensemble, shrink(held_x[:count], point.side), held_y[:count], point.eps)


def shrink(rows: np.ndarray, side: int) -> np.ndarray:
    """Average squares of pixels until an image has `side` pixels a side."""
    size = 28 // side
    images = rows.reshape(-1, side, size, side, size)
    return images.mean(axis=(2, 4)).reshape(-1, side * side).astype(np.float32)


def draw(found: list[dict[str, float | str]]) -> str:
    """Draw one plot per varied quantity, median and p95, into a page that needs nothing else."""
    css = resources.files("tacit.report").joinpath("style.css").read_text(encoding="utf-8")
    head = tag("head", tag("meta", charset="utf-8"), tag("style", Markup(css)))
    charts = [_chart(name, [one for one in found if one["varied"] == name]) for name in LABELS]
    body = tag("body", tag("main", tag("h1", "What a proof costs"), *charts))
    return f"<!DOCTYPE html>\n{tag('html', head, body, lang='en')}\n"


def draw_picture(found: list[dict[str, float | str]]) -> str:
    """Draw all plots into one SVG that needs nothing else."""
    css = resources.files("tacit.report").joinpath("style.css").read_text(encoding="utf-8")
    panels = []
    for number, name in enumerate(LABELS):
        curves = _curves(name, [one for one in found if one["varied"] == name])
        x, y = 20 + 450 * (number % 2), 40 + 320 * (number // 2)
        words = f"ms per row against {LABELS[name]}: median (lower) and p95"
        panels.append(tag("text", words, x=x, y=y - 12, class_="tick"))
        panels.append(tag("svg", draw_lines(curves), x=x, y=y, width=420, height=290))
    ground = tag("rect", width="100%", height="100%", style="fill: var(--card)")
    size = {"width": 920, "height": 660, "viewBox": "0 0 920 660"}
    style = tag("style", Markup(css))
    return str(tag("svg", style, ground, *panels, xmlns="http://www.w3.org/2000/svg", **size))


def _curves(name: str, rows: list[dict[str, float | str]]) -> list[Curve]:
    return [
        Curve(
            title=f"Time per row against {LABELS[name]}",
            x_label=LABELS[name],
            y_label="milliseconds per row",
            name=kind,
            points=tuple((float(one[name]), float(one[f"{kind}_ms"])) for one in rows),
            x_axis="log",
            y_axis="log",
        )
        for kind in ("median", "p95")
    ]


def _chart(name: str, rows: list[dict[str, float | str]]) -> Markup:
    curves = _curves(name, rows)
    legend = [
        tag("li", tag("span", "■ ", class_=name_colour(index)), curve.name)
        for index, curve in enumerate(curves)
    ]
    axes = tag("p", f"{curves[0].y_label} against {curves[0].x_label}")
    return tag("section", tag("h2", curves[0].title), draw_lines(curves), axes, tag("ul", *legend))


if __name__ == "__main__":
    main()
