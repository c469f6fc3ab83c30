"""Clipping: an update whose norm is bounded is a type of its own."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction

import torch
from torch import Tensor

from tacit.dp.check import positive
from tacit.dp.event import REPLACE_CLIENT, DiscreteGaussian
from tacit.errors import ConfigError, DataError
from tacit.ring import Prg, discrete_gaussian

_SLACK = 1 - 2.0**-20  # what rounding may add to a norm is taken off before


@dataclass(frozen=True)
class Bounded:
    """An update in float64 whose L2 norm is at most `l2_bound`; making one checks it."""

    value: Tensor
    l2_bound: float

    def __post_init__(self) -> None:
        positive("l2_bound", self.l2_bound)
        norm = _norm(self.value)
        if norm > self.l2_bound:
            raise DataError(f"the norm of an update is {norm:.6g}, above its bound {self.l2_bound}")

    def __repr__(self) -> str:
        return f"Bounded({tuple(self.value.shape)}, l2_bound={self.l2_bound})"


def clip(update: Tensor, *, l2_bound: float) -> Bounded:
    """Scale an update down to the bound if its L2 norm is larger.

    Guarantee: the norm of the result, computed in float64, does not exceed the bound.
    """
    positive("l2_bound", l2_bound)
    value = update.detach().to(torch.float64)
    norm = _norm(value)
    if norm > l2_bound:
        value = value * (l2_bound * _SLACK / norm)
    return Bounded(value, l2_bound)


def clip_layers(
    update: Mapping[str, Tensor], *, l2_bounds: Mapping[str, float]
) -> dict[str, Bounded]:
    """Clip each layer to a bound of its own; together their norm is `joint_bound`."""
    if set(update) != set(l2_bounds):
        odd = sorted(set(update) ^ set(l2_bounds))
        raise ConfigError(f"every layer needs one clipping bound; these lack a partner: {odd}")
    return {name: clip(layer, l2_bound=l2_bounds[name]) for name, layer in update.items()}


def joint_bound(l2_bounds: Mapping[str, float]) -> float:
    """Return the L2 bound of all layers together."""
    return math.sqrt(math.fsum(positive("l2_bound", c) ** 2 for c in l2_bounds.values()))


@dataclass(frozen=True, kw_only=True)
class QuantileClip:
    """A clipping bound that follows a quantile of the clients' norms (Andrew et al. 2021).

    Args:
        l2_bound: the bound now.
        quantile: the share of updates that should lie below it.
        rate: how fast it moves.
        count_noise: standard deviation of the noise on the number of updates below the bound.
    """

    l2_bound: float
    quantile: float = 0.5
    rate: float = 0.2
    count_noise: float = 10.0

    def __post_init__(self) -> None:
        positive("l2_bound", self.l2_bound)
        positive("rate", self.rate)
        positive("count_noise", self.count_noise)
        if not 0 < self.quantile < 1:
            raise ConfigError(f"quantile must lie between 0 and 1, got {self.quantile}")

    def is_below(self, update: Tensor) -> bool:
        """Say, at the client, whether an update lies within the bound: the one bit it sends."""
        return _norm(update) <= self.l2_bound

    def moved(self, share: float) -> "QuantileClip":
        """Follow a noisy share of updates that lie within the bound."""
        away = min(max(share, 0.0), 1.0) - self.quantile
        return replace(self, l2_bound=self.l2_bound * math.exp(-self.rate * away))


def follow_quantile(
    clipping: QuantileClip, *, below: int, clients: int, prg: Prg
) -> tuple[QuantileClip, DiscreteGaussian]:
    """Move the bound after a round in which `below` of `clients` updates were within it.

    How many clients there are is public: the noisy sum is divided by it. Each client counts as +1
    or −1, so that replacing one moves the sum by two. The bound itself is then free; the event is
    its whole price.
    """
    if clients < 1 or not 0 <= below <= clients:
        raise DataError(f"between 0 and {clients} of the clients can be below, got {below}")
    sigma2 = Fraction(4 * clipping.count_noise**2).limit_denominator(1 << 10)
    noise = int(discrete_gaussian(prg, 1, sigma2=sigma2)[0])
    share = ((2 * below - clients + noise) / clients + 1) / 2
    event = DiscreteGaussian(
        sigma2=sigma2, l2_sensitivity=2.0, dimension=1, relation=REPLACE_CLIENT
    )
    return clipping.moved(share), event


def _norm(value: Tensor) -> float:
    norm = float(torch.linalg.vector_norm(value.detach().to(torch.float64)))
    if not math.isfinite(norm):
        raise DataError(f"an update of shape {tuple(value.shape)} holds NaN or infinite values")
    return norm
