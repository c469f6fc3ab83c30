"""Compiled: branch and bound with the bound of the linear relaxation, for what is hard.

Each tree pays each of its features a *message*, one number per rank; what a leaf costs is then its
value less the messages of the ranks it is reached by, and what a rank costs is the sum of the
messages its feature has got. Whatever the messages, the least leaf of every tree, added up, is a
bound, as long as no rank's messages add up to less than nothing. One feature at a time, messages
are chosen anew so that all its trees agree on what each rank costs (max-product linear
programming, Globerson and Jaakkola 2007); this never lowers the bound. Ranks that lift it to the
barrier are cut off on the way. Messages stay valid in every smaller box, so a node goes on from
where the last one stopped.
"""

from typing import Any, NamedTuple

import numpy as np

from tacit.verify.kernels.jit import bare, compiled

GONE = 1 << 61
"""The cost of a leaf that cannot be reached."""

MOST_SWEEPS = 15
LEAST_SHARE = 30
"""A sweep that closes less than this part of the gap is the last."""


class Dual(NamedTuple):
    """Messages and what follows from them."""

    cut: Any
    message: Any  # one row of ranks per slot
    most: Any  # (segments): the largest message within the box; -GONE outside of it
    seg_least: Any  # (segments): the least cost of a leaf, but for the slot's own message
    cost: Any  # (leaves): of a leaf, less the messages; GONE if out of reach
    least: Any  # (open trees): the least cost
    total: Any  # (ranks): scratch
    fair: Any  # (ranks): scratch
    pick: Any  # (features): the rank that costs least
    second: Any  # (features): the rank that costs least but for that one


@compiled
def make_dual(r: Any, cut: Any) -> Any:
    """Start without messages."""
    n_features, widest = r.feature_id.size, 1
    for f in range(n_features):
        widest = max(widest, r.rank_start[f + 1] - r.rank_start[f])
    return Dual(
        cut,
        np.zeros(cut.row_start[-1], np.int64),
        np.zeros(cut.first.size, np.int64),
        np.zeros(cut.first.size, np.int64),
        np.zeros(r.leaf_node.size, np.int64),
        np.zeros(r.tree_id.size, np.int64),
        np.zeros(widest, np.int64),
        np.zeros(widest, np.int64),
        np.zeros(n_features, np.int32),
        np.zeros(n_features, np.int32),
    )


@bare
def _most(d: Any, at: Any) -> Any:
    """Find the largest message of the segments that reach a leaf."""
    first, last = np.uintp(d.cut.pair_first[np.uintp(at)]), np.uintp(d.cut.pair_last[np.uintp(at)])
    most = d.most[first]
    for k in range(first + np.uintp(1), last + np.uintp(1)):
        most = max(most, d.most[k])
    return most


@bare
def price(r: Any, task: Any, d: Any, low: Any, high: Any) -> Any:
    """Compute all costs within a box; return the bound."""
    for s in range(r.slot_feature.size):
        f, start = r.slot_feature[s], d.cut.row_start[s]
        for k in range(d.cut.start[s], d.cut.start[s + 1]):
            most = -GONE
            for rank in range(max(d.cut.first[k], low[f]), min(d.cut.last[k], high[f]) + 1):
                most = max(most, d.message[start + rank])
            d.most[k] = most
    bound = task.base
    for t in range(r.tree_id.size):
        least, first = GONE, r.leaf_start[t]
        for leaf in range(first, r.leaf_start[t + 1]):
            cost = task.value[leaf]
            for s in range(r.slot_start[t], r.slot_start[t + 1]):
                paid = _most(d, d.cut.pair_start[s] + leaf - first)
                if paid == -GONE:
                    cost = GONE
                    break
                cost -= paid
            d.cost[leaf] = cost
            least = min(least, cost)
        d.least[t] = least
        bound += least
    return bound


