"""Linear models: least squares, ridge, lasso and extreme learning machines, and two classifiers.

Logistic regression and support vectors learn by majorisation. Each step solves a quadratic that
lies above the loss everywhere (Böhning 1992), so the loss never rises and no step size is chosen.
The matrix of that quadratic does not change: it is inverted once.
"""

from functools import partial
from typing import Any

import torch
from torch import Tensor

from tacit.errors import ConfigError, DataError
from tacit.learners.arithmetic import (
    LARGEST_WEIGHT,
    fixed,
    gram,
    invert,
    mean,
    ones_like_rows,
    public_coins,
    row_weights,
    solve,
    unit_diagonal,
)
from tacit.learners.base import Learner
from tacit.learners.classify import Classifier
from tacit.learners.tables import Table, check_weights
from tacit.mpc.share import HEADROOM_BITS
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


STEPS = 12
"""Steps of `invert`: directions down to columns/4,000 of the strongest are resolved."""
LARGEST_COEFFICIENT = 64.0
"""Where coefficients saturate: separable classes would let them grow without end."""


class LinearClassifier(Classifier):
    """What logistic regression and support vectors share.

    Attributes:
        coef_: (columns, classes), or (columns, 1) for two classes; the last row is the constant.
    """

    results = ("coef",)
    loss = ""

    def __init__(
        self, C: float = 1.0, *, max_iter: int = 30, class_weight: tuple[float, ...] | None = None
    ) -> None:
        self.C = C
        self.max_iter = max_iter
        self.class_weight = class_weight

    def _check(self, data: Table) -> None:
        super()._check(data)
        if not self.C > 0:
            raise ConfigError(f"learner.parameters: C: wanted a number above 0, got {self.C:g}")
        if self.max_iter < 1:
            raise ConfigError(
                f"learner.parameters: max_iter: wanted 1 at least, got {self.max_iter}"
            )
        check_weights(self.class_weight, data)

    def _walk(self, walker: Walker, data: Table) -> None:
        name = f"{self._name}/"
        walker.run(_design, uses={"x": data.load(walker)}, gives=name)
        x = f"{name}design"
        rows = data.shape[0]
        public: dict[str, Any] = {"loss": self.loss, "classes": data.classes}
        public["weights"] = self.class_weight
        public["damping"] = 1 / (self.C * rows)
        uses = {"x": x, "y": data.load_labels(walker)}
        walker.run(_majorise, uses=uses, gives=name, **public)
        uses |= {one: f"{name}{one}" for one in ("coef", "last", "inverse", "factors")}
        for step in range(self.max_iter):
            walker.run(_descend, uses=uses, gives=name, momentum=_momentum(step), **public)

    def _scores(self, walker: Walker, data: Table, name: str) -> None:
        uses = {"x": data.load(walker), "coef": f"{name}/coef"}
        walker.run(_margins, uses=uses, gives=f"{name}/")


class LogisticRegression(LinearClassifier):
    """Logistic regression, for several classes with a common softmax.

    Args:
        C: the inverse of the penalty, as scikit-learn counts it; the constant is not penalised.
        max_iter: steps; all are made.
        class_weight: one public factor per class.
    """

    loss = "logistic"


class LinearSVC(LinearClassifier):
    """Support vectors with a squared hinge, one class against the rest, as scikit-learn's.

    Args:
        C: the inverse of the penalty; the constant is penalised as well.
        max_iter: steps; all are made.
        class_weight: one public factor per class.
    """

    loss = "hinge"
    chances = "none"


def _momentum(step: int) -> float:
    """Return Nesterov's momentum, in eighths: a plan serves all steps of one momentum."""
    return round(8 * step / (step + 3)) / 8 if step else 0.0


def _penalty(size: int, damping: float, loss: str) -> torch.Tensor:
    """Give the diagonal of the penalty; the constant comes last."""
    penalty = torch.full((size, 1), damping, dtype=torch.float64)
    if loss == "logistic":
        penalty[-1] = 0.0
    return penalty


def _curvature(loss: str, classes: int) -> float:
    """Return what the second derivative of a loss by its score is at most."""
    if loss == "hinge":
        return 2.0
    return 0.25 if classes == 2 else 0.5


def _design(ops: Any, values: Values) -> Values:
    """Put a column of ones beside the features: its weight is the constant."""
    x = fixed(ops, values["x"])
    return {"design": ops.concatenate([x, ones_like_rows(ops, x)], dim=1)}


