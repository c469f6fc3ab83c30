"""Compiled: the few stretches of ranks within which a tree sees no difference.

A feature may have hundreds of ranks, because hundreds of trees ask for it; one tree cuts them into
a handful of *segments*. Whatever is the same throughout a segment is computed once for it.
"""

from typing import NamedTuple

import numpy as np

from tacit.verify.kernels.arrays import Ints, Longs
from tacit.verify.kernels.jit import bare, compiled
from tacit.verify.kernels.layout.reach import Reach


class Segments(NamedTuple):
    """The segments of every slot, and those that reach each leaf."""

    row_start: Longs  # (slots + 1): offsets of rows that have one entry per rank
    start: Ints  # (slots + 1): the segments of a slot
    first: Ints  # (segments): first rank
    last: Ints
    pair_start: Longs  # (slots + 1): one pair of segments per slot and leaf of its tree
    pair_first: Ints  # the first segment that reaches the leaf
    pair_last: Ints


@compiled
def make_segments(r: Reach) -> Segments:
    """Cut the ranks of every slot where a leaf of its tree begins or ends."""
    n_slots = r.slot_feature.size
    row_start, pair_start = np.zeros(n_slots + 1, np.int64), np.zeros(n_slots + 1, np.int64)
    for s in range(n_slots):
        f, t = r.slot_feature[s], r.slot_tree[s]
        row_start[s + 1] = row_start[s] + r.rank_start[f + 1] - r.rank_start[f]
        pair_start[s + 1] = pair_start[s] + r.leaf_start[t + 1] - r.leaf_start[t]
    start, first, last = _cut(r, row_start)
    pair_first, pair_last = _pair_up(r, start, first, last, pair_start)
    return Segments(
        row_start=row_start,
        start=start,
        first=first,
        last=last,
        pair_start=pair_start,
        pair_first=pair_first,
        pair_last=pair_last,
    )


@compiled
def _cut(r: Reach, row_start: Longs) -> tuple[Ints, Ints, Ints]:
    """Sort the first ranks of each slot's segments into place, and number the segments."""
    n_slots = r.slot_feature.size
    room = np.zeros(n_slots + 1, np.int64)
    for s in r.con_slot:
        room[s + 1] += 1
    for s in range(n_slots):
        room[s + 1] += room[s] + 1
    begins, count = np.empty(room[-1], np.int32), np.ones(n_slots, np.int32)
    for s in range(n_slots):
        begins[room[s]] = 0
    for c in range(r.con_slot.size):
        # Where a leaf of a tree ends another one begins.
        if r.con_low[c] > 0:
            _insert(begins, room[r.con_slot[c]], count, r.con_slot[c], r.con_low[c])
    start = np.zeros(n_slots + 1, np.int32)
    for s in range(n_slots):
        start[s + 1] = start[s] + count[s]
    first, last = np.empty(start[-1], np.int32), np.empty(start[-1], np.int32)
    for s in range(n_slots):
        for i in range(count[s]):
            first[start[s] + i] = begins[room[s] + i]
            if i > 0:
                last[start[s] + i - 1] = begins[room[s] + i] - 1
        last[start[s + 1] - 1] = row_start[s + 1] - row_start[s] - 1
    return start, first, last


@bare
def _insert(begins: Ints, at: int, count: Ints, s: int, rank: int) -> None:
    """Put a rank into the sorted list of a slot, unless it is there."""
    i = at + count[s]
    while begins[i - 1] > rank:
        i -= 1
    if begins[i - 1] == rank:
        return
    for j in range(at + count[s], i, -1):
        begins[j] = begins[j - 1]
    begins[i] = rank
    count[s] += 1


@compiled
def _pair_up(
    r: Reach, start: Ints, seg_first: Ints, seg_last: Ints, pair_start: Longs
) -> tuple[Ints, Ints]:
    """Find the segments of each slot that reach each leaf of its tree."""
    first, last = np.empty(pair_start[-1], np.int32), np.empty(pair_start[-1], np.int32)
    for s in range(r.slot_feature.size):
        for at in range(pair_start[s], pair_start[s + 1]):
            first[at], last[at] = start[s], start[s + 1] - 1
    for t in range(r.tree_id.size):
        for leaf in range(r.leaf_start[t], r.leaf_start[t + 1]):
            for c in range(r.con_start[leaf], r.con_start[leaf + 1]):
                s = r.con_slot[c]
                at, k = pair_start[s] + leaf - r.leaf_start[t], start[s]
                while seg_first[k] < r.con_low[c]:
                    k += 1
                first[at] = k
                while seg_last[k] < r.con_high[c]:
                    k += 1
                last[at] = k
    return first, last
