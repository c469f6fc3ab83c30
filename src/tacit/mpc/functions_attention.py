"""Softmax without a maximum, averages and norms whose products rescale as they are opened."""

from dataclasses import dataclass, field
from math import ceil, floor, log2, prod, sqrt
from typing import Generic, TypeVar

import torch
from torch import Tensor

from tacit.errors import InputError
from tacit.mpc.additive2.logspaced import FEW
from tacit.mpc.additive2.public import Public, Told
from tacit.mpc.functions import (
    LARGEST_SHARE,
    hide,
    layer_norm,
    maximum,
    reciprocal,
    rms_norm,
    softmax,
)
from tacit.mpc.primitives import MANY
from tacit.mpc.rescaling import RescalingVerbs
from tacit.mpc.share import HEADROOM_BITS, words_of

V = TypeVar("V")

REACH = 56.0
"""Scores up to this size get their softmax by counting; larger ones saturate, or have a maximum."""
SATURATED, STEP = 48.0, 8.0
_LONGEST_MEAN = 2.0**18
"""Of rows that can be longer, those of mean square 2^-6 would be too short for `norm_within`."""
_LOUD = 42
"""A row with a score of this size is counted as saturated; one of 40 never is."""
_ROUGH_BITS = 10
"""Fraction bits of a row, by its largest length, whose length is only to be bounded."""


@dataclass
class Watch(Generic[V]):
    """What a program computes on the way to tell, in the end, whether every value was in range.

    Attributes:
        lengths: mean squares of rows, as parts of the largest that is right; secret.
        short: 1 for every row that was too short; secret.
        loud: 1 for every row of scores that saturated; secret.
    """

    lengths: list[V] = field(default_factory=list)
    short: list[V] = field(default_factory=list)
    loud: list[V] = field(default_factory=list)


def attention(
    ops: RescalingVerbs[V], scores: V, seen: Tensor | Told, watch: Watch[V] | None = None
) -> V:
    """Give exp(x) / Σ exp(x) along the last dimension, over those that a public mask lets see.

    What is subtracted before exp need not be the largest score, but a number close above it: the
    highest whole number that a score reaches, found by counting how many reach each. Of many
    scores, or of such as can be larger than 56 and that nobody watches, it is the largest, where
    the mask is known to the plan.

    Range: scores up to 40 in size; those beyond 48 count as 48, and between them either may hold.
    With the largest, or where no score can be larger than 56: all. Error: below 2e-3 for rows of
    13. Cost under sealed: 8 rounds (7 if no score can be larger than 56), the reciprocal of one
    number per row and a product; for rows of up to a thousand. With the largest: as `softmax`, less
    2 rounds.
    """
    if not ops.has("count_reaching"):
        if isinstance(seen, Told):
            raise InputError("what is seen is told for every run under 'sealed' alone")
        return softmax(ops, scores if bool(seen.all()) else hide(ops, scores, seen), dim=-1)
    is_many = ops.number(scores, "softmax").elements > MANY
    # Scores that saturate give a wrong answer, so that somebody has to watch them.
    is_unwatched = watch is None and ops.number(ops.ready(scores), "softmax").bound > REACH
    if (is_many or is_unwatched) and not isinstance(seen, Told):
        exps = _exps_below_largest(ops, scores, seen)
    else:
        exps = _exps_below_level(ops, scores, seen, watch)
    exps = ops.normalise_scale(exps) if is_many else exps  # those of many have more digits
    total = ops.sum(exps, dim=-1)
    if ops.is_few(total):
        inverse = ops.elementwise_rescaling("reciprocal", total)
    else:
        inverse = reciprocal(ops, total)
    inverse = ops.reshape(inverse, (*ops.shape(total), 1))
    return ops.mul_rescaling(exps, inverse, bound=LARGEST_SHARE)


def _exps_below_largest(ops: RescalingVerbs[V], scores: V, seen: Tensor) -> V:
    """Give exp of scores less the largest of their row, and 0 of what is not seen."""
    scores = scores if bool(seen.all()) else hide(ops, scores, seen)
    scores = ops.normalise_scale(scores)
    top = maximum(ops, scores, dim=-1)
    return ops.exp(ops.sub(scores, ops.reshape(top, (*ops.shape(top), 1))))


def _exps_below_level(
    ops: RescalingVerbs[V], scores: V, seen: Tensor | Told, watch: Watch[V] | None
) -> V:
    """Give exp of scores less a level that none of their row exceeds, and 0 of what is not seen."""
    can_saturate = ops.number(ops.ready(scores), "softmax").bound > REACH
    scores = saturated(ops, scores)
    levels = _levels(ops, scores, seen)
    if watch is not None and can_saturate:
        watch.loud.append(_loud(ops, levels))
    exps = ops.exp(ops.sub(scores, _close_above(ops, levels)))
    if isinstance(seen, Told):
        return ops.weigh(exps, seen)
    return exps if bool(seen.all()) else ops.weigh(exps, seen.to(torch.float64))


