"""Trees, forests and boosting: what is grown, for which targets, and how answers are read off."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from tacit.errors import ConfigError
from tacit.learners.arithmetic import fixed, public_coins
from tacit.learners.base import Learner
from tacit.learners.bins import Binning, cut
from tacit.learners.classify import Classifier
from tacit.learners.engine import Values, Walker
from tacit.learners.growing import Growth, follow, grow
from tacit.learners.linear import Regressor
from tacit.learners.tables import Table

Edges = Sequence[Sequence[float]] | None


class Trees(Learner):
    """What all learners of trees share: bins, growth, and a sum over trees."""

    binning_: Binning
    max_depth: int
    max_bins: int
    edges: Edges

    def _check(self, data: Table) -> None:
        super()._check(data)
        if not 1 <= self.max_depth <= 8:
            raise ConfigError(
                f"max_depth must be from 1 to 8, got {self.max_depth}: trees are complete, and "
                "cost doubles with every level"
            )

    def _bits(self, walker: Walker, data: Table) -> str:
        if getattr(self, "_binned", "") != self._name:
            self.binning_ = cut(data, name=self._name, bins=self.max_bins, edges=self.edges)
            self._binned = self._name
        return self.binning_.load(walker, data)

    @abstractmethod
    def _growth(self) -> Growth:
        """Return how trees are grown."""

    @abstractmethod
    def _count(self, classes: int) -> int:
        """Return how many trees there are."""

    def _added(self, walker: Walker, data: Table, name: str, trees: Sequence[int]) -> list[str]:
        """Send rows down some trees; return the names of what their leaves add up to."""
        bits, found = self._bits(walker, data), []
        for at in trees:
            tree = f"{name}/tree {at}"
            paths = follow(walker, bits=bits, tree=tree, depth=self.max_depth)
            uses = {"paths": paths, "leaves": f"{tree}/leaves"}
            walker.run(_read, uses=uses, gives=f"{tree}/answers of {data.name}")
            walker.drop(paths)
            found.append(f"{tree}/answers of {data.name}")
        return found


def _read(ops: Any, values: Values) -> Values:
    """Give every row the value of its leaf."""
    bound = ops.number(values["leaves"], "reading").bound
    found = ops.pick(values["paths"], values["leaves"])
    return {"": ops.restate(fixed(ops, found), bound=bound)}


def _sum(ops: Any, values: Values, *, factor: float) -> Values:
    total = None
    for value in values.values():
        total = value if total is None else ops.add(total, value)
    return {"": total if factor == 1.0 else fixed(ops, ops.scale(total, factor))}


class DecisionTreeClassifier(Trees, Classifier):
    """One tree by Gini's measure.

    Args:
        max_depth: of the complete tree; public.
        max_bins: into how many bins a feature is cut.
        min_samples_leaf: rows that each side of a split must have.
        edges: for owners of rows, where features are cut: (columns, max_bins - 1).
    """

    trees = 1
    chances = "shares"

    def __init__(
        self,
        max_depth: int = 4,
        *,
        max_bins: int = 16,
        min_samples_leaf: int = 1,
        edges: Edges = None,
    ) -> None:
        self.max_depth = max_depth
        self.max_bins = max_bins
        self.min_samples_leaf = min_samples_leaf
        self.edges = edges

    def _growth(self) -> Growth:
        return Growth(
            depth=self.max_depth,
            damping=2.0**-4,
            least_weight=self.min_samples_leaf - 0.5,
            least_gain=0.0,
            rate=1.0,
            is_mean=True,
        )

    def _count(self, classes: int) -> int:
        return self.trees

    def _coins(self, tree: int) -> tuple[int, ...]:
        """Return the seed by which rows are drawn for a tree; empty to take each once."""
        return ()

    def _kept(self, data: Table, tree: int) -> tuple[int, ...]:
        """Return the candidates that a tree may use; empty for all."""
        return ()

    def _walk(self, walker: Walker, data: Table) -> None:
        bits, y = self._bits(walker, data), data.load_labels(walker)
        for at in range(self._count(data.classes)):
            tree = f"{self._name}/tree {at}"
            walker.run(_weighed, uses={"y": y}, gives=f"{tree}/", coins=self._coins(at))
            sums, kept = f"{tree}/sums", self._kept(data, at)
            grow(walker, self._growth(), bits=bits, sums=sums, name=tree, kept=kept)
            _tidy(walker, tree)

    def _scores(self, walker: Walker, data: Table, name: str) -> None:
        count = self._count(data.classes)
        found = self._added(walker, data, name, range(count))
        uses = {str(at): one for at, one in enumerate(found)}
        walker.run(_sum, uses=uses, gives=f"{name}/scores", factor=1 / count)


class RandomForestClassifier(DecisionTreeClassifier):
    """Trees on rows and features drawn by public coins; their class shares are averaged.

    Args:
        n_estimators: how many trees.
        max_depth: of each.
        max_features: the share of features that a tree may use.
        max_bins: into how many bins a feature is cut.
        min_samples_leaf: rows that each side of a split must have.
        edges: for owners of rows, where features are cut.
        random_state: of the public coins, which say how often a row counts, not what is in it.
    """

    def __init__(
        self,
        n_estimators: int = 10,
        *,
        max_depth: int = 4,
        max_features: float = 0.5,
        max_bins: int = 16,
        min_samples_leaf: int = 1,
        edges: Edges = None,
        random_state: int = 0,
    ) -> None:
        super().__init__(
            max_depth, max_bins=max_bins, min_samples_leaf=min_samples_leaf, edges=edges
        )
        self.n_estimators = n_estimators
        self.max_features = max_features
        self.random_state = random_state

    def _count(self, classes: int) -> int:
        return self.n_estimators

    def _coins(self, tree: int) -> tuple[int, ...]:
        return self.random_state, tree, 0

    def _kept(self, data: Table, tree: int) -> tuple[int, ...]:
        coins = public_coins(self.random_state, tree, 1)
        columns, width = data.shape[1], self.max_bins - 1
        count = max(1, round(self.max_features * columns))
        chosen = sorted(coins.choice(columns, count, replace=False).tolist())
        return tuple(one * width + at for one in chosen for at in range(width))


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
    ) -> None:
        self.n_estimators = n_estimators
        self.learning_rate = learning_rate
        self.max_depth = max_depth
        self.max_bins = max_bins
        self.reg_lambda = reg_lambda
        self.min_child_weight = min_child_weight
        self.gamma = gamma
        self.edges = edges

    def _growth(self) -> Growth:
        return Growth(
            depth=self.max_depth,
            damping=self.reg_lambda,
            least_weight=self.min_child_weight,
            least_gain=self.gamma,
            rate=-self.learning_rate,
            is_mean=self.loss == "squares",
        )

    def _count(self, classes: int) -> int:
        return self.n_estimators * _width(classes)

    def _walk(self, walker: Walker, data: Table) -> None:
        bits, y = self._bits(walker, data), data.load_labels(walker)
        width, margins = _width(data.classes), f"{self._name}/margins"
        # An answer of squares need not go beyond the labels; one of classes saturates anyway.
        limit = LARGEST_MARGIN
        if self.loss == "squares":
            limit = min(limit, 2 * max(one.label_bound for one in data.holdings))
        walker.run(_zero_margins, uses={"y": y}, gives=margins, width=width, limit=limit)
        for step in range(self.n_estimators):
            for column in range(width):
                tree = f"{self._name}/tree {step * width + column}"
                uses = {"y": y, "margins": margins}
                walker.run(_gradients, uses=uses, gives=f"{tree}/", loss=self.loss, column=column)
                grow(walker, self._growth(), bits=bits, sums=f"{tree}/sums", name=tree, kept=())
                uses = {"paths": f"{tree}/paths", "leaves": f"{tree}/leaves"}
                walker.run(_read, uses=uses, gives=f"{tree}/moves")
                _tidy(walker, tree)
            moves = {
                str(column): f"{self._name}/tree {step * width + column}/moves"
                for column in range(width)
            }
            walker.run(_moved, uses={"margins": margins, **moves}, gives=margins, limit=limit)
            for one in moves.values():
                walker.drop(one)

    def _margins(self, walker: Walker, data: Table, name: str, width: int) -> list[str]:
        found = []
        for column in range(width):
            trees = range(column, self.n_estimators * width, width)
            parts = self._added(walker, data, name, trees)
            uses = {str(at): one for at, one in enumerate(parts)}
            walker.run(_sum, uses=uses, gives=f"{name}/margin {column}", factor=1.0)
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
        walker.run(_sum, uses={"0": found}, gives=f"{name}/answers", factor=1.0)


def _width(classes: int) -> int:
    """Return how many margins a row has: one, or one per class where there are several."""
    return classes if classes > 2 else 1


def _tidy(walker: Walker, tree: str) -> None:
    """Forget what was needed only while a tree grew."""
    for one in ("rows", "left", "above", "sums", "paths"):
        walker.drop(f"{tree}/{one}")


def _weighed(ops: Any, values: Values, *, coins: tuple[int, ...]) -> Values:
    """Give one-hot classes, a weight and a one per row, each as often as the row was drawn."""
    y = fixed(ops, values["y"])
    count, classes = ops.shape(y)
    one = ops.shift(ops.scale(ops.take(y, (0,), dim=1), 0.0), 1.0)
    parts = ops.concatenate([y, one], dim=1)
    if coins:
        drawn = public_coins(*coins).integers(count, size=count)
        times = torch.from_numpy(np.bincount(drawn, minlength=count).astype(np.float64))
        parts = ops.weigh(parts, times.reshape(-1, 1))
    parts = ops.concatenate([fixed(ops, parts), one], dim=1)
    return {"sums": ops.reshape(parts, (count, 1, classes + 2))}


def _zero_margins(ops: Any, values: Values, *, width: int, limit: float) -> Values:
    y = fixed(ops, values["y"])
    zero = ops.scale(ops.take(y, [0] * width, dim=1), 0.0)
    return {"": ops.restate(zero, bound=limit)}


LARGEST_MARGIN = 64.0
"""Where margins saturate."""


def _gradients(ops: Any, values: Values, *, loss: str, column: int) -> Values:
    """Give gradient, Hessian and a one per row."""
    y, margins = fixed(ops, values["y"]), values["margins"]
    count = ops.shape(y)[0]
    if loss == "squares":
        gradient = ops.sub(margins, y)
        hessian = ops.shift(ops.scale(margins, 0.0), 1.0)
    else:
        if ops.shape(margins)[1] == 1:
            chance = fixed(ops, ops.sigmoid(margins))
            mine = ops.take(y, (1,), dim=1)
        else:
            chance = ops.take(fixed(ops, ops.softmax(margins, dim=1)), (column,), dim=1)
            mine = ops.take(y, (column,), dim=1)
        gradient = ops.restate(fixed(ops, ops.sub(chance, mine)), bound=1.01)
        hessian = fixed(ops, ops.sub(chance, fixed(ops, ops.square(chance))))
        factor = 1.0 if ops.shape(margins)[1] == 1 else 2.0
        hessian = ops.restate(ops.scale(hessian, factor), bound=0.26 * factor)
    one = ops.shift(ops.scale(fixed(ops, gradient), 0.0), 1.0)
    parts = ops.concatenate([fixed(ops, gradient), fixed(ops, hessian), one], dim=1)
    return {"sums": ops.reshape(parts, (count, 1, 3))}


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


__all__ = [
    "DecisionTreeClassifier",
    "GradientBoostingClassifier",
    "GradientBoostingRegressor",
    "RandomForestClassifier",
]
