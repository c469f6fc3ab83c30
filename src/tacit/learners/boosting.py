"""Boosting by gradients and Hessians, as XGBoost grows trees from histograms."""

from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np

from tacit.learners.arithmetic import fixed, row_weights
from tacit.learners.bins import Block
from tacit.learners.classify import Classifier
from tacit.learners.growing import Growth
from tacit.learners.linear import Regressor
from tacit.learners.tables import Table
from tacit.learners.trees import Edges, Trees, read, sum_of, tidy
from tacit.mpc.walker import Values, Walker


class GradientBoosting(Trees):
    """Boosting by gradients and Hessians, as XGBoost grows trees from histograms."""

    loss = ""

    def __init__(
        self,
        n_estimators: int = 20,
        *,
        learning_rate: float = 0.3,
        max_depth: int = 4,
        max_bins: int = 32,
        reg_lambda: float = 1.0,
        min_child_weight: float = 1.0,
        gamma: float = 0.0,
        edges: Edges = None,
        categorical: tuple[int, ...] = (),
        class_weight: tuple[float, ...] | None = None,
    ) -> None:
        self.n_estimators = n_estimators
        self.learning_rate = learning_rate
        self.max_depth = max_depth
        self.max_bins = max_bins
        self.reg_lambda = reg_lambda
        self.min_child_weight = min_child_weight
        self.gamma = gamma
        self.edges = edges
        self.categorical = categorical
        self.class_weight = class_weight

    def _growth(self) -> Growth:
        return Growth(
            depth=self.max_depth,
            damping=self.reg_lambda / self._unit(),
            least_weight=self.min_child_weight / self._unit(),
            least_gain=self.gamma / self._unit(),
            rate=-self.learning_rate,
            is_mean=self.loss == "squares",
        )

    def _count(self, classes: int) -> int:
        return self.n_estimators * _width(classes)

    def _walk(self, walker: Walker, data: Table) -> None:
        blocks, y = self._blocks(walker, data), data.load_labels(walker)
        width, margins = _width(data.classes), f"{self._name}/margins"
        # An answer of squares need not go beyond the labels; one of classes saturates anyway.
        limit = LARGEST_MARGIN
        if self.loss == "squares":
            limit = min(limit, 2 * max(one.label_bound for one in data.holdings))
        kept = [f"{margins} {one.start}" for one in blocks]
        for block, name in zip(blocks, kept, strict=True):
            place: dict[str, Any] = {"start": block.start, "rows": block.rows}
            walker.run(_zero_margins, uses={"y": y}, gives=name, width=width, limit=limit, **place)
        for step in range(self.n_estimators):
            trees = [f"{self._name}/tree {step * width + column}" for column in range(width)]
            for column, tree in enumerate(trees):
                self._grow_one(walker, blocks, tree, y=y, margins=kept, column=column)
            for at, name in enumerate(kept):
                moves = {str(one): f"{tree}/moves {at}" for one, tree in enumerate(trees)}
                walker.run(_moved, uses={"margins": name, **moves}, gives=name, limit=limit)
            for tree in trees:
                walker.drop(f"{tree}/moves ")

    def _grow_one(
        self,
        walker: Walker,
        blocks: Sequence[Block],
        tree: str,
        *,
        y: str,
        margins: Sequence[str],
        column: int,
    ) -> None:
        """Grow a tree, and find what it adds to the margins of every row."""
        public: dict[str, Any] = {"loss": self.loss, "column": column, "weights": self._shares()}
        sums = [f"{tree}/sums {one.start}" for one in blocks]
        for block, name, margin in zip(blocks, sums, margins, strict=True):
            uses = {"y": y, "margins": margin}
            public |= {"start": block.start, "rows": block.rows}
            walker.run(_gradients, uses=uses, gives=name, **public)
        self._grow(walker, blocks, tree, sums)
        for at in range(len(blocks)):
            uses = {"paths": f"{tree}/paths {at}", "leaves": f"{tree}/leaves"}
            walker.run(read, uses=uses, gives=f"{tree}/moves {at}")
        tidy(walker, tree)

    def _margins(self, walker: Walker, data: Table, name: str, width: int) -> list[str]:
        found = []
        for column in range(width):
            trees = range(column, self.n_estimators * width, width)
            parts = self._added(walker, data, name, trees)
            uses = {str(at): one for at, one in enumerate(parts)}
            walker.run(sum_of, uses=uses, gives=f"{name}/margin {column}", factor=1.0)
            found.append(f"{name}/margin {column}")
        return found