def saturated(ops: RescalingVerbs[V], x: V) -> V:
    """Bring numbers within ±56: as they are up to 40, and near ±48 beyond 48.

    Cost under sealed: that of `normalise_scale`, or 2 rounds where numbers can be larger.
    """
    spec = ops.number(x, "saturating")
    if spec.bound <= REACH or ops.has("rowwise"):
        return ops.normalise_scale(x)
    if ops.is_checked:  # whose openings do not rescale
        x = ops.normalise_scale(x)
        spec = ops.number(x, "saturating")
    drop = max(0, spec.frac_bits - ops.frac_bits)
    return ops.apply(ops.make("saturate", ops.frac_bits, SATURATED, STEP, drop), ops.ready(x))


def _levels(ops: RescalingVerbs[V], x: V, seen: Tensor | Told) -> V:
    """Tell of each row which whole numbers around zero its seen elements reach, within one."""
    side = int(ops.number(x, "counting").bound) + 2
    shown: Public | Told
    shown = seen if isinstance(seen, Told) else Public.of(seen.to(torch.float64), frac_bits=0)
    counts = ops.apply(ops.make("count_reaching", 0, 2 * side, shown), x)
    return ops.apply(ops.make("reached"), counts)


def _close_above(ops: RescalingVerbs[V], levels: V) -> V:
    """Give a whole number of at most two above the largest element that is seen, and not below."""
    side = ops.shape(levels)[-1] // 2
    above = ops.shift(ops.sum(levels, dim=-1), -float(side))
    return ops.reshape(above, (*ops.shape(above), 1))


def _loud(ops: RescalingVerbs[V], levels: V) -> V:
    shape = ops.shape(levels)
    side = shape[-1] // 2
    reached = ops.take(levels, (side + _LOUD,), dim=len(shape) - 1)
    return ops.reshape(reached, (prod(shape[:-1]),))


def norm_rows(ops: RescalingVerbs[V], x: V, *, eps: float, length: float, centred: bool) -> V:
    """Bring rows that are no longer than ``length`` to a mean square of 1, as cheaply as can be.

    Range: a mean square, with ``eps``, of at least 2^-24 of the largest that is possible: between
    2^-20 and 2^-6; of many rows, or of rows that can be very long, that of `layer_norm`. Shorter
    rows come out too small.
    Error: that of `norm_within` or of `layer_norm`. Cost under sealed: 5 rounds for up to 512 rows,
    16 for more.
    """
    shape = ops.shape(x)
    mean = (length * 1.001) ** 2 / shape[-1]
    is_short = mean <= _LONGEST_MEAN and prod(shape[:-1]) <= FEW
    if is_short and ops.rescales_openings and not ops.has("rowwise"):
        x = ops.scale(x, 1.0)  # a party's own input, of which it knows the mask, cannot be rescaled
        return norm_within(ops, x, eps=eps, largest_mean=mean, centred=centred)
    return (layer_norm if centred else rms_norm)(ops, x, eps=eps)


