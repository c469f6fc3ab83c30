"""Float-valued secret shares, and how repeated inputs undo them.

    python floating_masks.py

PermLLM (document 000, section 6.3.5.2) offers secret sharing of real numbers, for accelerators
without fast integers: x = x0 + x1 with x0 from a normal distribution λ times as wide as x, and
Beaver triples of the same kind (equation 6-11). Products come out right. But a number under noise
is not independent of the number, so there is no guarantee, and section 6.4.2 says how it fails:
the error of an average over n looks is λ√2 / √n (equation 6-13). Prints the errors of a product;
then what the owner of a model reads of a user's words, and what the user reads of the model's
weights, after 1, 100 and 10,000 repetitions at λ = 100; then what one look tells where masked
numbers are not rounded to a public grid. `tacit.llm` masks words of a ring instead: one look or
many, they are uniform.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

RATIO = 100.0
"""λ: how much wider noise is than what it covers; the document's choice."""
LOOKS = (1, 100, 10_000)
WORDS, VOCAB = 32, 40
ROWS, WIDTH = 512, 8
GRID_BITS = 50
"""Bits of the grid below the spread of the noise: what fits a double with a mask of 8 spreads."""

Array = NDArray[np.float64]


class Triple(NamedTuple):
    """Shares of u, v and w = u·v, each a pair: what a dealer gives to both parties."""

    u: tuple[Array, Array]
    v: tuple[Array, Array]
    w: tuple[Array, Array]


def rms(x: Array) -> float:
    """Return the size that noise is measured by."""
    return float(np.sqrt(np.mean(x**2)))


def deal(rng: np.random.Generator, x: Array, y: Array, ratio: float) -> Triple:
    """Deal a triple for X·Y (equation 6-11): shares of u are λ times as wide as X, and so on."""
    u0, u1 = (rng.normal(0, ratio * rms(x), x.shape) for _ in range(2))
    v0, v1 = (rng.normal(0, ratio * rms(y), y.shape) for _ in range(2))
    w = (u0 + u1) @ (v0 + v1)
    w0 = rng.normal(0, ratio * rms(x @ y), w.shape)
    return Triple((u0, u1), (v0, v1), (w0, w - w0))


def share(rng: np.random.Generator, x: Array, ratio: float) -> tuple[Array, Array]:
    """Split numbers: the first share is noise, the second the numbers less the noise."""
    noise = rng.normal(0, ratio * rms(x), x.shape)
    return noise, x - noise


def multiply(
    x: tuple[Array, Array], y: tuple[Array, Array], t: Triple
) -> tuple[tuple[Array, Array], Array]:
    """Multiply shared matrices; return shares of X·Y, and X − U, which both parties see."""
    d = (x[0] - t.u[0]) + (x[1] - t.u[1])
    e = (y[0] - t.v[0]) + (y[1] - t.v[1])
    z0 = d @ e + d @ t.v[0] + t.u[0] @ e + t.w[0]
    z1 = d @ t.v[1] + t.u[1] @ e + t.w[1]
    return (z0, z1), d


def look(rng: np.random.Generator, x: Array, ratio: float, times: int) -> Array:
    """Average what a party sees of X in so many products, each under a fresh triple."""
    y, total = np.eye(x.shape[1]), np.zeros_like(x)
    shared_y = share(rng, y, ratio)
    for _ in range(times):
        total += multiply(share(rng, x, ratio), shared_y, deal(rng, x, y, ratio))[1]
    return total / times


def main() -> None:
    """Multiply once, then attack."""
    rng = np.random.default_rng(7)
    x, y = rng.normal(size=(WORDS, WIDTH)), rng.normal(size=(WIDTH, WIDTH))
    for ratio in (1.0, RATIO, 1e6):
        (z0, z1), _ = multiply(share(rng, x, ratio), share(rng, y, ratio), deal(rng, x, y, ratio))
        print(f"product.{ratio:g} off by {rms(z0 + z1 - x @ y) / rms(x @ y):.0e} of its size")

    # The owner: a user sends one text again and again, one-hot words under noise.
    text = rng.integers(0, VOCAB, WORDS)
    hot = np.eye(VOCAB)[text]
    # The user: it repeats rows X that it knows, and sees Z = X·W masked where a layer reads it.
    weights, rows = rng.normal(size=(WIDTH, WIDTH)), rng.normal(size=(ROWS, WIDTH))
    hidden = rows @ weights
    for looks in LOOKS:
        seen = look(rng, hot, RATIO, looks)
        print(f"text.{looks} {int((seen.argmax(1) == text).sum())} of {WORDS} words")
        print(f"error.{looks} {rms(seen - hot) / rms(hot):.3g} of its size")
        seen = look(rng, hidden, RATIO, looks)
        solved = np.linalg.lstsq(rows, seen, rcond=None)[0]
        print(f"weights.{looks} off by {rms(solved - weights) / rms(weights):.3g} of their size")

    # One look is enough where a sum keeps the bits of a double: 1 − D with |D| < 2 has none below
    # 2^-53, so that whatever has some is a masked 0. On a public grid nothing has any.
    noise, step = rng.normal(size=hot.shape), 2.0**-GRID_BITS
    for name, masked in (("bits", hot - noise), ("grid", hot - (noise / step).round() * step)):
        is_zero = (masked * 2.0**53) % 1 != 0
        right, wrong = (int((is_zero & (hot == value)).sum()) for value in (0, 1))
        print(f"{name}.told {right} of {int((hot == 0).sum())} zeros, {wrong} wrong")


if __name__ == "__main__":
    main()
