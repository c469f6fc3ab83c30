"""Compiled: quick ways to a counterexample that hardly crosses the barrier."""

from typing import Any, NamedTuple

import numpy as np

from tacit.verify.kernels.attack.neighbours import look
from tacit.verify.kernels.attack.tabu import begin, step
from tacit.verify.kernels.jit import compiled
from tacit.verify.kernels.presolve.scores import CHANGED, KEPT
from tacit.verify.kernels.search.messages import agree, price

WALK_EVERY = 8
"""Steps of a plunge between two walks from its point."""

STEPS = 30
"""Steps of a walk."""


class Ground(NamedTuple):
    """One side of a box of cells, and what is needed to judge its points."""

    trees: Any
    rule: Any
    sides: Any
    r: Any
    task: Any
    deep: Any
    stroll: Any
    low: Any  # (all features): the box of cells
    high: Any
    home: Any  # (all features): the cells of the input


@compiled
def write_cells(ground: Any, point: Any, cells: Any) -> None:
    """Write a point of one rank per feature as cells, those nearest to the input."""
    r, low, high = ground.r, ground.low, ground.high
    for f in range(cells.size):
        cells[f] = min(max(ground.home[f], low[f]), high[f])
    for g in range(point.size):
        f, at = r.feature_id[g], r.rank_start[g] + point[g]
        first, last = max(r.rank_low[at], low[f]), min(r.rank_high[at], high[f])
        cells[f] = min(max(cells[f], first), last)


@compiled
def walk(ground: Any, cells: Any, steps: int) -> Any:
    """Walk on until the prediction changes in the library's arithmetic.

    Returns:
        CHANGED if it does, at what `cells` then holds; else TIED or KEPT.
    """
    r, task, s = ground.r, ground.task, ground.stroll
    best, worst = s.total[0], KEPT
    for k in range(steps + 1):
        best = min(best, s.total[0])
        if s.total[0] < task.barrier:
            write_cells(ground, s.point, cells)
            verdict = look(ground.trees, ground.rule, ground.sides, cells)
            worst = max(worst, verdict)
            if verdict == CHANGED:
                return verdict
        if k == steps or not step(r, task, s, s.far, s.far_rank, best):
            break
    return worst


@compiled
def try_point(ground: Any, pick: Any, cells: Any, is_thorough: bool) -> Any:
    """Look at the point of one rank per feature, and at what a walk from it comes to.

    Returns:
        CHANGED if one of them, which `cells` then holds, changes the prediction in the
        library's arithmetic; else TIED or KEPT.
    """
    if is_thorough:
        begin(ground.r, ground.task, ground.stroll, pick)
        return walk(ground, cells, STEPS)
    write_cells(ground, pick, cells)
    return look(ground.trees, ground.rule, ground.sides, cells)


@compiled
def plunge(ground: Any, low: Any, high: Any, cells: Any) -> Any:
    """Give a part of the open features, the surest, their best rank, again and again.

    A search would fix one feature at a time. Where too many were fixed at once, fewer are. Low,
    high, the messages and the picks are left changed.

    Returns:
        what `try_point` says of the last point, or TIED if it said so of another.
    """
    r, task, d = ground.r, ground.task, ground.deep.dual
    regret, order = np.empty(low.size, np.int64), np.empty(low.size, np.int64)
    was_low, was_high, picks = low.copy(), high.copy(), d.pick.copy()
    worst, part, surest, step = KEPT, 2, order[:0], 0
    while True:
        step += 1
        bound, n_open = price(r, task, d, low, high), 0
        for f in range(low.size):
            if low[f] < high[f] and bound < task.barrier:
                bound = agree(r, task, d, low, high, f, bound)
                if low[f] < high[f]:
                    regret[n_open] = d.total[d.pick[f]] - d.total[d.second[f]]
                    order[n_open] = f
                    n_open += 1
            d.pick[f] = min(max(d.pick[f], low[f]), high[f])
        if bound < task.barrier:
            is_thorough = n_open == 0 or step % WALK_EVERY == 0
            verdict = try_point(ground, d.pick, cells, is_thorough)
            worst = max(worst, verdict)
            if verdict == CHANGED or n_open == 0:
                return CHANGED if verdict == CHANGED else worst
            was_low[:], was_high[:], picks[:] = low, high, d.pick
            surest, part = order[np.argsort(regret[:n_open])], max(part // 2, 2)
        elif surest.size < part:
            return worst
        else:
            low[:], high[:] = was_low, was_high
            part *= 4
        for f in surest[: (surest.size + part - 1) // part]:
            low[f] = high[f] = picks[f]
