"""Linear classifiers by majorisation: logistic regression and support vectors.

Each step solves a quadratic that lies above the loss everywhere (Böhning 1992), so the loss never
rises and no step size is chosen. The matrix of that quadratic does not change: it is inverted once.
"""

from typing import Any

import torch

from tacit.errors import ConfigError
from tacit.learners.arithmetic import fixed, row_weights
from tacit.learners.classify import Classifier
from tacit.learners.solving import gram, invert, ones_like_rows, unit_diagonal
from tacit.learners.tables import Table, check_weights
from tacit.mpc.share import HEADROOM_BITS
from tacit.mpc.walker import Values, Walker

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
        if not self.C > 0 or self.max_iter < 1:
            raise ConfigError("C must be above 0, and max_iter 1 at least")
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