class GradientBoostingClassifier(GradientBoosting, Classifier):
    """Boosting for classes: logistic loss for two, one tree per class and step for more.

    Args:
        n_estimators: steps.
        learning_rate: leaves are multiplied by it.
        max_depth: of the complete trees; public.
        max_bins: into how many bins a feature is cut.
        reg_lambda: added to the Hessian of every node.
        min_child_weight: Hessian that each side of a split must have.
        gamma: what a split must gain.
        edges: for owners of rows, where features are cut.
        categorical: columns that are categories, whole numbers below max_bins - 1.
        class_weight: one public factor per class, by which gradients and Hessians count.
    """

    loss = "logistic"

    def _scores(self, walker: Walker, data: Table, name: str) -> None:
        found = self._margins(walker, data, name, _width(len(self.classes_)))
        uses = {str(at): one for at, one in enumerate(found)}
        walker.run(_class_scores, uses=uses, gives=f"{name}/scores")


class GradientBoostingRegressor(GradientBoosting, Regressor):
    """Boosting for numbers, with squared errors. Arguments as `GradientBoostingClassifier`."""

    loss = "squares"

    def _values(self, walker: Walker, data: Table, name: str) -> None:
        (found,) = self._margins(walker, data, name, 1)
        walker.run(sum_of, uses={"0": found}, gives=f"{name}/answers", factor=1.0)


def _width(classes: int) -> int:
    """Return how many margins a row has: one, or one per class where there are several."""
    return classes if classes > 2 else 1


def _zero_margins(
    ops: Any, values: Values, *, width: int, limit: float, start: int, rows: int
) -> Values:
    y = fixed(ops, ops.take(values["y"], range(start, start + rows), dim=0))
    zero = ops.scale(ops.take(y, [0] * width, dim=1), 0.0)
    return {"": ops.restate(zero, bound=limit)}


_STEPS = ((0.0, 4.0, 0.25), (4.0, 7.0, 0.5), (7.0, 11.0, 1.0))
"""From where to where, and how wide pieces of the logistic function are: it bends most near 0."""
LARGEST_MARGIN = 64.0
"""Where margins saturate."""


def _gradients(
    ops: Any,
    values: Values,
    *,
    loss: str,
    column: int,
    weights: tuple[float, ...] | None,
    start: int,
    rows: int,
) -> Values:
    """Give gradient and Hessian of every row of a block."""
    y = fixed(ops, ops.take(values["y"], range(start, start + rows), dim=0))
    margins = values["margins"]
    if loss == "squares":
        gradient = ops.sub(margins, y)
        hessian = ops.shift(ops.scale(margins, 0.0), 1.0)
    else:
        if ops.shape(margins)[1] == 1:
            chance = fixed(ops, ops.piecewise(margins, *_logistic()))
            mine = ops.take(y, (1,), dim=1)
        else:
            chance = ops.take(fixed(ops, ops.softmax(margins, dim=1)), (column,), dim=1)
            mine = ops.take(y, (column,), dim=1)
        gradient = ops.restate(fixed(ops, ops.sub(chance, mine)), bound=1.01)
        hessian = fixed(ops, ops.sub(chance, fixed(ops, ops.square(chance))))
        twice = 1.0 if ops.shape(margins)[1] == 1 else 2.0
        hessian = ops.restate(ops.scale(hessian, twice), bound=0.26 * twice)
    if weights is not None:
        factor = row_weights(ops, y, weights)
        gradient, hessian = (
            ops.restate(fixed(ops, ops.mul(one, factor)), bound=ops.number(one, "weighing").bound)
            for one in (fixed(ops, gradient), fixed(ops, hessian))
        )
    return {"": ops.concatenate([fixed(ops, gradient), fixed(ops, hessian)], dim=1)}


@cache
def _logistic() -> tuple[tuple[float, ...], tuple[tuple[float, ...], ...]]:
    """Return breakpoints and parabolas of the logistic function, off by at most 2e-5.

    `ops.sigmoid` is off by 2e-4 at 0, for all rows alike at first: enough to choose another split
    where two are worth nearly the same.
    """
    upper = [
        start + at * step
        for start, stop, step in _STEPS
        for at in range(round((stop - start) / step))
    ]
    right = [*upper, _STEPS[-1][1]]
    breaks = [*(-one for one in reversed(right[1:])), *right]
    curves = []
    for start, stop in pairwise(breaks):
        points = (start + stop) / 2 + np.cos((np.arange(3) + 0.5) * np.pi / 3) * (stop - start) / 2
        found = np.polynomial.polynomial.polyfit(points, 1 / (1 + np.exp(-points)), 2)
        curves.append(tuple(found.tolist()))
    return tuple(breaks), ((0.0,), *curves, (1.0,))


def _moved(ops: Any, values: Values, *, limit: float) -> Values:
    margins = values.pop("margins")
    parts = [values[str(at)] for at in range(len(values))]
    moves = parts[0] if len(parts) == 1 else ops.concatenate(parts, dim=1)
    return {"": ops.cap(fixed(ops, ops.add(margins, moves)), bound=limit)}


def _class_scores(ops: Any, values: Values) -> Values:
    parts = [values[str(at)] for at in range(len(values))]
    if len(parts) == 1:
        parts = [ops.scale(parts[0], 0.0), parts[0]]
    return {"": ops.concatenate(parts, dim=1)}
