"""Pictures of what was verified: inputs beside those that change the answer, and heat maps."""

import base64
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from tacit.result import Picture
from tacit.verify.explain import Importance, RobustSet
from tacit.verify.findings import Findings
from tacit.verify.kernels.arrays import Floats
from tacit.verify.verdict import Counterexample

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
