"""Linear models in closed form: least squares, ridge, lasso and extreme learning machines."""

from functools import partial
from typing import Any

import torch
from torch import Tensor

from tacit.errors import ConfigError, DataError
from tacit.learners.arithmetic import fixed, mean, public_coins
from tacit.learners.base import Learner
from tacit.learners.solving import (
    LARGEST_WEIGHT,
    gram,
    invert,
    solve,
    unit_diagonal,
)
from tacit.learners.tables import Table
from tacit.mpc.walker import Values, Walker

LARGEST_ERROR = 1024.0
"""Errors beyond this are counted as this; scale labels that are larger."""


class Regressor(Learner):
    """A learner of numbers, scored by R² as scikit-learn does."""

    def _check(self, data: Table) -> None:
        super()._check(data)
        self._check_numbers(data)

    def _check_labels(self, data: Table) -> None:
        super()._check_labels(data)
        self._check_numbers(data)

    def _check_numbers(self, data: Table) -> None:
        if not data.has_labels or data.classes:
            raise DataError(
                f"{type(self).__name__} wants labels that are numbers; say "
                "is_classification=False where the table is made if whole numbers are meant so"
            )

    def _values(self, walker: Walker, data: Table, name: str) -> None:
        """Keep answers (rows, 1) under ``name/answers``."""
        raise NotImplementedError

    def _answer(self, walker: Walker, data: Table, name: str) -> None:
        self._values(walker, data, name)

    def _rate(self, walker: Walker, data: Table, name: str) -> None:
        self._values(walker, data, name)
        uses = {"answers": f"{name}/answers", "y": data.load_labels(walker)}
        walker.run(_squared_errors, uses=uses, gives=f"{name}/")

    def _worded(self, answers: Tensor) -> Any:
        return answers.double().reshape(-1).numpy()

    def _scored(self, opened: Tensor, data: Table) -> float:
        left, all_ = opened.double().reshape(-1).tolist()
        if all_ > 0:
            return 1.0 - float(left / all_)
        return 1.0 if left <= 0 else 0.0  # labels are all alike: as scikit-learn says it


def _squared_errors(ops: Any, values: Values) -> Values:
    """Give the mean squared error and the variance of the labels: R² follows from both."""
    y = fixed(ops, values["y"])
    rows = ops.shape(y)[0]
    centre = ops.reshape(mean(ops, ops.sum(y, dim=0), rows), (1, 1))
    parts = [ops.sub(y, values["answers"]), ops.sub(y, centre)]
    # Wild answers count as errors of four times the largest label: their squares must fit.
    limit = min(4 * ops.number(y, "scoring").bound, LARGEST_ERROR)
    capped = [ops.cap(fixed(ops, one), bound=limit) for one in parts]
    found = [mean(ops, ops.sum(fixed(ops, ops.square(one)), dim=0), rows) for one in capped]
    return {"score": fixed(ops, ops.concatenate(found, dim=0))}


