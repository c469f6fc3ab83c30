"""Objective perturbation for linear classifiers (Chaudhuri, Monteleoni and Sarwate 2011)."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from scipy.optimize import minimize
from torch import Tensor

from tacit.dp import REPLACE_RECORD, Pure, normal
from tacit.errors import ConfigError, DataError
from tacit.ring import Prg

_CURVATURE = 0.25  # of the logistic loss


@dataclass(frozen=True, kw_only=True)
class ObjectiveSettings:
    """How a private logistic regression is fitted.

    Args:
        epsilon: of the released weights.
        regularisation: weight of ½‖w‖² in the average loss.
    """

    epsilon: float
    regularisation: float = 1e-2

    def __post_init__(self) -> None:
        if not 0 < self.epsilon <= 200:
            raise ConfigError(f"epsilon must be above 0 and at most 200, got {self.epsilon}")
        if not 0 < self.regularisation < math.inf:
            raise ConfigError(f"regularisation must be positive, got {self.regularisation}")


def fit_private_logistic(
    x: Tensor, labels: Tensor, settings: ObjectiveSettings, *, prg: Prg
) -> tuple[Tensor, Pure]:
    """Fit weights of a logistic regression whose objective has a random linear term.

    Args:
        x: rows of norm at most 1 (add a constant column for a bias before scaling).
        labels: −1 or +1.
        settings: the budget.
        prg: the source of the noise.

    Guarantee: ε for replacing one record, for the exact minimiser. It is computed to a gradient of
    1e-9, in floating point; what lies between is not accounted for.
    """
    rows, signs = _checked(x, labels)
    n, d = rows.shape
    epsilon, extra = _effective(settings, n)
    tilt = _tilt(prg, d, epsilon)
    strength = settings.regularisation + extra

    def objective(w: Tensor) -> Tensor:
        losses = torch.nn.functional.softplus(-signs * (rows @ w))
        return losses.mean() + strength / 2 * (w @ w) + (tilt @ w) / n

    weights = _minimiser(objective, d)
    event = Pure(
        epsilon=settings.epsilon, relation=REPLACE_RECORD, mechanism="objective perturbation"
    )
    return weights, event


def _effective(settings: ObjectiveSettings, n: int) -> tuple[float, float]:
    """Take the price of the regulariser off ε, or regularise more if nothing would be left."""
    ratio = _CURVATURE / (n * settings.regularisation)
    left = settings.epsilon - math.log1p(2 * ratio + ratio**2)
    if left > 0:
        return left, 0.0
    extra = _CURVATURE / (n * math.expm1(settings.epsilon / 4)) - settings.regularisation
    return settings.epsilon / 2, extra


def _tilt(prg: Prg, dimension: int, epsilon: float) -> Tensor:
    """Draw a vector with density ∝ exp(−ε‖b‖/2): a uniform direction, a Gamma(d, 2/ε) length."""
    uniform = (prg.below(2**53, dimension).to(torch.float64) + 0.5) * 2.0**-53
    length = -2 / epsilon * float(torch.log(uniform).sum())
    direction = normal(prg, dimension)
    return direction * (length / float(direction.norm()))


def _minimiser(objective: Callable[[Tensor], Tensor], dimension: int) -> Tensor:
    """Minimise a smooth, strongly convex function of a tensor."""

    def value_and_gradient(w: object) -> tuple[float, object]:
        point = torch.tensor(w, dtype=torch.float64, requires_grad=True)
        value = objective(point)
        (gradient,) = torch.autograd.grad(value, point)
        return float(value.detach()), gradient.numpy()

    found = minimize(
        value_and_gradient,
        torch.zeros(dimension, dtype=torch.float64).numpy(),
        jac=True,
        method="L-BFGS-B",
        options={"gtol": 1e-9, "ftol": 0.0, "maxiter": 10_000, "maxfun": 20_000},
    )
    return torch.from_numpy(found.x)


def _checked(x: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    rows, signs = x.to(torch.float64), labels.to(torch.float64)
    if rows.dim() != 2 or signs.shape != rows.shape[:1] or len(rows) == 0:
        raise DataError(f"rows and labels do not fit: {tuple(x.shape)}, {tuple(labels.shape)}")
    if not bool((signs.abs() == 1).all()):
        raise DataError("labels must be −1 or +1")
    longest = float(rows.norm(dim=1).max())
    if not longest <= 1 + 1e-9:
        raise DataError(f"rows must have a norm of at most 1, got {longest}; scale them by a bound")
    return rows, signs
