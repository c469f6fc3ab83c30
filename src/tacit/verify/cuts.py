"""Compiled: close a side that its plain bound nearly closes, by cutting its box in two.

Where the least leaves of many trees lie on different sides of a cut, no half of the box has them
all. The bound of a half differs only in trees whose least leaf lies in the other half, so that it
costs next to nothing: far less than a problem that a search could stand on.
"""

from typing import Any

import numpy as np

from tacit.verify.glance import FAR, ONE, THREE, TWO
from tacit.verify.jit import bare, inlined
from tacit.verify.leaf import NOBODY, descend
from tacit.verify.paths import END
from tacit.verify.room import BUCKETS, MOST_OPEN, make_cuts

MOST_CUTS = 24
MOST_GROWTH = 1.0
"""What the open halves lack in all, as a part of what the whole lacks; beyond it, it is given up.

Where a side falls, or is far from closed, both halves lack nearly as much as the whole.
"""


@bare
def cut_box(
    index: Any,
    g: Any,
    first: int,
    second: int,
    column: int,
    gap: int,
    cell_low: Any,
    cell_high: Any,
) -> bool:
    """Say whether cutting a few times closes a side; that it does not says nothing.

    Args:
        index: the model.
        g: what was found out about the row: the least leaf of every tree in the box.
        first: the group that a side asks about.
        second: the other one, or NOBODY.
        column: which end of the first counts.
        gap: by how much the plain bound exceeds the barrier: a negative number.
        cell_low: the first cell of each feature.
        cell_high: the last.
    """
    paths, h, lacking = index.paths, make_cuts(index, g.words, g.longs), gap
    size = _begin(paths, g, h, first, second, column, cell_low, cell_high)
    h.gap[0], n_open = gap, 1
    for _ in range(MOST_CUTS):
        box = n_open - 1
        n_known = _list_wishes(paths, h, box, size)
        feature, rank = _choose(h, box, n_known)
        lacking -= h.gap[box]
        if feature >= 0:
            n_open += _cut(paths, g, h, box, size, feature, rank)
            lacking += min(h.gap[box], 0) + min(h.gap[box + 1], 0)
        for k in range(n_known):
            h.newest[h.known[k]] = -1
        if n_open == 0:
            return True
        if feature < 0 or n_open == MOST_OPEN or lacking < MOST_GROWTH * gap:
            return False
    return False


@inlined
def _begin(
    paths: Any, g: Any, h: Any, first: int, second: int, column: int, cell_low: Any, cell_high: Any
) -> int:
    """Start with the whole box; return how many trees are undecided."""
    size = 0
    for group, to in ((first, column), (second, 1)):
        if group == NOBODY:
            continue
        for k in range(g.open_start[group], g.open_start[group + 1]):
            tree = g.undecided[k]
            h.tree[size], h.to[size] = tree, to
            h.least[0, size], h.leaf[0, size] = g.least[tree], g.leaf[tree]
            h.here[size] = paths.ends[(np.uint64(g.reached[tree]) << ONE) + np.uint64(to)]
            size += 1
    for f in range(cell_low.size):
        h.low[0, f], h.high[0, f], h.newest[f] = cell_low[f], cell_high[f], -1
    return size


