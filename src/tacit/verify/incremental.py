"""What is proved about one input, kept so that a little more can be proved from it."""

from typing import Any

import numpy as np
import numpy.typing as npt

from tacit.verify.kernels.attack.diving import Ground
from tacit.verify.kernels.attack.restart import chase, settle
from tacit.verify.kernels.attack.tabu import make_stroll
from tacit.verify.kernels.layout.reach import reach
from tacit.verify.kernels.presolve.scores import CHANGED, FOUND, PROVED
from tacit.verify.kernels.search.branch import make_deep
from tacit.verify.kernels.search.cover import carry, close, trace, whole
from tacit.verify.kernels.search.problem import Sides, make_load, make_task, order_sides
from tacit.verify.models.ensemble import Ensemble

Cells = npt.NDArray[np.int32]

MOST_NODES = 1000
MOST_WORDS = 1 << 24
"""Of messages that one question may add to a cover."""

MOST_POINTS = 4
"""Points close to the barrier that are kept for each side."""


class Hold:
    """The last box that was proved, and for every side a cover of it by boxes that are closed."""

    def __init__(self, ensemble: Ensemble, sides: Sides, home: Cells) -> None:
        self._ensemble, self._sides, self._home = ensemble, sides, home
        # Any: what `reach` and `cover` make is read by compiled functions only.
        self._reach: Any = None
        self._covers: dict[int, tuple[Any, int]] = {}
        self._gains: dict[int, Any] = {}
        self._points: dict[int, list[Cells]] = {}
        self.near_miss = home
        """Cells of the box that was proved already, close to the last counterexample."""

    @property
    def is_empty(self) -> bool:
        """Whether no cover is kept yet."""
        return not self._covers

    def widen(
        self,
        low: Cells,
        high: Cells,
        nodes: int | None,
        *,
        inside: tuple[Cells, Cells] | None = None,
    ) -> tuple[int, int, Cells]:
        """Prove a box of cells from what is known: outcome, nodes, and a counterexample.

        Any box may be asked for; one that contains the last one is quickly done. The
        counterexample means something only if the outcome is FOUND. PAUSED comes after so many
        nodes, or fewer where the cover becomes too large.

        Args:
            low: the first cell of each feature.
            high: the last.
            nodes: when to give up; None for MOST_NODES.
            inside: a box of cells that is proved already; the input alone when not given.
        """
        index, n_features = self._ensemble.index, self._ensemble.n_features
        r = reach(index.trees, low, high)
        load = make_load(index.trees, index.base_units, r)
        source = None
        if self._covers:
            source = trace(self._reach, r, index.trees.roots.size, n_features)
        cells, worst, visited = np.empty_like(self._home), PROVED, 0
        stroll = make_stroll(r, *((self._home, self._home) if inside is None else inside))
        covers = {}
        for side in order_sides(r, load, self._sides).tolist():
            task, deep = make_task(r, load, self._sides, side), make_deep(r)
            n_messages = deep.dual.message.size
            rows, size = whole(r, n_messages), 1
            if side in self._covers:
                rows, size = self._covers[side]
                rows = carry(self._reach, r, source, rows, size, n_features)
            gains = self._gains.setdefault(side, np.zeros((n_features, 4)))
            deep.gains[:] = gains[r.feature_id]
            judges = index.trees, index.rule, self._sides
            ground = Ground(*judges, r, task, deep, stroll, low, high, self._home)
            points = self._points.setdefault(side, [])
            if chase(ground, np.array(points or [self._home]), cells) == CHANGED:
                self._keep(points, settle(ground, cells))
                return FOUND, visited, cells
            most = min(MOST_NODES if nodes is None else nodes, MOST_WORDS // max(n_messages, 1) + 1)
            outcome, rows, size, count = close(ground, rows, size, most - visited, cells)
            gains[r.feature_id] = deep.gains
            visited += count
            if outcome == FOUND:
                self._keep(points, settle(ground, cells))
                return FOUND, visited, cells
            worst = max(worst, outcome)
            covers[side] = rows, size
        if worst == PROVED:
            self._reach, self._covers = r, covers
        return int(worst), visited, cells

    def _keep(self, points: list[Cells], point: Cells) -> None:
        self.near_miss = point
        points.insert(0, point)
        del points[MOST_POINTS:]
