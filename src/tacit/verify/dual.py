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

from tacit.verify.bounds import is_open
from tacit.verify.jit import compiled

GONE = 1 << 61
"""The cost of a leaf that cannot be reached."""

MOST_SWEEPS = 15
LEAST_SHARE = 30
"""A sweep that closes less than this part of the gap is the last."""


class Dual(NamedTuple):
    """Messages and what follows from them."""

    message: Any  # one row of ranks per slot
    message_start: Any  # (slots + 1)
    most: Any  # (slots): the largest message within the box
    cost: Any  # (leaves): of a leaf, less the messages; GONE if out of reach
    least: Any  # (open trees): the least cost
    marginal: Any  # (trees of a feature, ranks): scratch
    total: Any  # (ranks): scratch
    pick: Any  # (features): the rank that costs least
    second: Any  # (features): the rank that costs least but for that one


@compiled
def make_dual(r: Any) -> Any:
    """Start without messages."""
    n_slots, n_features = r.slot_feature.size, r.feature_id.size
    start = np.zeros(n_slots + 1, np.int64)
    for s in range(n_slots):
        f = r.slot_feature[s]
        start[s + 1] = start[s] + r.rank_start[f + 1] - r.rank_start[f]
    widest, busiest = 1, 1
    for f in range(n_features):
        widest = max(widest, r.rank_start[f + 1] - r.rank_start[f])
        busiest = max(busiest, r.slots_of_start[f + 1] - r.slots_of_start[f])
    return Dual(
        np.zeros(start[-1], np.int64),
        start,
        np.zeros(n_slots, np.int64),
        np.zeros(r.leaf_node.size, np.int64),
        np.zeros(r.tree_id.size, np.int64),
        np.zeros((busiest, widest), np.int64),
        np.zeros(widest, np.int64),
        np.zeros(n_features, np.int32),
        np.zeros(n_features, np.int32),
    )


@compiled
def price(r: Any, task: Any, d: Any, low: Any, high: Any) -> Any:
    """Compute all costs within a box; return the bound."""
    for s in range(d.most.size):
        f, start = r.slot_feature[s], d.message_start[s]
        most = d.message[start + low[f]]
        for rank in range(low[f] + 1, high[f] + 1):
            most = max(most, d.message[start + rank])
        d.most[s] = most
    bound = task.base
    for t in range(r.tree_id.size):
        paid = 0
        for s in range(r.slot_start[t], r.slot_start[t + 1]):
            paid += d.most[s]
        least = GONE
        for leaf in range(r.leaf_start[t], r.leaf_start[t + 1]):
            if not is_open(r, leaf, low, high):
                d.cost[leaf] = GONE
                continue
            cost = task.value[leaf] - paid
            for c in range(r.con_start[leaf], r.con_start[leaf + 1]):
                f, s = r.con_feature[c], r.con_slot[c]
                start = d.message_start[s]
                first, last = max(low[f], r.con_low[c]), min(high[f], r.con_high[c])
                most = d.message[start + first]
                for rank in range(first + 1, last + 1):
                    most = max(most, d.message[start + rank])
                cost += d.most[s] - most
            d.cost[leaf] = cost
            least = min(least, cost)
        d.least[t] = least
        bound += least
    return bound


@compiled
def agree(r: Any, task: Any, d: Any, low: Any, high: Any, f: int, bound: int) -> Any:
    """Choose the messages to one feature anew and cut its ranks off; return the bound.

    The bound is the barrier if no rank is left.
    """
    first_rank, last_rank = low[f], high[f]
    begin, count = r.slots_of_start[f], r.slots_of_start[f + 1] - r.slots_of_start[f]
    for rank in range(first_rank, last_rank + 1):
        d.total[rank] = 0
    rest = bound
    for i in range(count):
        s = r.slots_of[begin + i]
        t, start = r.slot_tree[s], d.message_start[s]
        rest -= d.least[t]
        for rank in range(first_rank, last_rank + 1):
            d.marginal[i, rank] = GONE
        for leaf in range(r.leaf_start[t], r.leaf_start[t + 1]):
            if d.cost[leaf] == GONE:
                continue
            first, last, most = first_rank, last_rank, d.most[s]
            for c in range(r.con_start[leaf], r.con_start[leaf + 1]):
                if r.con_slot[c] == s:
                    first, last = max(first, r.con_low[c]), min(last, r.con_high[c])
                    most = d.message[start + first]
                    for rank in range(first + 1, last + 1):
                        most = max(most, d.message[start + rank])
                    break
            cost = d.cost[leaf] + most
            d.cost[leaf] = cost
            for rank in range(first, last + 1):
                if cost < d.marginal[i, rank]:
                    d.marginal[i, rank] = cost
        for rank in range(first_rank, last_rank + 1):
            d.total[rank] += d.marginal[i, rank]
    while low[f] <= high[f] and rest + d.total[low[f]] >= task.barrier:
        low[f] += 1
    while low[f] <= high[f] and rest + d.total[high[f]] >= task.barrier:
        high[f] -= 1
    if low[f] > high[f]:
        return task.barrier
    least = _pick(d, low[f], high[f], f)
    for i in range(count):
        s = r.slots_of[begin + i]
        t, start = r.slot_tree[s], d.message_start[s]
        most = -GONE
        for rank in range(low[f], high[f] + 1):
            d.message[start + rank] = d.marginal[i, rank] - d.total[rank] // count
            most = max(most, d.message[start + rank])
        d.most[s] = most
        for leaf in range(r.leaf_start[t], r.leaf_start[t + 1]):
            if d.cost[leaf] == GONE:
                continue
            paid = most
            for c in range(r.con_start[leaf], r.con_start[leaf + 1]):
                if r.con_slot[c] == s:
                    first, last = max(low[f], r.con_low[c]), min(high[f], r.con_high[c])
                    paid = -GONE
                    for rank in range(first, last + 1):
                        paid = max(paid, d.message[start + rank])
                    break
            d.cost[leaf] = GONE if paid == -GONE else d.cost[leaf] - paid
        d.least[t] = least // count
    return rest + count * (least // count)


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


@compiled
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
