"""Figure 5.2 of seed 000: what projection leaves of four kinds of data, and what permutation."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch

from tacit.audit.permutation.chance import Floats, normal, permute_rows, uniform
from tacit.audit.permutation.distance import distance_correlation, predicted_correlation
from tacit.result import Curve

FEATURES = 100
WIDTHS = (1, 2, 4, 8, 16, 32, 64, 100)
_TITLE = "Distance correlation with the input: {} data (figure 5.2 of seed 000)"


def _normal(rows: int, generator: torch.Generator) -> Floats:
    return normal((rows, FEATURES), generator)


def _uniform(rows: int, generator: torch.Generator) -> Floats:
    return uniform((rows, FEATURES), generator)


def _sparse(rows: int, generator: torch.Generator) -> Floats:
    return (uniform((rows, FEATURES), generator) < 0.1).astype(np.float64)


def _subspace(rows: int, generator: torch.Generator) -> Floats:
    hidden, inner = normal((rows, 20), generator), 20
    base = normal((inner, FEATURES), generator) / inner
    noise: Floats = normal((rows, FEATURES), generator) * np.sqrt(0.1)
    return hidden @ base + noise


DISTRIBUTIONS: Mapping[str, Callable[[int, torch.Generator], Floats]] = {
    "normal": _normal,
    "uniform": _uniform,
    "sparse": _sparse,
    "subspace": _subspace,
}
"""Rows of 100 features, as section 5.4.4 of seed 000 draws them."""


def simulate(
    name: str, *, rows: int, generator: torch.Generator, widths: Sequence[int] = WIDTHS
) -> tuple[Curve, ...]:
    """Return the curves of one distribution: projected, predicted, and projected then permuted."""
    x = DISTRIBUTIONS[name](rows, generator)
    lines: dict[str, list[tuple[float, float]]] = {
        "projected": [],
        "projected, predicted (5-19)": [],
        "projected and permuted": [],
    }
    for width in widths:
        y = x @ normal((FEATURES, width), generator)
        values = (
            distance_correlation(x, y),
            predicted_correlation(x, width, generator=generator),
            distance_correlation(x, permute_rows(y, generator)),
        )
        for line, value in zip(lines.values(), values, strict=True):
            line.append((float(width), value))
    return tuple(
        Curve(
            title=_TITLE.format(name),
            x_label="numbers after the projection",
            y_label="distance correlation",
            name=label,
            points=tuple(points),
            x_axis="log",
        )
        for label, points in lines.items()
    )
