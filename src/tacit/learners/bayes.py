"""Naive Bayes for numbers and for categories."""

from functools import partial
from math import ceil, log, pi
from typing import Any

import torch
from torch import Tensor

from tacit.errors import DataError
from tacit.learners.arithmetic import (
    REACH,
    excess_bits,
    fixed,
    group_means,
    inverse,
    lowered,
    reduced,
    shift_of,
)
from tacit.learners.classify import Classifier
from tacit.learners.tables import Table
from tacit.mpc.walker import Values, Walker

LEAST_VARIANCE = 2.0**-REACH
"""Variances are at least this: below, the inverse has no digits left. Scale features first."""


class GaussianNB(Classifier):
    """Naive Bayes with a normal distribution per class and feature.

    Features of a variance below 2^-8 count as having that variance; scale them (`StandardScaler`).

    Args:
        var_smoothing: added to every variance, in units of the largest possible one.

    Attributes:
        theta_: means, (classes, columns).
        var_: variances, (classes, columns).
        class_prior_: (classes,).
    """

    results = ("theta", "var", "class_prior")

    def __init__(self, *, var_smoothing: float = 1e-9) -> None:
        self.var_smoothing = var_smoothing

    def _walk(self, walker: Walker, data: Table) -> None:
        name = f"{self._name}/"
        uses = {
            "x": data.load(walker),
            "squares": data.load(walker, "squares", torch.square, bound=data.bound**2),
            "y": data.load_labels(walker),
        }
        walker.run(_moments, uses=uses, gives=name, smoothing=self.var_smoothing)
        uses = {one: f"{name}{one}" for one in (*self.results, "present")}
        walker.run(_normal_form, uses=uses, gives=name)

    def _scores(self, walker: Walker, data: Table, name: str) -> None:
        uses = {
            "x": data.load(walker),
            "squares": data.load(walker, "squares", torch.square, bound=data.bound**2),
        }
        uses |= {one: f"{name}/{one}" for one in ("linear", "quadratic", "constant", "present")}
        walker.run(_normal_scores, uses=uses, gives=f"{name}/")


def _moments(ops: Any, values: Values, *, smoothing: float) -> Values:
    x, squares, y = values["x"], values["squares"], values["y"]
    rows = ops.shape(x)[0]
    bound = ops.number(x, "averaging").bound
    across = ops.transpose(y, 0, 1)
    counts = ops.reshape(ops.sum(across, dim=1), (-1, 1))
    both = ops.concatenate([fixed(ops, x), fixed(ops, squares)], dim=1)
    widest = ops.number(both, "averaging").bound
    sums = ops.restate(ops.pick(across, both), bound=rows * widest)
    means = group_means(ops, sums, counts, rows=rows, bound=widest)
    columns = ops.shape(x)[1]
    theta = ops.restate(ops.take(means, range(columns), dim=1), bound=1.05 * bound)
    second = ops.take(means, range(columns, 2 * columns), dim=1)
    spread = fixed(ops, ops.sub(second, fixed(ops, ops.square(theta))))
    least = LEAST_VARIANCE + smoothing * bound**2
    var = ops.shift(ops.relu(ops.shift(spread, -least)), least)
    prior = fixed(ops, ops.scale(counts, 1 / rows))
    present = ops.indicate(ops.shift(counts, -1.0))
    return {
        "theta": theta,
        "var": ops.restate(fixed(ops, var), bound=1.2 * bound**2 + least),
        "class_prior": ops.restate(ops.reshape(prior, (-1,)), bound=1.01),
        "present": present,
    }


def _normal_form(ops: Any, values: Values) -> Values:
    """Bring the log-likelihood to x²·q + x·l + c: two products per question are left."""
    theta, var = values["theta"], values["var"]
    inverted = ops.restate(inverse(ops, var), bound=1.1 / LEAST_VARIANCE)
    inverted = ops.gate(values["present"], inverted)
    linear = fixed(ops, ops.mul(theta, inverted))
    quadratic = fixed(ops, ops.scale(inverted, -0.5))
    fit = fixed(ops, ops.sum(fixed(ops, ops.mul(theta, linear)), dim=1))
    width = fixed(ops, ops.sum(fixed(ops, ops.log(var)), dim=1))
    prior = fixed(ops, ops.log(values["class_prior"]))
    half_sums = fixed(ops, ops.scale(ops.add(fit, width), -0.5))
    constant = ops.shift(ops.add(prior, half_sums), -0.5 * ops.shape(theta)[1] * log(2 * pi))
    return {"linear": linear, "quadratic": quadratic, "constant": constant}


