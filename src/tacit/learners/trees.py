"""Trees and forests: what is grown, for which targets, and how answers are read off."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from tacit.errors import ConfigError, DataError
from tacit.learners.arithmetic import fixed, public_coins, row_weights
from tacit.learners.base import Learner
from tacit.learners.bins import Binning, Block, check_categories, cut
from tacit.learners.classify import Classifier
from tacit.learners.growing import Growth, follow, grow
from tacit.learners.tables import Table, check_weights, join_rows
from tacit.mpc.walker import Values, Walker

Edges = Sequence[Sequence[float]] | None


class Trees(Learner):
    """What all learners of trees share: bins, growth, and a sum over trees."""

    binning_: Binning
    takes_missing = True
    max_depth: int
    max_bins: int
    edges: Edges
    categorical: tuple[int, ...]
    class_weight: tuple[float, ...] | None

    def _check(self, data: Table) -> None:
        super()._check(data)
        if not 1 <= self.max_depth <= 8:
            raise ConfigError(
                f"max_depth must be from 1 to 8, got {self.max_depth}: trees are complete, and "
                "cost doubles with every level"
            )
        check_categories(data, self.categorical, self.max_bins)
        check_weights(self.class_weight, data)

    def _blocks(self, walker: Walker, data: Table) -> tuple[Block, ...]:
        if getattr(self, "_binned", "") != self._name:
            self.binning_ = cut(
                data,
                name=self._name,
                bins=self.max_bins,
                edges=self.edges,
                categorical=self.categorical,
            )
            self._binned = self._name
        return self.binning_.load(walker, data)

    def _check_question(self, data: Table) -> None:
        if data.has_missing and not self.binning_.has_missing:
            raise DataError("these trees were grown without missing values and cannot place them")

    def _shares(self) -> tuple[float, ...] | None:
        """Return class weights, the largest of them 1: what is summed must fit."""
        given = self.class_weight
        return None if given is None else tuple(one / max(given) for one in given)

    def _unit(self) -> float:
        """Return by what all weights were divided; thresholds of weights and gains are as well."""
        return 1.0 if self.class_weight is None else max(self.class_weight)

    @abstractmethod
    def _growth(self) -> Growth:
        """Return how trees are grown."""

    @abstractmethod
    def _count(self, classes: int) -> int:
        """Return how many trees there are."""

    def _grow(
        self,
        walker: Walker,
        blocks: Sequence[Block],
        tree: str,
        sums: Sequence[str],
        kept: tuple[int, ...] = (),
    ) -> None:
        """Grow a tree for sums of every block, of some candidates or, if none are named, of all."""
        columns = sum(one.columns for one in blocks[0].parts) // self.binning_.width
        firsts = self.binning_.firsts(columns, self.categorical)
        grow(
            walker,
            self._growth(),
            blocks=blocks,
            sums=sums,
            name=tree,
            kept=kept,
            firsts=firsts,
        )

    def _added(self, walker: Walker, data: Table, name: str, trees: Sequence[int]) -> list[str]:
        """Send rows down some trees; return the names of what their leaves add up to."""
        blocks, found = self._blocks(walker, data), []
        for at in trees:
            tree = f"{name}/tree {at}"
            answers = f"{tree}/answers of {data.name}"
            parts = [f"{answers} from {block.start}" for block in blocks]
            for block, part in zip(blocks, parts, strict=True):
                follow(walker, block=block, tree=tree, depth=self.max_depth, gives=f"{part}/paths")
                uses = {"paths": f"{part}/paths", "leaves": f"{tree}/leaves"}
                walker.run(read, uses=uses, gives=part)
                walker.drop(f"{part}/paths")
            found.append(join_rows(walker, parts, answers))
            for part in parts:
                walker.drop(part)
        return found


def read(ops: Any, values: Values) -> Values:
    """Give every row the value of its leaf."""
    bound = ops.number(values["leaves"], "reading").bound
    found = ops.pick(values["paths"], values["leaves"])
    return {"": ops.restate(fixed(ops, found), bound=bound)}


def sum_of(ops: Any, values: Values, *, factor: float) -> Values:
    """Add up what several trees say, times a public factor."""
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
        categorical: columns that are categories, whole numbers below max_bins - 1; one is split
            from all others.
        class_weight: one public factor per class, by which rows count.
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
        categorical: tuple[int, ...] = (),
        class_weight: tuple[float, ...] | None = None,
    ) -> None:
        self.max_depth = max_depth
        self.max_bins = max_bins
        self.min_samples_leaf = min_samples_leaf
        self.edges = edges
        self.categorical = categorical
        self.class_weight = class_weight

    def _growth(self) -> Growth:
        return Growth(
            depth=self.max_depth,
            damping=2.0**-4 / self._unit(),
            least_weight=(self.min_samples_leaf - 0.5) / self._unit(),
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
        blocks, y = self._blocks(walker, data), data.load_labels(walker)
        for at in range(self._count(data.classes)):
            tree = f"{self._name}/tree {at}"
            public: dict[str, Any] = {"coins": self._coins(at), "weights": self._shares()}
            sums = [f"{tree}/sums {one.start}" for one in blocks]
            for block, name in zip(blocks, sums, strict=True):
                public |= {"start": block.start, "rows": block.rows}
                walker.run(_weighed, uses={"y": y}, gives=name, **public)
            self._grow(walker, blocks, tree, sums, self._kept(data, at))
            tidy(walker, tree)

    def _scores(self, walker: Walker, data: Table, name: str) -> None:
        count = self._count(data.classes)
        found = self._added(walker, data, name, range(count))
        uses = {str(at): one for at, one in enumerate(found)}
        walker.run(sum_of, uses=uses, gives=f"{name}/scores", factor=1 / count)


class RandomForestClassifier(DecisionTreeClassifier):
    """Trees on rows and features drawn by public coins; their class shares are averaged.

    Args:
        n_estimators: how many trees.
        max_depth: of each.
        max_features: the share of features that a tree may use.
        max_bins: into how many bins a feature is cut.
        min_samples_leaf: rows that each side of a split must have.
        edges: for owners of rows, where features are cut.
        categorical: columns that are categories.
        class_weight: one public factor per class.
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
        categorical: tuple[int, ...] = (),
        class_weight: tuple[float, ...] | None = None,
        random_state: int = 0,
    ) -> None:
        super().__init__(
            max_depth,
            max_bins=max_bins,
            min_samples_leaf=min_samples_leaf,
            edges=edges,
            categorical=categorical,
            class_weight=class_weight,
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
        columns, width = data.shape[1], self.binning_.width
        count = max(1, round(self.max_features * columns))
        chosen = sorted(coins.choice(columns, count, replace=False).tolist())
        return tuple(one * width + at for one in chosen for at in range(width))


def tidy(walker: Walker, tree: str) -> None:
    """Forget what was needed only while a tree grew."""
    for one in ("sums", "paths"):
        walker.drop(f"{tree}/{one} ")


def _weighed(
    ops: Any,
    values: Values,
    *,
    start: int,
    rows: int,
    coins: tuple[int, ...],
    weights: tuple[float, ...] | None,
) -> Values:
    """Give one-hot classes and a weight per row, each as often as the row was drawn."""
    count = ops.shape(values["y"])[0]
    y = fixed(ops, ops.take(values["y"], range(start, start + rows), dim=0))
    weight = ops.shift(ops.scale(ops.take(y, (0,), dim=1), 0.0), 1.0)
    if weights is not None:
        weight = row_weights(ops, y, weights)
        y = ops.restate(fixed(ops, ops.weigh(y, torch.tensor([weights]))), bound=1.0)
    parts = ops.concatenate([y, weight], dim=1)
    if coins:
        drawn = public_coins(*coins).integers(count, size=count)
        times = np.bincount(drawn, minlength=count)[start : start + rows].astype(np.float64)
        # The same bound for every block: they are added up.
        bound = ops.number(parts, "weighing").bound * max(1.0, float(np.bincount(drawn).max()))
        parts = ops.weigh(parts, torch.from_numpy(times).reshape(-1, 1))
        parts = ops.restate(fixed(ops, parts), bound=bound)
    return {"": fixed(ops, parts)}
