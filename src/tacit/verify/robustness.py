"""Exact verification: a certificate, a counterexample, or — after the budget — neither."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tacit.errors import ConfigError, TacitError
from tacit.verify.box import Box, Domain, Floats, ball, box_cells, place_witness
from tacit.verify.budget import CHUNK_NODES, Purse
from tacit.verify.components import UNSURE, search_parts
from tacit.verify.kernels.jit import processor_time, wall_time
from tacit.verify.kernels.layout.index import Index, Trees
from tacit.verify.kernels.layout.reach import reach
from tacit.verify.kernels.presolve.batch import UNTOLD, Answers, Boxes, Cases, answer, make_answers
from tacit.verify.kernels.presolve.presolve import (
    MOST_PARTS,
    decide_cells,
    make_scratch,
    pick_model,
)
from tacit.verify.kernels.presolve.scores import BLURRED, FOUND, PAUSED, PROVED
from tacit.verify.kernels.search.bounds import make_work
from tacit.verify.kernels.search.branch import first_trail, search_deep, start_deep
from tacit.verify.kernels.search.components import hull_cells
from tacit.verify.kernels.search.problem import (
    Ground,
    Sides,
    first_stack,
    make_load,
    make_unsorted,
    order_sides,
    witness_cells,
)
from tacit.verify.models.ensemble import Ensemble
from tacit.verify.objectives import state_cases

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

    What is compiled for a row, once, counts for none.
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
        begun = processor_time()
        some = Box(boxes.center[part], boxes.low[part], boxes.high[part])
        verdicts, seconds = _verify_some(ensemble, some, rho, budget)
        rest = (processor_time() - begun - sum(seconds)) / len(verdicts)
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
    out, scratch = (
        make_answers(*some.center.shape),
        make_scratch(ensemble.index, cases.plus.shape[1]),
    )
    model, most = pick_model(ensemble.index), count_parts(budget)
    count, left, found = answer(model, scratch, cases, boxes, most, out, SLICE_SECONDS)
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


def count_parts(budget: Budget) -> int:
    """Say into how many parts the small search may cut a box."""
    return MOST_PARTS if budget.nodes is None else min(MOST_PARTS, budget.nodes)


def _go_on(
    ensemble: Ensemble, cases: Cases, some: Box, out: Answers, i: int, budget: Budget
) -> None:
    """Ask the library for a class that was untold; search on where the small search gave up."""
    begun = processor_time()
    box = Box(some.center[i], some.low[i], some.high[i])
    decide: Callable[[Ensemble, Sides, Any, Any, Budget], tuple[int, int]] = persist
    if out.case[i] == UNTOLD:
        out.case[i], decide = ensemble.predict(box.center[None])[0], search_cells
    left = _rest(budget, 0, float(out.seconds[i]))
    if left is not None:
        sides = Sides(*(column[out.case[i]] for column in cases))
        low, high = box_cells(ensemble, box)
        out.outcome[i], out.nodes[i] = decide(ensemble, sides, low, high, left)
        if out.outcome[i] == FOUND:
            out.x[i] = place_witness(ensemble, box, low, high)
    out.seconds[i] += processor_time() - begun


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
    ensemble: Ensemble, sides: Sides, low: Any, high: Any, budget: Budget
) -> tuple[int, int]:
    """Decide a box of cells; return the outcome and the nodes. A witness narrows low and high.

    Args:
        ensemble: the model.
        sides: what could overturn the prediction.
        low: the first cell of each feature.
        high: the last.
        budget: how long to try.
    """
    begun = wall_time()
    model, scratch = pick_model(ensemble.index), make_scratch(ensemble.index, sides.plus.size)
    outcome = decide_cells(model, scratch, sides, low, high, count_parts(budget))
    if outcome != PAUSED:
        return int(outcome), 0
    left = _rest(budget, 0, wall_time() - begun)
    return (PAUSED, 0) if left is None else persist(ensemble, sides, low, high, left)


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
        own = ground
        if index.paths.group_start.size > 2:
            own = _pair_ground(index, (sides.plus[side], sides.minus[side]), low, high)
        outcome = _persist_side(index, own, sides, side, (low, high), purse)
        if outcome == FOUND:
            return FOUND, purse.nodes
        worst = max(worst, outcome)
    return worst, purse.nodes


def _pair_ground(index: Index, pair: tuple[int, int], low: Any, high: Any) -> Ground:
    """Make the problem of one side in boosting: the trees of two classes, as if there were no more.

    Where the rival is ahead the prediction changes, whatever the other classes score.
    """
    paths, base = index.paths, np.full_like(index.rule.base, -np.inf)
    base[list(pair)] = index.rule.base[list(pair)]
    some = [paths.order[paths.group_start[k] : paths.group_start[k + 1]] for k in pair]
    roots = index.trees.roots[np.concatenate(some)]
    trees: Trees = index.trees._replace(roots=roots)
    r = reach(trees, low, high)
    load = make_load(trees, index.base_units, r)
    return Ground(trees, index.rule._replace(base=base), r, load, make_work(r, base.size))


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