class Ridge(Regressor):
    """Least squares with a penalty on large weights.

    Args:
        alpha: the penalty, as scikit-learn counts it.
        fit_intercept: whether a constant is learned, which is not penalised.
        solver: "closed" solves the normal equations; "admm" goes towards the same solution as
            Helen does, in ``max_iter`` steps.

    Attributes:
        coef_: (columns, 1).
        intercept_: one number.

    Features should have standard deviations between 1/16 and 16 (`StandardScaler` sees to it);
    directions weaker than columns/16,000 of the strongest are damped.
    """

    results = ("coef", "intercept")
    penalty = "ridge"

    def __init__(
        self,
        alpha: float = 1.0,
        *,
        fit_intercept: bool = True,
        solver: str = "closed",
        max_iter: int = 40,
    ) -> None:
        self.alpha = alpha
        self.fit_intercept = fit_intercept
        self.solver = solver
        self.max_iter = max_iter

    def _check(self, data: Table) -> None:
        super()._check(data)
        if self.solver not in ("closed", "admm"):
            raise ConfigError(f"solver must be 'closed' or 'admm', got {self.solver!r}")
        if not self.alpha >= 0:
            raise ConfigError(f"alpha must be 0 at least, got {self.alpha}")

    def _features(self, walker: Walker, data: Table) -> str:
        return data.load(walker)

    def _walk(self, walker: Walker, data: Table) -> None:
        name = f"{self._name}/"
        uses = {"x": self._features(walker, data), "y": data.load_labels(walker)}
        walker.run(_normal_equations, uses=uses, gives=name, has_intercept=self.fit_intercept)
        rows = data.shape[0]
        uses = {one: f"{name}{one}" for one in ("matrix", "right")}
        if self.solver == "closed" and self.penalty == "ridge":
            limit = max(one.label_bound for one in data.holdings)
            walker.run(_solve, uses=uses, gives=name, damping=self.alpha / rows, limit=limit)
        else:
            weight = self.alpha / rows if self.penalty == "ridge" else self.alpha
            walker.run(
                _admm,
                uses=uses,
                gives=name,
                penalty=self.penalty,
                weight=weight,
                steps=self.max_iter,
            )
        uses = {one: f"{name}{one}" for one in ("coef", "means")}
        walker.run(_intercept, uses=uses, gives=name, has_intercept=self.fit_intercept)

    def _values(self, walker: Walker, data: Table, name: str) -> None:
        uses = {"x": self._features(walker, data)}
        uses |= {one: f"{name}/{one}" for one in ("coef", "intercept")}
        walker.run(_linear, uses=uses, gives=f"{name}/")


class LinearRegression(Ridge):
    """Least squares. Attributes and range as `Ridge`."""

    def __init__(self, *, fit_intercept: bool = True) -> None:
        super().__init__(0.0, fit_intercept=fit_intercept)


class Lasso(Ridge):
    """Least squares with a penalty on the absolute size of weights, by ADMM as in Helen.

    Args:
        alpha: the penalty, as scikit-learn counts it.
        fit_intercept: whether a constant is learned, which is not penalised.
        max_iter: steps; all are made.
    """

    penalty = "lasso"

    def __init__(
        self, alpha: float = 1.0, *, fit_intercept: bool = True, max_iter: int = 60
    ) -> None:
        super().__init__(alpha, fit_intercept=fit_intercept, solver="admm", max_iter=max_iter)


class ExtremeLearning(Ridge):
    """An extreme learning machine: ridge on random features tanh(x·A + b), A and b public.

    Owners of rows make their features themselves, at no cost; columns of several owners cannot
    be mixed before they are shared, so that such tables are refused.

    Args:
        n_features: how many random features.
        alpha: the penalty.
        random_state: of the public features.
    """

    def __init__(self, n_features: int = 64, *, alpha: float = 1.0, random_state: int = 0) -> None:
        super().__init__(alpha)
        self.n_features = n_features
        self.random_state = random_state

    def _check(self, data: Table) -> None:
        super()._check(data)
        if data.split != "rows":
            raise DataError("ExtremeLearning wants owners of rows: its features mix all columns")

    def _features(self, walker: Walker, data: Table) -> str:
        columns = data.shape[1]
        coins = public_coins(self.random_state)
        mixing = torch.from_numpy(coins.normal(size=(columns, self.n_features)) / columns**0.5)
        offsets = torch.from_numpy(coins.uniform(-1, 1, self.n_features))
        make = partial(_random_features, mixing=mixing, offsets=offsets)
        kind = f"random features {self.n_features} {self.random_state}"
        return data.load(walker, kind, make, columns=self.n_features, bound=1.0)


def _random_features(x: Tensor, *, mixing: Tensor, offsets: Tensor) -> Tensor:
    return torch.tanh(x @ mixing + offsets)


