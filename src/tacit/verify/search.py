"""Exact verification: a certificate, a counterexample, or — after the budget — neither."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tacit.errors import ConfigError, TacitError
from tacit.verify.bounds import make_work
from tacit.verify.box import Box, Domain, Floats, ball, box_cells
from tacit.verify.branch import BLURRED, FOUND, PAUSED, PROVED
from tacit.verify.deep import first_trail, search_deep, start_deep
from tacit.verify.ensemble import Ensemble
from tacit.verify.index import Index
from tacit.verify.joint import UNSURE, search_parts
from tacit.verify.parts import hull_cells
from tacit.verify.purse import CHUNK_NODES, Purse
from tacit.verify.reach import reach
from tacit.verify.rows import ASKED, Answers, Boxes, Cases, answer, make_answers
from tacit.verify.sides import state_cases
from tacit.verify.solve import (
    Effort,
    Ground,
    Sides,
    first_stack,
    make_load,
    make_unsorted,
    order_sides,
    solve,
    witness_cells,
)
from tacit.verify.witness import place_witness

FIRST_NODES = 4
"""Nodes of the first, quick attempt; most inputs need one."""

DEEP_NODES = 1000
"""Nodes of the deep search before it is begun anew where it can be interrupted."""

FEW_NODES = 8
"""Nodes of all trees together, where the search can be interrupted, before parts are searched."""

CHUNK_BOXES = 256
"""Boxes that are handed over at a time."""

SLICE_SECONDS = 0.2
"""For how long nothing can interrupt."""

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


@dataclass(frozen=True, eq=False)
class Timed:
    """A verdict and the processor time that it took."""

    verdict: Verdict
    seconds: float
    """From the input to the verdict, in Python."""
    inside: float
    """Of it, inside the compiled search; the first row of a call carries what is set up for all.

    Of rows below 20 µs it is time by the wall.
    """


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
    ends = (np.ascontiguousarray(end, np.float64)[None] for end in (box.center, box.low, box.high))
    return _verify_some(ensemble, Box(*ends), rho, PATIENCE if budget is None else budget)[0][0]


def verify_boxes(
    ensemble: Ensemble, boxes: Box, *, rho: float | None = None, budget: Budget | None = None
) -> Iterator[Timed]:
    """Decide box after box; center and ends of `boxes` have one row per box.

    The budget is per box. Time that was spent on no box in particular is shared out evenly.
    """
    budget = PATIENCE if budget is None else budget
    done = 0
    while done < len(boxes.center):
        part = slice(done, done + CHUNK_BOXES)
        begun = time.thread_time()
        some = Box(boxes.center[part], boxes.low[part], boxes.high[part])
        verdicts, seconds = _verify_some(ensemble, some, rho, budget)
        rest = (time.thread_time() - begun - sum(seconds)) / len(verdicts)
        for verdict, own in zip(verdicts, seconds, strict=True):
            yield Timed(verdict, own + rest, own)
        done += len(verdicts)


def _verify_some(
    ensemble: Ensemble, some: Box, rho: float | None, budget: Budget
) -> tuple[list[Verdict], list[float]]:
    """Decide the first boxes, as many as a slice of time allows; say how long each took."""
    predictions, cases, case = state_cases(ensemble, some.center, rho)
    whole = ensemble.integer
    whole = np.zeros(ensemble.n_features, dtype=bool) if whole is None else whole
    boxes = Boxes(some.center, some.low, some.high, case, whole, ensemble.input_type == "float32")
    out = make_answers(*some.center.shape)
    effort = make_effort(budget, FIRST_NODES)
    count, left, found = answer(ensemble.index, cases, boxes, effort, out, SLICE_SECONDS)
    if left:
        for i in np.flatnonzero(out.outcome[:count] >= PAUSED):
            _go_on(ensemble, cases, some, out, int(i), budget)
    outputs = out.case if predictions is None else predictions
    changed = [0.0] * count
    if left or found:
        changed = _replay(ensemble, cases, some, out, outputs, count)
    rows = zip(some.center, some.low, some.high, strict=True)
    fields = (column[:count].tolist() for column in (out.outcome, outputs, out.nodes))
    verdicts = [
        _verdict(Box(*row), (float(output), rho, nodes), outcome, x, to)
        for row, outcome, output, nodes, x, to in zip(rows, *fields, out.x, changed, strict=False)
    ]
    return verdicts, out.seconds[:count].tolist()


def make_effort(budget: Budget, quick: int) -> Effort:
    """Say how much of a budget is spent where nothing can interrupt."""
    most = quick + DEEP_NODES if budget.nodes is None else budget.nodes
    quick = min(quick, most)
    seconds = SLICE_SECONDS if budget.seconds is None else min(SLICE_SECONDS, budget.seconds)
    return Effort(quick, min(DEEP_NODES, most - quick), seconds)


def _go_on(
    ensemble: Ensemble, cases: Cases, some: Box, out: Answers, i: int, budget: Budget
) -> None:
    """Ask the library for a class that was untold; search on where the first effort was spent."""
    begun = time.thread_time()
    box = Box(some.center[i], some.low[i], some.high[i])
    decide: Callable[[Ensemble, Sides, Any, Any, Budget], tuple[int, int]] = persist
    if out.outcome[i] == ASKED:
        out.case[i], decide = ensemble.predict(box.center[None])[0], search_cells
    left = _rest(budget, int(out.nodes[i]), float(out.seconds[i]))
    if left is not None:
        sides = Sides(*(column[out.case[i]] for column in cases))
        low, high = box_cells(ensemble, box)
        outcome, more = decide(ensemble, sides, low, high, left)
        out.outcome[i], out.nodes[i] = outcome, out.nodes[i] + more
        if outcome == FOUND:
            out.x[i] = place_witness(ensemble, box, low, high)
    out.seconds[i] += time.thread_time() - begun


def _replay(
    ensemble: Ensemble, cases: Cases, some: Box, out: Answers, outputs: Any, count: int
) -> list[float]:
    """Predict at every counterexample, in the library's arithmetic; return what is predicted."""
    changed = np.zeros(count)
    found = np.flatnonzero(out.outcome[:count] == FOUND)
    if found.size:
        x = out.x[found]
        after = ensemble.predict(x)
        changed[found] = after
        if ensemble.task == "regress":
            case = out.case[found]
            has_moved = ~((cases.low[case] <= after) & (after <= cases.high[case]))
        else:
            has_moved = after != outputs[found]
        is_inside = ((some.low[found] <= x) & (x <= some.high[found])).all(axis=1)
        if not (has_moved & is_inside).all():
            raise TacitError("a counterexample did not replay; this is a bug in the search")
    return changed.tolist()


