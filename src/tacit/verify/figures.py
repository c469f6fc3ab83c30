"""Figures and pictures of what was verified, as a report shows them."""

import base64
from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from tacit.result import Claim, Curve, Picture, Sheet
from tacit.verify.box import Domain
from tacit.verify.explain import Importance, RobustSet
from tacit.verify.findings import Findings, Size, Tally
from tacit.verify.kernels.tables import Floats
from tacit.verify.verdict import Counterexample, Unknown

MOST_LINES = 20
"""Lines of a table of examples."""
QUANTILES = (0.5, 0.9, 0.95, 0.99, 1.0)


def state_claim(findings: Findings) -> Claim:
    """Say what holds of the rows that were found robust, and what it rests on."""
    every = findings.groups[0]
    return Claim(
        subject=f"{every.robust} of {every.rows} rows",
        guarantee=(
            f"no input within ±{findings.eps:g} of such a row, in all features at once, "
            "changes the answer"
            + ("; missing values and categories stay as they are" if findings.has_fixed else "")
        ),
        assumptions=(
            "the library computes as it did when it was imported: same types, same order of sums",
            f"the model is the one described by: {findings.ensemble.origin}",
        ),
    )


def draw_curves(findings: Findings) -> tuple[Curve, ...]:
    """Draw how long rows took, and what the size of the model does."""
    return _spread(findings.times_ms), *_size_curves(findings.sizes)


def _spread(times_ms: Sequence[float]) -> Curve:
    ordered = np.sort(times_ms)
    shares = np.arange(1, ordered.size + 1) / ordered.size
    return Curve(
        title="Time per row",
        x_label="milliseconds",
        y_label="share of rows that took no longer",
        name="search",
        points=tuple(zip(ordered.tolist(), shares.tolist(), strict=True)),
        x_axis="log",
    )


def _size_curves(sizes: Sequence[Size]) -> Iterator[Curve]:
    """Draw what the number of trees does, one line per depth."""
    for depth in sorted({one.depth for one in sizes}):
        same = [one for one in sizes if one.depth == depth]
        for title, y_label, read in _SIZE_QUANTITIES:
            yield Curve(
                title=title,
                x_label="trees",
                y_label=y_label,
                name=f"depth {depth}",
                points=tuple((float(one.trees), read(one)) for one in same),
                # A line through one point cannot be seen.
                style="line" if len(same) > 1 else "dots",
            )


_SIZE_QUANTITIES: tuple[tuple[str, str, Callable[[Size], float]], ...] = (
    (
        "Robustness against trees × depth",
        "share of rows proved robust",
        lambda size: size.tally.robust / max(size.tally.rows, 1),
    ),
    ("Time against trees × depth", "milliseconds per row, median", lambda size: size.median_ms),
)


def _size_sheet(sizes: Sequence[Size]) -> Sheet:
    return Sheet(
        title="Effect of trees × depth",
        heads=(
            *("model", "#trees", "#depth", "#right", "#robust", "#fragile", "#unknown"),
            *("#verified", "#median ms", "#p95 ms"),
        ),
        rows=tuple(
            (
                *(one.name, str(one.trees), str(one.depth), *_shares(one.tally)[2:]),
                *(f"{one.median_ms:.3g}", f"{one.p95_ms:.3g}"),
            )
            for one in sizes
        ),
        caption="The same rows and the same radius for every model.",
    )


def list_sheets(findings: Findings) -> Iterator[Sheet]:
    """List rows by class, sizes, times, inputs that change the answer, and unsolved rows."""
    yield Sheet(
        title="Rows by class",
        heads=("rows", "#count", "#right", "#robust", "#fragile", "#unknown", "#verified"),
        rows=tuple(_shares(group) for group in findings.groups),
        caption="robust: proved; fragile: a counterexample was replayed; verified: right, robust",
    )
    if findings.sizes:
        yield _size_sheet(findings.sizes)
    times = np.quantile(findings.times_ms, QUANTILES)
    yield Sheet(
        title="Time per row",
        heads=("quantile", "#milliseconds"),
        rows=tuple((f"{q:.0%}", f"{t:.3g}") for q, t in zip(QUANTILES, times, strict=True)),
        caption=f"n = {len(findings.times_ms)}",
    )
    changed = tuple(_changed_lines(findings))
    if changed:
        yield Sheet(
            title="Inputs that change the answer",
            heads=("#row", "answer", "becomes", "#features moved", "the largest moves"),
            rows=changed[:MOST_LINES],
            caption=f"{min(len(changed), MOST_LINES)} of {len(changed)}; each was replayed",
        )
    unsolved = [(n, one) for n, one in enumerate(findings.verdicts) if isinstance(one, Unknown)]
    if unsolved:
        yield Sheet(
            title="Unsolved rows",
            heads=("#row", "why"),
            rows=tuple((str(number), one.reason) for number, one in unsolved[:MOST_LINES]),
            caption=f"{min(len(unsolved), MOST_LINES)} of {len(unsolved)}",
        )


