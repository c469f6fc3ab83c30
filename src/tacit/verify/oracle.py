"""The oracle of explanations: may these features go free while the others stay within eps?

And what is proved about one input, kept so that a little more can be proved from it.
"""

import numpy as np

from tacit.verify.box import Box, Intervals, box_intervals
from tacit.verify.kernels.attack.diving import Instance, near_miss
from tacit.verify.kernels.attack.neighbours import find_others, put_back
from tacit.verify.kernels.attack.tabu import make_tabu
from tacit.verify.kernels.layout.reach import Reach, Segments, reach
from tacit.verify.kernels.search.branch import make_state
from tacit.verify.kernels.search.cover import Cover, close, cover_whole, match_segments, transfer
from tacit.verify.kernels.search.problem import make_load, make_problem, order_objectives
from tacit.verify.kernels.tables import Bools, Longs, Objectives, Outcome, worse
from tacit.verify.models.ensemble import Ensemble
from tacit.verify.objectives import make_objectives
from tacit.verify.robustness import search_box
from tacit.verify.verdict import Budget

MANY_NODES, FEW_NODES = 8, 4
"""Nodes of the quick search, and after a question that it could not answer."""


class ExplanationOracle:
    """One input, the contrasts known to change its prediction, and how much was asked.

    A *contrast* (a contrastive explanation) is a set of features that changes the prediction when
    they are free, whatever else is.
    """

    def __init__(self, ensemble: Ensemble, near: Box, far: Box, rho: float | None) -> None:
        self._ensemble = ensemble
        self._near, self._far = box_intervals(ensemble, near), box_intervals(ensemble, far)
        self._home = box_intervals(ensemble, Box(near.center, near.center, near.center))[0]
        self._objectives = make_objectives(ensemble, ensemble.predict(near.center[None])[0], rho)
        self._contrasts = np.zeros((16, ensemble.n_features), dtype=bool)
        self._n_contrasts = 0
        self._quick = MANY_NODES
        self._verifier = IncrementalVerifier(ensemble, self._objectives, self._home)
        self.count = 0
        self.n_objectives = self._objectives.plus.size
        self.matters = (self._far[0] < self._near[0]) | (self._far[1] > self._near[1])
        """Features that reach further intervals when they are free."""

    def count_asked(self) -> Longs:
        """Count, per feature, how often the trees ask for it on the way of the input."""
        packed, nodes = self._ensemble.index.trees.packed, self._ensemble.index.trees.roots
        counts = np.zeros(self._home.size, dtype=np.int64)
        while nodes.size:
            nodes = nodes[packed[nodes, 0] >= 0]
            feature, rank, left, right = packed[nodes].T
            counts += np.bincount(feature, minlength=counts.size)
            nodes = np.where(self._home[feature] <= rank, left, right)
        return counts

    def ask(self, is_free: Bools, order: Longs, budget: Budget) -> tuple[Outcome, Bools]:
        """Decide whether some input changes the prediction, where these features are free.

        With a counterexample comes a contrast that needs only free features; a known one answers
        without a search. A new one is made small: features that it does not need are brought
        back, in the given order.
        """
        self.count += 1
        known = self._contrasts[: self._n_contrasts]
        within = np.flatnonzero(~(known & ~is_free).any(axis=1))
        if within.size:
            return Outcome.COUNTEREXAMPLE, known[within[-1]]
        was_free = is_free.copy()
        was_free[order] = False
        outcome, near_miss, intervals = self._search(is_free, was_free, budget)
        if outcome != Outcome.COUNTEREXAMPLE:
            return outcome, np.zeros_like(is_free)
        put_back(self._ensemble.index, self._objectives, intervals, *self._near, order)
        contrast = self._remember(intervals)
        if near_miss is not None:
            self._look_around(near_miss, was_free)
        return Outcome.COUNTEREXAMPLE, contrast

    def _search(
        self, is_free: Bools, was_free: Bools, budget: Budget
    ) -> tuple[Outcome, Intervals | None, Intervals]:
        """Search quickly, then from what is proved, then for as long as it takes.

        Returns:
            the outcome; intervals close to the threshold where only `was_free` is free, if there
            are any; the intervals of a counterexample, if there is one.
        """
        if self._verifier.is_empty:
            quick = self._quick if budget.nodes is None else min(self._quick, budget.nodes)
            outcome, nodes, intervals = self._search_anew(is_free, Budget(quick, budget.seconds))
            # Where one question was hard, the next is likely to be.
            self._quick = FEW_NODES if outcome == Outcome.UNDECIDED else MANY_NODES
            if outcome != Outcome.UNDECIDED or nodes == budget.nodes:
                return outcome, None, intervals
        box, inside = self._box(is_free), self._box(was_free)
        outcome, nodes, intervals = self._verifier.extend(*box, budget.nodes, inside=inside)
        if outcome == Outcome.COUNTEREXAMPLE:
            return outcome, self._verifier.near_miss, intervals
        if outcome == Outcome.UNDECIDED and nodes != budget.nodes:
            outcome, _, intervals = self._search_anew(is_free, budget)
        return outcome, None, intervals

    def _search_anew(self, is_free: Bools, budget: Budget) -> tuple[Outcome, int, Intervals]:
        low, high = self._box(is_free)
        outcome, nodes = search_box(self._ensemble, self._objectives, low, high, budget)
        return outcome, nodes, np.clip(self._home, low, high)

    def _box(self, is_free: Bools) -> tuple[Intervals, Intervals]:
        low, high = (np.where(is_free, *ends) for ends in zip(self._far, self._near, strict=True))
        return low, high

    def _look_around(self, intervals: Intervals, was_free: Bools) -> None:
        """Find every feature that changes the prediction when it alone moves as well."""
        needed = self._contrasts[: self._n_contrasts] & ~was_free
        is_known = needed[needed.sum(axis=1) == 1].any(axis=0)
        candidates = np.flatnonzero(self.matters & ~was_free & ~is_known)
        index, objectives = self._ensemble.index, self._objectives
        found = find_others(index, objectives, intervals, *self._far, candidates)
        base = self._moved(intervals)
        for f in candidates[found]:
            base[f] = True
            self._keep(base)
            base[f] = False

    def _moved(self, intervals: Intervals) -> Bools:
        return np.asarray((intervals < self._near[0]) | (intervals > self._near[1]))

    def _remember(self, intervals: Intervals) -> Bools:
        contrast = self._moved(intervals)
        self._keep(contrast)
        return contrast

    def _keep(self, contrast: Bools) -> None:
        if self._n_contrasts == len(self._contrasts):
            self._contrasts = np.concatenate([self._contrasts, np.zeros_like(self._contrasts)])
        self._contrasts[self._n_contrasts] = contrast
        self._n_contrasts += 1


