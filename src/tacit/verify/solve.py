"""Compiled: one box from cells to an answer, without leaving machine code.

A *side* is one way in which the prediction could change: a rival class, or for a single score the
one direction that crosses the cutoff, or for a regression one of the two bounds. Side s asks for
the sum of ``plus`` minus the sum of ``minus`` to fall below its barrier; -1 stands for nothing.
"""

from typing import Any, NamedTuple

import numpy as np

from tacit.verify.bounds import Task, make_work
from tacit.verify.branch import FOUND, PAUSED, PROVED, search
from tacit.verify.clock import WALL, make_hand, read_clock
from tacit.verify.deep import first_trail, is_wide, search_deep, start_deep
from tacit.verify.glance import SOME_FELL, look, make_glance, sum_center, weigh
from tacit.verify.index import Rule, Trees
from tacit.verify.jit import bare, compiled, inlined
from tacit.verify.parts import are_apart
from tacit.verify.press import try_sides
from tacit.verify.purse import CHUNK_NODES
from tacit.verify.reach import reach_open

MANY_NODES = 24
"""Nodes of the deep search before it is asked whether trees fall into parts."""


class Sides(NamedTuple):
    """Everything that must be ruled out, and what the library would say to a point."""

    plus: Any  # (sides): score that counts positively, or -1
    minus: Any  # (sides): score that counts negatively, or -1
    barrier: Any  # (sides): units
    label: Any
    low: Any
    high: Any


class Effort(NamedTuple):
    """What a box may cost."""

    quick: int
    """Nodes of the quick search."""
    deep: int
    """Nodes of the deep search, for what the quick one leaves open."""
    seconds: float
    """For the deep search, by the wall."""


class Load(NamedTuple):
    """What the open leaves and everything constant add to each score, in units."""

    leaf: Any  # (leaves, scores)
    constant: Any  # (scores)


class Ground(NamedTuple):
    """What a search stands on."""

    trees: Any
    rule: Any
    r: Any
    load: Any
    work: Any


@compiled
def make_load(trees: Any, base_units: Any, r: Any) -> Any:
    """Gather the units of the leaves that a box leaves open."""
    n_scores = base_units.size
    leaf, constant = np.empty((r.leaf_node.size, n_scores), np.int64), base_units.copy()
    for i in range(r.leaf_node.size):
        for score in range(n_scores):
            leaf[i, score] = trees.units[r.leaf_node[i], score]
    for tree in range(r.fixed_leaf.size):
        if r.fixed_leaf[tree] >= 0:
            for score in range(n_scores):
                constant[score] += trees.units[r.fixed_leaf[tree], score]
    return Load(leaf, constant)


@bare
def quick_bound(r: Any, load: Any, plus: int, minus: int) -> int:
    """Compute the plain bound of a side without sorting anything."""
    total = weigh(load.constant, plus, minus)
    for t in range(r.tree_id.size):
        least = weigh(load.leaf[r.leaf_start[t]], plus, minus)
        for leaf in range(r.leaf_start[t] + 1, r.leaf_start[t + 1]):
            least = min(least, weigh(load.leaf[leaf], plus, minus))
        total += least
    return total


@compiled
def make_unsorted(r: Any, load: Any, sides: Any, side: int) -> Any:
    """Weigh the leaves for one side: all that the deep search asks for."""
    n_leaves, plus, minus = r.leaf_node.size, sides.plus[side], sides.minus[side]
    value, none = np.empty(n_leaves, np.int64), np.empty(0, np.int32)
    for leaf in range(n_leaves):
        value[leaf] = weigh(load.leaf[leaf], plus, minus)
    base, barrier = weigh(load.constant, plus, minus), sides.barrier[side]
    return Task(value, none, none, base, barrier, sides.label, sides.low, sides.high)


@compiled
def make_task(r: Any, load: Any, sides: Any, side: int) -> Any:
    """Weigh the leaves for one side and sort them within each tree."""
    n_leaves, n_open = r.leaf_node.size, r.tree_id.size
    task = make_unsorted(r, load, sides, side)
    value, order = task.value, np.empty(n_leaves, np.int32)
    spread = np.empty(n_open, np.int64)
    for t in range(n_open):
        first = r.leaf_start[t]
        for leaf in range(first, r.leaf_start[t + 1]):
            at = leaf
            while at > first and value[order[at - 1]] > value[leaf]:
                order[at] = order[at - 1]
                at -= 1
            order[at] = leaf
        spread[t] = value[order[first]] - value[order[r.leaf_start[t + 1] - 1]]
    tree_order = np.argsort(spread).astype(np.int32)
    return Task(value, order, tree_order, task.base, task.barrier, task.label, task.low, task.high)


