"""Growing a tree on shares, level by level: no histogram, no split and no row's way is shown.

Every tree is complete. A node that should not be split sends all its rows to the left, so that
depth is all that is public. For targets G and weights H a node's worth is |G|²/(H + λ): the gain
of XGBoost for gradients and Hessians, of Gini for one-hot classes and counts, and of least squares
for numbers and counts.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from tacit.learners.arithmetic import REACH, excess_bits, fixed, inverse, lowered, reduced, shift_of
from tacit.learners.bins import Block, sum_by_column, times_columns
from tacit.mpc.walker import Values, Walker

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


def grow(
    walker: Walker,
    growth: Growth,
    *,
    blocks: Sequence[Block],
    sums: Sequence[str],
    name: str,
    kept: tuple[int, ...],
    firsts: tuple[int, ...],
) -> None:
    """Grow one tree; keeps ``name/k split`` for every level, ``name/leaves`` and ``name/paths b``.

    Rows are read a block at a time, and of two children only the left one is added up.

    Args:
        walker: who grows it.
        growth: how.
        blocks: what rows have below every candidate, in zeros and ones.
        sums: for every block the name of what is summed per row: targets and weight, (rows, w).
        name: put before what is kept.
        kept: candidates that may be used; empty for all.
        firsts: candidates whose rows do not include those of the candidate before.
    """
    here, rows = f"{name}/", sum(one.rows for one in blocks)
    limit = walker.facts[sums[0]].bound if growth.is_mean else None
    for level in range(growth.depth + 1):
        is_last = level == growth.depth
        for at, block in enumerate(blocks):
            uses = {"sums": sums[at], **block.uses}
            if level:
                uses["split"] = f"{here}{level - 1} split"
            if level > 1:
                uses["paths"] = f"{here}paths {at}"
            walker.run(_gather, uses=uses, gives=here, block=block, at=at, is_last=is_last)
        uses = {f"part {at}": f"{here}part {at}" for at in range(len(blocks))}
        if level:
            uses["above"] = f"{here}above"
        facts: dict[str, Any] = {"rows": rows, "damping": growth.damping}
        if is_last:
            walker.run(_leaves, uses=uses, gives=here, rate=growth.rate, **facts)
            break
        facts |= {"least_weight": growth.least_weight, "least_gain": growth.least_gain}
        walker.run(
            _split,
            uses=uses,
            gives=here,
            level=level,
            kept=kept,
            firsts=firsts,
            limit=limit,
            width=walker.facts[sums[0]].shape[1],
            **facts,
        )
    walker.drop(f"{here}part ")
    walker.drop(f"{here}above")


def follow(walker: Walker, *, block: Block, tree: str, depth: int, gives: str) -> None:
    """Send the rows of a block down a tree; keeps their leaves, (rows, leaves)."""
    uses = {**block.uses, **{f"split {at}": f"{tree}/{at} split" for at in range(depth)}}
    walker.run(_paths, uses=uses, gives=gives, block=block, depth=depth)


def _gather(ops: Any, values: Values, *, block: Block, at: int, is_last: bool) -> Values:
    """Divide the rows of a block, and add up those that went left, or all at the root.

    Gives what candidates have, and below that what there is in all: (candidates + 1, nodes · w).
    """
    sums, found = values["sums"], {}
    count, width = ops.shape(sums)
    taken = sums
    if "split" in values:
        left = _goes_left(ops, values, block, values["split"])
        nodes = ops.shape(left)[1]
        both = _divided(ops, left, values.get("paths"))
        found[f"paths {at}"] = both
        left = ops.take(both, range(0, 2 * nodes, 2), dim=1)
        gated = ops.gate(ops.reshape(left, (count, nodes, 1)), ops.reshape(sums, (count, 1, width)))
        taken = ops.restate(fixed(ops, gated), bound=ops.number(sums, "dividing").bound)
        taken = ops.reshape(taken, (count, nodes * width))
    bound = count * ops.number(taken, "summing").bound
    total = ops.reshape(ops.sum(taken, dim=0), (1, -1))
    parts = [] if is_last else sum_by_column(ops, values, block, taken)
    parts = [ops.restate(ops.truncated(one), bound=bound) for one in parts]
    found[f"part {at}"] = ops.concatenate([*parts, total], dim=0)
    return found


def _divided(ops: Any, left: Any, paths: Any) -> Any:
    """Tell for (rows, nodes) which rows are in which of the children: (rows, 2 · nodes)."""
    count, nodes = ops.shape(left)
    if paths is None:
        both = [left, ops.shift(ops.scale(left, -1.0), 1.0)]
    else:
        stays = ops.mul_whole(left, paths)
        both = [stays, ops.sub(paths, stays)]
    pair = [ops.reshape(one, (count, nodes, 1)) for one in both]
    joined = ops.reshape(ops.concatenate(pair, dim=2), (count, 2 * nodes))
    return ops.restate(joined, bound=1.0)


def _added(ops: Any, values: Values, rows: int, width: int) -> Any:
    """Add up blocks; a right child has what its parent has beyond the left: (k, nodes, w)."""
    total = None
    for name, part in values.items():
        if name != "above":
            total = part if total is None else ops.add(total, part)
    first = lowered(ops, total, rows)
    count = ops.shape(first)[0]
    first = ops.reshape(first, (count, -1, width))
    if "above" not in values:
        return first
    above = values["above"]
    above = ops.take(above, range(ops.shape(above)[0] - count, ops.shape(above)[0]), dim=0)
    nodes = ops.shape(first)[1]
    second = ops.sub(above, first)
    pair = [ops.reshape(one, (count, nodes, 1, width)) for one in (first, second)]
    found = ops.reshape(ops.concatenate(pair, dim=2), (count, 2 * nodes, width))
    return ops.restate(found, bound=ops.number(first, "subtracting").bound)


def _split(
    ops: Any,
    values: Values,
    *,
    level: int,
    kept: tuple[int, ...],
    firsts: tuple[int, ...],
    limit: float | None,
    width: int,
    rows: int,
    damping: float,
    least_weight: float,
    least_gain: float,
) -> Values:
    """Choose the best candidate of every node; the last place stands for no split at all.

    ``limit`` is how large G/(H + λ) can be, where more is known than that sums fit.
    """
    found = _added(ops, values, rows, width)
    candidates, nodes = ops.shape(found)[0] - 1, ops.shape(found)[1]
    sums = ops.take(found, range(candidates), dim=0)
    all_rows = ops.take(found, (candidates,), dim=0)
    # All are sums over some of the rows. They are valued at once, so that they are scaled alike.
    parts = ops.concatenate([sums, ops.sub(all_rows, sums), all_rows], dim=0)
    parts = ops.restate(parts, bound=ops.number(all_rows, "summing").bound + 2.0**-8)
    worth, lost = _worth(ops, parts, damping, rows, limit)
    left, right, whole = (
        ops.take(worth, range(start, start + size), dim=0)
        for start, size in ((0, candidates), (candidates, candidates), (2 * candidates, 1))
    )
    gains = _allowed(ops, ops.add(left, right), parts, least_weight, rows, firsts)
    # Of equal worth, as in a node without rows, nothing is split.
    least = least_gain * 2.0 ** -(shift_of(rows) + lost)
    none = ops.shift(whole, least + 2.0 ** (3 - ops.frac_bits))
    choices = ops.concatenate([gains, none], dim=0)
    if kept:
        open_ = torch.zeros(candidates + 1, 1, dtype=torch.bool)
        open_[list(kept)] = open_[-1] = True
        choices = ops.fill(choices, open_.expand(-1, nodes), -1.0)
    hot = ops.argmax_one_hot(ops.transpose(fixed(ops, choices), 0, 1), dim=1)
    return {f"{level} split": ops.transpose(hot, 0, 1), "above": found}


def _worth(ops: Any, sums: Any, damping: float, rows: int, limit: float | None) -> tuple[Any, int]:
    """Give |G|²/(H + λ) of (k, nodes, width), made smaller by the returned number of bits.

    ``limit`` is how large G/(H + λ) can be, where more is known than that sums fit.
    """
    width = ops.shape(sums)[2]
    targets = ops.take(sums, range(width - 1), dim=2)
    divided = _per_weight(ops, ops.take(sums, (width - 1,), dim=2), damping, rows)
    means = _times(ops, targets, divided)
    if limit is not None:
        means = ops.restate(means, bound=1.05 * limit + 2.0**-4)
    bits = excess_bits(ops, means, targets, terms=width - 1)
    first, second = reduced(ops, means, bits - bits // 2), reduced(ops, targets, bits // 2)
    worth = fixed(ops, ops.sum(ops.mul(first, second), dim=2))
    return worth, bits


def _times(ops: Any, targets: Any, divided: Any) -> Any:
    """Multiply, dropping digits of targets that a word has no room for."""
    bits = excess_bits(ops, targets, divided, terms=1)
    product = fixed(ops, ops.mul(reduced(ops, targets, bits), divided))
    return fixed(ops, ops.scale(product, 2.0**bits)) if bits else product


def _per_weight(ops: Any, weight: Any, damping: float, rows: int) -> Any:
    """Give 1/(H + λ): weights of all rows add up to no more than there are rows."""
    moved = damping * 2.0 ** -shift_of(rows)
    small = ops.restate(weight, bound=2.0**REACH + 2.0**-8)
    return inverse(ops, ops.shift(small, moved))


def _allowed(
    ops: Any, gains: Any, both: Any, least: float, rows: int, firsts: tuple[int, ...]
) -> Any:
    """Make nothing of splits one of whose sides weighs too little, and of those that add no row.

    Of candidates that divide the rows of a node alike the first counts, as in XGBoost: they gain
    the same, but rows that come later may lie between them.
    """
    (candidates, nodes), width = ops.shape(gains), ops.shape(both)[2]
    weight = ops.take(both, (width - 1,), dim=2)
    weight = ops.reshape(weight, ops.shape(weight)[:2])
    mine = ops.take(weight, range(candidates), dim=0)
    before = ops.take(weight, [max(at - 1, 0) for at in range(candidates)], dim=0)
    always = torch.zeros(candidates, 1, dtype=torch.float64)
    always[list(firsts)] = 2 * ops.number(weight, "comparing").bound + 1
    # Both were rounded to the last digit.
    more = ops.offset(ops.sub(mine, before), always.expand(-1, nodes) - 4 * 2.0**-ops.frac_bits)
    asked = [fixed(ops, more)]
    if least > 0:
        sides = ops.take(weight, range(2 * candidates), dim=0)
        asked.append(fixed(ops, ops.shift(sides, -least * 2.0 ** -shift_of(rows))))
    found = ops.indicate(ops.concatenate(asked, dim=0))
    parts = [
        ops.take(found, range(start, start + candidates), dim=0)
        for start in range(0, ops.shape(found)[0], candidates)
    ]
    for part in parts[2:]:
        parts[1] = ops.mul_whole(parts[1], part)
    is_allowed = ops.mul_whole(parts[0], parts[1]) if len(parts) > 1 else parts[0]
    return fixed(ops, ops.gate(is_allowed, gains))


def _goes_left(ops: Any, values: Values, block: Block, split: Any) -> Any:
    """Tell for splits (candidates + 1, nodes) which rows of a block go left: (rows, nodes)."""
    candidates = ops.shape(split)[0] - 1
    side = times_columns(ops, values, block, split)
    stays = ops.take(split, (candidates,), dim=0)
    return ops.restate(ops.add(side, stays), bound=1.0)


def _leaves(ops: Any, values: Values, *, rows: int, damping: float, rate: float) -> Values:
    """Give every leaf its value."""
    width = ops.shape(values["above"])[2]
    total = _added(ops, values, rows, width)
    total = ops.reshape(total, ops.shape(total)[1:])
    targets = ops.take(total, range(width - 1), dim=1)
    divided = _per_weight(ops, ops.take(total, (width - 1,), dim=1), damping, rows)
    found = ops.cap(_times(ops, targets, divided), bound=LARGEST_LEAF)
    return {"leaves": fixed(ops, ops.scale(found, rate))}


def _paths(ops: Any, values: Values, *, block: Block, depth: int) -> Values:
    at = None
    for level in range(depth):
        at = _divided(ops, _goes_left(ops, values, block, values[f"split {level}"]), at)
    return {"": at}
