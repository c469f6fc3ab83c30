"""Exact verification: robust, a counterexample, or — after the budget — neither.

A question is answered in four stages: the trees are walked and presolved, many rows in one compiled
call (`presolve`); what that leaves open goes to branch and bound; every counterexample is replayed
in the library's arithmetic.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from tacit.errors import ConfigError, TacitError
from tacit.verify.box import (
    Box,
    Domain,
    Intervals,
    ball,
    box_intervals,
    condition,
    condition_each,
    place_witness,
)
from tacit.verify.components import search_components
from tacit.verify.kernels.clock import processor_time, wall_time
from tacit.verify.kernels.layout.reach import Reach, reach
from tacit.verify.kernels.presolve.presolve import MOST_PARTS, answer, decide_box
from tacit.verify.kernels.presolve.workspace import (
    UNTOLD,
    Answers,
    Boxes,
    Cases,
    make_answers,
    make_workspace,
    pick_model,
)
from tacit.verify.kernels.search.branch import branch_and_bound, make_state, open_whole
from tacit.verify.kernels.search.components import hull_intervals
from tacit.verify.kernels.search.problem import (
    make_load,
    make_problem,
    narrow_intervals,
    order_objectives,
)
from tacit.verify.kernels.tables import (
    Index,
    Longs,
    Objectives,
    Outcome,
    Outputs,
    Rule,
    Trees,
    worse,
)
from tacit.verify.models.ensemble import Ensemble
from tacit.verify.models.load import import_ensemble
from tacit.verify.objectives import state_cases
from tacit.verify.verdict import (
    ANYWHERE,
    CHUNK_NODES,
    PATIENCE,
    Budget,
    Counterexample,
    Robust,
    Spending,
    Timed,
    Unknown,
    Verdict,
)

FEW_NODES = 8
"""Nodes of all trees together before components are searched."""

CHUNK_BOXES = 256
"""Boxes that are handed over at a time."""

SLICE_SECONDS = 0.2
"""For how long nothing can interrupt."""

NEAR_TIE = "two scores come closer than the library's softmax can be relied on to tell apart"


def verify(
    model: object,
    x: npt.ArrayLike,
    eps: npt.ArrayLike,
    *,
    rho: float | None = None,
    domain: Domain = ANYWHERE,
    budget: Budget | None = None,
) -> Verdict:
    """Decide whether some x' with |x'_j − x_j| <= eps_j changes the prediction at x.

    A classifier's prediction changes with its class, a regression's when the output moves by more
    than `rho`. The answer holds in the arithmetic of the library that trained the model. Its
    ``outcome`` says which it is; a `Counterexample` has the input ``x``; for a `Robust` verdict
    `prove` writes a certificate that anyone can check.

    Args:
        model: a fitted model of XGBoost, LightGBM or scikit-learn; or an `Ensemble`, which is
            imported once for many questions.
        x: one input, finite; NaN where a value is missing, if the model takes that. What is missing
            stays missing and a category stays what it is: only numbers move.
        eps: one radius, one per feature, or two rows (how far down, how far up).
        rho: for a regression, how far the output may move.
        domain: the values that features can take at all.
        budget: how long to try; 60 seconds when not given.
    """
    ensemble = model if isinstance(model, Ensemble) else import_ensemble(model)
    return verify_box(ensemble, ball(ensemble, x, eps, domain), rho=rho, budget=budget)


def verify_box(
    ensemble: Ensemble, box: Box, *, rho: float | None = None, budget: Budget | None = None
) -> Verdict:
    """Decide whether some input of a box changes the prediction at its center."""
    ensemble = condition(ensemble, box)
    ends = (np.ascontiguousarray(end, np.float64)[None] for end in (box.center, box.low, box.high))
    return _verify_some(ensemble, Box(*ends), rho, PATIENCE if budget is None else budget)[0][0]


def verify_boxes(
    ensemble: Ensemble, boxes: Box, *, rho: float | None = None, budget: Budget | None = None
) -> Iterator[Timed]:
    """Decide box after box; center and ends of `boxes` have one row per box.

    The budget is per box. Time that was spent on no box in particular is shared out evenly.
    """
    budget = PATIENCE if budget is None else budget
    for conditioned, alike in condition_each(ensemble, boxes):
        some = Box(boxes.center[alike], boxes.low[alike], boxes.high[alike])
        yield from _verify_alike(conditioned, some, rho, budget)


def _verify_alike(
    ensemble: Ensemble, boxes: Box, rho: float | None, budget: Budget
) -> Iterator[Timed]:
    """Decide boxes that have one conditioned ensemble, a chunk at a time."""
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
    out, count, left, found = _walk_and_presolve(ensemble, some, cases, case, budget)
    if left:
        for i in np.flatnonzero(out.outcome[:count] >= Outcome.UNDECIDED):
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


def _walk_and_presolve(
    ensemble: Ensemble, some: Box, cases: Cases, case: Longs, budget: Budget
) -> tuple[Answers, int, int, int]:
    """Walk the trees and presolve, row after row; say how many were begun, left open and found."""
    whole = ensemble.integer
    boxes = Boxes(
        center=some.center,
        low=some.low,
        high=some.high,
        case=case,
        is_whole=np.zeros(ensemble.n_features, dtype=bool) if whole is None else whole,
        is_single=ensemble.input_type == "float32",
    )
    out = make_answers(*some.center.shape)
    workspace = make_workspace(ensemble.index, cases.plus.shape[1])
    model, most = pick_model(ensemble.index), count_parts(budget)
    return out, *answer(model, workspace, cases, boxes, most, out, SLICE_SECONDS)


def count_parts(budget: Budget) -> int:
    """Say into how many parts the small search may cut a box."""
    return MOST_PARTS if budget.nodes is None else min(MOST_PARTS, budget.nodes)


def _go_on(
    ensemble: Ensemble, cases: Cases, some: Box, out: Answers, i: int, budget: Budget
) -> None:
    """Ask the library for a class that was untold; search on where presolve gave up."""
    begun = processor_time()
    box, decide = Box(some.center[i], some.low[i], some.high[i]), search_on
    if out.case[i] == UNTOLD:
        out.case[i], decide = ensemble.predict(box.center[None])[0], search_box
    left = budget.less(float(out.seconds[i]))
    if left is not None:
        objectives = Objectives(*(column[out.case[i]] for column in cases))
        low, high = box_intervals(ensemble, box)
        out.outcome[i], out.nodes[i] = decide(ensemble, objectives, low, high, left)
        if out.outcome[i] == Outcome.COUNTEREXAMPLE:
            out.x[i] = place_witness(ensemble, box, low, high)
    out.seconds[i] += processor_time() - begun


def _replay(
    ensemble: Ensemble,
    cases: Cases,
    some: Box,
    out: Answers,
    outputs: Outputs,
    count: int,
) -> list[float]:
    """Predict at every counterexample, in the library's arithmetic; return what is predicted."""
    changed = np.zeros(count)
    found = np.flatnonzero(out.outcome[:count] == Outcome.COUNTEREXAMPLE)
    if found.size:
        x = out.x[found]
        after = ensemble.predict(x)
        changed[found] = after
        if ensemble.task == "regress":
            case = out.case[found]
            has_moved = ~((cases.low[case] <= after) & (after <= cases.high[case]))
        else:
            has_moved = after != outputs[found]
        low, high = some.low[found], some.high[found]
        stays_missing = np.isnan(low) & np.isnan(x) & np.isnan(high)
        is_inside = (stays_missing | ((low <= x) & (x <= high))).all(axis=1)
        if not (has_moved & is_inside).all():
            raise TacitError("a counterexample did not replay; this is a bug in the search")
    return changed.tolist()


