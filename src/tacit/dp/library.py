"""Google's dp-accounting behind our interface: privacy loss distributions and Rényi."""

import functools
import importlib.util
import math
from collections.abc import Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from tacit.dp.check import target_delta
from tacit.dp.curve import PrivacyCurve, privacy_curve
from tacit.dp.event import DiscreteGaussian, FixedSample, Gaussian, Laplace, Poisson, Step
from tacit.dp.fourier import INTERVAL, grid_of
from tacit.dp.renyi import has_renyi, renyi
from tacit.errors import ConfigError

if TYPE_CHECKING:
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution


def pld_epsilon(steps: Mapping[Step, int], delta: float) -> float:
    """Compute ε by composing privacy loss distributions.

    Gaussian and Laplace noise, sampled or not, is discretised by the library; everything else
    through its privacy curve. Tight up to the grid of 1e-4 per step.
    """
    target_delta(delta)
    pld = _library().pld.privacy_loss_distribution
    total = pld.identity(value_discretization_interval=INTERVAL)
    for step, count in steps.items():
        total = total.compose(_distribution(pld, step, count))
    return float(total.get_epsilon_for_delta(delta))


def rdp_epsilon(steps: Mapping[Step, int], delta: float) -> float:
    """Compute ε by adding up Rényi divergences."""
    target_delta(delta)
    library = _library()
    orders = np.array(library.rdp.rdp_privacy_accountant.DEFAULT_RDP_ORDERS, dtype=float)
    total = np.zeros_like(orders)
    for step, count in steps.items():
        total += count * _divergences(library, step, orders)
    epsilon, _ = library.rdp.compute_epsilon(orders, total, delta)
    return float(epsilon)


def has_rdp(step: Step) -> bool:
    """Say whether `rdp` can account for a step."""
    return isinstance(step, FixedSample) or has_renyi(step)


def is_installed() -> bool:
    """Say whether the library is there."""
    return importlib.util.find_spec("dp_accounting") is not None


# The library is untyped, hence Any for what comes out of it.
def _library() -> Any:
    """Import dp-accounting, late: it takes a second and is an extra."""
    try:
        import dp_accounting
    except ModuleNotFoundError:
        raise ConfigError(
            "this accountant needs dp-accounting; run: pip install 'tacit-ml[dp]'"
        ) from None
    return dp_accounting


# A report asks for the same step at several δ, and making a distribution is what takes seconds.
@functools.lru_cache(maxsize=4)
def _distribution(pld: ModuleType, step: Step, count: int) -> "PrivacyLossDistribution":
    whole, rate = (step.event, step.rate) if isinstance(step, Poisson) else (step, 1.0)
    match whole:
        case Gaussian() if rate == 1:
            sigma = whole.multiplier / math.sqrt(count)
            return pld.from_gaussian_mechanism(sigma, value_discretization_interval=INTERVAL)
        case Gaussian():
            one = pld.from_gaussian_mechanism(
                whole.multiplier, value_discretization_interval=INTERVAL, sampling_prob=rate
            )
        case Laplace(dimension=1):
            one = pld.from_laplace_mechanism(
                1 / whole.epsilon, value_discretization_interval=INTERVAL, sampling_prob=rate
            )
        case _:
            one = _from_curve(pld, step)
    return one.self_compose(count)


def _from_curve(pld: ModuleType, step: Step) -> "PrivacyLossDistribution":
    curve = privacy_curve(step)
    if curve is None:
        raise ConfigError(f"pld cannot account for {type(step).__name__}; use rdp or basic")
    remove = _masses(pld, curve)
    return pld.PrivacyLossDistribution(
        remove, None if curve.forward is curve.backward else _masses(pld, curve.mirrored())
    )


def _masses(pld: ModuleType, curve: PrivacyCurve) -> Any:
    """Hand the library our curve on a grid, negative ε through the other direction."""
    stride, up = grid_of(curve, interval=INTERVAL)
    half = len(up) - 1
    negative = -np.expm1(-up) + np.exp(-up) * curve.backward(up)
    deltas = np.concatenate([negative[:0:-1], curve.forward(up)])
    return pld.pld_pmf.create_pmf_pessimistic_connect_dots(
        INTERVAL, stride * np.arange(-half, half + 1), np.minimum.accumulate(deltas)
    )


def _divergences(library: Any, step: Step, orders: Any) -> Any:
    own = renyi(step, orders)
    event = _library_event(library, step)
    if event is not None:
        relation = library.NeighboringRelation
        accountant = library.rdp.RdpAccountant(
            orders if own is None else np.ceil(orders),
            relation.REPLACE_ONE if isinstance(step, FixedSample) else relation.ADD_OR_REMOVE_ONE,
        )
        divergences = np.maximum(accountant.compose(event).rdp, 0)
        # At fractional orders the library's series may fail to converge; our integral does not.
        return divergences if own is None else np.where(orders % 1 == 0, divergences, own)
    if own is None:
        raise ConfigError(f"rdp cannot account for {type(step).__name__}; use pld or basic")
    return own


def _library_event(library: Any, step: Step) -> Any:
    """Translate a step, or return None where ours is the only formula."""
    match step:
        case Gaussian():
            return library.GaussianDpEvent(step.multiplier)
        case Poisson(event=Gaussian() as whole):
            return library.PoissonSampledDpEvent(
                step.rate, library.GaussianDpEvent(whole.multiplier)
            )
        case FixedSample():
            return library.SampledWithoutReplacementDpEvent(
                step.population, step.sample, library.GaussianDpEvent(step.event.multiplier)
            )
        case DiscreteGaussian(parts=1):
            return library.ZCDpEvent(step.rho)
        case Laplace(dimension=1):
            return library.LaplaceDpEvent(1 / step.epsilon)
        case _:
            return None
