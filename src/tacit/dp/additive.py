"""Mechanisms that add noise: Gaussian and Laplace on a grid, discrete Gaussian, binomial.

Each returns the noisy value and its event. Floating-point noise has gaps that betray what it was
added to (Mironov 2012); here values are rounded to a grid first and noise is a multiple of the
grid, and the sensitivity in the event includes the rounding. Last, how a real vector becomes
integers without losing its norm bound, for noise that is discrete.
"""

import math
from fractions import Fraction
from typing import Literal, Protocol

import torch
from torch import Tensor

from tacit.dp.bounded import Bounded
from tacit.dp.check import at_least_one, positive
from tacit.dp.event import Binomial, DiscreteGaussian, DiscreteLaplace, Gaussian, Relation
from tacit.errors import DataError, RangeError
from tacit.ring import Prg, discrete_gaussian, discrete_laplace, popcount

_GAUSSIAN_CELLS = 2.0**24  # cells of the grid per standard deviation
_EXACT_CELLS = 2.0**23  # the same for exact noise: its sampler ends at 2^25
_LAPLACE_CELLS = 2.0**30  # per scale
_MOST_CELLS = 2.0**52
_CHUNK = 1 << 15  # entries at a time: what is made on the way stays in the processor's cache
_COINS = 1 << 18
_BETA = math.exp(-0.5)  # the chance that one rounding is drawn again (Kairouz et al. 2021)


def add_gaussian(
    total: Tensor, *, sigma: float, l2_sensitivity: float, relation: Relation, prg: Prg
) -> tuple[Tensor, Gaussian]:
    """Add Gaussian noise of standard deviation `sigma` to a real vector.

    Guarantee: the rounding of a continuous Gaussian mechanism whose sensitivity is in the event, up
    to a distance of about 1e-9 per entry: the normal numbers come from double precision and end at
    8.5 standard deviations. Where this matters, use `add_discrete_gaussian`.
    Cost: 16 bytes of the stream per entry; 0 rounds.
    """
    positive("sigma", sigma)
    positive("l2_sensitivity", l2_sensitivity)
    cell = _cell(sigma / _GAUSSIAN_CELLS)
    noisy = torch.empty(total.numel(), dtype=torch.float64)
    values = torch.split(total.detach().reshape(-1), _CHUNK)
    for value, place in zip(values, torch.split(noisy, _CHUNK), strict=True):
        noise = torch.round(normal(prg, len(value)) * (sigma / cell))
        torch.mul(_to_grid(value, cell) + noise, cell, out=place)
    noisy = noisy.view(total.shape)
    grown = grid_sensitivity(total.numel(), sigma=sigma, l2_sensitivity=l2_sensitivity)
    return noisy, Gaussian(sigma=sigma, l2_sensitivity=grown, relation=relation)


def grid_sensitivity(dimension: int, *, sigma: float, l2_sensitivity: float) -> float:
    """Return the sensitivity after `add_gaussian` has rounded a vector to the noise's grid."""
    return l2_sensitivity + _cell(sigma / _GAUSSIAN_CELLS) * math.sqrt(dimension)


def add_exact_gaussian(
    total: Tensor, *, sigma: float, l2_sensitivity: float, relation: Relation, prg: Prg
) -> tuple[Tensor, DiscreteGaussian]:
    """Round a real vector to a grid and add discrete Gaussian noise: `add_gaussian`, but exact.

    Guarantee: exactly as the event says, if the stream is uniform. A vector's event is accounted
    for by Rényi divergences alone: expect a somewhat larger ε than that of `add_gaussian`.
    Cost: 110 to 180 bytes of the stream per entry; 0 rounds.
    """
    event = exact_gaussian_event(
        total.numel(), sigma=sigma, l2_sensitivity=l2_sensitivity, relation=relation
    )
    cell = _cell(sigma / _EXACT_CELLS)
    noise = discrete_gaussian(prg, tuple(total.shape), sigma2=event.sigma2)
    return (_to_grid(total, cell) + noise) * cell, event