def norm_within(
    ops: RescalingVerbs[V],
    x: V,
    *,
    eps: float,
    largest_mean: float,
    centred: bool,
    watch: Watch[V] | None = None,
) -> V:
    """Bring the last dimension to a mean square of 1, and before to mean 0 if it is to be centred.

    Range: rows of a mean square of at most ``largest_mean`` (whoever calls this must know that: a
    longer row wraps around) and, with ``eps``, at least 2^-24 of it, or 2^-20 if that is more;
    whether all rows are, ``watch`` can tell.
    Error: below 0.2 % and 2^-12 for rows that are not among the shortest. Cost under sealed: 5
    rounds; watching takes 8 bytes each way and 32 from the dealer per element, and no round.
    """
    if ops.has("rowwise"):
        return ops.rowwise("layer_norm" if centred else "rms_norm", x, dim=-1, parameter=eps)
    shape = ops.shape(x)
    count = shape[-1]
    whole = ceil(log2(count))
    x = ops.ready(x)
    if centred:  # n·x less the sum of x, of which 2^-k is as good as the n-th part
        known = ops.number(x, "norm")
        if words_of(known.bound, known.frac_bits + whole) >= 1 << (HEADROOM_BITS - 2):
            x = ops.normalise_scale(x)  # one round more, where values are too large and too precise
        total = ops.reshape(ops.sum(x, dim=-1), (*shape[:-1], 1))
        x = ops.scale(ops.sub(ops.scale(x, count), total), 2.0**-whole)
        eps *= (count / 2**whole) ** 2
    most = largest_mean * count
    # Short rows are small numbers: they keep more bits than usual, if their squares have room.
    bits = min(ops.frac_bits + 4, floor((HEADROOM_BITS - 1 - log2(most)) / 2))
    whole_row = x
    watch = watch if ops.has("flagged") else None
    x = ops.restate(x, bound=sqrt(most)) if ops.number(x, "norm").bound > sqrt(most) else x
    if watch is not None and ops.number(whole_row, "norm").bound ** 2 * count > most:
        watch.lengths.append(_length(ops, whole_row, x, most, bits))
    squares = ops.mul_rescaling(x, x, bound=most, frac_bits=(bits, bits))
    reached = most + eps * count
    # Small rows are enlarged. Of a power of two and a little eps nothing more is taken away.
    down = max(-6, ceil((log2(reached) - whole - 16) / 2 - 2.0**-20))
    mean = ops.scale(ops.sum(squares, dim=-1, bound=most), 2.0 ** -(whole + 2 * down))
    mean = ops.shift(mean, eps * count / 2 ** (whole + 2 * down))
    gain = sqrt(count / 2**whole)
    bound = reached / 2 ** (whole + 2 * down)
    if watch is None:
        inverse = ops.elementwise_rescaling("rsqrt", mean, bound=bound, gain=gain)
    else:
        inverse, short = ops.flagged_rescaling("rsqrt", mean, bound=bound, gain=gain)
        watch.short.append(ops.reshape(short, (prod(shape[:-1]),)))
    inverse = ops.reshape(ops.scale(inverse, 2.0**-down), (*shape[:-1], 1))
    normal = sqrt(count) * 1.01
    return ops.mul_rescaling(
        x, inverse, bound=normal, frac_bits=(bits, 2 * ops.frac_bits + 4 - bits)
    )


def _length(ops: RescalingVerbs[V], row: V, stated: V, most: float, bits: int) -> V:
    """Give the sum of squares of rows as part of a power of four that is ``most`` at most.

    The row, whose own bound is never exceeded, is opened with few bits, so that its squares do not
    wrap around; in one message with the row of which a smaller bound is ``stated``.
    """
    known, count = ops.number(row, "norm"), ops.shape(row)[-1]
    rough = ops.scale(row, 2.0 ** -floor(log2(most) / 2))
    reach = ops.number(rough, "norm").bound
    if (reach * 2**_ROUGH_BITS) ** 2 * count >= 2 ** (HEADROOM_BITS - 1):
        raise InputError(
            f"rows of values up to {known.bound:.3g} are too long to be watched beside a largest "
            f"mean square of {most / count:.3g}; measure longer rows"
        )
    ops.opened(stated, rough, is_exact=True, frac_bits=(bits, _ROUGH_BITS))
    squares = ops.mul_rescaling(rough, rough, frac_bits=(_ROUGH_BITS, _ROUGH_BITS))
    return ops.reshape(ops.sum(squares, dim=-1), (prod(ops.shape(row)[:-1]),))


def out_of_range(ops: RescalingVerbs[V], watch: Watch[V]) -> V:
    """Count, as shares: rows whose length was out of range, and rows of scores that saturated.

    Guarantee: that of the kernels. Error: a row within an eighth of the largest may count. Cost
    under sealed: at most 4 rounds, 3 as a rule.
    """
    counts = []
    if watch.lengths:
        beyond = ops.shift(ops.concatenate(watch.lengths, dim=0), -1.0)
        counts.append(ops.sum(ops.indicate(beyond, as_it_is=True), dim=0))
    counts += [ops.sum(ops.concatenate(watch.short, dim=0), dim=0)]
    wrong = counts[0] if len(counts) == 1 else ops.add(*counts)
    if watch.loud:
        loud = ops.sum(ops.concatenate(watch.loud, dim=0), dim=0)
    else:
        loud = ops.scale(wrong, 0.0)
    return ops.concatenate([ops.reshape(one, (1,)) for one in (wrong, loud)], dim=0)


def mix(ops: RescalingVerbs[V], weights: V, values: V) -> V:
    """Average rows of values by rows of a softmax: a product whose bound is that of the values.

    Range: weights of at least zero that add up to one per row, as `softmax` gives them. Error:
    that of the weights. Cost: a matrix product.
    """
    # The weights of a row of n may add up to a little more than one.
    most = (1.01 + 2.0**-12 * ops.shape(values)[-2]) * ops.bound(values)
    return ops.matmul_within(weights, values, bound=most)
