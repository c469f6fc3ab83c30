"""Distance correlation: how much two sets of vectors have to do with each other, in any way.

The quantity is V²(X, Y) / √(V²(X, X)·V²(Y, Y)) of Székely, Rizzo and Bakirov 2007, which is the
DCOR of seed 000, equation 5-9 (elsewhere its square root has the name). It is 0 only for
independent vectors and 1 for vectors that are alike up to rotation, shift and scale.
"""

from collections.abc import Callable, Mapping, Sequence
from math import sqrt

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import gammaln, hyp2f1
from scipy.stats import t

from tacit.errors import DataError
from tacit.result import Curve

Floats = NDArray[np.float64]
Places = NDArray[np.int64]

FEWEST = 4
"""The estimator divides by n - 3."""
_TRIPLE_POINTS = 150
_QUADRUPLES = 20_000
_WIDE = 64
_TERMS = 12
FEATURES = 100
WIDTHS = (1, 2, 4, 8, 16, 32, 64, 100)
_TITLE = "Distance correlation with the input: {} data (figure 5.2 of seed 000)"


def distance_correlation(x: Floats, y: Floats) -> float:
    """Estimate the distance correlation of two sets of vectors, row by row.

    The U-centred estimator of Székely and Rizzo 2014: numerator and denominators have no bias, so
    independent data give values around 0, below it as often as above.

    Cost: O(n²) time and memory in the number of rows.
    """
    a, b = _centred(x), _centred(y)
    if a.shape != b.shape:
        raise DataError(f"wanted as many rows on both sides, got {len(a)} and {len(b)}")
    scale = sqrt(float((a * a).sum()) * float((b * b).sum()))
    return float((a * b).sum()) / scale if scale > 0 else 0.0


def independence_p(correlation: float, rows: int) -> float:
    """Return how probable so large a correlation is between independent vectors of many columns.

    The t-test of Székely and Rizzo 2013, exact in the limit of high dimension.
    """
    freedom = rows * (rows - 3) / 2 - 1
    held = min(max(correlation, -1 + 1e-12), 1 - 1e-12)
    return float(t.sf(sqrt(freedom) * held / sqrt(1 - held**2), freedom))


def predicted_correlation(x: Floats, width: int, *, generator: torch.Generator) -> float:
    """Predict the correlation of x with a Gaussian projection to ``width`` numbers.

    Seed 000, theorem 5.4.1 and equation 5-19, in the form of the proof (the printed statement has
    a and b swapped), with g instead of a² for pairs that have no point in common, which the seed
    takes to be orthogonal.

    Args:
        x: a sample of rows.
        width: how many numbers are left after the projection.
        generator: which pairs and triples of rows are looked at.
    """
    _check(x)
    picked = x[draw_order(len(x), generator)[:_TRIPLE_POINTS]]
    distances, count = _distances(picked), len(picked)
    squared = float((distances**2).sum())
    sums = distances.sum(axis=1)
    # Means over 2, 3 and 4 different points.
    pairs = squared / (count * (count - 1))
    corners = (float((sums**2).sum()) - squared) / (count * (count - 1) * (count - 2))
    apart = float(sums.sum()) ** 2 - 4 * float((sums**2).sum()) + 2 * squared
    apart /= count * (count - 1) * (count - 2) * (count - 3)
    a2 = chi_mean(width) ** 2
    # Everything but the part that depends on angles is exact, so that little is left to chance.
    angles = _apart(picked, width, generator) - 2 * _triples(picked, width)
    below = width * pairs + a2 * (apart - 2 * corners) + angles
    return sqrt(max(a2 * (pairs + apart - 2 * corners), 0.0) / below) if below > 0 else 0.0


def chi_mean(width: int) -> float:
    """Return the mean length of a vector of so many standard normal numbers."""
    return float(sqrt(2) * np.exp(gammaln((width + 1) / 2) - gammaln(width / 2)))


