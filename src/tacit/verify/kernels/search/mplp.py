"""Compiled: the bound of dual decomposition, by max-product linear programming (MPLP).

Each tree sends each of its features a *message*, one number per rank; what a leaf costs is then its
value less the messages of the ranks it is reached by, and what a rank costs is the sum of the
messages its feature has got. Whatever the messages, the least leaf of every tree, added up, is a
bound, as long as no rank's messages add up to less than nothing. One feature at a time is
*reparametrised*: its messages are chosen anew so that all its trees have the same cost at each rank
(Globerson and Jaakkola 2007), which never lowers the bound. Ranks that lift it to the threshold are
cut off on the way.

After that, a message is the *min-marginal* of the rank's segment in its tree less a *shared
potential* of the rank, the same for all trees: the mean of the min-marginals, rounded down. So
messages are written down as one number per segment, and follow from any such numbers: they are
valid in every box, and in the problem of another box.
"""

from typing import NamedTuple

import numpy as np

from tacit.jit import bare, compiled
from tacit.verify.kernels.layout.reach import Reach, Segments
from tacit.verify.kernels.search.problem import Problem
from tacit.verify.kernels.tables import Ints, Longs

GONE = 1 << 61
"""The cost of a leaf that cannot be reached."""

MOST_SWEEPS = 15
LEAST_SHARE = 5
"""A sweep that closes less than this part of the gap is the last."""


class Mplp(NamedTuple):
    """Messages and what follows from them."""

    cut: Segments
    min_marginal: Longs  # (segments): of the segment when its feature was last reparametrised
    shared: Longs  # (levels, ranks): the least shared potential of 2**level ranks from this one on
    level: Ints  # (widest + 1): the level for so many ranks
    most: Longs  # (segments): the largest message within the box; -GONE outside of it
    seg_least: Longs  # (segments): the least cost of a leaf, but for the slot's own message
    cost: Longs  # (leaves): of a leaf, less the messages; GONE if out of reach
    least: Longs  # (open trees): the least cost
    alive: Ints  # (leaves): the leaves of every tree, those within the box first
    n_alive: Ints  # (open trees): how many those are
    total: Longs  # (widest + 1): the costs of the ranks of one feature
    pick: Ints  # (features): the rank that costs least


@compiled
def make_mplp(r: Reach, cut: Segments) -> Mplp:
    """Start without messages."""
    n_features, n_open, widest = r.feature_id.size, r.tree_id.size, 1
    for f in range(n_features):
        widest = max(widest, r.rank_start[f + 1] - r.rank_start[f])
    level = np.zeros(widest + 1, np.int32)
    for width in range(2, widest + 1):
        level[width] = level[width >> 1] + 1
    n_segments = cut.first.size
    return Mplp(
        cut=cut,
        min_marginal=np.zeros(n_segments, np.int64),
        shared=np.zeros((level[widest] + 1, r.rank_low.size), np.int64),
        level=level,
        most=np.zeros(n_segments, np.int64),
        seg_least=np.zeros(n_segments, np.int64),
        cost=np.zeros(r.leaf_node.size, np.int64),
        least=np.zeros(n_open, np.int64),
        alive=np.arange(r.leaf_node.size).astype(np.int32),
        n_alive=(r.leaf_start[1:] - r.leaf_start[:-1]).astype(np.int32),
        total=np.zeros(widest + 1, np.int64),
        pick=np.zeros(n_features, np.int32),
    )


@bare
def revive(r: Reach, a: Mplp) -> None:
    """Count every leaf as alive, before another box is priced that may be larger."""
    for t in range(a.n_alive.size):
        a.n_alive[t] = r.leaf_start[t + 1] - r.leaf_start[t]


