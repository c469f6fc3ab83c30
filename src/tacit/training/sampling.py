"""Rows of a step that the two computing parties draw: nobody else learns which ones they are.

Every row is in a step with the same probability, by a coin of its own (Poisson sampling), from a
generator that these two share. A step has room for more rows than are drawn; what is left is filled
with rows that count for nothing, so that not even how many were drawn is known to others.
"""

from math import log

import numpy as np

from tacit.ring import Prg

KEPT = "rows that were drawn"
"""The name of zeros and ones that say which rows of a step count."""
OVERFLOW = 2.0**-40
"""How likely, at most, more rows are drawn than a step has room for: it is taken out of δ."""
_COIN_BITS = 53


def rate_of(batch: int, rows: int) -> float:
    """Return the probability with which a row is in a step: exact, as it is drawn."""
    return float(_limit(batch, rows) / 2.0**_COIN_BITS)


def room_for(batch: int, rows: int) -> int:
    """Return how many rows a step has room for, if ``batch`` of ``rows`` are drawn on average.

    Guarantee: more are drawn with a probability of `OVERFLOW` at most (Chernoff).
    """
    rate, most = rate_of(batch, rows), batch
    while most < rows and rows * _divergence((most + 1) / rows, rate) < -log(OVERFLOW):
        most += 1
    return most


def draw_rows(prg: Prg, batch: int, rows: int) -> np.ndarray:
    """Draw which of the rows are in a step; of more than there is room for, the first are."""
    coins = prg.words((rows,)) & ((1 << _COIN_BITS) - 1)
    found: np.ndarray = np.flatnonzero((coins < _limit(batch, rows)).numpy())
    return found[: room_for(batch, rows)]


def _limit(batch: int, rows: int) -> int:
    return (batch << _COIN_BITS) // rows


def _divergence(share: float, rate: float) -> float:
    """Return the Kullback-Leibler divergence of two coins."""
    found = share * log(share / rate)
    return found + (1 - share) * log((1 - share) / (1 - rate)) if share < 1 else found