def _shares(group: Tally) -> tuple[str, ...]:
    counts = (group.right, group.robust, group.fragile, group.unknown, group.verified)
    shown = ("not measured" if n is None else f"{n / max(group.rows, 1):.1%}" for n in counts)
    return (group.name, str(group.rows), *shown)


def _changed_lines(findings: Findings) -> Iterator[tuple[str, ...]]:
    for number, verdict in findings.counterexamples.items():
        move = np.nan_to_num(verdict.x - verdict.box.center)  # what is missing has not moved
        largest = np.argsort(-np.abs(move), kind="stable")[:3]
        moves = (f"{findings.names[f]} {move[f]:+.3g}" for f in largest if move[f])
        yield (
            str(number),
            f"{verdict.prediction:g}",
            f"{verdict.changed:g}",
            str(int((move != 0).sum())),
            ", ".join(moves),
        )


def explain_sheets(
    findings: Findings, classes: Sequence[int], sets: Sequence[RobustSet | None], found: Importance
) -> tuple[Sheet, ...]:
    """List the robust feature sets of the first rows; of a table, count features per class."""
    sheets = [_set_sheet(findings, classes, sets)]
    if findings.shape is None:
        sheets.append(_importance_sheet(findings, found))
    return tuple(sheets)


def seen_domain(findings: Findings) -> Domain:
    """Let features that are set free range over the values seen: of an image, of any pixel."""
    axis = None if findings.shape else 0
    return Domain(low=findings.rows.min(axis=axis), high=findings.rows.max(axis=axis))


def _set_sheet(
    findings: Findings, classes: Sequence[int], sets: Sequence[RobustSet | None]
) -> Sheet:
    lines = []
    for number, (label, found) in enumerate(zip(classes, sets, strict=True)):
        if found is not None:
            names = [findings.names[f] for f in found.features[:8]]
            more = ["…"] if len(found.features) > len(names) else []
            size = f"{'' if found.is_minimal else '≤ '}{len(found.features)}"
            lines.append((str(number), str(label), size, ", ".join([*names, *more])))
    return Sheet(
        title="Robust feature sets",
        heads=("#row", "class", "#features", "which"),
        rows=tuple(lines[:MOST_LINES]),
        caption=(
            f"{min(len(lines), MOST_LINES)} of {len(lines)} robust rows among the first "
            f"{len(sets)}. While these features stay within eps, all others may take any value "
            "between the least and the largest of the data, and the class stays; none of them can "
            "be left out (subset-minimal abductive explanations)."
        ),
    )


def _importance_sheet(findings: Findings, found: Importance) -> Sheet:
    share, robust = found.share, found.robust
    order = np.argsort(-np.nan_to_num(share).sum(axis=0), kind="stable")
    rows = [
        (findings.names[f], *("not measured" if np.isnan(s) else f"{s:.0%}" for s in share[:, f]))
        for f in order[:MOST_LINES]
    ]
    return Sheet(
        title="Local robust feature importance",
        heads=("feature", *(f"#class {label} (n = {n})" for label, n in enumerate(robust))),
        rows=tuple(rows),
        caption="Share of a class's robust rows whose robust set holds the feature.",
    )


Bytes = NDArray[np.uint8]

MOST_PAIRS = 8
"""Inputs shown with what changes their class; a page is no album."""


def draw_attacks(findings: Findings) -> tuple[Picture, ...]:
    """Draw inputs that can be changed, each beside its counterexample and the difference."""
    if findings.shape is None:
        return ()
    low, spread = _find_range(findings)
    return tuple(
        picture
        for number, verdict in [*findings.counterexamples.items()][:MOST_PAIRS]
        for picture in _draw_pair(number, verdict, findings.shape, low, spread)
    )


