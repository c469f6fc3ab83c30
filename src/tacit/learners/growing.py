"""Growing a tree on shares, level by level: no histogram, no split and no row's way is shown.

Every tree is complete. A node that should not be split sends all its rows to the left, so that
depth is all that is public. For targets G and weights H a node's worth is |G|²/(H + λ): the gain
of XGBoost for gradients and Hessians, of Gini for one-hot classes and counts, and of least squares
for numbers and counts.
"""

from dataclasses import dataclass
from typing import Any

import torch

from tacit.learners.arithmetic import REACH, excess_bits, fixed, inverse, lowered, reduced, shift_of
from tacit.learners.engine import Values, Walker

LARGEST_LEAF = 64.0
"""Where the values of leaves saturate."""


@dataclass(frozen=True, kw_only=True)
class Growth:
    """How trees are grown.

    Attributes:
        depth: of the complete tree.
        damping: λ, added to the weight of every node.
        least_weight: what both sides of a split must weigh.
        least_gain: what a split must gain.
        rate: leaves are multiplied by it.
        is_mean: whether weights are counts of rows, so that G/(H + λ) is no larger than a target.
    """

    depth: int
    damping: float
    least_weight: float
    least_gain: float
    rate: float
    is_mean: bool

    def public(self) -> dict[str, Any]:
        """Return what programs need of it."""
        return {
            "damping": self.damping,
            "least_weight": self.least_weight,
            "least_gain": self.least_gain,
            "is_mean": self.is_mean,
        }


def grow(
    walker: Walker, growth: Growth, *, bits: str, sums: str, name: str, kept: tuple[int, ...]
) -> None:
    """Grow one tree; keeps ``name/split k`` for every level, ``name/leaves`` and ``name/paths``.

    Args:
        walker: who grows it.
        growth: how.
        bits: the name of unary codes, (rows, candidates).
        sums: the name of what is summed per row: targets, weight and a one, (rows, 1, targets + 2).
        name: put before what is kept.
        kept: candidates that may be used; empty for all.
    """
    here = f"{name}/"
    rows = sums
    for level in range(growth.depth):
        uses = {"bits": bits, "rows": rows}
        if level:
            uses |= {one: f"{here}{one}" for one in ("left", "above")}
        walker.run(
            _split, uses=uses, gives=f"{here}{level} ", kept=kept, level=level, **growth.public()
        )
        walker.run(
            _divide,
            uses={"bits": bits, "rows": rows, "split": f"{here}{level} split"},
            gives=here,
        )
        walker.run(_hand_on, uses={"above": f"{here}{level} sums"}, gives=here)
        rows = f"{here}rows"
    uses = {"rows": rows}
    walker.run(_leaves, uses=uses, gives=here, damping=growth.damping, rate=growth.rate)


def follow(walker: Walker, *, bits: str, tree: str, depth: int) -> str:
    """Send rows down a tree; keeps and returns the name of their leaves, (rows, leaves)."""
    paths = f"{tree}/paths of {bits}"
    uses = {"bits": bits}
    uses |= {f"split {level}": f"{tree}/{level} split" for level in range(depth)}
    walker.run(_paths, uses=uses, gives=paths, depth=depth)
    return paths


def _split(
    ops: Any,
    values: Values,
    *,
    kept: tuple[int, ...],
    level: int,
    damping: float,
    least_weight: float,
    least_gain: float,
    is_mean: bool,
) -> Values:
    """Choose the best candidate of every node; the last place stands for no split at all."""
    bits, rows = values["bits"], values["rows"]
    ops.cache_openings(bits)
    count, nodes, width = ops.shape(rows)
    if level:
        sums = _siblings(ops, bits, values["left"], values["above"])
    else:
        sums = _summed(ops, bits, rows)
    total = lowered(ops, ops.sum(rows, dim=0), count)
    all_rows = ops.reshape(total, (1, nodes, width))
    candidates = ops.shape(sums)[0]
    # All are sums over some of the rows. They are valued at once, so that they are scaled alike.
    parts = ops.concatenate([sums, ops.sub(all_rows, sums), all_rows], dim=0)
    parts = ops.restate(parts, bound=ops.number(total, "summing").bound + 2.0**-8)
    limit = ops.number(rows, "summing").bound if is_mean else None
    worth, lost = _worth(ops, parts, damping, count, limit)
    left, right, whole = (
        ops.take(worth, range(start, start + size), dim=0)
        for start, size in ((0, candidates), (candidates, candidates), (2 * candidates, 1))
    )
    gains = _allowed(ops, ops.add(left, right), parts, least_weight, count)
    # Of equal worth, as in a node without rows, nothing is split.
    least = least_gain * 2.0 ** -(shift_of(count) + lost)
    none = ops.shift(whole, least + 2.0 ** (3 - ops.frac_bits))
    choices = ops.concatenate([gains, none], dim=0)
    if kept:
        open_ = torch.zeros(candidates + 1, 1, dtype=torch.bool)
        open_[list(kept)] = open_[-1] = True
        choices = ops.fill(choices, open_.expand(-1, nodes), -1.0)
    hot = ops.argmax_one_hot(ops.transpose(fixed(ops, choices), 0, 1), dim=1)
    return {"split": ops.transpose(hot, 0, 1), "sums": sums}


def _summed(ops: Any, bits: Any, rows: Any) -> Any:
    """Sum what rows bring over those below every edge: (candidates, nodes, width)."""
    count, nodes, width = ops.shape(rows)
    bound = ops.number(rows, "summing").bound
    flat = ops.reshape(rows, (count, nodes * width))
    found = ops.pick(ops.transpose(bits, 0, 1), flat)
    found = ops.restate(ops.truncated(found), bound=count * bound)
    return ops.reshape(lowered(ops, found, count), (-1, nodes, width))