MOST_NODES = 1000
MOST_WORDS = 1 << 24
"""Of messages that one question may add to a cover."""


class IncrementalVerifier:
    """The last box that was proved, and for every objective a proof cover of it."""

    def __init__(self, ensemble: Ensemble, objectives: Objectives, home: Intervals) -> None:
        self._ensemble, self._objectives, self._home = ensemble, objectives, home
        self._proved: tuple[Reach, Segments] | None = None
        self._covers: dict[int, tuple[Cover, int]] = {}
        self._pseudo_costs = np.zeros((objectives.plus.size, ensemble.n_features, 4))
        self.near_miss = home
        """Intervals of the box that was proved already, close to the last counterexample."""

    @property
    def is_empty(self) -> bool:
        """Whether no cover is kept yet."""
        return not self._covers

    def extend(
        self,
        low: Intervals,
        high: Intervals,
        nodes: int | None,
        *,
        inside: tuple[Intervals, Intervals] | None = None,
    ) -> tuple[Outcome, int, Intervals]:
        """Prove a box of intervals from what is known: outcome, nodes, and a counterexample.

        Any box may be asked for; one that contains the last one is quickly done. The
        counterexample means something only if the outcome says so. UNDECIDED comes after so many
        nodes, or fewer where the cover becomes too large.

        Args:
            low: the first interval of each feature.
            high: the last.
            nodes: when to give up; None for MOST_NODES.
            inside: a box of intervals that is proved already; the input alone when not given.
        """
        index = self._ensemble.index
        r = reach(index.trees, low, high)
        load = make_load(index.trees, index.base_fixed, r)
        found, worst, visited = np.empty_like(self._home), Outcome.ROBUST, 0
        tabu = make_tabu(r, *((self._home, self._home) if inside is None else inside))
        most, covers, cut = MOST_NODES if nodes is None else nodes, {}, None
        for k in order_objectives(r, load, self._objectives).tolist():
            state = make_state(r, index.base_fixed.size)
            cut = state.mplp.cut
            state.pseudo_costs[:] = self._pseudo_costs[k, r.feature_id]
            instance = Instance(
                trees=index.trees,
                rule=index.rule,
                objectives=self._objectives,
                r=r,
                task=make_problem(r, load, self._objectives, k),
                state=state,
                tabu=tabu,
                low=low,
                high=high,
                home=self._home,
            )
            cover, size = self._start_cover(k, r, cut)
            room = MOST_WORDS // max(state.mplp.min_marginal.size, 1) + 1
            outcome, cover, size, count = close(
                instance, cover, size, min(most, room) - visited, found
            )
            self._pseudo_costs[k, r.feature_id] = state.pseudo_costs
            visited += count
            covers[k] = cover, size
            if outcome == Outcome.COUNTEREXAMPLE:
                self.near_miss = near_miss(instance, found)
                return outcome, visited, found
            worst = worse(worst, outcome)
        if worst == Outcome.ROBUST and cut is not None:
            self._proved, self._covers = (r, cut), covers
        return worst, visited, found

    def _start_cover(self, k: int, r: Reach, cut: Segments) -> tuple[Cover, int]:
        """Write the last cover of an objective for another box, or begin with the whole box."""
        if self._proved is None or k not in self._covers:
            return cover_whole(r, cut.first.size), 1
        was, was_cut = self._proved
        n_trees, n_features = self._ensemble.n_trees, self._ensemble.n_features
        source = match_segments(was, was_cut, r, cut, n_trees, n_features)
        cover, size = self._covers[k]
        return transfer(was, r, source, cover, size, n_features), size