def _verdict(
    box: Box,
    about: tuple[float, float | None, int],
    outcome: int,
    x: npt.NDArray[np.float64],
    changed: float,
) -> Verdict:
    if outcome == Outcome.ROBUST:
        return Robust(box, *about)
    if outcome == Outcome.COUNTEREXAMPLE:
        return Counterexample(box, *about, x, changed)
    reason = NEAR_TIE if outcome == Outcome.NEAR_TIE else "the budget ran out"
    return Unknown(box, *about, reason, Outcome(outcome))


def search_box(
    ensemble: Ensemble, objectives: Objectives, low: Intervals, high: Intervals, budget: Budget
) -> tuple[Outcome, int]:
    """Decide a box of intervals; return the outcome and the nodes. A witness narrows low and high.

    Args:
        ensemble: the model.
        objectives: what could overturn the prediction.
        low: the first interval of each feature.
        high: the last.
        budget: how long to try.
    """
    begun, index = wall_time(), ensemble.index
    workspace = make_workspace(index, objectives.plus.size)
    outcome = decide_box(pick_model(index), workspace, objectives, low, high, count_parts(budget))
    if outcome != Outcome.UNDECIDED:
        return outcome, 0
    left = budget.less(wall_time() - begun)
    return (outcome, 0) if left is None else search_on(ensemble, objectives, low, high, left)