def _siblings(ops: Any, bits: Any, left: Any, above: Any) -> Any:
    """Sum over left children alone; a right child has what its parent has beyond that."""
    nodes, width = ops.shape(left)[1:]
    first = _summed(ops, bits, left)
    second = ops.sub(above, first)
    candidates = ops.shape(first)[0]
    pair = [ops.reshape(one, (candidates, nodes, 1, width)) for one in (first, second)]
    joined = ops.concatenate(pair, dim=2)
    found = ops.reshape(joined, (candidates, 2 * nodes, width))
    return ops.restate(found, bound=ops.number(first, "subtracting").bound)


def _worth(ops: Any, sums: Any, damping: float, rows: int, limit: float | None) -> tuple[Any, int]:
    """Give |G|²/(H + λ) of (k, nodes, width), made smaller by the returned number of bits.

    ``limit`` is how large G/(H + λ) can be, where more is known than that sums fit.
    """
    width = ops.shape(sums)[2]
    targets = ops.take(sums, range(width - 2), dim=2)
    divided = _per_weight(ops, ops.take(sums, (width - 2,), dim=2), damping, rows)
    means = fixed(ops, ops.mul(targets, divided))
    if limit is not None:
        means = ops.restate(means, bound=1.05 * limit + 2.0**-4)
    bits = excess_bits(ops, means, targets, terms=width - 2)
    first, second = reduced(ops, means, bits - bits // 2), reduced(ops, targets, bits // 2)
    worth = fixed(ops, ops.sum(ops.mul(first, second), dim=2))
    return worth, bits


def _per_weight(ops: Any, weight: Any, damping: float, rows: int) -> Any:
    """Give 1/(H + λ): weights of all rows add up to no more than there are rows."""
    moved = damping * 2.0 ** -shift_of(rows)
    small = ops.restate(weight, bound=2.0**REACH + 2.0**-8)
    return inverse(ops, ops.shift(small, moved))


def _allowed(ops: Any, gains: Any, both: Any, least: float, rows: int) -> Any:
    """Make nothing of splits one of whose sides weighs too little."""
    if least <= 0:
        return gains
    candidates, width = ops.shape(gains)[0], ops.shape(both)[2]
    weight = ops.take(both, (width - 2,), dim=2)
    weight = ops.reshape(weight, ops.shape(weight)[:2])
    heavy = ops.indicate(ops.shift(weight, -least * 2.0 ** -shift_of(rows)))
    left = ops.take(heavy, range(candidates), dim=0)
    right = ops.take(heavy, range(candidates, 2 * candidates), dim=0)
    return fixed(ops, ops.gate(ops.mul_whole(left, right), gains))


def _divide(ops: Any, values: Values) -> Values:
    """Send every row of every node to the left or to the right."""
    rows = values["rows"]
    count, nodes, width = ops.shape(rows)
    bound = ops.number(rows, "dividing").bound
    goes_left = ops.reshape(_goes_left(ops, values["bits"], values["split"]), (count, nodes, 1))
    left = ops.restate(fixed(ops, ops.gate(goes_left, rows)), bound=bound)
    right = ops.restate(ops.sub(rows, left), bound=bound)
    pair = [ops.reshape(one, (count, nodes, 1, width)) for one in (left, right)]
    both = ops.reshape(ops.concatenate(pair, dim=2), (count, 2 * nodes, width))
    return {"rows": both, "left": left}


def _hand_on(ops: Any, values: Values) -> Values:
    return {"above": values["above"]}


def _goes_left(ops: Any, bits: Any, split: Any) -> Any:
    """Tell for (rows, candidates) and (candidates + 1, nodes) which rows go left: (rows, nodes)."""
    ops.cache_openings(bits)
    candidates = ops.shape(bits)[1]
    side = ops.matmul_whole(bits, ops.take(split, range(candidates), dim=0))
    stays = ops.take(split, (candidates,), dim=0)
    return ops.restate(ops.add(side, stays), bound=1.0)


def _leaves(ops: Any, values: Values, *, damping: float, rate: float) -> Values:
    """Give every leaf its value, and every row its leaf."""
    rows = values["rows"]
    count, nodes, width = ops.shape(rows)
    total = lowered(ops, ops.sum(rows, dim=0), count)
    targets = ops.take(total, range(width - 2), dim=1)
    divided = _per_weight(ops, ops.take(total, (width - 2,), dim=1), damping, count)
    found = ops.cap(fixed(ops, ops.mul(targets, divided)), bound=LARGEST_LEAF)
    paths = ops.reshape(ops.take(rows, (width - 1,), dim=2), (count, nodes))
    return {"leaves": fixed(ops, ops.scale(found, rate)), "paths": paths}


def _paths(ops: Any, values: Values, *, depth: int) -> Values:
    bits = values["bits"]
    count = ops.shape(bits)[0]
    at = None
    for level in range(depth):
        left = _goes_left(ops, bits, values[f"split {level}"])
        nodes = ops.shape(left)[1]
        if at is None:
            both = [left, ops.shift(ops.scale(left, -1.0), 1.0)]
        else:
            stays = ops.mul_whole(left, at)
            both = [stays, ops.sub(at, stays)]
        pair = [ops.reshape(one, (count, nodes, 1)) for one in both]
        at = ops.reshape(ops.concatenate(pair, dim=2), (count, 2 * nodes))
        at = ops.restate(at, bound=1.0)
    return {"": at}
