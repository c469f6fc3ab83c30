"""Tree ensembles on shares: the rows' owner learns the answer, the forest's owner nothing.

Every tree is padded to a complete one, so that the number of trees, their depth and the number of
scores are all that others learn of the forest. A question "is x <= t?" is asked of whole numbers
that stand in the order of floating-point numbers, so that no rounding comes near a threshold.

Bost et al. 2015 and Wu et al. 2016 answer such questions with homomorphic encryption; here they
are comparisons of the protocol, one for every inner node, all in one go.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

import tacit  # for `tacit.verify`, which is loaded when it is used: it brings a compiler
from tacit.errors import ConfigError, DataError, DisagreementError
from tacit.party import Fact, Session

DEEPEST = 12
"""Complete trees double with every level."""
MOST_LEAVES = 1 << 20  # what a peer may announce, as is the number of columns
MOST_COLUMNS = 1 << 14
KEY_BOUND = float(1 << 31)  # floats of 32 bits have so many places in their order, on either side
LARGEST_SCORE = float(1 << 30)
"""Scores are whole numbers up to this: finer than any that a float of 32 bits tells apart."""
_FIRST, _LAST = -(1 << 31) + 1, (1 << 31) - 1  # before and behind every floating-point number


@dataclass(frozen=True, kw_only=True)
class Forest:
    """A function of ops, and what goes into it. Made by `make_forest` or, without trees, `blank`.

    Attributes:
        trees, depth, features, scores: all that is public.
        takes_missing: whether a row may lack values.
        weights: which column every node asks for, thresholds, and what leaves add.
    """

    trees: int
    depth: int
    features: int
    scores: int
    takes_missing: bool
    weights: Mapping[str, Tensor] = field(repr=False)

    frac_bits = 0  # all of it is whole numbers
    bound = KEY_BOUND
    bounds: ClassVar[Mapping[str, float]] = {
        "select": 1.0,
        "thresholds": KEY_BOUND,
        "leaves": LARGEST_SCORE,
        "base": LARGEST_SCORE,
    }

    @property
    def sizes(self) -> tuple[int, ...]:
        """Return all that is public, as `FOREST` tells it."""
        return self.trees, self.depth, self.features, self.scores, int(self.takes_missing)

    def __call__(self, ops: Any, weights: Mapping[str, Any], x: Any) -> Any:
        """Give (rows, scores); their scale is the owner's."""
        rows, inner = ops.shape(x)[0], (1 << self.depth) - 1
        # Every column of `select` has one 1, so that what it picks is as large as what it has.
        asked = ops.restate(ops.matmul_whole(x, weights["select"]), bound=KEY_BOUND)
        left = ops.indicate(ops.sub(weights["thresholds"], asked))
        left = ops.reshape(left, (rows, self.trees, inner))
        here = None
        for level in range(self.depth):
            first, nodes = (1 << level) - 1, 1 << level
            goes = ops.take(left, range(first, first + nodes), dim=2)
            if here is None:
                sides = [goes, ops.shift(ops.scale(goes, -1.0), 1.0)]
            else:
                taken = ops.mul_whole(goes, here)
                sides = [taken, ops.sub(here, taken)]
            pair = [ops.reshape(one, (rows, self.trees, nodes, 1)) for one in sides]
            joined = ops.reshape(ops.concatenate(pair, dim=3), (rows, self.trees, 2 * nodes))
            here = ops.restate(joined, bound=1.0)
        reached = ops.reshape(here, (rows, self.trees << self.depth))
        # Leaves of one tree exclude each other, and the largest of all trees add up to no more.
        summed = ops.restate(ops.matmul_whole(reached, weights["leaves"]), bound=LARGEST_SCORE)
        return ops.add(summed, weights["base"])

    def prepare(self, x: Tensor) -> Tensor:
        """Turn rows into whole numbers of the same order, missing values before and behind all.

        Raises:
            DataError: another number of columns, or a missing value that the model does not take.
        """
        if x.dim() != 2 or x.shape[1] != self.features:
            raise DataError(
                f"the model wants rows of {self.features} columns, got {tuple(x.shape)}"
            )
        is_missing = x.isnan()
        if not self.takes_missing and bool(is_missing.any()):
            raise DataError("the rows have missing values (NaN), which the model does not take")
        keys = torch.from_numpy(order_of(x.double().numpy()).astype(np.float64))
        if not self.takes_missing:
            return keys
        sides = [keys.masked_fill(is_missing, side) for side in (_FIRST, _LAST)]
        return torch.cat(sides, dim=1)


def order_of(values: npt.ArrayLike) -> npt.NDArray[np.int64]:
    """Number floating-point values of 32 bits in their order; both zeros are 0."""
    bits = np.asarray(values, dtype=np.float32).view(np.int32).astype(np.int64)
    return np.where(bits < 0, -(bits & 0x7FFFFFFF), bits)


def blank(trees: int, depth: int, features: int, scores: int, *, takes_missing: bool) -> Forest:
    """Return a forest of these sizes with nothing in it, for parties that do not own it.

    Raises:
        ConfigError: no such forest can be computed.
    """
    if not (1 <= depth <= DEEPEST and trees >= 1 and features >= 1 and scores >= 1):
        raise ConfigError(
            f"wanted trees of depth 1 to {DEEPEST}, got {trees} trees of depth {depth}: complete "
            "trees double with every level; train shallower ones"
        )
    columns, inner = features * (2 if takes_missing else 1), trees * ((1 << depth) - 1)
    shapes = {
        "select": (columns, inner),
        "thresholds": (1, inner),
        "leaves": (trees << depth, scores),
        "base": (1, scores),
    }
    weights = {name: torch.zeros(shape, dtype=torch.float64) for name, shape in shapes.items()}
    return Forest(
        trees=trees,
        depth=depth,
        features=features,
        scores=scores,
        takes_missing=takes_missing,
        weights=weights,
    )


