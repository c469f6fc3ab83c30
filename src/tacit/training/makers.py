"""Noise that no party knows: each of several makers adds a part, and every one faces the rest.

Or most of it is sampled on shares (`joint`), and both computing parties add a small part each.
"""

from dataclasses import dataclass
from fractions import Fraction
from math import ceil, sqrt

import torch
from torch import Tensor

from tacit import ring
from tacit.errors import ConfigError
from tacit.training.joint import COARSE, coarse_of, cut_in_steps, draw_coins

MAX_VARIANCE = 2**49
"""The largest variance of a part that `ring.discrete_gaussian` draws exactly, and some room."""
TAIL = 32.0
"""No part of the noise is larger than so many standard deviations: p < 2^-700 for one number."""


@dataclass(frozen=True, kw_only=True)
class NoisePlan:
    """Who makes noise, how much, and how much of it must be unknown to each of them.

    Attributes:
        makers: who draws a part; all follow the protocol.
        wanted: the variance that everyone must face, in units of the lattice, squared.
        each: the variance of one part.
        frac_bits: the lattice is that of 2^-frac_bits.
        l2_sensitivity: of the sum that the noise is added to, as a number.
        shape: of that sum.
        step: what the jointly sampled part is a multiple of; 0 where there is none.

    Guarantee: a party that knows its own part, and no other, faces noise of variance ``wanted`` at
    least; so does whoever knows no part.

    Raises:
        ConfigError: too few makers, or parts that leave somebody with less noise than is wanted.
    """

    makers: tuple[str, ...]
    wanted: Fraction
    each: Fraction
    frac_bits: int
    l2_sensitivity: float
    shape: tuple[int, ...]
    step: int = 0

    def __post_init__(self) -> None:
        if len(set(self.makers)) != len(self.makers) or len(self.makers) < 2:
            raise ConfigError(
                f"noise wants two different makers at least, got {', '.join(self.makers) or 'none'}"
            )
        for maker in self.makers:
            if self.unknown_to(maker) < self.wanted:
                raise ConfigError(
                    f"{maker!r} knows its own part of the noise and would face "
                    f"{float(self.unknown_to(maker) / self.wanted):.2f} of the variance that the "
                    f"claim rests on; of {len(self.makers)} makers each must add "
                    f"1/{len(self.makers) - 1} of it"
                )

    def unknown_to(self, party: str) -> Fraction:
        """Return the variance of the noise that a party does not know."""
        return COARSE * self.step**2 + (len(self.makers) - (party in self.makers)) * self.each

    @property
    def whole(self) -> Fraction:
        """Return the variance of all of the noise: what the weights have in them."""
        return self.unknown_to("nobody that makes noise")

    @property
    def alone(self) -> Fraction:
        """Return the variance that a single maker draws who faces nobody else's."""
        return Fraction(ceil(self.wanted))

    @property
    def bound(self) -> float:
        """Return how large one number of a part can be."""
        return TAIL * sqrt(self.each) * 2.0**-self.frac_bits


def share_noise(
    makers: tuple[str, ...],
    *,
    multiplier: float,
    l2_sensitivity: float,
    frac_bits: int,
    shape: tuple[int, ...],
    is_joint: bool = False,
) -> NoisePlan:
    """Cut noise of ``multiplier`` times the sensitivity into parts of σ²/(makers - 1) each.

    Where ``is_joint``, the two makers sample most of it on shares.
    """
    wanted = Fraction((multiplier * l2_sensitivity * 2**frac_bits) ** 2)
    step, each = 0, Fraction(ceil(wanted / max(1, len(makers) - 1)))
    if is_joint:
        step, each = cut_in_steps(wanted)
    return NoisePlan(
        makers=makers,
        wanted=wanted,
        each=each,
        frac_bits=frac_bits,
        l2_sensitivity=l2_sensitivity,
        shape=shape,
        step=step,
    )


def largest_multiplier(makers: tuple[str, ...], *, l2_sensitivity: float, frac_bits: int) -> float:
    """Return the most noise, in units of the sensitivity, that so many makers can draw exactly."""
    most = MAX_VARIANCE * max(1, len(makers) - 1)
    return sqrt(most) / (l2_sensitivity * 2.0**frac_bits)


def draw_noise(plan: NoisePlan, prg: ring.Prg) -> Tensor:
    """Draw my part, as multiples of the lattice, from a generator of this step's own."""
    words = ring.discrete_gaussian(prg, plan.shape, sigma2=plan.each)
    return words.double() * 2.0**-plan.frac_bits


def draw_whole(plan: NoisePlan) -> Tensor:
    """Draw all of the noise, for a training in the clear: whoever calls this knows it."""
    parts = [draw_noise(plan, ring.Prg.from_os()) for _ in plan.makers]
    if plan.step:
        coarse = coarse_of(draw_coins(plan.shape, ring.Prg.from_os()), step=plan.step)
        parts.append(coarse.double() * 2.0**-plan.frac_bits)
    return torch.stack(parts).sum(dim=0)