@bare
def restore(r: Reach, a: Mplp, min_marginals: Longs) -> None:
    """Go back to messages that were saved, or that come from another box."""
    for k in range(a.min_marginal.size):
        a.min_marginal[k] = min_marginals[k]
    for f in range(r.feature_id.size):
        begin, end = r.slots_of_start[f], r.slots_of_start[f + 1]
        width = r.rank_start[f + 1] - r.rank_start[f]
        for rank in range(width + 1):
            a.total[rank] = 0
        for i in range(begin, end):
            _add_min_marginals(a, r.slots_of[i])
        _share_evenly(a, r.rank_start[f], width, end - begin)


@bare
def save(a: Mplp, min_marginals: Longs) -> None:
    """Write the messages down."""
    for k in range(a.min_marginal.size):
        min_marginals[k] = a.min_marginal[k]


@bare
def price(r: Reach, task: Problem, a: Mplp, low: Ints, high: Ints) -> int:
    """Compute all costs within a box; return the bound.

    Only leaves that `n_alive` says are alive are looked at; those out of reach are moved behind.
    """
    for s in range(r.slot_feature.size):
        f = r.slot_feature[s]
        _price_slot(a, s, r.rank_start[f], low[f], high[f])
    bound = task.base
    for t in range(r.tree_id.size):
        least, first, n = GONE, r.leaf_start[t], a.n_alive[t]
        at = first
        while at < first + n:
            leaf = a.alive[at]
            cost = task.value[leaf]
            for s in range(r.slot_start[t], r.slot_start[t + 1]):
                paid = _largest_message(a, a.cut.pair_start[s] + leaf - first)
                if paid == -GONE:
                    cost = GONE
                    break
                cost -= paid
            a.cost[leaf] = cost
            if cost == GONE:
                n -= 1
                a.alive[at], a.alive[first + n] = a.alive[first + n], leaf
                continue
            least = min(least, cost)
            at += 1
        a.n_alive[t] = n
        a.least[t] = least
        bound += least
    return bound


@bare
def tighten(r: Reach, task: Problem, a: Mplp, low: Ints, high: Ints) -> int:
    """Raise the bound of a box for as long as that pays; return it. Narrows low and high."""
    for f in range(low.size):
        a.pick[f] = low[f]
    bound = price(r, task, a, low, high)
    for sweep in range(MOST_SWEEPS):
        before = bound
        for f in range(low.size):
            if bound >= task.threshold:
                return bound
            if low[f] < high[f]:
                bound = reparametrise(r, task, a, low, high, f, bound)
        if sweep > 0 and (bound - before) * LEAST_SHARE < task.threshold - bound:
            break
    return bound


@bare
def reparametrise(
    r: Reach, task: Problem, a: Mplp, low: Ints, high: Ints, f: int, bound: int
) -> int:
    """Choose the messages to one feature anew and cut its ranks off; return the bound.

    The bound is the threshold if no rank is left.
    """
    begin, end = r.slots_of_start[f], r.slots_of_start[f + 1]
    start, width = r.rank_start[f], r.rank_start[f + 1] - r.rank_start[f]
    for rank in range(width + 1):
        a.total[rank] = 0
    rest = bound
    for i in range(begin, end):
        rest -= a.least[r.slot_tree[r.slots_of[i]]]
        _collect_costs(r, a, r.slots_of[i])
    _share_evenly(a, start, width, end - begin)
    while low[f] <= high[f] and rest + a.total[low[f]] >= task.threshold:
        low[f] += 1
    while low[f] <= high[f] and rest + a.total[high[f]] >= task.threshold:
        high[f] -= 1
    if low[f] > high[f]:
        return task.threshold
    a.pick[f] = low[f] + np.argmin(a.total[low[f] : high[f] + 1])
    each = _least_shared(a, start + low[f], start + high[f])
    for i in range(begin, end):
        _send(r, a, r.slots_of[i], start, low[f], high[f])
        a.least[r.slot_tree[r.slots_of[i]]] = each
    risen: int = rest + (end - begin) * each
    return risen