FOREST = Fact(
    tag="forest",
    count=5,
    what="how many trees of which depth, columns and classes the forest has",
)


def agree_on_forest(session: Session, owner: str, mine: Forest | None) -> Forest:
    """Tell or learn how many trees of which depth there are; all else of a forest is its owner's.

    Raises:
        DisagreementError: the owner announces what nobody could compute.
    """
    if mine is not None:
        session.publish(FOREST, mine.sizes)
        return mine
    return announced_forest(owner, session.learn(owner, FOREST))


def announced_forest(owner: str, sizes: tuple[int, ...]) -> Forest:
    """Return a forest of the sizes that its owner has announced, with nothing in it.

    Raises:
        DisagreementError: they are those of a forest that nobody could compute.
    """
    trees, depth, features, scores, takes_missing = sizes
    if trees << min(max(depth, 0), DEEPEST) > MOST_LEAVES or max(features, scores) > MOST_COLUMNS:
        raise DisagreementError(owner, f"announced a forest that nobody can compute: {sizes}")
    try:
        return blank(trees, depth, features, scores, takes_missing=bool(takes_missing))
    except ConfigError as error:
        raise DisagreementError(owner, str(error)) from error


def make_forest(ensemble: "tacit.verify.Ensemble", *, is_class: bool) -> Forest:
    """Lay an ensemble out as complete trees.

    Args:
        ensemble: as `tacit.verify.import_ensemble` reads models of XGBoost, LightGBM, scikit-learn.
        is_class: whether the answer will be a class; scores then have no scale of their own, and
            a binary model has two.

    Raises:
        DataError: the model asks for categories, or regresses where a class is wanted.
        ConfigError: its trees are too deep.
    """
    if ensemble.categories is not None:
        raise DataError(
            f"{ensemble.origin} asks for categories, which are not computed on shares; train it "
            "on one-hot columns"
        )
    if not is_class or ensemble.task == "regress":
        raise DataError(
            f"{ensemble.origin}: a forest on shares answers with a class: reveal='class', and a "
            "classifier"
        )
    is_binary = ensemble.n_scores == 1
    depth, takes_missing = max(1, ensemble.depth), ensemble.takes_missing
    scores = 2 if is_binary else ensemble.n_scores
    sizes = (ensemble.n_trees, depth, ensemble.n_features, scores)
    found = blank(*sizes, takes_missing=takes_missing)
    values = ensemble.value / ensemble.divisor
    base = ensemble.base / ensemble.divisor
    if is_binary:  # class 1 from the cut-off on: the first of two equal scores would win
        base = base - ensemble.cutoff
        base, values = (np.stack([0 * one[..., 0], one[..., 0]], axis=-1) for one in (base, values))
    inner, leaves = (1 << depth) - 1, 1 << depth
    select = np.zeros(found.weights["select"].shape)
    thresholds = np.full((1, found.trees * inner), float(_LAST))  # whatever is asked goes left
    added = np.zeros((found.trees * leaves, scores))
    at = np.arange(found.trees)  # the node of every place of a level, tree by tree
    nodes = ensemble.roots.reshape(-1, 1)
    for level in range(depth):
        places = at[:, None] * inner + (1 << level) - 1 + np.arange(1 << level)
        is_inner = ensemble.feature[nodes] >= 0
        asks, where = nodes[is_inner], places[is_inner]
        columns = ensemble.feature[asks].astype(np.int64)
        if takes_missing:  # the second half of the columns sends missing values right
            columns = columns + np.where(ensemble.missing_left[asks], 0, ensemble.n_features)
        select[columns, where] = 1.0
        thresholds[0, where] = _floor_of(ensemble.threshold[asks])
        left = np.where(is_inner, ensemble.left[nodes], nodes)
        right = np.where(is_inner, ensemble.right[nodes], nodes)
        nodes = np.stack([left, right], axis=2).reshape(found.trees, 2 << level)
    # A leaf above the last level stands in all places below it: nothing more is asked.
    added[:] = values[nodes.reshape(-1)]
    # The scale of scores decides nothing; so it is taken out, and tells nothing.
    by_tree = np.abs(added).reshape(found.trees, leaves, scores).max(axis=1).sum(axis=0)
    room = LARGEST_SCORE - found.trees - 1  # every leaf is rounded
    scale = room / max(float(by_tree.max()), float(np.abs(base).max()), 1e-300)
    arrays = {
        "select": select,
        "thresholds": thresholds,
        "leaves": (added * scale).round(),
        "base": ((base * scale).round() + (np.array([0, 1]) if is_binary else 0)).reshape(1, -1),
    }
    weights = {name: torch.from_numpy(np.ascontiguousarray(one)) for name, one in arrays.items()}
    return Forest(**{**found.__dict__, "weights": weights})


def _floor_of(thresholds: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    """Number the largest 32-bit value that is not above each threshold."""
    rounded = thresholds.astype(np.float32)
    is_above = rounded.astype(np.float64) > thresholds
    lower = np.nextafter(rounded, np.float32(-np.inf))
    return order_of(np.where(is_above, lower, rounded))
