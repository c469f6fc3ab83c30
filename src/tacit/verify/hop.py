"""Compiled: an attack that moves all features at once, where a leaf pulls several scores.

Every way that the box leaves open beside the path of a tree stands for one feature that crosses
one threshold. The leaf behind it, with all else held, tells what that alone would change. Summed
over the trees, each feature has a vote to stay, to sink or to rise; all votes are followed at once.
Trees may ask for several of the moved features, so the votes are cast anew where they led.
"""

from typing import Any

import numpy as np

from tacit.verify.glance import ONE, THREE, TWO
from tacit.verify.jit import inlined
from tacit.verify.kernel import CHANGED, judge
from tacit.verify.paths import END

MOST_HOPS = 3
MOST_LEAD = 1.7
"""The lead, as a part of what the undecided trees give to it, beyond which no attack is tried."""
MANY_WAYS = 48
"""Open ways from which on a bound costs more than an attack on a second rival."""


@inlined
def hop(index: Any, sides: Any, g: Any, count: int, cell_low: Any, cell_high: Any) -> bool:
    """Attack the closest rivals; if one wins, narrow the cells to a point where it does."""
    one, two = _closest(index, sides, g)
    own = g.sums[sides.label] + index.base_units[sides.label]
    lead = own - g.sums[one] - index.base_units[one]
    wider = own - g.sums[two] - index.base_units[two]
    if lead > MOST_LEAD * _open_lead(index.trees.units, g, count, sides.label, one):
        return False
    for rival, start in ((one, lead), (two, wider)):
        if _leap(index, sides, g, count, rival, start, cell_low, cell_high):
            return settle(g, cell_low, cell_high)
        if g.pending_end[g.undecided[count - 1]] < MANY_WAYS:
            break
    return False


@inlined
def _open_lead(units: Any, g: Any, count: int, label: int, rival: int) -> int:
    """Sum by how much the undecided trees that favour the class do so."""
    total = 0
    for k in range(count):
        node = np.uint64(g.reached[g.undecided[k]])
        total += max(units[node, np.uint64(label)] - units[node, np.uint64(rival)], 0)
    return total


@inlined
def _closest(index: Any, sides: Any, g: Any) -> Any:
    """Find the two rivals that score most at the center."""
    sums, base = g.sums, index.base_units
    one = two = sides.minus[0]
    for side in range(1, sides.minus.size):
        rival = sides.minus[side]
        here = sums[rival] + base[rival]
        if here > sums[one] + base[one]:
            one, two = rival, one
        elif one == two or here > sums[two] + base[two]:
            two = rival
    return one, two


@inlined
def _leap(
    index: Any,
    sides: Any,
    g: Any,
    count: int,
    other: int,
    lead: Any,
    cell_low: Any,
    cell_high: Any,
) -> bool:
    """Attack one rival; say whether it wins at the point, in the library's arithmetic."""
    label, rival = np.uint64(sides.label), np.uint64(other)
    pending, start, end = g.pending, g.pending_start, g.pending_end
    leaves, at = g.reached, g.at
    for hops in range(MOST_HOPS):
        fall = _weigh_ways(index, g, count, label, rival, pending, start, end, leaves, at)
        if lead + fall > 0:
            return False
        if hops == 0:
            for f in range(cell_low.size):
                g.point[f] = min(max(g.at[f], cell_low[f]), cell_high[f])
            for tree in range(g.reached.size):
                g.taken[tree] = g.reached[tree]
        n_ways = end[g.undecided[count - 1]]
        if lead + _follow(index.paths.rise, g, pending, n_ways, cell_low, cell_high) > 0:
            return False
        pending, start, end = g.ways, g.way_start, g.way_end
        leaves, at = g.taken, g.point
        lead += _land(index, g, count, label, rival, cell_low, cell_high)
        if lead <= 0 and falls(index, sides, g, label, rival):
            return True
    return False


@inlined
def _weigh_ways(
    index: Any,
    g: Any,
    count: int,
    label: Any,
    rival: Any,
    pending: Any,
    start: Any,
    end: Any,
    leaves: Any,
    at: Any,
) -> int:
    """Find what each open way alone would change; return the sum of what lowers the lead."""
    walk, units, fall = index.paths.walk, index.trees.units, 0
    for k in range(count):
        tree = np.uint64(g.undecided[k])
        here = np.uint64(leaves[tree])
        lead = units[here, label] - units[here, rival]
        for way in range(start[tree], end[tree]):
            node = np.uint64(pending[way])
            while walk[node + ONE] != END:
                goes_right = np.uint64(at[np.uint64(walk[node])] > walk[node + ONE])
                node = np.uint64(walk[node + TWO + goes_right])
            node >>= TWO
            change = units[node, label] - units[node, rival] - lead
            g.change[way] = change
            fall += min(change, 0)
    return fall