def _normal_scores(ops: Any, values: Values) -> Values:
    both = ops.concatenate([values["x"], values["squares"]], dim=1)
    weights = ops.concatenate([values["linear"], values["quadratic"]], dim=1)
    bits = excess_bits(ops, both, weights, terms=ops.shape(both)[1])
    weights, constant = (reduced(ops, one, bits) for one in (weights, values["constant"]))
    products = fixed(ops, ops.matmul(both, ops.transpose(weights, 0, 1)))
    return {"scores": _of_present(ops, ops.add(products, ops.reshape(constant, (1, -1))), values)}


def _of_present(ops: Any, scores: Any, values: Values) -> Any:
    """Put the scores of classes without rows below all others.

    The logarithm of their prior, 0, would stay near that of 2^-8.
    """
    beyond = ceil(2 * ops.number(scores, "comparing").bound + 1)
    below = ops.scale(ops.shift(values["present"], -1.0), float(beyond))
    return ops.add(scores, ops.reshape(below, (1, -1)))


class CategoricalNB(Classifier):
    """Naive Bayes for features that are categories, whole numbers from 0 on.

    Args:
        n_categories: how many each feature can have; public.
        alpha: Laplace smoothing, as in scikit-learn.

    Attributes:
        feature_log_prob_: (classes, columns · n_categories).
        class_log_prior_: (classes,).
    """

    results = ("feature_log_prob", "class_log_prior")

    def __init__(self, n_categories: int, *, alpha: float = 1.0) -> None:
        self.n_categories = n_categories
        self.alpha = alpha

    def _check(self, data: Table) -> None:
        super()._check(data)
        parts = [pair for piece in data.pieces for pair in piece.values.items()]
        for owner, x in parts:
            if bool((x != x.round()).any() or (x < 0).any() or (x >= self.n_categories).any()):
                raise DataError(
                    f"{owner!r} has features that are no category from 0 to {self.n_categories - 1}"
                )

    def _walk(self, walker: Walker, data: Table) -> None:
        uses = {"hot": self._hot(walker, data), "y": data.load_labels(walker)}
        walker.run(
            _counts,
            uses=uses,
            gives=f"{self._name}/",
            alpha=self.alpha,
            categories=self.n_categories,
        )

    def _scores(self, walker: Walker, data: Table, name: str) -> None:
        uses = {"hot": self._hot(walker, data)}
        uses |= {one: f"{name}/{one}" for one in (*self.results, "present")}
        walker.run(_category_scores, uses=uses, gives=f"{name}/")

    def _hot(self, walker: Walker, data: Table) -> str:
        count = self.n_categories
        make = partial(_one_hot, count=count)
        kind = f"categories {count}"
        return data.load(walker, kind, make, width=count, bound=1.0, is_whole=True)


def _one_hot(x: Tensor, *, count: int) -> Tensor:
    wide = torch.nn.functional.one_hot(x.long(), count)
    return wide.reshape(len(x), -1).to(torch.float64)


def _counts(ops: Any, values: Values, *, alpha: float, categories: int) -> Values:
    hot, y = values["hot"], values["y"]
    rows = ops.shape(hot)[0]
    across = ops.transpose(y, 0, 1)
    classes = ops.reshape(ops.sum(across, dim=1), (-1, 1))
    present = ops.indicate(ops.shift(classes, -1.0))
    found = ops.restate(ops.pick(across, hot), bound=float(rows))
    unit = 2.0 ** -shift_of(rows)
    some = ops.shift(lowered(ops, found, rows), alpha * unit)
    all_ = ops.shift(lowered(ops, classes, rows), alpha * categories * unit)
    probabilities = fixed(ops, ops.sub(fixed(ops, ops.log(some)), fixed(ops, ops.log(all_))))
    prior = fixed(ops, ops.log(fixed(ops, ops.scale(classes, 1 / rows))))
    return {
        "feature_log_prob": probabilities,
        "class_log_prior": ops.reshape(prior, (-1,)),
        "present": present,
    }


def _category_scores(ops: Any, values: Values) -> Values:
    table = ops.transpose(values["feature_log_prob"], 0, 1)
    found = ops.pick(values["hot"], table)
    prior = ops.reshape(values["class_log_prior"], (1, -1))
    return {"scores": _of_present(ops, fixed(ops, ops.add(found, prior)), values)}