def exact_gaussian_event(
    dimension: int, *, sigma: float, l2_sensitivity: float, relation: Relation
) -> DiscreteGaussian:
    """Say what `add_exact_gaussian` will do to a vector: rounding counts as sensitivity."""
    cell = _cell(positive("sigma", sigma) / _EXACT_CELLS)
    return DiscreteGaussian(
        sigma2=Fraction(math.ceil((sigma / cell) ** 2)),
        l2_sensitivity=positive("l2_sensitivity", l2_sensitivity) / cell + math.sqrt(dimension),
        dimension=dimension,
        relation=relation,
    )


class AddGaussian(Protocol):
    """A mechanism that adds Gaussian noise to a real vector."""

    def __call__(
        self, total: Tensor, *, sigma: float, l2_sensitivity: float, relation: Relation, prg: Prg
    ) -> tuple[Tensor, Gaussian | DiscreteGaussian]:
        """Return the noisy vector and its event."""
        ...


GaussianKind = Literal["continuous", "discrete"]
GAUSSIANS: dict[GaussianKind, AddGaussian] = {
    "continuous": add_gaussian,
    "discrete": add_exact_gaussian,
}
"""The two ways to the same noise: in floating point, with the tighter ε, or exact."""


def add_laplace(
    total: Tensor, *, scale: float, l1_sensitivity: float, relation: Relation, prg: Prg
) -> tuple[Tensor, DiscreteLaplace]:
    """Add discrete Laplace noise on a grid of about scale / 2^30 to a real vector.

    Guarantee: pure differential privacy, exactly as the event says, if the stream is uniform.
    Cost: about 90 bytes of the stream per entry; 0 rounds.
    """
    event = laplace_event(
        total.numel(), scale=scale, l1_sensitivity=l1_sensitivity, relation=relation
    )
    cell = _cell(scale / _LAPLACE_CELLS)
    noise = discrete_laplace(prg, total.numel(), scale=event.scale).view(total.shape)
    return (_to_grid(total, cell) + noise) * cell, event


def laplace_event(
    dimension: int, *, scale: float, l1_sensitivity: float, relation: Relation
) -> DiscreteLaplace:
    """Say what `add_laplace` will do to a vector: rounding to its grid counts as sensitivity."""
    cell = _cell(positive("scale", scale) / _LAPLACE_CELLS)
    return DiscreteLaplace(
        scale=Fraction(math.ceil(scale / cell)),
        l1_sensitivity=math.ceil(positive("l1_sensitivity", l1_sensitivity) / cell) + dimension,
        dimension=dimension,
        relation=relation,
    )


def add_discrete_gaussian(
    total: Tensor, *, sigma2: Fraction, l2_sensitivity: float, relation: Relation, prg: Prg
) -> tuple[Tensor, DiscreteGaussian]:
    """Add discrete Gaussian noise to a vector of integers.

    A client that adds its part of a distributed sum keeps the value and drops this event, which
    speaks of one part alone; the sum's event is `DiscreteGaussian(parts=honest clients)`.

    Guarantee: exactly as the event says, if the stream is uniform.
    Cost: 110 to 180 bytes of the stream per entry; 0 rounds.
    """
    _refuse_floats(total)
    event = DiscreteGaussian(
        sigma2=sigma2,
        l2_sensitivity=l2_sensitivity,
        dimension=total.numel(),
        relation=relation,
    )
    return total + discrete_gaussian(prg, tuple(total.shape), sigma2=sigma2), event


def add_binomial(
    total: Tensor,
    *,
    trials: int,
    sensitivities: tuple[float, float, float],
    relation: Relation,
    prg: Prg,
) -> tuple[Tensor, Binomial]:
    """Add Bin(trials, 1/2) − trials / 2 to a vector of integers (cpSGD), for even `trials`.

    Args:
        total: integers.
        trials: fair coins per entry; clients add up, each bringing its share of the coins.
        sensitivities: L1, L2 and L∞.
        relation: of the sensitivities.
        prg: the source of the coins.

    Guarantee: exactly as the event says, if the stream is uniform.
    Cost: trials / 8 bytes of the stream per entry, rounded up to words; 0 rounds.
    """
    _refuse_floats(total)
    if at_least_one("trials", trials) % 2:
        raise RangeError(f"trials must be even for the noise to be centred on 0, got {trials}")
    event = Binomial(
        trials=trials,
        dimension=total.numel(),
        l1_sensitivity=sensitivities[0],
        l2_sensitivity=sensitivities[1],
        linf_sensitivity=sensitivities[2],
        relation=relation,
    )
    noise = _heads(prg, total.numel(), trials) - trials // 2
    return total + noise.view(total.shape), event


