"""The least sum of an ensemble whose trees fall into components, component by component.

Each component knows its best point so far, and a bound; the *incumbent* takes the best of all. Its
sum, less what the components may still lose, bounds every sum from below: when that reaches the
threshold, nothing falls. Where the incumbent is below it, the library's arithmetic is asked.
"""

from tacit.verify.kernels.layout.reach import reach_open
from tacit.verify.kernels.search.branch import minimise
from tacit.verify.kernels.search.components import (
    Part,
    falls_at,
    fix_other_trees,
    label_components,
    start_incumbent,
    start_part,
)
from tacit.verify.kernels.search.problem import narrow_intervals
from tacit.verify.kernels.tables import Index, Ints, Objectives, Outcome
from tacit.verify.verdict import Spending


class Component:
    """One component, the trees of which are searched while all others stay where they are."""

    def __init__(self, least: int, part: Part) -> None:
        self.r, self._task, self._state, self._stack, bound, self.best = part
        self.least, self.bound, self._top = least, min(int(bound), least), 1

    @property
    def is_done(self) -> bool:
        """Whether no box is open."""
        return self._top == 0

    @property
    def may_lose(self) -> int:
        """By how much the least sum may still fall."""
        return self.least - self.bound

    def lower(self, goal: int, floor: int, nodes: int) -> tuple[int, int]:
        """Search for sums below the goal; return by how much the least fell, and the nodes."""
        task = self._task._replace(threshold=goal)
        self._stack, self._top, threshold, visited = minimise(
            self.r, task, self._state, self._stack, self._top, floor, self.best, nodes
        )
        open_bounds = self._stack.origin[: self._top, 2].tolist()
        self.bound = max(self.bound, min([threshold, *open_bounds]))
        lost = self.least - threshold if threshold < goal else 0
        self.least -= lost
        return lost, visited


class Incumbent:
    """The point that takes the best of every component of an objective within a box."""

    def __init__(
        self, index: Index, objectives: Objectives, objective: int, low: Ints, high: Ints
    ) -> None:
        self._about, self.threshold = (objectives, objective), int(objectives.threshold[objective])
        self._index, self._point = index, (low, high)
        r = reach_open(index.trees, fix_other_trees(index, objectives, objective), low, high)
        label, count, self.n_shared = label_components(r)
        """How many components have several trees; with fewer than two, nothing is gained."""
        self.total, self.components = 0, list[Component]()
        self._parts = r, label, count

    def start(self) -> None:
        """Find a point, which narrows the box, and make the problem of every component."""
        (r, label, count), about, box = self._parts, (self._index, *self._about), self._point
        total, leaves, row = start_incumbent(*about, r)
        whole = box[0].copy(), box[1].copy()
        narrow_intervals(r, row, *box)
        self.total = int(total)
        parts = (start_part(*about, r, label, k, leaves, whole) for k in range(count))
        self.components = [Component(self.total, part) for part in parts]

    @property
    def may_lose(self) -> int:
        """By how much the sum may still fall."""
        return sum(one.may_lose for one in self.components)

    def lower(self, component: Component, goal: int, floor: int, nodes: int) -> tuple[bool, int]:
        """Search one component; say whether the sum fell, and how many nodes were visited."""
        lost, visited = component.lower(goal, floor, nodes)
        if lost:
            self.total -= lost
            narrow_intervals(component.r, component.best, *self._point)
        return lost > 0, visited

    def falls(self) -> bool:
        """Ask the library's arithmetic, unless the sum is above the threshold."""
        if self.total >= self.threshold:
            return False
        return falls_at(self._index, *self._about, self._point[0])


def search_components(
    index: Index, objectives: Objectives, objective: int, low: Ints, high: Ints, spending: Spending
) -> Outcome | None:
    """Decide an objective within a box, component by component; low and high become its best point.

    Components are looked at once each, then searched to the end, the one that may lose most last:
    it does not have to be searched until its bound meets its best point, but gets whatever the sum
    has to spare.

    Returns:
        the outcome; UNDECIDED when the budget is spent; None if there is one component only, or
        rounding stands between bound and library.
    """
    incumbent = Incumbent(index, objectives, objective, low, high)
    if incumbent.n_shared < 2:
        return None
    incumbent.start()
    if incumbent.falls():
        return Outcome.COUNTEREXAMPLE
    for component in incumbent.components:
        outcome = _lower(incumbent, component, spending.take(1), spending)
        if outcome is not None:
            return outcome
    for component in sorted(incumbent.components, key=lambda one: one.may_lose):
        while not component.is_done:
            outcome = _lower(incumbent, component, spending.take(), spending)
            if outcome is not None:
                return outcome
    return None


def _lower(
    incumbent: Incumbent, component: Component, chunk: int, spending: Spending
) -> Outcome | None:
    """Search one component a little further; None if that does not settle the question."""
    if chunk == 0:
        return Outcome.UNDECIDED
    spare = incumbent.total - incumbent.threshold
    elsewhere = incumbent.may_lose - component.may_lose
    goal, floor = component.least - max(0, spare - elsewhere), component.least - max(0, spare)
    fell, visited = incumbent.lower(component, goal, floor, chunk)
    spending.nodes += visited
    if fell and incumbent.falls():
        return Outcome.COUNTEREXAMPLE
    is_proved = incumbent.total - incumbent.may_lose >= incumbent.threshold
    return Outcome.ROBUST if is_proved else None
