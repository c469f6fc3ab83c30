"""How our time grows: with the number of elements, and with the round-trip time of the network.

Three processes over TLS on loopback, one thread each. Round-trip times come from links that hold
every frame back; the smallest size says what a round costs, the largest what a byte costs.

`python benchmarks/run.py mpc/scaling` shows the online times. As a script it measures online and
offline times in the same runs, and writes both as JSON and as plots in one page:

    python benchmarks/run.py mpc/scaling --quick --out scaling.json --page scaling.html
    python benchmarks/run.py mpc/scaling --read scaling.json --picture scaling.svg
"""

import argparse
import json
import statistics
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cache
from importlib import resources
from itertools import groupby
from pathlib import Path

from bench import Case, NotMeasured, describe_machine
from mpc._parties import Parties
from mpc._rows import Row

from tacit.report.markup import Markup, lay_legend, tag
from tacit.report.plots import draw_lines, name_colour
from tacit.result import Curve

OPERATIONS = {"mul": "mul", "is_positive": "compare", "relu": "ReLU"}
PROTOCOLS = ("sealed", "permuted3", "permuted2")
SIZES = (10**3, 10**4, 10**5, 10**6, 10**7)
LARGEST_QUICK = 10**5
RTTS_MS = (0.1, 10.0, 40.0)
ELEMENTS_AT_RTT = 10**4


@dataclass(frozen=True)
class Point:
    """One place on a curve; without a round-trip time the links are plain loopback."""

    operation: str
    protocol: str
    elements: int
    rtt_ms: float | None = None

    @property
    def name(self) -> str:
        """Name the point, as a row of the table."""
        rtt = "" if self.rtt_ms is None else f", RTT {self.rtt_ms:g} ms"
        return f"{OPERATIONS[self.operation]} {self.elements:.0e}{rtt}, {self.protocol}"

    @property
    def row(self) -> Row:
        """Return what is computed."""
        return Row(self.operation, (self.elements,))


@dataclass(frozen=True, kw_only=True)
class Measured:
    """Medians of one point, in milliseconds."""

    point: Point
    online_ms: float
    offline_ms: float
    repeats: int


def cases(quick: bool) -> list[Case]:
    """Return online times against size, then against round-trip time."""
    return [_case(point) for point in _points(quick)]


def _points(quick: bool) -> Iterator[Point]:
    pairs = [(operation, protocol) for operation in OPERATIONS for protocol in PROTOCOLS]
    for operation, protocol in pairs:
        for size in SIZES:
            if size <= LARGEST_QUICK or not quick:
                yield Point(operation, protocol, size)
    for rtt_ms in RTTS_MS:
        for operation, protocol in pairs:
            yield Point(operation, protocol, ELEMENTS_AT_RTT, rtt_ms)


def _case(point: Point) -> Case:
    def online_ms() -> float:
        return _parties(point.rtt_ms).run(point.row, point.protocol).online_ms

    return Case(name=point.name, metric="online time", unit="ms", ours=online_ms)


@cache
def _parties(rtt_ms: float | None) -> Parties:
    """Start the parties of one network once."""
    return Parties(rtt_ms=rtt_ms or 0.0)


def measure(point: Point, repeats: int) -> Measured:
    """Run a point, once to warm up and then as often as asked."""
    parties = _parties(point.rtt_ms)
    runs = [parties.run(point.row, point.protocol) for _ in range(repeats + 1)][1:]
    return Measured(
        point=point,
        online_ms=statistics.median(run.online_ms for run in runs),
        offline_ms=statistics.median(run.offline_ms for run in runs),
        repeats=repeats,
    )


def draw_page(found: list[Measured]) -> str:
    """Draw all curves into one page that needs nothing else."""
    css = resources.files("tacit.report").joinpath("style.css").read_text(encoding="utf-8")
    charts = [
        _chart(title, list(curves))
        for title, curves in groupby(_curves(found), key=lambda curve: curve.title)
    ]
    head = tag("head", tag("meta", charset="utf-8"), tag("style", Markup(css)))
    grid = tag("section", tag("div", *charts, class_="charts"))
    body = tag("body", tag("main", tag("h1", "How the time of mpc grows"), grid))
    return f"<!DOCTYPE html>\n{tag('html', head, body, lang='en')}\n"