@bare
def _largest_message(a: Mplp, at: int) -> int:
    """Find the largest message of the segments that reach a leaf."""
    first, last = np.uintp(a.cut.pair_first[np.uintp(at)]), np.uintp(a.cut.pair_last[np.uintp(at)])
    most: int = a.most[first]
    for k in range(first + np.uintp(1), last + np.uintp(1)):
        most = max(most, a.most[k])
    return most


@bare
def _least_shared(a: Mplp, first: int, last: int) -> int:
    """Find the least shared potential from one rank to another, by two overlapping stretches."""
    level = a.level[last - first + 1]
    least: int = min(a.shared[level, first], a.shared[level, last + 1 - (1 << level)])
    return least


@bare
def _price_slot(a: Mplp, s: int, start: int, low: int, high: int) -> None:
    """Find the largest message of every segment of a slot within the box."""
    for k in range(a.cut.start[s], a.cut.start[s + 1]):
        first, last = max(a.cut.first[k], low), min(a.cut.last[k], high)
        if first > last:
            a.most[k] = -GONE
            continue
        a.most[k] = a.min_marginal[k] - _least_shared(a, start + first, start + last)


@bare
def _collect_costs(r: Reach, a: Mplp, s: int) -> None:
    """Give a slot its message back and add the min-marginals of its segments to the total."""
    t, pair = r.slot_tree[s], a.cut.pair_start[s] - r.leaf_start[r.slot_tree[s]]
    begin, end = a.cut.start[s], a.cut.start[s + 1]
    for k in range(begin, end):
        a.seg_least[k] = GONE
    for i in range(r.leaf_start[t], r.leaf_start[t] + a.n_alive[t]):
        leaf = a.alive[i]
        if a.cost[leaf] == GONE:
            continue
        cost = a.cost[leaf] + _largest_message(a, pair + leaf)
        a.cost[leaf] = cost
        at = np.uintp(pair + leaf)
        last = np.uintp(a.cut.pair_last[at])
        for k in range(np.uintp(a.cut.pair_first[at]), last + np.uintp(1)):
            a.seg_least[k] = min(a.seg_least[k], cost)
    for k in range(begin, end):
        if a.seg_least[k] != GONE:  # outside of the box, the last min-marginal stands
            a.min_marginal[k] = a.seg_least[k]
    _add_min_marginals(a, s)


@bare
def _add_min_marginals(a: Mplp, s: int) -> None:
    """Add the min-marginals of a slot to the steps of the total."""
    for k in range(a.cut.start[s], a.cut.start[s + 1]):
        a.total[a.cut.first[k]] += a.min_marginal[k]
        a.total[a.cut.last[k] + 1] -= a.min_marginal[k]


@bare
def _share_evenly(a: Mplp, start: int, width: int, count: int) -> None:
    """Make the steps a total per rank, a shared potential of each, and the least of stretches."""
    total, part = 0, 1.0 / count
    for rank in range(width):
        total += a.total[rank]
        a.total[rank] = total
        each = np.int64(total * part)
        while each * count > total:  # the product was rounded; any potential below is valid
            each -= 1
        a.shared[0, start + rank] = each
    for level in range(1, a.level[width] + 1):
        half = 1 << (level - 1)
        for at in range(start, start + width + 1 - 2 * half):
            a.shared[level, at] = min(a.shared[level - 1, at], a.shared[level - 1, at + half])


@bare
def _send(r: Reach, a: Mplp, s: int, start: int, low: int, high: int) -> None:
    """Take the new message of a slot from the cost of its tree's leaves."""
    t, pair = r.slot_tree[s], a.cut.pair_start[s] - r.leaf_start[r.slot_tree[s]]
    _price_slot(a, s, start, low, high)
    for i in range(r.leaf_start[t], r.leaf_start[t] + a.n_alive[t]):
        leaf = a.alive[i]
        if a.cost[leaf] != GONE:
            paid = _largest_message(a, pair + leaf)
            a.cost[leaf] = GONE if paid == -GONE else a.cost[leaf] - paid