@compiled
def first_stack(r: Any) -> Any:
    """Make a stack that holds the whole box."""
    n_features = r.feature_id.size
    stack = np.zeros((16, 2 * n_features), np.int32)
    for f in range(n_features):
        stack[0, n_features + f] = r.rank_start[f + 1] - r.rank_start[f] - 1
    return stack


@bare
def witness_cells(r: Any, row: Any, cell_low: Any, cell_high: Any) -> None:
    """Narrow a box of cells to the ranks that a row of the stack holds."""
    n_features = r.feature_id.size
    for g in range(n_features):
        start, f = r.rank_start[g], r.feature_id[g]
        cell_low[f] = r.rank_low[start + row[g]]
        cell_high[f] = r.rank_high[start + row[n_features + g]]


@compiled
def order_sides(r: Any, load: Any, sides: Any) -> Any:
    """List the sides that the plain bound leaves open, the most endangered first."""
    gaps = np.empty(sides.plus.size, np.int64)
    for side in range(gaps.size):
        bound = quick_bound(r, load, sides.plus[side], sides.minus[side])
        gaps[side] = bound - sides.barrier[side]
    order = np.argsort(gaps)
    return order[: np.sum(gaps < 0)]


@compiled
def solve(index: Any, sides: Any, cell_low: Any, cell_high: Any, effort: Any) -> Any:
    """Decide one box within an effort; a witness narrows cell_low and cell_high in place.

    Returns:
        the worst outcome over the sides and how many nodes were visited.
    """
    g = make_glance(index, sides.plus.size)
    count = 0
    for f in range(cell_low.size):
        g.at[f], g.free[count] = cell_low[f], f
        count += cell_low[f] < cell_high[f]
    g.free[cell_low.size] = count
    count = look(index.paths, g, cell_low, cell_high)
    sum_center(index, g)
    return solve_open(index, sides, g, count, cell_low, cell_high, effort)


@inlined
def solve_open(
    index: Any, sides: Any, g: Any, count: int, cell_low: Any, cell_high: Any, effort: Any
) -> Any:
    """Decide one box, as `solve` does, from where `look` has left it."""
    most = effort.quick + effort.deep
    n_open = try_sides(index, sides, g, count, cell_low, cell_high, most)
    if n_open == 0:
        return PROVED, 0
    if n_open == SOME_FELL:
        return FOUND, 0
    return search_open(index, sides, g, n_open, cell_low, cell_high, effort)


@inlined
def search_open(
    index: Any, sides: Any, g: Any, n_open: int, cell_low: Any, cell_high: Any, effort: Any
) -> Any:
    """Build a problem of the sides that are first in `g.order`, and search."""
    if index.paths.group_start.size == 2:
        ground = _make_ground(index, g, cell_low, cell_high)
        return _search_sides(ground, sides, g.order[:n_open], cell_low, cell_high, effort)
    return _search_pairs(index, sides, g, g.order[:n_open], cell_low, cell_high, effort)


@inlined
def _make_ground(index: Any, g: Any, cell_low: Any, cell_high: Any) -> Any:
    """Make the problem that a box leaves, from what `look` has found."""
    known = np.full(g.reached.size, -1, np.int32)
    for tree in range(known.size):
        if g.pending_start[tree] == g.pending_end[tree]:
            known[tree] = g.reached[tree]
    r = reach_open(index.trees, known, cell_low, cell_high)
    load = make_load(index.trees, index.base_units, r)
    return Ground(index.trees, index.rule, r, load, make_work(r, index.base_units.size))


@compiled
def _make_pair_ground(
    index: Any, sides: Any, side: int, g: Any, cell_low: Any, cell_high: Any
) -> Any:
    """Make the problem of one side in boosting: the trees of two classes, as if there were no more.

    Where the rival is ahead the prediction changes, whatever the other classes score.
    """
    paths, all_trees, rule = index.paths, index.trees, index.rule
    start, order, size = paths.group_start, paths.order, 0
    base, pair = np.full(rule.base.size, -np.inf), (sides.plus[side], sides.minus[side])
    for group in pair:
        base[group] = rule.base[group]
        size += start[group + 1] - start[group]
    roots, known = np.empty(size, np.int32), np.full(size, -1, np.int32)
    size = 0
    for group in pair:
        for at in range(start[group], start[group + 1]):
            roots[size] = all_trees.roots[order[at]]
            if g.pending_start[at] == g.pending_end[at]:
                known[size] = g.reached[at]
            size += 1
    trees = Trees(
        roots,
        all_trees.feature,
        all_trees.threshold,
        all_trees.left,
        all_trees.right,
        all_trees.missing_left,
        all_trees.value,
        all_trees.units,
        all_trees.packed,
        all_trees.walk,
        all_trees.depth,
    )
    r = reach_open(trees, known, cell_low, cell_high)
    load = make_load(trees, index.base_units, r)
    alone = Rule(rule.kind, rule.is_single, rule.divisor, rule.cutoff, rule.guard, base)
    return Ground(trees, alone, r, load, make_work(r, base.size))