@inlined
def _follow(rise: Any, g: Any, pending: Any, n_ways: int, cell_low: Any, cell_high: Any) -> int:
    """Move every feature as far as its vote goes, and clear the votes; return what they promise."""
    vote, point = g.vote, g.point
    for way in range(n_ways):
        node = np.uint64(pending[way])
        to = (np.uint64(rise[node + ONE]) << ONE) + np.uint64(rise[node + TWO] > 0)
        vote[to] += g.change[way]
    for way in range(n_ways):
        node = np.uint64(pending[way])
        f, is_right = np.uint64(rise[node + ONE]), rise[node + TWO] > 0
        to = (f << ONE) + np.uint64(is_right)
        if g.change[way] < 0 and vote[to] < 0 and vote[to] <= vote[to ^ ONE]:
            if is_right:
                cell = max(point[f], min(np.int32(rise[node + TWO]), cell_high[f]))
            else:
                cell = min(point[f], max(np.int32(rise[node + THREE]), cell_low[f]))
            point[f] = cell
    promise = 0
    for way in range(n_ways):
        node = np.uint64(pending[way])
        to = np.uint64(rise[node + ONE]) << ONE
        promise += min(vote[to], vote[to + ONE], 0)
        vote[to] = vote[to + ONE] = 0
    return promise


@inlined
def _land(
    index: Any, g: Any, count: int, label: Any, rival: Any, cell_low: Any, cell_high: Any
) -> int:
    """Find leaves and open ways at the point, as `look` does; return by how much the lead grew."""
    walk, units, point, pending = index.paths.walk, index.trees.units, g.point, g.ways
    ways, grown = np.uint64(0), 0
    for k in range(count):
        tree = np.uint64(g.undecided[k])
        g.way_start[tree] = ways
        node = np.uint64(index.paths.entry[tree])
        while walk[node + ONE] != END:
            f, rank = np.uint64(walk[node]), walk[node + ONE]
            goes_right = point[f] > rank
            to = np.uint64(goes_right)
            pending[ways] = walk[node + THREE - to]
            is_open = (goes_right & (cell_low[f] <= rank)) | (~goes_right & (cell_high[f] > rank))
            ways += np.uint64(is_open)
            node = np.uint64(walk[node + TWO + to])
        node >>= TWO
        here = np.uint64(g.taken[tree])
        grown += units[node, label] - units[here, label] - units[node, rival] + units[here, rival]
        g.taken[tree], g.way_end[tree] = node, ways
    return grown


@inlined
def falls(index: Any, sides: Any, g: Any, label: Any, rival: Any) -> bool:
    """Ask the library's arithmetic about the leaves that are taken."""
    # The other classes can only make it fall the more.
    for score in range(g.scores.size):
        g.scores[score] = -np.inf
    g.scores[label], g.scores[rival] = _tally_pair(index, g.taken, label, rival)
    return judge(index.rule, g.scores, sides.label, sides.low, sides.high) == CHANGED


@inlined
def _tally_pair(index: Any, leaves: Any, one: Any, other: Any) -> Any:
    """Sum two scores over one leaf per tree, as `add_leaves` does."""
    value, rule = index.trees.value, index.rule
    if rule.is_single:
        a, b = np.float32(rule.base[one]), np.float32(rule.base[other])
        for tree in range(leaves.size):
            node = np.uint64(leaves[tree])
            a = np.float32(a + np.float32(value[node, one]))
            b = np.float32(b + np.float32(value[node, other]))
        by = np.float32(rule.divisor)
        return np.float64(np.float32(a / by)), np.float64(np.float32(b / by))
    c, d = rule.base[one], rule.base[other]
    for tree in range(leaves.size):
        node = np.uint64(leaves[tree])
        c += value[node, one]
        d += value[node, other]
    return c / rule.divisor, d / rule.divisor


@inlined
def settle(g: Any, cell_low: Any, cell_high: Any) -> bool:
    """Narrow the cells to the point where the attack stands."""
    for i in range(g.free[g.at.size]):
        f = g.free[i]
        cell_low[f], cell_high[f] = g.point[f], g.point[f]
    return True
