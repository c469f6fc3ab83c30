"""Objective perturbation for linear classifiers (Chaudhuri, Monteleoni and Sarwate 2011).

A client's whole training, once. Their proof is for the exact minimiser, which no program finds. As
in approximate minima perturbation (Iyengar et al. 2019) the gradient is checked where the search
ends, the distance to the minimiser follows from strong convexity, and noise that covers it is
added.
"""

import math
from dataclasses import dataclass

import numpy as np
import torch
from scipy.optimize import minimize
from torch import Tensor

from tacit.dp import REPLACE_RECORD, Pure, add_laplace, normal
from tacit.errors import ConfigError, DataError
from tacit.federated.contract import Update
from tacit.federated.training import Learner
from tacit.ring import Prg

_USUAL_L2 = 1e-2
_CURVATURE = 0.25  # of the logistic loss
_RELEASE = 0.01  # the part of ε that covers the distance to the minimiser
_SLOPE = 1e-9  # the longest gradient that counts as the end of the search
_NEWTON_STEPS = 50
_HALVINGS = 40
_GRID = 2.0**-20  # of the largest weight: as fine as noise can be on its grid


def fit_update(
    learner: Learner, client: int, weights: Tensor, *, epsilon: float, prg: Prg
) -> Update:
    """Fit one client's linear model privately and return how far it lies from the global one.

    One classifier per class against the rest, each for an equal share of ε. Rows are divided by a
    public bound of their norm: features lie within [−1, 1].

    Guarantee: ε for replacing one record of the client; see `fit_private_logistic`.
    Cost: 0 rounds, 0 bits.

    Raises:
        ConfigError: the model is not linear.
    """
    if learner.class_weights is not None:
        raise ConfigError("objective perturbation weighs no classes: its loss is the logistic one")
    x, labels = learner.rows_of(client).flatten(1), learner.labels_of(client)
    features = x.shape[1]
    classes = learner.shapes[-1][0]
    if learner.shapes != ((classes, features), (classes,)):
        raise ConfigError("objective perturbation trains the model 'linear' and no other")
    bound = math.sqrt(features + 1)
    rows = torch.cat([x, torch.ones(len(x), 1, device=x.device)], 1).double().cpu() / bound
    # A row that is not finite counts as zeros: to leave, or to fail, would show that it is there.
    rows = torch.where(rows.isfinite().all(dim=1, keepdim=True), rows, 0.0)
    # Features beyond their published scale are drawn back to the bound.
    rows = rows / rows.norm(dim=1, keepdim=True).clamp_min(1.0)
    share, l2 = epsilon / classes, learner.l2 or _USUAL_L2
    signs = [2.0 * (labels.cpu() == one) - 1.0 for one in range(classes)]
    found = torch.stack(
        [fit_private_logistic(rows, y, epsilon=share, regularisation=l2, prg=prg)[0] for y in signs]
    )
    flat = torch.cat([found[:, :-1].reshape(-1), found[:, -1]]) / bound
    change = flat - weights.cpu().double()
    return Update(change.numpy().astype(np.float32), len(x))


def fit_private_logistic(
    x: Tensor, labels: Tensor, *, epsilon: float, regularisation: float = _USUAL_L2, prg: Prg
) -> tuple[Tensor, Pure]:
    """Fit weights of a logistic regression whose objective has a random linear term.

    Args:
        x: rows of norm at most 1 (add a constant column for a bias before scaling).
        labels: −1 or +1.
        epsilon: of the released weights.
        regularisation: weight of ½‖w‖² in the average loss.
        prg: the source of the noise.

    Guarantee: ε for replacing one record. 99 % of ε are spent on the exact minimiser, 1 % on the
    distance to it. The random term itself is drawn in floating point.

    Raises:
        DataError: the gradient is longer than 1e-9 where the search ends: nothing is released.
    """
    if not 0 < epsilon <= 200:
        raise ConfigError(f"epsilon must be above 0 and at most 200, got {epsilon}")
    if not 0 < regularisation < math.inf:
        raise ConfigError(f"regularisation must be positive, got {regularisation}")
    rows, signs = _checked(x, labels)
    n, d = rows.shape
    left, extra = _effective(epsilon, regularisation, n)
    tilt = _tilt(prg, d, left)
    objective = _Objective(rows * signs[:, None], regularisation + extra, tilt / n)
    weights = _released(objective, _minimiser(objective), epsilon, left, prg=prg)
    event = Pure(epsilon=epsilon, relation=REPLACE_RECORD, mechanism="objective perturbation")
    return weights, event