@inlined
def _list_wishes(paths: Any, h: Any, box: int, size: int) -> int:
    """List what the way to each least leaf asks of the open features; return how many features."""
    rise, low, high = paths.rise, h.low[box], h.high[box]
    count = np.uint64(0)
    rising = np.uint64(0)
    for at in range(size):
        h.place[at], h.rising[rising] = h.leaf[box, at], at
        rising += np.uint64(rise[np.uint64(h.leaf[box, at])] != END)
    # One question of every tree at a time: none has to wait for the one before.
    while rising > 0:
        still = np.uint64(0)
        for k in range(rising):
            i = np.uint64(h.rising[np.uint64(k)])
            node = np.uint64(h.place[i])
            f, start = np.uint64(rise[node + ONE]), rise[node + TWO]
            rank = np.int64(start) - 1 if start > 0 else np.int64(rise[node + THREE])
            h.asker[count], h.feature[count] = i, f
            h.rank[count] = rank if start > 0 else ~rank
            count += np.uint64((low[f] <= rank) & (rank < high[f]))
            node = np.uint64(rise[node])
            h.place[i], h.rising[still] = node, i
            still += np.uint64(rise[node] != END)
        rising = still
    n_known = 0
    for wish in range(count):
        f, i = np.uint64(h.feature[wish]), np.uint64(h.asker[wish])
        if h.newest[f] < 0:
            h.known[n_known], h.left[f], h.right[f] = f, 0, 0
            n_known += 1
        h.after[wish], h.newest[f] = h.newest[f], wish
        loss = h.here[i] - h.least[box, i]
        is_right = h.rank[wish] >= 0
        h.right[f] += loss * is_right
        h.left[f] += loss * (1 - is_right)
    return n_known


@inlined
def _choose(h: Any, box: int, n_known: int) -> Any:
    """Find the cut on which trees disagree most: a feature, or -1 if they agree, and a rank."""
    most, feature, rank = 0, -1, 0
    for k in range(n_known):
        f = h.known[k]
        if min(h.left[f], h.right[f]) <= most:
            continue
        low, width = h.low[box, f], h.high[box, f] - h.low[box, f]
        n_buckets = min(width, BUCKETS)
        scale = n_buckets / width
        for bucket in range(n_buckets):
            h.lefts[bucket], h.rights[bucket] = 0, 0
        wish = h.newest[f]
        while wish >= 0:
            at, i = h.rank[wish], h.asker[wish]
            loss = h.here[i] - h.least[box, i]
            if at >= 0:
                h.rights[int((at - low) * scale)] += loss
            else:
                h.lefts[int((~at - low) * scale)] += loss
            wish = h.after[wish]
        # Left of a cut are lost those who wish to be right of it or of a later one.
        lost_left, lost_right = h.right[f], 0
        for bucket in range(n_buckets):
            own = h.lefts[bucket] if n_buckets == width else 0
            lost = min(lost_left, lost_right + own)
            if lost > most:
                most, feature = lost, f
                rank = low + (bucket * width + n_buckets - 1) // n_buckets
            lost_left -= h.rights[bucket]
            lost_right += h.lefts[bucket]
    return feature, rank


@inlined
def _cut(paths: Any, g: Any, h: Any, box: int, size: int, feature: int, rank: int) -> int:
    """Replace the last box by its open halves; return how many more boxes there are.

    The gaps of both halves are left in the places of this box and the next.
    """
    other = box + 1
    for i in range(size):
        h.least[other, i], h.leaf[other, i] = h.least[box, i], h.leaf[box, i]
    for f in range(g.at.size):
        h.low[other, f], h.high[other, f] = h.low[box, f], h.high[box, f]
    h.gap[other] = h.gap[box]
    h.high[box, feature], h.low[other, feature] = rank, rank + 1
    wish = h.newest[feature]
    while wish >= 0:
        at, i = h.rank[wish], h.asker[wish]
        half = box if at >= 0 else other
        is_lost = (at >= rank) | ((at < 0) & (~at <= rank))
        if is_lost & (h.gap[half] < 0):
            g.stack[0] = paths.entry[h.tree[i]]
            least, leaf = descend(
                paths, g.stack, 1, FAR, np.uint64(0), np.uint64(h.to[i]), h.low[half], h.high[half]
            )
            h.gap[half] += least - h.least[half, i]
            h.least[half, i], h.leaf[half, i] = least, leaf
        wish = h.after[wish]
    is_open, other_is_open = h.gap[box] < 0, h.gap[other] < 0
    if other_is_open and not is_open:
        for i in range(size):
            h.least[box, i], h.leaf[box, i] = h.least[other, i], h.leaf[other, i]
        for f in range(g.at.size):
            h.low[box, f], h.high[box, f] = h.low[other, f], h.high[other, f]
        h.gap[box], h.gap[other] = h.gap[other], h.gap[box]
    return int(is_open) + int(other_is_open) - 1
