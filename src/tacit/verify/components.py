"""The least sum of an ensemble whose trees fall into parts, part by part.

Each part knows its best point so far, and a bound; the *joint* point takes the best of all. Its
sum, less what the parts may still lose, bounds every sum from below: when that reaches the barrier,
nothing falls. Where the joint point is below the barrier, the library's arithmetic is asked.
"""

from typing import Any

from tacit.verify.budget import Purse
from tacit.verify.kernels.layout.index import Index
from tacit.verify.kernels.layout.reach import reach_open
from tacit.verify.kernels.presolve.scores import FOUND, PAUSED, PROVED
from tacit.verify.kernels.search.branch import lower_deep
from tacit.verify.kernels.search.components import (
    falls_at,
    label_parts,
    settle_others,
    start_component,
    start_joint,
)
from tacit.verify.kernels.search.problem import Sides, witness_cells

UNSURE = -1
"""In place of an outcome: there is one part only, or rounding stands between bound and library."""


def search_parts(index: Index, sides: Sides, side: int, low: Any, high: Any, purse: Purse) -> int:
    """Decide a side within a box of cells, part by part; a witness narrows low and high.

    Returns:
        PROVED, FOUND, PAUSED when the purse is empty, or UNSURE.
    """
    known = settle_others(index, sides, side)
    r = reach_open(index.trees, known, low, high)
    label, count, n_shared = label_parts(r)
    if n_shared < 2:
        return UNSURE
    total, leaves, row = start_joint(index, sides, side, r)
    joint = _Joint(index, sides, side, total, low, high)
    witness_cells(r, row, low, high)
    box = joint.box
    parts = [
        _Part(total, *start_component(index, sides, side, r, label, part, leaves, box))
        for part in range(count)
    ]
    return _lower_all(joint, parts, purse)


class _Joint:
    """The point that takes the best of every part."""

    def __init__(
        self, index: Index, sides: Sides, side: int, total: int, low: Any, high: Any
    ) -> None:
        self.total, self.barrier = int(total), int(sides.barrier[side])
        self.box = low.copy(), high.copy()
        self._index, self._sides, self._side, self._cells = index, sides, side, (low, high)

    def take(self, part: "_Part", lost: int) -> None:
        """Go to the best point of a part."""
        self.total -= lost
        witness_cells(part.r, part.best, *self._cells)

    def changes(self) -> bool:
        """Ask the library's arithmetic, unless the sum is above the barrier."""
        if self.total >= self.barrier:
            return False
        return bool(falls_at(self._index, self._sides, self._side, self._cells[0]))


class _Part:
    """One part, the trees of which are searched while all others stay where they are."""

    def __init__(
        self, least: int, r: Any, task: Any, work: Any, deep: Any, boxes: Any, best: Any
    ) -> None:
        # Any: what compiled functions make for each other.
        self.r, self._task, self._work, self._deep, self.best = r, task, work, deep, best
        self._stack, self._trail = boxes
        self._top, self.least, self._bound = 1, int(least), -(1 << 62)

    @property
    def is_done(self) -> bool:
        """Whether no box is open."""
        return self._top == 0

    @property
    def may_lose(self) -> int:
        """By how much the least sum may still fall."""
        return self.least - self._bound

    def lower(self, goal: int, floor: int, nodes: int) -> tuple[int, int]:
        """Search for sums below the goal; return by how much the least fell, and the nodes."""
        task = self._task._replace(barrier=goal)
        self._stack, self._trail, self._top, barrier, visited = lower_deep(
            self.r,
            task,
            self._work,
            self._deep,
            self._stack,
            self._trail,
            self._top,
            floor,
            self.best,
            nodes,
        )
        open_bounds = self._trail[: self._top, 2].tolist()
        self._bound = max(self._bound, min([barrier, *open_bounds]))
        lost = self.least - barrier if barrier < goal else 0
        self.least -= lost
        return lost, visited


def _lower_all(joint: _Joint, parts: list[_Part], purse: Purse) -> int:
    """Look at every part, then search them to the end, the one that may lose most last.

    That one does not have to be searched until its bound meets its best point: it gets whatever
    the joint sum has to spare.
    """
    if joint.changes():
        return FOUND
    for part in parts:
        outcome = _lower_one(joint, parts, part, purse, 1)
        if outcome != UNSURE:
            return outcome
    for part in sorted(parts, key=lambda one: one.may_lose):
        while not part.is_done:
            outcome = _lower_one(joint, parts, part, purse, None)
            if outcome != UNSURE:
                return outcome
    return UNSURE


def _lower_one(
    joint: _Joint, parts: list[_Part], part: _Part, purse: Purse, nodes: int | None
) -> int:
    """Search one part a little further; UNSURE if that does not settle the question."""
    chunk = purse.take() if nodes is None else purse.take(nodes)
    if chunk == 0:
        return PAUSED
    spare = joint.total - joint.barrier
    elsewhere = sum(one.may_lose for one in parts if one is not part)
    goal, floor = part.least - max(0, spare - elsewhere), part.least - max(0, spare)
    lost, visited = part.lower(goal, floor, chunk)
    purse.nodes += visited
    if lost:
        joint.take(part, lost)
        if joint.changes():
            return FOUND
    is_proved = joint.total - sum(one.may_lose for one in parts) >= joint.barrier
    return PROVED if is_proved else UNSURE
