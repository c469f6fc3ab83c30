"""What is proved about one input, kept so that a little more can be proved from it."""

import numpy as np

from tacit.verify.box import Intervals
from tacit.verify.kernels.attack.diving import Instance, near_miss
from tacit.verify.kernels.attack.tabu import make_tabu
from tacit.verify.kernels.layout.reach import Reach, reach
from tacit.verify.kernels.layout.segments import Segments
from tacit.verify.kernels.layout.tables import Objectives
from tacit.verify.kernels.outcome import Outcome, worse
from tacit.verify.kernels.search.branch import make_state
from tacit.verify.kernels.search.cover import Cover, close, cover_whole, match_segments, transfer
from tacit.verify.kernels.search.problem import make_load, make_problem, order_objectives
from tacit.verify.models.ensemble import Ensemble

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
