"""One form for all tree ensembles, exact in the arithmetic of the library that trained them.

Every split is stored as *go left when key(x) <= threshold*, where ``key`` rounds the input to the
library's own input type. A library that asks ``x < t`` (XGBoost) becomes ``x <= the number before
t`` in that type, so both kinds of comparison, float32 and float64, are one and the same here.

Scores are summed tree by tree, in order, in the library's own type, starting from ``base``; then
divided by ``divisor``. That is what XGBoost (float32), LightGBM and scikit-learn (float64, one
thread) do, so scores are bit-equal to theirs.

A question about a category is asked of a column of its own, behind the features: it holds 0 where
the row's category goes left and 1 where it goes right (`Categories` says which).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial
from typing import Literal, Required, TypedDict

import numpy as np
import numpy.typing as npt

from tacit.data.memory import numbers_of, to_array
from tacit.errors import DataError
from tacit.verify.kernels.presolve.scores import sum_scores
from tacit.verify.kernels.presolve.workspace import Cases
from tacit.verify.kernels.tables import Bools, Floats, Index, Ints, Objectives, Outputs, Reals
from tacit.verify.models.categories import Categories, take_out
from tacit.verify.models.index import make_index

Number = Literal["float32", "float64"]
Task = Literal["classify", "regress"]

LARGEST_CLASS_COUNT = 1000
MOST_CONDITIONED = 16
"""Conditioned ensembles that are kept for rows to come; each has tables of its own."""
CHUNK_ANSWERS = 1 << 22
"""Ranges of categories, over all rows, that are looked through at a time."""


class Decision(TypedDict, total=False):
    """How sums become a prediction: those fields of an `Ensemble`."""

    task: Required[Task]
    cutoff: float
    guard: float


class Facts(Decision, total=False):
    """Every field of an `Ensemble` that is not one of its trees."""

    base: Required[Floats]
    n_features: Required[int]
    origin: str
    input_type: Number
    sum_type: Number
    divisor: float
    takes_missing: bool
    categories: Categories


@dataclass(frozen=True, kw_only=True, eq=False)
class Ensemble:
    """A sum of decision trees and the rule that turns the sum into a prediction.

    Args:
        roots: the root node of every tree, in the order in which they are summed.
        feature: the feature a node asks for, -1 at a leaf; from `n_features` on, the question of
            `categories` that it asks.
        threshold: the largest key that goes left.
        left, right: the children of a node.
        missing_left: whether a missing value (NaN) goes left.
        value: what a leaf adds to each score; one row per node, one column per score.
        base: what the scores start from.
        n_features: how many features an input has.
        task: ``classify`` or ``regress``. A classifier with one score is binary.
        input_type: the type to which an input is rounded before it is compared.
        sum_type: the type in which scores are summed.
        divisor: what the sums are divided by, for a library that averages.
        cutoff: a binary classifier says class 1 when its score is at least this.
        guard: how far two scores must lie apart for the library's softmax to keep their order.
        origin: where the model comes from, for messages.
        integer: which features hold whole numbers; made by `with_integers`.
        takes_missing: whether the library takes rows with missing values.
        categories: the questions about categories, if there are any.
    """

    roots: Ints
    feature: Ints
    threshold: Floats
    left: Ints
    right: Ints
    missing_left: Bools
    value: Floats
    base: Floats
    n_features: int
    task: Task
    input_type: Number = "float64"
    sum_type: Number = "float64"
    divisor: float = 1.0
    cutoff: float = 0.0
    guard: float = 0.0
    origin: str = "made by hand"
    integer: Bools | None = None
    takes_missing: bool = False
    categories: Categories | None = None

    def __post_init__(self) -> None:
        _check_arrays(self)
        _check_numbers(self)
        _check_trees(self)

    @property
    def n_scores(self) -> int:
        """How many scores the trees sum up."""
        return int(self.value.shape[1])

    @property
    def width(self) -> int:
        """How many columns a node can ask for: features, and answers about categories."""
        return self.n_features + (0 if self.categories is None else self.categories.feature.size)

    @cached_property
    def is_category(self) -> Bools:
        """Which features are asked for as categories."""
        asked = np.zeros(self.n_features, dtype=bool)
        if self.categories is not None:
            asked[self.categories.feature] = True
        return asked

    @property
    def n_classes(self) -> int:
        """How many classes there are; 0 for a regression."""
        if self.task == "regress":
            return 0
        return max(2, self.n_scores)

    @property
    def n_trees(self) -> int:
        """How many trees are summed."""
        return int(self.roots.size)

    @property
    def depth(self) -> int:
        """How many questions the longest path asks."""
        return self.index.trees.depth

    @cached_property
    def index(self) -> Index:
        """The tables the search works on, made once."""
        return make_index(self)

    @cached_property
    def objectives(self) -> dict[int, Objectives]:
        """What could overturn each class, kept by `make_objectives` once it is known."""
        return {}

    @cached_property
    def cases(self) -> list[Cases]:
        """The same of all classes in one record, kept by `state_cases` once it is known."""
        return []

    @cached_property
    def conditioned(self) -> "Callable[[bytes], Ensemble]":
        """What is left once some questions are answered, kept for rows that answer alike."""
        return lru_cache(MOST_CONDITIONED)(partial(take_out, self))

    def scores(self, x: npt.ArrayLike) -> Reals:
        """Compute the scores of each row, bit-equal to the library's margins (or averages)."""
        rows = check_rows(self, x)
        out = np.empty((len(rows), self.n_scores))
        for part in self._parts(len(rows)):
            keys = np.ascontiguousarray(self.to_columns(rows[part]))
            sum_scores(self.index.trees, self.index.rule, keys, out[part])
        return out.astype(self.sum_type)

    def to_columns(self, rows: Reals) -> Floats:
        """Round rows to keys, and add the answers about their categories."""
        keys = np.asarray(rows, dtype=self.input_type).astype(np.float64)
        if self.categories is None:
            return keys
        return np.concatenate([keys, self.categories.answer(keys)], axis=1)

    def _parts(self, rows: int) -> list[slice]:
        size = max(rows, 1)
        if self.categories is not None:
            size = max(1, CHUNK_ANSWERS // max(1, self.categories.low.size))
        return [slice(start, start + size) for start in range(0, rows, size)]

    def predict(self, x: npt.ArrayLike) -> Outputs:
        """Predict a class index per row, or the output of a regression."""
        return decide(self, self.scores(x))


def with_integers(ensemble: Ensemble, features: Sequence[int]) -> Ensemble:
    """Declare features to hold whole numbers: no fraction is then tried as an attack.

    Their thresholds are rounded down, which changes no prediction at whole numbers.
    """
    integer = np.zeros(ensemble.n_features, dtype=bool)
    if any(not 0 <= feature < ensemble.n_features for feature in features):
        raise DataError(
            f"features are numbered 0 to {ensemble.n_features - 1}, got {sorted(features)}"
        )
    integer[list(features)] = True
    is_whole = np.isin(ensemble.feature, np.flatnonzero(integer))
    threshold = np.where(is_whole, np.floor(ensemble.threshold), ensemble.threshold)
    return replace(ensemble, threshold=threshold, integer=integer)


def decide(ensemble: Ensemble, scores: Reals) -> Outputs:
    """Turn scores into class indices (or outputs) as the library does."""
    if ensemble.task == "regress":
        return scores[:, 0]
    if ensemble.n_scores == 1:
        return np.asarray(scores[:, 0].astype(np.float64) >= ensemble.cutoff, dtype=np.int64)
    chances = scores if ensemble.guard == 0.0 else _softmax(scores)
    return np.asarray(np.argmax(chances, axis=1))


def check_rows(ensemble: Ensemble, x: npt.ArrayLike) -> Reals:
    """Bring inputs into the shape (rows, features), or say what is wrong with them."""
    rows = to_array(x)
    if rows.dtype.kind not in "fiub" or rows.dtype.itemsize > 8:
        rows = numbers_of(x, whose="inputs")
    if rows.ndim < 2:
        rows = np.atleast_2d(rows)
    if rows.ndim != 2 or rows.shape[1] != ensemble.n_features:
        raise DataError(
            f"the ensemble has {ensemble.n_features} features, got inputs of shape {rows.shape}"
        )
    return rows.astype(np.float64) if rows.dtype.kind in "iub" else rows


def _softmax(scores: Reals) -> Reals:
    # Rounding may make two close scores equally probable; then the first class wins.
    shifted = (scores - scores.max(axis=1, keepdims=True)).astype(np.float64)
    raised = np.exp(shifted).astype(scores.dtype)
    total = raised.astype(np.float64).sum(axis=1, keepdims=True)
    return np.asarray(raised / total.astype(scores.dtype))


def _check_arrays(ensemble: Ensemble) -> None:
    nodes = ensemble.feature.shape[0]
    for name in ("threshold", "left", "right", "missing_left"):
        if getattr(ensemble, name).shape != (nodes,):
            raise DataError(f"{name} must have one entry per node ({nodes}) in {ensemble.origin}")
    if ensemble.value.ndim != 2 or ensemble.value.shape[0] != nodes:
        raise DataError(f"value must have one row per node, got shape {ensemble.value.shape}")
    if ensemble.base.shape != (ensemble.n_scores,):
        raise DataError(
            f"base must hold {ensemble.n_scores} numbers, got shape {ensemble.base.shape}"
        )
    if ensemble.task == "regress" and ensemble.n_scores != 1:
        raise DataError(f"a regression must have one output, this one has {ensemble.n_scores}")
    if ensemble.n_scores > LARGEST_CLASS_COUNT or not ensemble.n_trees:
        raise DataError(
            f"want 1 to {LARGEST_CLASS_COUNT} scores and at least one tree, "
            f"got {ensemble.n_scores} scores and {ensemble.n_trees} trees"
        )


def _check_numbers(ensemble: Ensemble) -> None:
    leaves = ensemble.feature < 0
    if np.isnan(ensemble.threshold[~leaves]).any():
        raise DataError(f"{ensemble.origin} has a threshold that is not a number")
    if not (np.isfinite(ensemble.value[leaves]).all() and np.isfinite(ensemble.base).all()):
        raise DataError(f"{ensemble.origin} has a leaf value or base score that is not finite")
    asked = ensemble.categories
    if asked is not None and ((asked.feature < 0) | (asked.feature >= ensemble.n_features)).any():
        raise DataError(f"{ensemble.origin} asks for a category of a feature that it has not")
    if (ensemble.feature >= ensemble.width).any():
        raise DataError(
            f"{ensemble.origin} asks for feature {int(ensemble.feature.max())}, "
            f"but has only {ensemble.n_features}"
        )


def _check_trees(ensemble: Ensemble) -> None:
    # A node with two parents, or none, would make the search loop or miss leaves.
    nodes = ensemble.feature.shape[0]
    inner = ensemble.feature >= 0
    children = np.concatenate([ensemble.left[inner], ensemble.right[inner], ensemble.roots])
    if children.size and (children.min() < 0 or children.max() >= nodes):
        raise DataError(f"{ensemble.origin} points to a node that does not exist")
    parents = np.bincount(children, minlength=nodes)
    if (parents > 1).any():
        raise DataError(f"{ensemble.origin} has a node with two parents: its trees are not trees")
    seen = np.zeros(nodes, dtype=bool)
    front = ensemble.roots
    while front.size:
        seen[front] = True
        front = front[ensemble.feature[front] >= 0]
        front = np.concatenate([ensemble.left[front], ensemble.right[front]])
    if not seen.all():
        raise DataError(f"{ensemble.origin} has nodes that no root leads to")