def mean_product(cosine: Floats, width: int) -> Floats:
    """Return g: the mean of |Ax|·|Ay| for unit x and y at this angle, A standard normal."""
    squared: Floats = np.clip(cosine, -1, 1) ** 2
    if width <= _WIDE:
        return np.asarray(chi_mean(width) ** 2 * hyp2f1(-0.5, -0.5, width / 2, squared))
    # The library's function overflows there, and few terms of its series are enough.
    term, total = np.ones_like(squared), np.ones_like(squared)
    for k in range(_TERMS):
        term = term * squared * (k - 0.5) ** 2 / ((width / 2 + k) * (k + 1))
        total = total + term
    return chi_mean(width) ** 2 * total


def _triples(x: Floats, width: int) -> float:
    """Average (g - a²)·|x - x'|·|x - x''| over three different points."""
    count, total, a2 = len(x), 0.0, chi_mean(width) ** 2
    for at in range(count):
        rest = np.delete(x, at, axis=0) - x[at]
        lengths = np.linalg.norm(rest, axis=1)
        products = np.outer(lengths, lengths)
        cosine = rest @ rest.T / np.maximum(products, 1e-300)
        weighed = (mean_product(cosine, width) - a2) * products
        np.fill_diagonal(weighed, 0.0)
        total += float(weighed.sum())
    return total / (count * (count - 1) * (count - 2))


def _apart(x: Floats, width: int, generator: torch.Generator) -> float:
    """Average (g - a²)·|x - x'|·|x'' - x'''| over four different points."""
    picks = places(len(x), (_QUADRUPLES, 4), generator)
    ordered = np.sort(picks, axis=1)
    picks = picks[(ordered[:, 1:] != ordered[:, :-1]).all(axis=1)]
    left, right = x[picks[:, 0]] - x[picks[:, 1]], x[picks[:, 2]] - x[picks[:, 3]]
    products = np.linalg.norm(left, axis=1) * np.linalg.norm(right, axis=1)
    cosine = (left * right).sum(axis=1) / np.maximum(products, 1e-300)
    return float(((mean_product(cosine, width) - chi_mean(width) ** 2) * products).mean())


def _centred(x: Floats) -> Floats:
    """Return U-centred distances: every row and column adds up to 0, the diagonal is 0."""
    distances = _distances(x)
    count = len(distances)
    sums = distances.sum(axis=1)
    centred: Floats = distances - (sums[:, None] + sums[None, :]) / (count - 2)
    centred += sums.sum() / ((count - 1) * (count - 2))
    np.fill_diagonal(centred, 0.0)
    return centred


def _distances(x: Floats) -> Floats:
    _check(x)
    squares = (x * x).sum(axis=1)
    found: Floats = np.sqrt(np.maximum(squares[:, None] + squares[None, :] - 2 * x @ x.T, 0.0))
    np.fill_diagonal(found, 0.0)
    return found


def _check(x: Floats) -> None:
    if x.ndim != 2 or len(x) < FEWEST:
        raise DataError(f"wanted at least {FEWEST} rows of numbers, got shape {x.shape}")


def normal(shape: tuple[int, ...], generator: torch.Generator) -> Floats:
    """Draw standard normal numbers."""
    found: Floats = torch.empty(shape, dtype=torch.float64).normal_(generator=generator).numpy()
    return found


def uniform(shape: tuple[int, ...], generator: torch.Generator) -> Floats:
    """Draw numbers between 0 and 1."""
    found: Floats = torch.empty(shape, dtype=torch.float64).uniform_(generator=generator).numpy()
    return found


def places(count: int, shape: tuple[int, ...], generator: torch.Generator) -> Places:
    """Draw whole numbers below ``count``."""
    found: Places = np.minimum(uniform(shape, generator) * count, count - 1).astype(np.int64)
    return found


def draw_order(count: int, generator: torch.Generator) -> Places:
    """Draw an order of so many things."""
    found: Places = np.argsort(uniform((count,), generator), kind="stable")
    return found


def permute_rows(x: Floats, generator: torch.Generator) -> Floats:
    """Put the numbers of every row into an order of its own."""
    found: Floats = np.take_along_axis(x, np.argsort(uniform(x.shape, generator), axis=1), axis=1)
    return found


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
