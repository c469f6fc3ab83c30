"""How near a class comes to changing within a box: bounds that tighten until the budget ends."""

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from tacit.errors import ConfigError
from tacit.verify.box import Box, Domain, Floats, ball, box_cells, place_witness
from tacit.verify.budget import Purse
from tacit.verify.kernels.attack.descent import polish
from tacit.verify.kernels.layout.index import Index
from tacit.verify.kernels.layout.reach import reach_open
from tacit.verify.kernels.search.bounds import make_work
from tacit.verify.kernels.search.branch import first_trail, make_deep
from tacit.verify.kernels.search.components import isolate, label_parts, settle_others, start_joint
from tacit.verify.kernels.search.least import Least, lower
from tacit.verify.kernels.search.problem import (
    Sides,
    first_stack,
    make_load,
    make_task,
    quick_bound,
    witness_cells,
)
from tacit.verify.models.ensemble import Ensemble
from tacit.verify.objectives import make_sides
from tacit.verify.robustness import ANYWHERE, PATIENCE, Budget


@dataclass(frozen=True, eq=False)
class Margin:
    """The least lead of the predicted class over all inputs of a box lies in [`low`, `high`].

    The lead is by how much its score exceeds the best other's, before any sigmoid or softmax;
    with a single score, how far that is from the cutoff. Above zero the prediction holds.
    """

    box: Box
    prediction: float
    low: float
    high: float
    """The lead at `x`, in the library's arithmetic."""
    x: Floats
    is_exact: bool
    """Whether no input has a smaller lead, but for rounding."""
    nodes: int


def margin(
    ensemble: Ensemble,
    x: npt.ArrayLike,
    eps: npt.ArrayLike,
    *,
    domain: Domain = ANYWHERE,
    budget: Budget | None = None,
) -> Margin:
    """Bound the least lead of the predicted class over all x' with |x'_j − x_j| <= eps_j.

    The bounds are valid whenever the budget ends; with time they meet, but for rounding.

    Args:
        ensemble: a classifier.
        x: one input, finite.
        eps: one radius, one per feature, or two rows (how far down, how far up).
        domain: the values that features can take at all.
        budget: how long to try; 60 seconds when not given.
    """
    if ensemble.task != "classify":
        raise ConfigError("a margin is that of a class; this is a regression")
    box, budget = ball(ensemble, x, eps, domain), PATIENCE if budget is None else budget
    label = int(ensemble.predict(box.center[None])[0])
    cells, spent = box_cells(ensemble, box), Purse(budget.nodes, budget.seconds)
    found = [
        _one_side(ensemble, label, side, cells, spent)
        for side in range(make_sides(ensemble, label, None).plus.size)
    ]
    points = [place_witness(ensemble, box, *one.cells) for one in found]
    leads = _leads(ensemble, label, np.array(points))
    best = int(leads.argmin())
    low, high = min(one.low for one in found), float(leads[best])
    is_exact = all(one.is_done for one in found)
    return Margin(box, float(label), min(low, high), high, points[best], is_exact, spent.nodes)


@dataclass(frozen=True, eq=False)
class _Side:
    low: float
    cells: tuple[Any, Any]
    is_done: bool


def _one_side(
    ensemble: Ensemble, label: int, side: int, cells: tuple[Any, Any], spent: Purse
) -> _Side:
    """Bound the lead over one rival: what the parts of the ensemble add to it, one by one."""
    index, sides = ensemble.index, make_sides(ensemble, label, None)
    r = reach_open(index.trees, settle_others(index, sides, side), *cells)
    number, count, n_shared = label_parts(r)
    parts, total = [r], 0
    if n_shared > 1:
        total, leaves, _ = start_joint(index, sides, side, r)
        parts = [isolate(index.trees, r, number, i, leaves, cells) for i in range(count)]
    least, is_done = int(total), True
    low, high = (end.copy() for end in cells)
    for part in parts:
        bound, state = _one_part(index, sides, side, part, spent)
        least += bound - int(total)  # in every part, the rest adds what it adds to the total
        is_done &= state.top == 0
        witness_cells(part, state.point, low, high)
    return _Side(_to_lead(ensemble, label, least), (low, high), is_done)


def _one_part(index: Index, sides: Sides, side: int, r: Any, spent: Purse) -> tuple[int, Least]:
    """Search for the least sum of a problem; return a bound, and where the search stands."""
    load = make_load(index.trees, index.base_units, r)
    task, deep = make_task(r, load, sides, side), make_deep(r)
    work, stack = make_work(r, index.base_units.size), first_stack(r)
    point = stack[0].copy()
    best = polish(r, task, work, *np.split(point, 2))  # narrows the point
    state = Least(stack, first_trail(), 1, best, point)
    while state.top > 0 and (chunk := spent.take()) > 0:
        state, count = lower(r, task, work, deep, state, chunk)
        spent.nodes += count
    bound = min([state.best, *state.trail[: state.top, 2].tolist()])
    if state.top and state.trail[0, 0] < 0:  # not begun
        bound = quick_bound(r, load, sides.plus[side], sides.minus[side])
    return int(bound), state


def _to_lead(ensemble: Ensemble, label: int, units: int) -> float:
    """Translate units into a lead that is surely not too large."""
    index, scores = ensemble.index, 1 if ensemble.n_scores == 1 else 2
    exact = Fraction(units - scores * index.slack) / Fraction(2) ** index.exponent
    exact /= Fraction(ensemble.divisor)
    if ensemble.n_scores == 1:
        exact += Fraction(ensemble.cutoff) * (-1 if label == 1 else 1)
    return float(np.nextafter(float(exact), -np.inf))


def _leads(ensemble: Ensemble, label: int, points: Floats) -> Floats:
    scores = ensemble.scores(points).astype(np.float64)
    if ensemble.n_scores == 1:
        return (scores[:, 0] - ensemble.cutoff) * (1.0 if label == 1 else -1.0)
    own = scores[:, label].copy()
    scores[:, label] = -np.inf
    return np.asarray(own - scores.max(axis=1))