def normal(prg: Prg, count: int) -> Tensor:
    """Draw standard normal numbers in float64, by Box and Muller."""
    drawn = torch.empty(count, dtype=torch.float64)
    for place in torch.split(drawn, _CHUNK):
        pairs = -(-len(place) // 2)
        uniform = (prg.words((2, pairs)) & (2**53 - 1)).to(torch.float64)
        radius = torch.sqrt(-2 * torch.log((uniform[0] + 0.5) * 2.0**-53))
        angle = uniform[1] * (2 * math.pi * 2.0**-53)
        place[:pairs] = radius * torch.cos(angle)
        place[pairs:] = (radius * torch.sin(angle))[: len(place) - pairs]
    return drawn


def _cell(wanted: float) -> float:
    """Round a grid down to a power of two, by which multiplying is exact."""
    return 2.0 ** math.floor(math.log2(wanted))


def _to_grid(total: Tensor, cell: float) -> Tensor:
    cells = torch.round(total.detach().to(torch.float64) / cell)
    if not bool((cells.abs() < _MOST_CELLS / 2).all()):  # False for NaN as well
        raise DataError(
            f"a value of shape {tuple(total.shape)} is NaN, infinite or more than 2^51 cells of "
            f"the noise's grid ({cell:.3g}) large; clip it first"
        )
    return cells


def _refuse_floats(total: Tensor) -> None:
    if total.dtype != torch.int64:
        raise DataError(f"discrete noise is added to int64 integers, got {total.dtype}")


def _heads(prg: Prg, count: int, trials: int) -> Tensor:
    """Count the heads of `trials` fair coins, `count` times."""
    words, rest = divmod(trials, 64)
    heads = torch.zeros(count, dtype=torch.int64)
    rows = max(1, _COINS // (words + 1))
    for at in range(0, count, rows):
        size = min(rows, count - at)
        coins = prg.words((size, words + (rest > 0)))
        if rest:
            coins[:, -1] &= (1 << rest) - 1
        heads[at : at + size] = popcount(coins).to(torch.int64).sum(dim=1)
    return heads


def rounded_bound(l2_bound: float, *, scale: float, dimension: int) -> float:
    """Return the L2 bound of `round_randomly`'s result: Kairouz, Liu and Steinke 2021, eq. 1."""
    long, grown = scale * l2_bound, math.sqrt(dimension)
    luck = math.sqrt(2 * math.log(1 / _BETA))
    likely = long**2 + dimension / 4 + luck * (long + grown / 2)
    return min(long + grown, math.sqrt(likely))


def round_randomly(update: Bounded, *, scale: float, prg: Prg) -> tuple[Tensor, float]:
    """Multiply by `scale` and round each entry up or down at random; return integers and bound.

    A rounding whose norm exceeds `rounded_bound` is drawn again, so that the bound holds always;
    the price is a bias that is negligible for fine scales.

    Guarantee: the norm of the integers is at most the bound.
    Cost: 8 bytes of the stream per entry and try; fewer than 3 tries on average.
    """
    positive("scale", scale)
    scaled = update.value * scale
    whole = torch.floor(scaled)
    chance = torch.round((scaled - whole) * 2.0**53).to(torch.int64)
    bound = rounded_bound(update.l2_bound, scale=scale, dimension=scaled.numel())
    while True:
        up = prg.below(2**53, tuple(scaled.shape)) < chance
        rounded = whole.to(torch.int64) + up.to(torch.int64)
        if float(torch.linalg.vector_norm(rounded.to(torch.float64))) <= bound:
            return rounded, bound