def _majorise(
    ops: Any,
    values: Values,
    *,
    loss: str,
    classes: int,
    damping: float,
    weights: tuple[float, ...] | None,
) -> Values:
    """Invert the matrix of the quadratic above the loss; start from zero."""
    x = values["x"]
    size = ops.shape(x)[1]
    weighed = x
    if weights is not None:
        weighed = fixed(ops, ops.mul(x, row_weights(ops, values["y"], weights)))
    curved = ops.scale(gram(ops, x, weighed), _curvature(loss, classes))
    # A quadratic that is a little steeper still lies above the loss, and rounding cannot undo it.
    penalty = torch.diag(
        _penalty(size, damping, loss).reshape(-1) + size * 2.0 ** (2 - ops.frac_bits)
    )
    unit, factors = unit_diagonal(ops, fixed(ops, ops.offset(fixed(ops, curved), penalty)))
    width = 1 if classes == 2 else classes
    start = ops.take(ops.scale(unit, 0.0), [0] * width, dim=1)
    return {
        "inverse": invert(ops, unit, steps=STEPS),
        "factors": factors,
        "coef": ops.restate(start, bound=LARGEST_COEFFICIENT),
        "last": ops.restate(start, bound=LARGEST_COEFFICIENT),
    }


def _descend(
    ops: Any,
    values: Values,
    *,
    loss: str,
    classes: int,
    damping: float,
    momentum: float,
    weights: tuple[float, ...] | None,
) -> Values:
    """Go to the lowest point of the quadratic that touches the loss ahead of here."""
    x, y, last = values["x"], values["y"], values["coef"]
    size = ops.shape(x)[1]
    ops.cache_openings(x)
    ahead = ops.scale(ops.sub(last, values["last"]), momentum)
    coef = ops.cap(fixed(ops, ops.add(last, ahead)), bound=LARGEST_COEFFICIENT)
    scores = fixed(ops, ops.matmul(x, coef))
    rest = fixed(ops, _residual(ops, scores, fixed(ops, y), loss, classes))
    if weights is not None:
        rest = fixed(ops, ops.mul(rest, row_weights(ops, y, weights)))
    pull = gram(ops, x, rest)
    shrink = fixed(ops, ops.weigh(coef, _penalty(size, damping, loss)))
    slope = ops.mul(fixed(ops, ops.sub(pull, shrink)), values["factors"])
    # As in `solve`: in units of the features' own size a slope is no larger than the residuals.
    limit = ops.number(rest, "stepping").bound
    slope = ops.restate(fixed(ops, slope), bound=1.1 * limit + 17 * damping * LARGEST_COEFFICIENT)
    # The penalty of a handful of rows is strong; a slope that saturates is a shorter step.
    inverse = ops.number(values["inverse"], "stepping").bound
    room = 2.0 ** (HEADROOM_BITS - 2 * ops.frac_bits) / (size * inverse)
    slope = fixed(ops, ops.cap(slope, bound=0.99 * room))
    moved = ops.cap(fixed(ops, ops.matmul(values["inverse"], slope)), bound=LARGEST_COEFFICIENT)
    moved = fixed(ops, ops.mul(moved, values["factors"]))
    return {"coef": ops.cap(ops.add(coef, moved), bound=LARGEST_COEFFICIENT), "last": last}


def _residual(ops: Any, scores: Any, y: Any, loss: str, classes: int) -> Any:
    """Give minus the derivative of the loss by the scores."""
    if classes == 2:
        y = ops.take(y, (1,), dim=1)
    if loss == "hinge":
        sign = ops.shift(ops.scale(y, 2.0), -1.0)
        missing = ops.relu(ops.shift(ops.scale(fixed(ops, ops.mul(sign, scores)), -1.0), 1.0))
        missing = ops.cap(missing, bound=LARGEST_COEFFICIENT)
        return ops.scale(fixed(ops, ops.mul(sign, missing)), 2.0)
    if classes == 2:
        return ops.sub(y, ops.sigmoid(scores))
    return ops.sub(y, ops.softmax(scores, dim=1))


def _margins(ops: Any, values: Values) -> Values:
    design = _design(ops, values)["design"]
    scores = fixed(ops, ops.matmul(design, values["coef"]))
    if ops.shape(scores)[1] == 1:
        scores = ops.concatenate([ops.scale(scores, 0.0), scores], dim=1)
    return {"scores": scores}
