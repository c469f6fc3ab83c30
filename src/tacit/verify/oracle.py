"""Questions about one input: may these features go free while the others stay within eps?"""

import numpy as np
import numpy.typing as npt

from tacit.verify.box import Box, box_cells
from tacit.verify.incremental import Hold
from tacit.verify.kernels.attack.neighbours import find_others, put_back
from tacit.verify.kernels.presolve.scores import FOUND, PAUSED
from tacit.verify.models.ensemble import Ensemble
from tacit.verify.objectives import make_sides
from tacit.verify.robustness import Budget, search_cells

Cells = npt.NDArray[np.int32]
Bools = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]


MANY_NODES, FEW_NODES = 8, 4
"""Nodes of the quick search, and after a question that it could not answer."""


class Quest:
    """One input, the ways known to change its prediction, and how much was asked.

    A *way* is a set of features that changes the prediction when they are free, whatever else is.
    """

    def __init__(self, ensemble: Ensemble, near: Box, far: Box, rho: float | None) -> None:
        self._ensemble = ensemble
        self._near, self._far = box_cells(ensemble, near), box_cells(ensemble, far)
        self._home = box_cells(ensemble, Box(near.center, near.center, near.center))[0]
        self._sides = make_sides(ensemble, ensemble.predict(near.center[None])[0], rho)
        self._ways = np.zeros((16, ensemble.n_features), dtype=bool)
        self._n_ways = 0
        self._quick = MANY_NODES
        self._hold = Hold(ensemble, self._sides, self._home)
        self.count = 0
        self.n_sides = self._sides.plus.size
        self.matters = (self._far[0] < self._near[0]) | (self._far[1] > self._near[1])
        """Features that reach further cells when they are free."""

    def count_asked(self) -> Ints:
        """Count, per feature, how often the trees ask for it on the way of the input."""
        packed, nodes = self._ensemble.index.trees.packed, self._ensemble.index.trees.roots
        counts = np.zeros(self._home.size, dtype=np.int64)
        while nodes.size:
            nodes = nodes[packed[nodes, 0] >= 0]
            feature, rank, left, right = packed[nodes].T
            counts += np.bincount(feature, minlength=counts.size)
            nodes = np.where(self._home[feature] <= rank, left, right)
        return counts

    def ask(self, is_free: Bools, order: Ints, budget: Budget) -> tuple[int, Bools]:
        """Decide whether some input changes the prediction: PROVED, FOUND, BLURRED or PAUSED.

        If it is FOUND, a way comes with it that needs only free features; a known one answers
        without a search. A new one is made small: features that it does not need are brought
        back, in the given order.
        """
        self.count += 1
        known = self._ways[: self._n_ways]
        within = np.flatnonzero(~(known & ~is_free).any(axis=1))
        if within.size:
            return FOUND, known[within[-1]]
        was_free = is_free.copy()
        was_free[order] = False
        outcome, near_miss, cells = self._search(is_free, was_free, budget)
        if outcome != FOUND:
            return outcome, np.zeros_like(is_free)
        index = self._ensemble.index
        put_back(index.trees, index.rule, self._sides, cells, *self._near, order)
        way = self._remember(cells)
        if near_miss is not None:
            self._look_around(near_miss, was_free)
        return FOUND, way

    def _search(
        self, is_free: Bools, was_free: Bools, budget: Budget
    ) -> tuple[int, Cells | None, Cells]:
        """Search quickly, then from what is proved, then for as long as it takes.

        Returns:
            the outcome; cells close to the barrier where only `was_free` is free, if there are
            any; the cells of a counterexample if it is FOUND.
        """
        if self._hold.is_empty:
            quick = self._quick if budget.nodes is None else min(self._quick, budget.nodes)
            outcome, nodes, cells = self._search_anew(is_free, Budget(quick, budget.seconds))
            # Where one question was hard, the next is likely to be.
            self._quick = FEW_NODES if outcome == PAUSED else MANY_NODES
            if outcome != PAUSED or nodes == budget.nodes:
                return outcome, None, cells
        box, inside = self._box(is_free), self._box(was_free)
        outcome, nodes, cells = self._hold.widen(*box, budget.nodes, inside=inside)
        if outcome == FOUND:
            return outcome, self._hold.near_miss, cells
        if outcome == PAUSED and nodes != budget.nodes:
            outcome, _, cells = self._search_anew(is_free, budget)
        return outcome, None, cells

    def _search_anew(self, is_free: Bools, budget: Budget) -> tuple[int, int, Cells]:
        low, high = self._box(is_free)
        outcome, nodes = search_cells(self._ensemble, self._sides, low, high, budget)
        return outcome, nodes, np.clip(self._home, low, high)

    def _box(self, is_free: Bools) -> tuple[Cells, Cells]:
        low, high = (np.where(is_free, *ends) for ends in zip(self._far, self._near, strict=True))
        return low, high

    def _look_around(self, cells: Cells, was_free: Bools) -> None:
        """Find every feature that changes the prediction when it alone moves as well."""
        needed = self._ways[: self._n_ways] & ~was_free
        is_known = needed[needed.sum(axis=1) == 1].any(axis=0)
        candidates = np.flatnonzero(self.matters & ~was_free & ~is_known)
        found = find_others(self._ensemble.index, self._sides, cells, *self._far, candidates)
        base = self._moved(cells)
        for f in candidates[found]:
            base[f] = True
            self._keep(base)
            base[f] = False

    def _moved(self, cells: Cells) -> Bools:
        return np.asarray((cells < self._near[0]) | (cells > self._near[1]))

    def _remember(self, cells: Cells) -> Bools:
        way = self._moved(cells)
        self._keep(way)
        return way

    def _keep(self, way: Bools) -> None:
        if self._n_ways == len(self._ways):
            self._ways = np.concatenate([self._ways, np.zeros_like(self._ways)])
        self._ways[self._n_ways] = way
        self._n_ways += 1
