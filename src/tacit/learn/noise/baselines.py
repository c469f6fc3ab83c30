"""Central and local baselines on clipped updates: DP-FedAvg, local noise, NbAFL."""

import math
from collections.abc import Iterable

import torch
from torch import Tensor

from tacit.dp import (
    ADD_REMOVE_CLIENT,
    GAUSSIANS,
    REPLACE_CLIENT,
    Bounded,
    DiscreteGaussian,
    DiscreteLaplace,
    Gaussian,
    GaussianKind,
    add_laplace,
)
from tacit.errors import ConfigError, DataError
from tacit.ring import Prg


def central_mean(
    updates: Iterable[Bounded],
    *,
    multiplier: float,
    expected: int,
    prg: Prg,
    noise: GaussianKind = "continuous",
) -> tuple[Tensor, Gaussian | DiscreteGaussian]:
    """Average clipped updates with Gaussian noise at the server (DP-FedAvg, McMahan et al. 2018).

    Args:
        updates: at least one, all of one shape and bound; read one by one.
        multiplier: noise per clipping bound.
        expected: the public number of clients to divide by; the true number is private.
        prg: the server's randomness.
        noise: in floating point, or exact.

    Guarantee: client-level, for adding or removing one, towards everyone but the server.
    """
    total, bound = None, None
    for update in updates:
        if bound not in (None, update.l2_bound):
            raise DataError(f"updates of one round share one bound, got {bound} and {update}")
        bound = update.l2_bound
        total = update.value.clone() if total is None else total.add_(update.value)
    if total is None or bound is None or expected < 1:
        raise DataError(f"a mean needs updates and an expected number, got {expected}")
    noisy, event = GAUSSIANS[noise](
        total,
        sigma=multiplier * bound,
        l2_sensitivity=bound,
        relation=ADD_REMOVE_CLIENT,
        prg=prg,
    )
    return noisy / expected, event


def local_gaussian(
    update: Bounded, *, multiplier: float, prg: Prg, noise: GaussianKind = "continuous"
) -> tuple[Tensor, Gaussian | DiscreteGaussian]:
    """Add Gaussian noise at the client; any two updates are neighbours, 2C apart."""
    moved = 2 * update.l2_bound
    return GAUSSIANS[noise](
        update.value,
        sigma=multiplier * moved,
        l2_sensitivity=moved,
        relation=REPLACE_CLIENT,
        prg=prg,
    )


def local_laplace(update: Bounded, *, epsilon: float, prg: Prg) -> tuple[Tensor, DiscreteLaplace]:
    """Add Laplace noise at the client; an L2 bound C allows an L1 distance of 2C√d."""
    if not 0 < epsilon <= 200:
        raise ConfigError(f"epsilon must be above 0 and at most 200, got {epsilon}")
    moved = 2 * update.l2_bound * math.sqrt(update.value.numel())
    return add_laplace(
        update.value,
        scale=moved / epsilon,
        l1_sensitivity=moved,
        relation=REPLACE_CLIENT,
        prg=prg,
    )


def nbafl_uplink_sigma(
    *, clip: float, rounds: int, records: int, epsilon: float, delta: float
) -> float:
    """Return the client noise of NbAFL (Wei et al. 2020): c·T·2C/(m·ε), c = √(2 ln(1.25/δ)).

    The paper takes 2C/m as the sensitivity, which holds only for an average of m bounded per-record
    terms; the event of `nbafl_uplink` does not.
    """
    c = math.sqrt(2 * math.log(1.25 / delta))
    return c * rounds * 2 * clip / (records * epsilon)


def nbafl_downlink_sigma(
    *, clip: float, rounds: int, clients: int, records: int, epsilon: float, delta: float
) -> float:
    """Return the server noise of NbAFL for one exposure; 0 if the clients' noise suffices."""
    if rounds <= math.sqrt(clients):
        return 0.0
    c = math.sqrt(2 * math.log(1.25 / delta))
    return 2 * c * clip * math.sqrt(rounds**2 - clients) / (records * clients * epsilon)


def nbafl_uplink(
    update: Bounded, *, sigma: float, prg: Prg, noise: GaussianKind = "continuous"
) -> tuple[Tensor, Gaussian | DiscreteGaussian]:
    """Add a client's NbAFL noise, and account for what it is: a client-level Gaussian mechanism."""
    return GAUSSIANS[noise](
        update.value,
        sigma=sigma,
        l2_sensitivity=2 * update.l2_bound,
        relation=REPLACE_CLIENT,
        prg=prg,
    )


def mean_of(updates: Iterable[Tensor]) -> Tensor:
    """Average what the clients sent, one at a time."""
    total, count = None, 0
    for update in updates:
        total = update.to(torch.float64).clone() if total is None else total.add_(update)
        count += 1
    if total is None:
        raise DataError("a mean needs at least one update")
    return total / count