def draw_picture(found: list[Measured]) -> str:
    """Draw the same curves into one SVG that needs nothing else."""
    css = resources.files("tacit.report").joinpath("style.css").read_text(encoding="utf-8")
    panels, names = [], []
    groups = groupby(_curves(found), key=lambda curve: curve.title)
    for number, (title, some) in enumerate(groups):
        curves = list(some)
        names = [curve.name for curve in curves]
        x, y = 20 + 450 * (number % 2), 40 + 300 * (number // 2)
        words = f"{title}: {curves[0].y_label} against {curves[0].x_label}"
        panels.append(tag("text", words, x=x, y=y - 12, class_="tick"))
        panels.append(tag("svg", draw_lines(curves), x=x, y=y, width=420, height=260))
    bottom = 40 + 300 * (-(-len(panels) // 4))
    for at, name in enumerate(names):
        x, y = 20 + 300 * (at % 3), bottom + 24 * (at // 3)
        line = {"x": x, "y": y - 8, "width": 22, "height": 6}
        panels.append(tag("rect", **line, class_=f"fill {name_colour(at)}"))
        panels.append(tag("text", name, x=x + 30, y=y, class_="tick"))
    size = {"width": 920, "height": bottom + 48, "viewBox": f"0 0 920 {bottom + 48}"}
    ground = tag("rect", width="100%", height="100%", style="fill: var(--card)")
    style = tag("style", Markup(css))
    return str(tag("svg", style, ground, *panels, xmlns="http://www.w3.org/2000/svg", **size))


def _chart(title: str, curves: list[Curve]) -> Markup:
    legend = lay_legend([(name_colour(at), curve.name) for at, curve in enumerate(curves)])
    axes = tag("p", f"{curves[0].y_label} against {curves[0].x_label}", class_="axis-name across")
    return tag("figure", tag("h3", title), draw_lines(curves), axes, legend, class_="chart")


def _curves(found: list[Measured]) -> list[Curve]:
    """Make a curve for every operation and protocol, online and with the offline time."""
    curves = []
    for is_rtt in (False, True):
        part = [one for one in found if (one.point.rtt_ms is not None) == is_rtt]
        keys = dict.fromkeys((one.point.operation, one.point.protocol) for one in part)
        for operation, protocol in keys:
            own = [
                one
                for one in part
                if (one.point.operation, one.point.protocol) == (operation, protocol)
            ]
            for kind in ("online", "offline + online"):
                curves.append(_curve(operation, protocol, kind, own, is_rtt=is_rtt))
    return sorted(curves, key=lambda curve: curve.title)


def _curve(operation: str, protocol: str, kind: str, own: list[Measured], *, is_rtt: bool) -> Curve:
    extra = {"online": 0, "offline + online": 1}[kind]
    against = "round-trip time" if is_rtt else "size"
    return Curve(
        title=f"{OPERATIONS[operation]} against {against}",
        x_label="round-trip time in ms" if is_rtt else "elements",
        y_label="ms",
        name=f"{protocol}, {kind}",
        points=tuple(
            (
                float(one.point.rtt_ms or 0.0) if is_rtt else float(one.point.elements),
                one.online_ms + extra * one.offline_ms,
            )
            for one in own
        ),
        x_axis="linear" if is_rtt else "log",
        y_axis="log",
    )


def main() -> None:
    """Measure, and write what was asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="sizes up to 1e5 only")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--out", type=Path, help="write the medians as JSON")
    parser.add_argument("--page", type=Path, help="write the plots as one HTML page")
    parser.add_argument("--picture", type=Path, help="write the plots as one SVG")
    parser.add_argument("--read", type=Path, help="draw what --out wrote, and measure nothing")
    chosen = parser.parse_args()
    found = _read(chosen.read) if chosen.read else []
    points = [] if chosen.read else list(_points(chosen.quick))
    for done, point in enumerate(points, start=1):
        try:
            one = measure(point, chosen.repeats)
        except NotMeasured as reason:
            print(f"{done}/{len(points)} {point.name}: not measured, {reason}", flush=True)
            continue
        found.append(one)
        print(
            f"{done}/{len(points)} {point.name}: online {one.online_ms:.1f} ms, "
            f"offline {one.offline_ms:.1f} ms",
            flush=True,
        )
    if chosen.out:
        rows = {"machine": asdict(describe_machine()), "rows": [asdict(one) for one in found]}
        chosen.out.write_text(json.dumps(rows, indent=2))
    if chosen.page:
        chosen.page.write_text(draw_page(found), encoding="utf-8")
    if chosen.picture:
        chosen.picture.write_text(draw_picture(found), encoding="utf-8")


def _read(path: Path) -> list[Measured]:
    rows = json.loads(path.read_text())["rows"]
    return [Measured(**{**row, "point": Point(**row["point"])}) for row in rows]


if __name__ == "__main__":
    main()
