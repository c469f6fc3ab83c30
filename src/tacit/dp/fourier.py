"""Our own numerical accountant: privacy losses on a grid, convolved by Fourier transform.

Independent of any library. Losses are discretised by connecting the dots of the privacy curve
(Doroshenko et al. 2022), which bounds it from above, and composed by raising characteristic
functions to powers. What could wrap around the end of the grid is bounded by Chernoff and counted
as lost, so the result is an upper bound up to floating point.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property

import numpy as np
import numpy.typing as npt

from tacit.dp.check import target_delta
from tacit.dp.curve import Divergence, PrivacyCurve, privacy_curve
from tacit.dp.event import Step
from tacit.errors import ConfigError

Floats = npt.NDArray[np.float64]

INTERVAL = 1e-4
_LOST = 1e-18  # probability beyond which a single loss counts as unbounded
_MOST_POINTS = 1 << 24
_FURTHEST = 256.0  # losses beyond it count as unbounded


@dataclass(frozen=True)
class Losses:
    """A distribution of privacy losses: masses at `grid` · interval, the rest at infinity."""

    grid: npt.NDArray[np.int64]
    masses: Floats
    infinite: float
    interval: float

    @cached_property
    def _logs(self) -> tuple[Floats, Floats]:
        """The losses that have a mass, and its logarithm."""
        some = self.masses > 0
        losses: Floats = self.interval * self.grid[some].astype(np.float64)
        return losses, np.log(self.masses[some])

    def log_moment(self, order: float) -> float:
        """Return log E[exp(order · loss)] of the finite part."""
        losses, logs = self._logs
        exponents = order * losses
        exponents += logs
        most = float(exponents.max())
        exponents -= most
        return most + math.log(float(np.exp(exponents, out=exponents).sum()))


def fourier_epsilon(steps: Mapping[Step, int], delta: float) -> float:
    """Compute ε of a composition from the curves of its steps.

    Guarantee: an upper bound, up to rounding errors of about 1e-13 in δ.
    Cost: one Fourier transform per kind of step and direction; a second or less.
    """
    target_delta(delta)
    curves = [(_curve_of(step), count) for step, count in steps.items()]
    one_way = _composed_epsilon(curves, delta)
    if all(curve.forward is curve.backward for curve, _ in curves):
        return one_way
    return max(one_way, _composed_epsilon([(c.mirrored(), n) for c, n in curves], delta))


def discretise(curve: PrivacyCurve, *, interval: float) -> Losses:
    """Put the losses of a curve's P on a grid, so that δ is right on it and above in between."""
    stride, up = grid_of(curve, interval=interval)
    half = len(up) - 1
    q_above = _q_above(curve, up)
    q = -np.diff(q_above, prepend=1.0, append=0.0)
    p = np.maximum(q * np.exp(np.concatenate([-up[:0:-1], up])), 0)
    infinite = float(curve.forward(up[-1:])[0])
    grid = stride * np.arange(-half, half + 1)
    # The lowest point takes what lies below the grid.
    p[0] = max(p[0], 1 - infinite - float(p[1:].sum()))
    return Losses(grid, p, infinite, interval)


def _curve_of(step: Step) -> PrivacyCurve:
    curve = privacy_curve(step)
    if curve is None:
        raise ConfigError(f"{type(step).__name__} has no privacy curve that composes; use rdp")
    return curve


def _q_above(curve: PrivacyCurve, up: Floats) -> Floats:
    """Return Q's mass above each cell of the grid −up … up, from differences of the curve.

    Between grid points δ is linear in e^ε, with Q's mass above as its slope. Below zero the slope
    is taken from the other direction's curve, where it is one minus a small number.
    """
    ahead, behind = curve.forward(up), curve.backward(up)
    gaps = np.diff(np.exp(up))
    right = -np.diff(ahead) / gaps
    down = np.exp(-up)
    left = 1 - np.diff(down * behind) / np.diff(down)
    return np.concatenate([left[::-1], right])


def grid_of(curve: PrivacyCurve, *, interval: float) -> tuple[int, Floats]:
    """Return the ε ≥ 0 at which a curve is worth evaluating, and their step in intervals."""
    reach = max(_reach(curve.forward), _reach(curve.backward), interval)
    stride = max(1, math.ceil(2 * reach / interval / curve.points))
    half = math.ceil(reach / (interval * stride))
    return stride, interval * stride * np.arange(half + 1).astype(np.float64)


def _reach(divergence: Divergence) -> float:
    """Return an ε beyond which a divergence falls no more, or that is as far as we look."""
    high = 1.0
    least = float(divergence(np.array([_FURTHEST]))[0]) + _LOST
    while float(divergence(np.array([high]))[0]) > least and high < _FURTHEST:
        high *= 2
    low = 0.0
    for _ in range(20):
        middle = (low + high) / 2
        is_far = float(divergence(np.array([middle]))[0]) <= least
        low, high = (low, middle) if is_far else (middle, high)
    return high


def _composed_epsilon(curves: list[tuple[PrivacyCurve, int]], delta: float) -> float:
    from scipy import fft  # heavy: where it is used

    parts = [(discretise(curve, interval=INTERVAL), count) for curve, count in curves]
    if any(part.infinite > delta for part, _ in parts):
        return math.inf
    infinite = -math.expm1(sum(n * math.log1p(-part.infinite) for part, n in parts))
    lost = 1e-6 * delta
    top = _edge(parts, lost, 1)
    bottom = _edge(parts, lost, -1)
    size = fft.next_fast_len(int(top + bottom) + 2, real=True)
    if size > _MOST_POINTS:
        return math.inf
    spectrum = np.ones(size // 2 + 1, dtype=complex)
    for part, count in parts:
        wrapped = np.bincount(part.grid % size, weights=part.masses, minlength=size)
        spectrum *= fft.rfft(wrapped) ** count
    masses = np.roll(fft.irfft(spectrum, size), bottom)
    losses = INTERVAL * (np.arange(size) - bottom)
    return _invert(losses, np.maximum(masses, 0), infinite + lost, delta)


def _edge(parts: list[tuple[Losses, int]], lost: float, sign: int) -> int:
    """Return how many cells from zero the sum stays on one side, except with probability `lost`."""

    @cache
    def bound(k: int) -> float:
        order = 2.0**k
        return (
            sum(n * part.log_moment(sign * order) for part, n in parts) - math.log(lost)
        ) / order

    # Log moments are convex, so the bound falls and then rises with the order.
    low, high = -6, 11
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if bound(middle) <= bound(middle + 1) else (middle + 1, high)
    furthest = sum(n * max(abs(int(part.grid[0])), int(part.grid[-1])) for part, n in parts)
    return min(furthest, math.ceil(max(bound(low), INTERVAL) / INTERVAL))


def _invert(losses: Floats, masses: Floats, infinite: float, delta: float) -> float:
    """Return the smallest ε ≥ 0 with E[(1 − e^(ε − loss))⁺] + infinite ≤ δ."""
    if infinite > delta:
        return math.inf
    positive = losses > 0
    losses, masses = losses[positive], masses[positive]
    p_above = np.cumsum(masses[::-1])[::-1]
    q_above = np.cumsum((masses * np.exp(-losses))[::-1])[::-1]
    # On the cell that ends at losses[i], δ(ε) = p_above[i] − e^ε q_above[i] + infinite.
    deltas = p_above - np.exp(losses) * q_above + infinite
    at = int(np.argmax(deltas <= delta))
    gap = float(p_above[at]) + infinite - delta
    return max(0.0, math.log(gap / float(q_above[at]))) if gap > 0 else 0.0
