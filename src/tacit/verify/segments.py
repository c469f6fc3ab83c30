"""Compiled: the few stretches of ranks within which a tree sees no difference.

A feature may have hundreds of ranks, because hundreds of trees ask for it; one tree cuts them into
a handful of *segments*. Whatever is the same throughout a segment is computed once for it.
"""

from typing import Any, NamedTuple

import numpy as np

from tacit.verify.jit import compiled


class Segments(NamedTuple):
    """The segments of every slot, and those that reach each leaf."""

    row_start: Any  # (slots + 1): offsets of rows that have one entry per rank
    start: Any  # (slots + 1): the segments of a slot
    first: Any  # (segments): first rank
    last: Any
    pair_start: Any  # (slots + 1): one pair of segments per slot and leaf of its tree
    pair_first: Any  # the first segment that reaches the leaf
    pair_last: Any


@compiled
def make_segments(r: Any) -> Any:
    """Cut the ranks of every slot where a leaf of its tree begins or ends."""
    n_slots = r.slot_feature.size
    row_start, pair_start = np.zeros(n_slots + 1, np.int64), np.zeros(n_slots + 1, np.int64)
    for s in range(n_slots):
        f, t = r.slot_feature[s], r.slot_tree[s]
        row_start[s + 1] = row_start[s] + r.rank_start[f + 1] - r.rank_start[f]
        pair_start[s + 1] = pair_start[s] + r.leaf_start[t + 1] - r.leaf_start[t]
    start, first, last, place = _cut(r, row_start)
    pair_first, pair_last = _pair_up(r, row_start, start, pair_start, place)
    return Segments(row_start, start, first, last, pair_start, pair_first, pair_last)


@compiled
def _cut(r: Any, start: Any) -> Any:
    n_slots = r.slot_feature.size
    place = np.zeros(start[-1], np.int32)  # 1 where a segment begins, then the segment of a rank
    for c in range(r.con_slot.size):
        at = start[r.con_slot[c]]
        place[at + r.con_low[c]] = 1
        if at + r.con_high[c] + 1 < start[r.con_slot[c] + 1]:
            place[at + r.con_high[c] + 1] = 1
    seg_start = np.zeros(n_slots + 1, np.int32)
    seg_first, seg_last = np.empty(start[-1], np.int32), np.empty(start[-1], np.int32)
    size = 0
    for s in range(n_slots):
        for at in range(start[s], start[s + 1]):
            if at == start[s] or place[at] == 1:
                seg_first[size] = at - start[s]
                size += 1
            seg_last[size - 1] = at - start[s]
            place[at] = size - 1
        seg_start[s + 1] = size
    return seg_start, seg_first[:size].copy(), seg_last[:size].copy(), place


@compiled
def _pair_up(r: Any, start: Any, seg_start: Any, pair_start: Any, place: Any) -> Any:
    """Find the segments of each slot that reach each leaf of its tree."""
    first, last = np.empty(pair_start[-1], np.int32), np.empty(pair_start[-1], np.int32)
    for s in range(r.slot_feature.size):
        for at in range(pair_start[s], pair_start[s + 1]):
            first[at], last[at] = seg_start[s], seg_start[s + 1] - 1
    for t in range(r.tree_id.size):
        for leaf in range(r.leaf_start[t], r.leaf_start[t + 1]):
            for c in range(r.con_start[leaf], r.con_start[leaf + 1]):
                s = r.con_slot[c]
                at = pair_start[s] + leaf - r.leaf_start[t]
                first[at] = place[start[s] + r.con_low[c]]
                last[at] = place[start[s] + r.con_high[c]]
    return first, last