def _verdict(
    box: Box, about: tuple[float, float | None, int], outcome: int, x: Floats, changed: float
) -> Verdict:
    if outcome == PROVED:
        return Certificate(box, *about)
    if outcome == FOUND:
        return Counterexample(box, *about, x, changed)
    reason = "the budget ran out"
    if outcome == BLURRED:
        reason = "two scores come closer than the library's softmax can be relied on to tell apart"
    return Unknown(box, *about, reason)


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
    begun = time.monotonic()
    effort = make_effort(budget, FIRST_NODES if quick is None else quick)
    outcome, nodes = solve(ensemble.index, sides, low, high, effort)
    if outcome == PAUSED:
        left = _rest(budget, nodes, time.monotonic() - begun)
        if left is not None:
            outcome, more = persist(ensemble, sides, low, high, left)
            nodes += more
    return int(outcome), int(nodes)


def _rest(budget: Budget, nodes: int, seconds: float) -> Budget | None:
    """Say what is left of a budget, if anything is."""
    left_nodes = None if budget.nodes is None else budget.nodes - nodes
    left_seconds = None if budget.seconds is None else budget.seconds - seconds
    is_spent = any(left is not None and left <= 0 for left in (left_nodes, left_seconds))
    return None if is_spent else Budget(left_nodes, left_seconds)


def persist(
    ensemble: Ensemble, sides: Sides, low: Any, high: Any, budget: Budget
) -> tuple[int, int]:
    """Search side by side, deeply and in chunks, watching the clock."""
    index, purse = ensemble.index, Purse(budget.nodes, budget.seconds)
    r = reach(index.trees, low, high)
    load = make_load(index.trees, index.base_units, r)
    ground = Ground(index.trees, index.rule, r, load, make_work(r, ensemble.n_scores))
    worst = PROVED
    for side in order_sides(r, load, sides):
        outcome = _persist_side(index, ground, sides, side, (low, high), purse)
        if outcome == FOUND:
            return FOUND, purse.nodes
        worst = max(worst, outcome)
    return worst, purse.nodes


def _persist_side(
    index: Index, ground: Ground, sides: Sides, side: int, cells: tuple[Any, Any], purse: Purse
) -> int:
    """Search on one side: all trees together at first, then their parts, if they have several."""
    trees, rule, r, load, work = ground
    task, deep = make_unsorted(r, load, sides, side), start_deep(r, work.cut)
    stack, trail, top, outcome = first_stack(r), first_trail(), 1, PAUSED
    work.is_blurred[0], most = False, FEW_NODES
    while outcome == PAUSED and (chunk := purse.take(most)) > 0:
        outcome, stack, trail, top, count = search_deep(
            trees, rule, r, task, work, deep, stack, trail, top, chunk
        )
        purse.nodes += count
        if outcome != PAUSED or most == CHUNK_NODES:
            continue
        most, hull = CHUNK_NODES, (cells[0].copy(), cells[1].copy())
        hull_cells(r, stack, top, *hull)
        told = search_parts(index, sides, side, *hull, purse)
        if told == FOUND:
            cells[0][:], cells[1][:] = hull
        if told != UNSURE:
            # Outside of the hull, a point may have been too close to a tie to be judged.
            return BLURRED if told == PROVED and work.is_blurred[0] else told
    if outcome == FOUND:
        witness_cells(r, stack[0], *cells)
    return int(outcome)
