"""From real vectors to integers without losing the norm bound, for discrete noise."""

import math

import torch
from torch import Tensor

from tacit.dp.bounded import Bounded
from tacit.dp.check import positive
from tacit.ring import Prg

_BETA = math.exp(-0.5)  # the chance that one rounding is drawn again (Kairouz et al. 2021)


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