@inlined
def _search_sides(
    ground: Any, sides: Any, left: Any, cell_low: Any, cell_high: Any, effort: Any
) -> Any:
    """Search on sides that ask about the same trees: quickly on all of them, then deeply."""
    if effort.deep > 0 and is_wide(ground.r):
        return _dig(ground, sides, left, cell_low, cell_high, effort)
    outcome, visited, n_paused = _try_quickly(ground, sides, left, cell_low, cell_high, effort)
    if outcome == FOUND or n_paused == 0:
        return outcome, visited
    deeper, spent = _dig(ground, sides, left[:n_paused], cell_low, cell_high, effort)
    return (deeper if deeper == FOUND else max(outcome, deeper)), visited + spent


@inlined
def _search_pairs(
    index: Any, sides: Any, g: Any, left: Any, cell_low: Any, cell_high: Any, effort: Any
) -> Any:
    """Search side by side, each among the trees of its two classes."""
    hand = make_hand()
    deadline = read_clock(WALL, hand) + effort.seconds
    worst, visited, n_paused = PROVED, 0, 0
    for i in range(left.size):
        ground = _make_pair_ground(index, sides, left[i], g, cell_low, cell_high)
        rest = Effort(effort.quick - visited, effort.deep, effort.seconds)
        one = left[i : i + 1]
        outcome, spent, paused = _try_quickly(ground, sides, one, cell_low, cell_high, rest)
        visited += spent
        if outcome == FOUND:
            return outcome, visited
        worst = max(worst, outcome)
        left[n_paused] = left[i]
        n_paused += paused
    before = visited
    for i in range(n_paused):
        ground = _make_pair_ground(index, sides, left[i], g, cell_low, cell_high)
        seconds = deadline - read_clock(WALL, hand)
        rest = Effort(0, effort.deep - (visited - before), seconds)
        outcome, spent = _dig(ground, sides, left[i : i + 1], cell_low, cell_high, rest)
        visited += spent
        if outcome == FOUND:
            return outcome, visited
        worst = max(worst, outcome)
        if outcome == PAUSED:
            break
    return worst, visited


@inlined
def _try_quickly(
    ground: Any, sides: Any, left: Any, cell_low: Any, cell_high: Any, effort: Any
) -> Any:
    """Search quickly; return the worst outcome, the nodes and how many sides are to be dug into.

    Those are brought to the front of `left`, and do not count for the outcome.
    """
    trees, rule, r, work = ground.trees, ground.rule, ground.r, ground.work
    worst, visited, n_paused = PROVED, 0, 0
    for side in left:
        task = make_task(r, ground.load, sides, side)
        work.is_blurred[0] = False
        outcome, stack, _, spent = search(
            trees, rule, r, task, work, first_stack(r), 1, effort.quick - visited
        )
        visited += spent
        if outcome == FOUND:
            witness_cells(r, stack[0], cell_low, cell_high)
            return outcome, visited, 0
        if outcome == PAUSED and effort.deep > 0:
            left[n_paused] = side
            n_paused += 1
        else:
            worst = max(worst, outcome)
    return worst, visited, n_paused


@compiled
def _dig(ground: Any, sides: Any, paused: Any, cell_low: Any, cell_high: Any, effort: Any) -> Any:
    """Search deeply on the sides that the quick search has left."""
    trees, rule, r, work = ground.trees, ground.rule, ground.r, ground.work
    hand = make_hand()
    deadline = read_clock(WALL, hand) + effort.seconds
    worst, visited = PROVED, 0
    for side in paused:
        task, deep = make_unsorted(r, ground.load, sides, side), start_deep(r, work.cut)
        stack, trail, top, outcome = first_stack(r), first_trail(), 1, PAUSED
        work.is_blurred[0], chunk = False, MANY_NODES
        while outcome == PAUSED and visited < effort.deep and read_clock(WALL, hand) < deadline:
            outcome, stack, trail, top, spent = search_deep(
                trees,
                rule,
                r,
                task,
                work,
                deep,
                stack,
                trail,
                top,
                min(chunk, effort.deep - visited),
            )
            visited += spent
            if outcome != PAUSED or chunk == CHUNK_NODES:
                continue
            chunk = CHUNK_NODES
            if are_apart(trees, r, stack, top, cell_low, cell_high):
                return PAUSED, visited  # parts are searched where the search can be interrupted
        if outcome == FOUND:
            witness_cells(r, stack[0], cell_low, cell_high)
            return outcome, visited
        worst = max(worst, outcome)
        if outcome == PAUSED:
            break
    return worst, visited
