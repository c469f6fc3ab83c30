"""AUC and KS on shares: how many rows of each class have their scores in which of 1,024 bins.

To compare every pair of rows would cost rows². Here a row is compared with 31 coarse edges, and
with 31 fine ones between the two that it lies between. Edges are public: close to each other near
0 and in small steps of the odds elsewhere, so that rare classes are told apart as well.

Within a bin a pair counts one half, as equal scores do. So the area is off by at most half the
pairs that share a bin, and KS by at most the smaller of the parts of both classes in one bin; the
bound is opened beside the figure. Everything up to the one division is in whole numbers.
"""

from functools import lru_cache
from math import ceil, floor, log, log2
from typing import Any

import torch
from torch import Tensor

from tacit.learners.arithmetic import fixed, inverse, mean
from tacit.mpc.share import HEADROOM_BITS
from tacit.mpc.walker import Values

COARSE, FINE = 32, 32
BINS = COARSE * FINE
STRETCH = (1 << 20) // (COARSE + FINE)
"""How many rows are compared at once."""
_OUTER = 9.0
"""Logarithms of odds at which the outer bins of chances begin: 1 in 8,000."""


@lru_cache(maxsize=4)
def lower_edges(chances: str) -> tuple[Tensor, int]:
    """Return where bins begin, (COARSE, FINE), and how many fraction bits such an edge has."""
    if chances == "shares":
        steps = torch.linspace(-_OUTER, _OUTER, COARSE - 1, dtype=torch.float64)
        ends = torch.cat([torch.zeros(1), torch.sigmoid(steps), torch.ones(1)])
        bits = 20
    else:
        steps = torch.arange(-COARSE // 2, COARSE // 2 + 1, dtype=torch.float64)
        ends, bits = 0.5 * torch.sinh(0.3 * steps), 12  # to ±30, the middle ones 0.15 wide
    within = torch.arange(FINE, dtype=torch.float64) / FINE
    found = ends[:-1].reshape(-1, 1) + (ends[1:] - ends[:-1]).reshape(-1, 1) * within
    return torch.round(found * 2.0**bits) / 2.0**bits, bits


def count_bins(ops: Any, values: Values, *, first: int, end: int, chances: str) -> Values:
    """Add some rows to the counts: (COARSE, 2·FINE), of all rows and of those of class 1."""
    lower, bits = lower_edges(chances)
    if bits > ops.frac_bits:
        lower, bits = torch.round(lower * 2.0**ops.frac_bits) / 2.0**ops.frac_bits, ops.frac_bits
    scores, y = (ops.take(values[one], range(first, end), dim=0) for one in ("scores", "y"))
    score = ops.take(scores, (1,), dim=1)
    if chances != "shares":
        score = ops.sub(score, ops.take(scores, (0,), dim=1))
    wide = ops.take(fixed(ops, score), [0] * (COARSE - 1), dim=1)
    coarse = ops.indicate(ops.offset(wide, -lower[1:, 0]))
    # By how much the fine edges of a row's coarse bin lie above those of the first: a sum of steps.
    steps = torch.round((lower[1:, 1:] - lower[:-1, 1:]) * 2.0**bits)
    moved = ops.scale(ops.project(coarse, steps), 2.0**-bits)
    fine = ops.indicate(fixed(ops, ops.sub(ops.offset(wide, -lower[0, 1:]), moved)))
    inner = in_steps(ops, fine)
    mine = ops.mul_whole(ops.take(y, [1] * FINE, dim=1), inner)
    across = ops.transpose(in_steps(ops, coarse), 0, 1)
    found = ops.matmul_whole(across, ops.concatenate([inner, mine], dim=1))
    found, rows = ops.restate(found, bound=end - first), end
    if "bins" in values:
        found = ops.restate(ops.add(values["bins"], found), bound=rows)
    return {"bins": found}


def in_steps(ops: Any, is_above: Any) -> Any:
    """Give 1 in the step where a row lies, from whether it is above each edge between steps."""
    one = ops.shift(ops.scale(ops.take(is_above, (0,), dim=1), 0.0), 1.0)
    zero = ops.scale(one, 0.0)
    hot = ops.sub(ops.concatenate([one, is_above], dim=1), ops.concatenate([is_above, zero], dim=1))
    return ops.restate(hot, bound=1.0)


def rank(ops: Any, values: Values, *, rows: int, what: str) -> Values:
    """Give AUC or KS from counts, and by how much bins may have moved it; -1 of one class."""
    bins = values["bins"]
    every, yes = (
        ops.reshape(ops.take(bins, range(at, at + FINE), dim=1), (BINS, 1)) for at in (0, FINE)
    )
    no = ops.sub(every, yes)
    total_yes, total_no = (ops.reshape(ops.sum(one, dim=0), (1, 1)) for one in (yes, no))
    total_yes, total_no = (ops.restate(one, bound=rows) for one in (total_yes, total_no))
    pairs = ops.restate(ops.mul_whole(total_yes, total_no), bound=rows**2 / 4)
    if what == "auc":
        above = ops.sub(total_yes, ops.cumsum(yes, dim=0))
        # Of two classes in one bin half the pairs count: twice the area is a whole number.
        each = ops.concatenate([ops.add(ops.scale(above, 2.0), yes), yes], dim=1)
        each = ops.restate(each, bound=2 * rows)
        found = ops.sum(ops.mul_whole(ops.take(no, (0, 0), dim=1), each), dim=0)
        found = ops.restate(ops.scale(ops.reshape(found, (1, 2)), 1.0), bound=rows**2 / 2)
    else:
        both = ops.concatenate([yes, no, ops.cumsum(yes, dim=0), ops.cumsum(no, dim=0)], dim=1)
        others = ops.concatenate([total_no, total_yes, total_no, total_yes], dim=1)
        found = ops.restate(ops.mul_whole(ops.restate(both, bound=rows), others), bound=rows**2 / 4)
    factor = _factor(ops, pairs, rows)
    parts = [ops.restate(ops.mul_whole(one, factor), bound=rows**2 / 2) for one in (found, pairs)]
    found, pairs = (
        fixed(ops, ops.scale(ops.restate(mean(ops, one, rows**2), bound=0.52), 8.0))
        for one in parts
    )
    if what == "ks":
        found = ops.reshape(ops.scale(_furthest(ops, found), 2.0), (1, 2))
    pairs = ops.restate(fixed(ops, ops.scale(pairs, 2.0)), bound=4.1)
    figures = ops.mul(fixed(ops, found), inverse(ops, pairs))
    figures = ops.restate(fixed(ops, figures), bound=1.01)
    is_none = ops.indicate(ops.shift(ops.scale(pairs, -1.0), 0.5))
    marked = ops.concatenate([is_none, ops.scale(is_none, 0.0)], dim=1)
    return {what: ops.reshape(fixed(ops, ops.sub(figures, fixed(ops, marked))), (2,))}


def _factor(ops: Any, pairs: Any, rows: int) -> Any:
    """Give the power of 4 that brings the pairs of both classes to rows²/16 at least, if any."""
    room = floor((HEADROOM_BITS - 2 - 2 * log2(rows)) / 2)
    count = max(1, min(ceil(log(rows, 4)), room))
    limits = torch.tensor([[ceil(rows**2 / 4.0 ** (at + 2)) for at in range(count)]])
    wide = ops.take(pairs, [0] * count, dim=1)
    reached = ops.indicate(ops.offset(wide, -limits.double()), as_it_is=True)
    steps = torch.tensor([[-3.0 * 4.0**at for at in range(count)]], dtype=torch.float64)
    moved = ops.shift(ops.sum(ops.weigh(reached, steps), dim=1), 4.0**count)
    return ops.restate(ops.reshape(moved, (1, 1)), bound=4.0**count)


def _furthest(ops: Any, found: Any) -> Any:
    """Give how far the two running sums get apart, and the larger of the smaller parts of a bin."""
    yes, no, below_yes, below_no = (ops.take(found, (at,), dim=1) for at in range(4))
    apart = ops.restate(fixed(ops, ops.sub(below_yes, below_no)), bound=2.1)
    both = ops.concatenate([apart, ops.scale(apart, -1.0)], dim=0)
    least = ops.min(ops.concatenate([yes, no], dim=1), dim=1)
    largest = [ops.max(ops.reshape(one, (-1,)), dim=0) for one in (both, least)]
    return ops.concatenate([ops.reshape(fixed(ops, one), (1,)) for one in largest], dim=0)
