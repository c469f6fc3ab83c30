"""Compiled: clocks that a kernel can read without going back to Python."""

import time

import numpy as np

from tacit.verify.kernels.arrays import Longs
from tacit.verify.kernels.jit import bare, compiled, external_clock

PROCESSOR = time.CLOCK_THREAD_CPUTIME_ID


@compiled
def make_hand() -> Longs:
    """Make the two words that a clock is read into."""
    return np.zeros(2, np.int64)


@bare
def read_clock(which: int, hand: Longs) -> float:
    """Read a clock, in seconds."""
    external_clock(which, hand.ctypes)
    return hand[0] + 1e-9 * hand[1]  # type: ignore[no-any-return]