def _normal_equations(ops: Any, values: Values, *, has_intercept: bool) -> Values:
    """Give XᵀX / n and Xᵀy / n, centred if a constant is learned, and the means."""
    x, y = fixed(ops, values["x"]), fixed(ops, values["y"])
    rows = ops.shape(x)[0]
    means = []
    for one in (x, y):
        bound = ops.number(one, "averaging").bound
        found = ops.reshape(mean(ops, ops.sum(one, dim=0), rows), (-1, 1))
        means.append(ops.restate(found, bound=bound))
    matrix, right = gram(ops, x, x), gram(ops, x, y)
    if has_intercept:
        across = ops.transpose(means[0], 0, 1)
        limits = [ops.number(one, "centring").bound for one in (matrix, right)]
        matrix = ops.sub(matrix, fixed(ops, ops.mul(means[0], across)))
        right = ops.sub(right, fixed(ops, ops.mul(means[0], means[1])))
        matrix, right = (
            ops.restate(fixed(ops, one), bound=limit)
            for one, limit in zip((matrix, right), limits, strict=True)
        )
    return {"matrix": matrix, "right": right, "means": ops.concatenate(means, dim=0)}


def _solve(ops: Any, values: Values, *, damping: float, limit: float) -> Values:
    matrix = values["matrix"]
    eye = torch.eye(ops.shape(matrix)[0], dtype=torch.float64)
    damped = fixed(ops, ops.offset(matrix, damping * eye))
    return {"coef": solve(ops, damped, values["right"], limit=limit)}


def _admm(ops: Any, values: Values, *, penalty: str, weight: float, steps: int) -> Values:
    """Alternate between the quadratic part and the penalty (Boyd et al. 2011, section 6)."""
    matrix, right = values["matrix"], values["right"]
    size = ops.shape(matrix)[0]
    eye = torch.eye(size, dtype=torch.float64)
    # Both parts have one scale where features have variance 1.
    unit, factors = unit_diagonal(ops, fixed(ops, ops.offset(matrix, eye)))
    scaled = fixed(ops, ops.mul(invert(ops, unit), factors))
    inverse = fixed(ops, ops.mul(scaled, ops.transpose(factors, 0, 1)))
    inverse = ops.restate(inverse, bound=1.1)  # the matrix is at least I, its inverse at most
    z = u = ops.scale(right, 0.0)
    for _ in range(steps):
        target = fixed(ops, ops.add(right, ops.sub(z, u)))
        w = fixed(ops, ops.matmul(inverse, target))
        # Small features can want any weight: no bound follows from the right side.
        total = ops.cap(fixed(ops, ops.add(w, u)), bound=LARGEST_WEIGHT)
        z = ops.restate(fixed(ops, _shrunk(ops, total, penalty, weight)), bound=LARGEST_WEIGHT)
        u = ops.restate(fixed(ops, ops.sub(total, z)), bound=LARGEST_WEIGHT)
    return {"coef": z}


def _shrunk(ops: Any, x: Any, penalty: str, weight: float) -> Any:
    if penalty == "ridge":
        return ops.scale(x, 1 / (1 + weight))
    above, below = ops.shift(x, -weight), ops.shift(ops.scale(x, -1.0), -weight)
    positive = ops.relu(ops.concatenate([above, below], dim=1))
    return ops.sub(ops.take(positive, (0,), dim=1), ops.take(positive, (1,), dim=1))


def _intercept(ops: Any, values: Values, *, has_intercept: bool) -> Values:
    coef, means = values["coef"], values["means"]
    size = ops.shape(coef)[0]
    own = ops.take(means, (size,), dim=0)
    if not has_intercept:
        return {"intercept": ops.scale(own, 0.0)}
    features = ops.transpose(ops.take(means, range(size), dim=0), 0, 1)
    return {"intercept": fixed(ops, ops.sub(own, fixed(ops, ops.matmul(features, coef))))}


def _linear(ops: Any, values: Values) -> Values:
    products = fixed(ops, ops.matmul(values["x"], values["coef"]))
    return {"answers": ops.add(products, values["intercept"])}
