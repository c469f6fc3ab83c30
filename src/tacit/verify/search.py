"""Exact verification: a certificate, a counterexample, or — after the budget — neither."""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy.typing as npt

from tacit.errors import ConfigError, TacitError
from tacit.verify.bounds import make_work
from tacit.verify.box import Box, Domain, Floats, ball, box_cells
from tacit.verify.branch import BLURRED, FOUND, PAUSED, PROVED
from tacit.verify.deep import first_trail, make_deep, search_deep
from tacit.verify.ensemble import Ensemble
from tacit.verify.reach import reach
from tacit.verify.sides import make_sides
from tacit.verify.solve import (
    Sides,
    first_stack,
    make_load,
    make_task,
    order_sides,
    solve,
    witness_cells,
)
from tacit.verify.witness import place_witness

FIRST_NODES = 8
"""Nodes of the first, quick attempt; most inputs need one."""

CHUNK_NODES = 50
"""Nodes between two looks at the clock."""

ANYWHERE = Domain()


@dataclass(frozen=True)
class Budget:
    """How much work a question may cost; ``None`` means no limit.

    The clock is looked at every fifty nodes, so `seconds` may be overrun by as much.
    """

    nodes: int | None = None
    seconds: float | None = 60.0

    def __post_init__(self) -> None:
        if (self.nodes is not None and self.nodes < 1) or (
            self.seconds is not None and not self.seconds > 0
        ):
            raise ConfigError(f"a budget must be positive, got {self}")


PATIENCE = Budget()


@dataclass(frozen=True, eq=False)
class Certificate:
    """No input of the box changes the prediction."""

    box: Box
    prediction: float
    rho: float | None
    nodes: int


@dataclass(frozen=True, eq=False)
class Counterexample:
    """An input of the box that changes the prediction; replayed in the library's arithmetic."""

    box: Box
    prediction: float
    rho: float | None
    nodes: int
    x: Floats
    changed: float
    """What the ensemble predicts at `x`."""


@dataclass(frozen=True, eq=False)
class Unknown:
    """The budget ran out, or the library's rounding of a near tie cannot be told."""

    box: Box
    prediction: float
    rho: float | None
    nodes: int
    reason: str


Verdict = Certificate | Counterexample | Unknown


def verify(
    ensemble: Ensemble,
    x: npt.ArrayLike,
    eps: npt.ArrayLike,
    *,
    rho: float | None = None,
    domain: Domain = ANYWHERE,
    budget: Budget | None = None,
) -> Verdict:
    """Decide whether some x' with |x'_j − x_j| <= eps_j changes the prediction at x.

    A classifier's prediction changes with its class, a regression's when the output moves by more
    than `rho`. The answer holds in the arithmetic of the library that trained the model.

    Args:
        ensemble: the model.
        x: one input, finite.
        eps: one radius, one per feature, or two rows (how far down, how far up).
        rho: for a regression, how far the output may move.
        domain: the values that features can take at all.
        budget: how long to try; 60 seconds when not given.
    """
    return verify_box(ensemble, ball(ensemble, x, eps, domain), rho=rho, budget=budget)


def verify_box(
    ensemble: Ensemble, box: Box, *, rho: float | None = None, budget: Budget | None = None
) -> Verdict:
    """Decide whether some input of a box changes the prediction at its center."""
    budget = PATIENCE if budget is None else budget
    prediction = ensemble.predict(box.center[None])[0]
    sides = make_sides(ensemble, prediction, rho)
    low, high = box_cells(ensemble, box)
    outcome, nodes = search_cells(ensemble, sides, low, high, budget)
    about = (box, float(prediction), rho, nodes)
    if outcome == PROVED:
        return Certificate(*about)
    if outcome == FOUND:
        return _replay(ensemble, sides, about, (low, high))
    reason = "the budget ran out"
    if outcome == BLURRED:
        reason = "two scores come closer than the library's softmax can be relied on to tell apart"
    return Unknown(*about, reason)


def search_cells(
    ensemble: Ensemble,
    sides: Sides,
    low: Any,
    high: Any,
    budget: Budget,
    *,
    quick: int | None = None,
) -> tuple[int, int]:
    """Decide a box of cells; return the outcome and the nodes. A witness narrows low and high.

    Args:
        ensemble: the model.
        sides: what could overturn the prediction.
        low: the first cell of each feature.
        high: the last.
        budget: how long to try.
        quick: nodes of the quick search, before the deep one.
    """
    index = ensemble.index
    limit = FIRST_NODES if quick is None else quick
    limit = limit if budget.nodes is None else min(limit, budget.nodes)
    outcome, nodes = solve(index.trees, index.rule, index.base_units, sides, low, high, limit)
    if outcome == PAUSED and limit != budget.nodes:
        left = None if budget.nodes is None else budget.nodes - limit
        outcome, more = _persist(ensemble, sides, low, high, Budget(left, budget.seconds))
        nodes += more
    return int(outcome), int(nodes)


def _persist(
    ensemble: Ensemble, sides: Sides, low: Any, high: Any, budget: Budget
) -> tuple[int, int]:
    """Search side by side, deeply and in chunks, watching the clock."""
    index = ensemble.index
    deadline = math.inf if budget.seconds is None else time.monotonic() + budget.seconds
    most = math.inf if budget.nodes is None else budget.nodes
    r = reach(index.trees, low, high)
    load = make_load(index.trees, index.base_units, r)
    work = make_work(r, ensemble.n_scores)
    worst, visited = PROVED, 0
    for side in order_sides(r, load, sides):
        task, deep = make_task(r, load, sides, side), make_deep(r)
        stack, trail, top, outcome = first_stack(r), first_trail(), 1, PAUSED
        work.is_blurred[0] = False
        while outcome == PAUSED and visited < most and time.monotonic() < deadline:
            chunk = int(min(CHUNK_NODES, most - visited))
            outcome, stack, trail, top, count = search_deep(
                index.trees, index.rule, r, task, work, deep, stack, trail, top, chunk
            )
            visited += count
        if outcome == FOUND:
            witness_cells(r, stack[0], low, high)
            return outcome, visited
        worst = max(worst, outcome)
    return worst, visited


def _replay(
    ensemble: Ensemble, sides: Sides, about: Sequence[Any], cells: tuple[Any, Any]
) -> Counterexample:
    box, prediction, rho, nodes = about
    x = place_witness(ensemble, box, *cells)
    changed = float(ensemble.predict(x[None])[0])
    has_moved = changed != prediction if rho is None else not sides.low <= changed <= sides.high
    if not (has_moved and ((box.low <= x) & (x <= box.high)).all()):
        raise TacitError("a counterexample did not replay; this is a bug in the search")
    return Counterexample(box, prediction, rho, nodes, x, changed)
