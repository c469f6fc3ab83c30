"""Noise by contribution on the attributes of single rows, and what it costs to leave some alone.

Every row of a table is released under Laplace noise whose budget follows the contributions of its
attributes: what matters gets less noise. A variant leaves attributes of small contribution as they
are with probability 1 − p. Prints the share of rows that an attacker who knows the table finds in
what was released: under noise on all attributes at most 5 per cent, with p = 0.5 more than half,
though ε = 8 is paid both times. The variant has no ε: a raw value is shown with some probability.
"""

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

EPSILON, ROWS, LOW, KEPT = 8.0, 200, 1.0, 0.5

Floats = NDArray[np.float64]


def main() -> None:
    """Release rows twice, and look for them."""
    generator = np.random.default_rng(0)
    x, y = load_digits(return_X_y=True)
    x = x / 16
    shares = contributions(x, y)
    for p in (1.0, KEPT):
        released = np.stack([perturb(row, shares, p, generator) for row in x[:ROWS]])
        found = np.mean([find(row, x) == at for at, row in enumerate(released)])
        print(f"found.p={p:g} {found:.3f}")


def contributions(x: Floats, y: NDArray[np.int64]) -> Floats:
    """Share the score of each row's class among its attributes, on average over public rows."""
    model = LogisticRegression(max_iter=300).fit(x, y)
    found = np.abs(x * model.coef_[y]).mean(0)
    shares = np.maximum(found / found.sum(), 1e-3 / len(found))
    return np.asarray(shares / shares.sum())


def perturb(row: Floats, shares: Floats, p: float, generator: np.random.Generator) -> Floats:
    """Add noise of scale 1 / (share · ε) to attributes in [0, 1]; low shares only now and then."""
    noisy = row + generator.laplace(scale=1 / (shares * EPSILON))
    is_low = shares < LOW / len(shares)
    return np.where(is_low & (generator.random(len(row)) >= p), row, noisy)


def find(released: Floats, table: Floats) -> int:
    """Say which row of a table was released: most values alike to the bit, then the nearest."""
    alike = (released == table).sum(1)
    far = np.abs(released - table).sum(1)
    return int(np.lexsort((far, -alike))[0])


if __name__ == "__main__":
    main()