def draw_sets(
    findings: Findings, classes: Sequence[int], sets: Sequence[RobustSet | None]
) -> tuple[Picture, ...]:
    """Draw inputs with the pixels of their robust feature sets in red."""
    if findings.shape is None:
        return ()
    held = [(number, one) for number, one in enumerate(sets) if one is not None]
    low, spread = _find_range(findings)
    height, width = findings.shape
    return tuple(
        Picture(
            title="Robust feature sets: the pixels in red hold the class",
            caption=f"row {number}, class {classes[number]}: {len(one.features)} pixels",
            width=width,
            height=height,
            mode="rgb",
            pixels=_encode(_mark((findings.rows[number] - low) / spread, one.features)),
        )
        for number, one in held[:MOST_PAIRS]
    )


def draw_importance(shape: tuple[int, int] | None, found: Importance) -> tuple[Picture, ...]:
    """Draw a heat map per class; classes without robust rows have none."""
    if shape is None:
        return ()
    most = max(float(np.nanmax(found.share, initial=0.0)), 1e-9)
    return tuple(
        Picture(
            title="Local robust feature importance",
            caption=f"class {label}: {robust} of {samples} rows robust",
            width=shape[1],
            height=shape[0],
            mode="rgb",
            pixels=_encode(_heat(share.reshape(shape) / most)),
        )
        for label, (share, robust, samples) in enumerate(
            zip(found.share, found.robust.tolist(), found.samples.tolist(), strict=True)
        )
        if robust
    )


def _draw_pair(
    number: int, verdict: Counterexample, shape: tuple[int, int], low: float, spread: float
) -> Iterator[Picture]:
    title = f"Row {number}: class {verdict.prediction:g} becomes {verdict.changed:g}"
    move = np.nan_to_num(verdict.x - verdict.box.center)
    largest = float(np.abs(move).max()) or 1.0
    changed = int((move != 0).sum())
    images = (
        (f"class {verdict.prediction:g}", _gray((verdict.box.center - low) / spread)),
        (f"class {verdict.changed:g}", _gray((verdict.x - low) / spread)),
        (f"{changed} pixels, by at most {largest:.3g}", _signed(move / largest)),
    )
    for caption, pixels in images:
        yield Picture(
            title=title,
            caption=caption,
            width=shape[1],
            height=shape[0],
            mode="rgb" if pixels.ndim == 2 else "gray",
            pixels=_encode(pixels),
        )


def _find_range(findings: Findings) -> tuple[float, float]:
    values = findings.rows[~np.isnan(findings.rows)]
    if not values.size:
        return 0.0, 1.0
    return float(values.min()), float(np.ptp(values)) or 1.0


def _gray(values: Floats) -> Bytes:
    # A pixel that is missing is black.
    return _to_bytes(255 * np.clip(np.nan_to_num(values), 0, 1))


def _mark(values: Floats, features: Sequence[int]) -> Bytes:
    """Colour an image: gray, and red where a feature is marked, brighter where the image is."""
    colours = np.repeat(_gray(values)[:, None], 3, axis=1)
    marked = colours[list(features)]
    marked[:, 0] = 128 + marked[:, 0] // 2
    marked[:, 1:] //= 2
    colours[list(features)] = marked
    return colours


def _signed(values: Floats) -> Bytes:
    """Colour a change: white for none, red upwards, blue downwards."""
    size = np.abs(np.clip(values, -1, 1))[:, None]
    red, blue = np.array([200, 30, 30]), np.array([30, 60, 200])
    colour = np.where((values > 0)[:, None], red, blue)
    return _to_bytes(255 * (1 - size) + colour * size)


def _heat(values: Floats) -> Bytes:
    """Colour a share: from white through orange to dark red."""
    stops = np.array([[255, 255, 255], [253, 174, 97], [165, 0, 38]], dtype=float)
    at = 2 * np.clip(values, 0, 1).reshape(-1, 1)
    light = stops[0] * (1 - at) + stops[1] * at
    dark = stops[1] * (2 - at) + stops[2] * (at - 1)
    return _to_bytes(np.where(at <= 1, light, dark))


def _to_bytes(values: Floats) -> Bytes:
    return np.asarray(np.rint(values), dtype=np.uint8)


def _encode(pixels: Bytes) -> str:
    return base64.b64encode(np.ascontiguousarray(pixels).tobytes()).decode()