def search_on(
    ensemble: Ensemble, objectives: Objectives, low: Intervals, high: Intervals, budget: Budget
) -> tuple[Outcome, int]:
    """Search objective after objective by branch and bound, in chunks, watching the clock."""
    index, spending = ensemble.index, Spending(budget)
    every = reach(index.trees, low, high)
    load = make_load(index.trees, index.base_fixed, every)
    worst = Outcome.ROBUST
    for objective in order_objectives(every, load, objectives):
        trees, rule, r = index.trees, index.rule, every
        if index.nodes.group_start.size > 2:
            trees, rule = _two_classes(index, objectives, objective)
            r = reach(trees, low, high)
        found = _Objective(index, trees, rule, r, objectives, objective)
        outcome = found.search((low, high), spending)
        if outcome == Outcome.COUNTEREXAMPLE:
            return outcome, spending.nodes
        worst = worse(worst, outcome)
    return worst, spending.nodes


def _two_classes(index: Index, objectives: Objectives, objective: int) -> tuple[Trees, Rule]:
    """Pick the trees of two classes in boosting, as if there were no more.

    Where the rival is ahead the prediction changes, whatever the other classes score.
    """
    pair = [objectives.plus[objective], objectives.minus[objective]]
    nodes, base = index.nodes, np.full_like(index.rule.base, -np.inf)
    base[pair] = index.rule.base[pair]
    some = [nodes.order[nodes.group_start[k] : nodes.group_start[k + 1]] for k in pair]
    roots = index.trees.roots[np.concatenate(some)]
    return index.trees._replace(roots=roots), index.rule._replace(base=base)


class _Objective:
    """Branch and bound for one objective of a box."""

    def __init__(
        self,
        index: Index,
        trees: Trees,
        rule: Rule,
        r: Reach,
        objectives: Objectives,
        objective: int,
    ) -> None:
        load = make_load(trees, index.base_fixed, r)
        self._index, self._about, self._r = index, (objectives, objective), r
        self._task = make_problem(r, load, objectives, objective)
        self._state = make_state(r, rule.base.size)
        self._stack, self._top = open_whole(r, self._state.mplp), 1
        self._judges = trees, rule

    def search(self, box: tuple[Intervals, Intervals], spending: Spending) -> Outcome:
        """Search all trees together at first, then their components, if they have several."""
        outcome, most = Outcome.UNDECIDED, FEW_NODES
        while outcome == Outcome.UNDECIDED and (chunk := spending.take(most)) > 0:
            outcome = self._explore(chunk, spending)
            if outcome == Outcome.UNDECIDED and most == FEW_NODES:
                told = self._search_components(box, spending)
                if told is not None:
                    return told
                most = CHUNK_NODES
        if outcome == Outcome.COUNTEREXAMPLE:
            narrow_intervals(self._r, self._stack.box[0], *box)
        return outcome

    def _explore(self, most: int, spending: Spending) -> Outcome:
        outcome, self._stack, self._top, explored = branch_and_bound(
            *self._judges, self._r, self._task, self._state, self._stack, self._top, most
        )
        spending.nodes += explored
        return outcome

    def _search_components(
        self, box: tuple[Intervals, Intervals], spending: Spending
    ) -> Outcome | None:
        hull = box[0].copy(), box[1].copy()
        hull_intervals(self._r, self._stack, self._top, *hull)
        told = search_components(self._index, *self._about, *hull, spending)
        if told == Outcome.COUNTEREXAMPLE:
            box[0][:], box[1][:] = hull
        # Outside of the hull, a point may have been too close to a tie to be judged.
        is_tied = told == Outcome.ROBUST and bool(self._state.is_tied[0])
        return Outcome.NEAR_TIE if is_tied else told


def attack(
    ensemble: Ensemble,
    x: npt.ArrayLike,
    eps: npt.ArrayLike,
    *,
    features: Sequence[int] | None = None,
    rho: float | None = None,
    domain: Domain = ANYWHERE,
    tries: int = 10,
) -> Counterexample | None:
    """Look at the `tries` most promising regions of the box; None says nothing about robustness.

    Args:
        ensemble: the model.
        x: one input, finite.
        eps: one radius, one per feature, or two rows (how far down, how far up).
        features: the only features that may change; all when not given.
        rho: for a regression, how far the output must move to count.
        domain: the values that features can take at all.
        tries: how many regions to look at.
    """
    box = ball(ensemble, x, eps, domain)
    if features is not None:
        if any(not 0 <= f < ensemble.n_features for f in features):
            raise ConfigError(f"features are numbered 0 to {ensemble.n_features - 1}")
        may_change = np.zeros(ensemble.n_features, dtype=bool)
        may_change[list(features)] = True
        low, high = (np.where(may_change, end, box.center) for end in (box.low, box.high))
        box = Box(box.center, low, high)
    answer = verify_box(ensemble, box, rho=rho, budget=Budget(nodes=tries, seconds=None))
    return answer if isinstance(answer, Counterexample) else None