@dataclass(frozen=True, eq=False)
class _Objective:
    """mean log(1 + exp(−rows·w)) + strength/2 ‖w‖² + slant·w; each row times its sign."""

    rows: Tensor
    strength: float
    slant: Tensor

    def value(self, w: Tensor) -> float:
        losses = torch.nn.functional.softplus(-(self.rows @ w)).mean()
        return float(losses + self.strength / 2 * (w @ w) + self.slant @ w)

    def gradient(self, w: Tensor) -> Tensor:
        pull = torch.sigmoid(-(self.rows @ w)) @ self.rows / len(self.rows)
        return self.strength * w + self.slant - pull

    def curvature(self, w: Tensor) -> Tensor:
        chance = torch.sigmoid(self.rows @ w)
        bends = self.rows.T @ (self.rows * (chance * (1 - chance))[:, None]) / len(self.rows)
        return bends + self.strength * torch.eye(len(w), dtype=w.dtype)


def _released(
    objective: _Objective, weights: Tensor, epsilon: float, left: float, *, prg: Prg
) -> Tensor:
    """Add the noise that covers the distance to the minimiser, for a hundredth of ε.

    To release the minimiser w* and then w − w* under noise would be ε-private, and the noisy w is
    their sum. ‖w − w*‖ ≤ ‖gradient‖ / strength, so that two records' worth is at most twice that;
    clipping to a box brings no two vectors further apart.
    """
    d, n = len(weights), len(objective.rows)
    # What the minimiser can be, but for a random term that is longer than any that is drawn.
    box = (1 + 2 / left * (d + 40 * math.sqrt(d) + 40) / n) / objective.strength
    share = _RELEASE * epsilon
    distance = 2 * _SLOPE / objective.strength * math.sqrt(d)
    noisy, event = add_laplace(
        weights.clamp(-box, box),
        scale=max(2 * distance / share, box * _GRID),
        l1_sensitivity=distance,
        relation=REPLACE_RECORD,
        prg=prg,
    )
    if event.epsilon > share:
        raise ConfigError(
            f"{d} weights are too many for ε = {epsilon:g}: the grid of the last noise "
            "alone would cost more than its part; wanted a larger ε"
        )
    return noisy


def _effective(epsilon: float, regularisation: float, n: int) -> tuple[float, float]:
    """Take the price of the regulariser off ε, or regularise more if nothing would be left."""
    whole = (1 - _RELEASE) * epsilon
    ratio = _CURVATURE / (n * regularisation)
    left = whole - math.log1p(2 * ratio + ratio**2)
    if left > 0:
        return left, 0.0
    extra = _CURVATURE / (n * math.expm1(whole / 4)) - regularisation
    return whole / 2, extra


def _tilt(prg: Prg, dimension: int, epsilon: float) -> Tensor:
    """Draw a vector with density ∝ exp(−ε‖b‖/2): a uniform direction, a Gamma(d, 2/ε) length."""
    uniform = (prg.below(2**53, dimension).to(torch.float64) + 0.5) * 2.0**-53
    length = -2 / epsilon * float(torch.log(uniform).sum())
    direction = normal(prg, dimension)
    return direction * (length / float(direction.norm()))


def _minimiser(objective: _Objective) -> Tensor:
    """Minimise a smooth, strongly convex function; the gradient is checked at the end.

    Raises:
        DataError: the search did not get there.
    """
    found = minimize(
        lambda w: objective.value(torch.from_numpy(w)),
        torch.zeros(len(objective.slant), dtype=torch.float64).numpy(),
        jac=lambda w: objective.gradient(torch.from_numpy(w)).numpy(),
        method="L-BFGS-B",
        options={"gtol": _SLOPE / 10, "ftol": 0.0, "maxiter": 10_000, "maxfun": 20_000},
    )
    w: Tensor = torch.from_numpy(found.x)
    # Where the search by first derivatives stalls, a few steps by second ones end it.
    for _ in range(_NEWTON_STEPS):
        gradient = objective.gradient(w)
        if float(gradient.norm()) <= _SLOPE / 2:  # the rest is for rounding
            return w
        w = _newton_step(objective, w, gradient)
    raise DataError(
        f"the search for the minimum ended at a gradient of {float(gradient.norm()):.2g}, wanted "
        f"{_SLOPE:g}: the guarantee would not hold and nothing is released; regularise more"
    )


def _newton_step(objective: _Objective, w: Tensor, gradient: Tensor) -> Tensor:
    step: Tensor = torch.linalg.solve(objective.curvature(w), gradient)
    length, before = 1.0, float(gradient.norm())
    for _ in range(_HALVINGS):
        there = w - length * step
        if float(objective.gradient(there).norm()) < before:
            return there
        length /= 2
    return w


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