@bare
def _collect_costs(r: Any, d: Any, s: int, low: int, high: int) -> Any:
    """Give a slot its message back and add what each rank costs in its tree to the total."""
    t = r.slot_tree[s]
    begin, end = np.uintp(d.cut.start[s]), np.uintp(d.cut.start[s + 1])
    first, last = np.uintp(r.leaf_start[t]), np.uintp(r.leaf_start[t + 1])
    shift = np.uintp(d.cut.pair_start[s]) - first
    for k in range(begin, end):
        d.seg_least[k] = GONE
    for leaf in range(first, last):
        cost = d.cost[leaf]
        if cost == GONE:
            continue
        a, b = np.uintp(d.cut.pair_first[leaf + shift]), np.uintp(d.cut.pair_last[leaf + shift])
        most = d.most[a]
        for k in range(a + np.uintp(1), b + np.uintp(1)):
            most = max(most, d.most[k])
        cost += most
        d.cost[leaf] = cost
        for k in range(a, b + np.uintp(1)):
            d.seg_least[k] = min(d.seg_least[k], cost)
    for k in range(begin, end):
        least = d.seg_least[k]
        for rank in range(max(d.cut.first[k], low), min(d.cut.last[k], high) + 1):
            d.total[rank] += least


@bare
def _send(r: Any, d: Any, s: int, low: int, high: int) -> Any:
    """Choose the message of a slot, and take it from the cost of its tree's leaves."""
    t, start = r.slot_tree[s], d.cut.row_start[s]
    for k in range(d.cut.start[s], d.cut.start[s + 1]):
        least, most = d.seg_least[k], -GONE
        for rank in range(max(d.cut.first[k], low), min(d.cut.last[k], high) + 1):
            sent = least - d.fair[rank]
            d.message[start + rank] = sent
            most = max(most, sent)
        d.most[k] = most
    first, last = np.uintp(r.leaf_start[t]), np.uintp(r.leaf_start[t + 1])
    shift = np.uintp(d.cut.pair_start[s]) - first
    for leaf in range(first, last):
        cost = d.cost[leaf]
        if cost != GONE:
            paid = _most(d, leaf + shift)
            d.cost[leaf] = GONE if paid == -GONE else cost - paid


@bare
def agree(r: Any, task: Any, d: Any, low: Any, high: Any, f: int, bound: int) -> Any:
    """Choose the messages to one feature anew and cut its ranks off; return the bound.

    The bound is the barrier if no rank is left.
    """
    begin, end = r.slots_of_start[f], r.slots_of_start[f + 1]
    for rank in range(low[f], high[f] + 1):
        d.total[rank] = 0
    rest = bound
    for i in range(begin, end):
        rest -= d.least[r.slot_tree[r.slots_of[i]]]
        _collect_costs(r, d, r.slots_of[i], low[f], high[f])
    while low[f] <= high[f] and rest + d.total[low[f]] >= task.barrier:
        low[f] += 1
    while low[f] <= high[f] and rest + d.total[high[f]] >= task.barrier:
        high[f] -= 1
    if low[f] > high[f]:
        return task.barrier
    count = end - begin
    each = _pick(d, low[f], high[f], f) // count
    for rank in range(low[f], high[f] + 1):
        d.fair[rank] = d.total[rank] // count
    for i in range(begin, end):
        _send(r, d, r.slots_of[i], low[f], high[f])
        d.least[r.slot_tree[r.slots_of[i]]] = each
    return rest + count * each


@compiled
def _pick(d: Any, low: int, high: int, f: int) -> Any:
    """Note the two ranks of a feature that cost least; return the least cost."""
    best, second = low, low
    least, next_least = d.total[low], GONE
    for rank in range(low + 1, high + 1):
        cost = d.total[rank]
        if cost < least:
            second, next_least = best, least
            best, least = rank, cost
        elif cost < next_least:
            second, next_least = rank, cost
    d.pick[f], d.second[f] = best, second
    return least


@bare
def squeeze(r: Any, task: Any, d: Any, low: Any, high: Any) -> Any:
    """Raise the bound of a box as long as it rises; return it. Narrows low and high."""
    for f in range(low.size):
        d.pick[f], d.second[f] = low[f], low[f]
    bound = price(r, task, d, low, high)
    for _ in range(MOST_SWEEPS):
        before = bound
        for f in range(low.size):
            if bound >= task.barrier:
                return bound
            if low[f] < high[f]:
                bound = agree(r, task, d, low, high, f, bound)
        if (bound - before) * LEAST_SHARE < task.barrier - bound:
            break
    return bound
