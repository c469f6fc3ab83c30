"""Softmax, with a maximum and without, and averages whose products rescale as they are opened."""

from collections.abc import Callable
from math import ceil, log2, prod
from typing import TypeVar

import torch
from torch import Tensor

from tacit.errors import InputError
from tacit.mpc import shapes
from tacit.mpc.arithmetic.public import Public, PublicInput
from tacit.mpc.functions.norms import RangeWatch
from tacit.mpc.functions.ordering import maximum
from tacit.mpc.functions.roots import logarithm, reciprocal
from tacit.mpc.primitives import MANY, Primitives
from tacit.mpc.rescaling import RescalingVerbs
from tacit.mpc.share import HEADROOM_BITS

V = TypeVar("V")

LARGEST_SHARE = 1.01
"""No element of a softmax is larger than this, its error counted in."""


def softmax(ops: Primitives[V], x: V, *, dim: int = -1) -> V:
    """Give exp(x) / Σ exp(x) along a dimension.

    Range: all. Error: below 2e-3 for rows of 13, growing with their length, as the errors of the
    exponentials (3e-5 each) add up. Cost: that of `maximum`, of exp, of `reciprocal` for one
    number per row, and of a product.
    """
    shape = ops.shape(x)
    axis = shapes.axis(shape, dim)
    if ops.has("rowwise"):
        return ops.rowwise("softmax", x, dim=axis)
    kept = (*shape[:axis], 1, *shape[axis + 1 :])
    top = ops.reshape(maximum(ops, x, dim=axis), kept)
    exps = ops.normalise_scale(ops.exp(ops.sub(x, top)))
    total = ops.reshape(reciprocal(ops, ops.sum(exps, dim=axis)), kept)
    return ops.restate(ops.mul(exps, total), bound=LARGEST_SHARE)


def log_softmax(ops: Primitives[V], x: V, *, dim: int = -1) -> V:
    """Give x - log Σ exp(x) along a dimension. Range: all. Error: below 8e-3 for rows of 13."""
    shape = ops.shape(x)
    axis = shapes.axis(shape, dim)
    if ops.has("rowwise"):
        return ops.rowwise("log_softmax", x, dim=axis)
    kept = (*shape[:axis], 1, *shape[axis + 1 :])
    centred = ops.normalise_scale(ops.sub(x, ops.reshape(maximum(ops, x, dim=axis), kept)))
    total = ops.sum(ops.normalise_scale(ops.exp(centred)), dim=axis)
    return ops.sub(centred, ops.reshape(ops.normalise_scale(logarithm(ops, total)), kept))


def hide(ops: Primitives[V], x: V, kept: Tensor) -> V:
    """Replace elements where a public mask is false by one that `softmax` gives nothing.

    Range: all. Error: none: 12 below everything that can occur, exp is 0. Cost: nothing is sent.
    """
    x = ops.normalise_scale(x)
    return ops.fill(x, kept, -(ops.number(x, "masking").bound + 12.0))


REACH = 56.0
"""Scores up to this size get their softmax by counting; larger ones saturate, or have a maximum."""
SATURATED, STEP = 48.0, 8.0
_SCORE_BITS = 12
"""Fraction bits of scores in front of exp: so it is cubic, and compared without a tree."""
_LONGEST_ROW = 1024
_LOUD = 42
"""A row with a score of this size is counted as saturated; one of 40 never is."""


def attention(
    ops: RescalingVerbs[V],
    scores: V,
    seen: Tensor | PublicInput,
    *,
    watch: RangeWatch[V] | None = None,
) -> V:
    """Give exp(x) / Σ exp(x) along the last dimension, over those that a public mask lets see.

    What is subtracted before exp need not be the largest score, but a number close above it: the
    highest whole number that a score reaches, found by counting how many reach each. Of many
    scores, or of such as can be larger than 56 and that nobody watches, it is the largest, where
    the mask is known to the plan.

    Range: scores up to 40 in size; those beyond 48 count as 48, and between them either may hold.
    With the largest, or where no score can be larger than 56: all. Error: below 2e-3 for rows of
    13. Cost under sealed: 7 rounds (6 if no score can be larger than 56), the reciprocal of one
    number per row and a product; 2 rounds more for many scores and for rows of more than 1024.
    With the largest: as `softmax`, less 2 rounds.
    """
    shapes.axis(ops.shape(scores), -1)
    if not ops.has("count_reaching"):
        if isinstance(seen, PublicInput):
            raise InputError("what is seen is told for every run under 'sealed' alone")
        return softmax(ops, scores if bool(seen.all()) else hide(ops, scores, seen), dim=-1)
    return _shares(ops, _exps(ops, scores, seen, watch))


def attention_mixed(
    ops: RescalingVerbs[V],
    scores: V,
    seen: Tensor | PublicInput,
    values: Callable[[], V],
    *,
    frac_bits: tuple[int, int],
    watch: RangeWatch[V] | None = None,
) -> V:
    """Average rows of values by `attention`: those of a few rows are mixed before they are divided.

    ``values`` gives them, opened or not; it is asked when they are needed. The result is a product
    of factors with so many ``frac_bits`` where it was divided last.

    Range and error: those of `attention`. Cost under sealed: 1 round less than its product.
    """
    if not ops.has("count_reaching"):
        return mix(ops, attention(ops, scores, seen, watch=watch), values())
    exps = _exps(ops, scores, seen, watch)
    total = ops.sum(exps, dim=-1)
    if not ops.is_few("reciprocal", total) or _is_many(ops, scores):
        return mix(ops, _shares(ops, exps), values())
    wait = ops.begin_rescaling("reciprocal", total)
    # While it is compared and selected, exps are truncated and opened, and mix the values.
    exps = ops.rescaled(exps)
    opened = ops.post(exps)
    inverse = ops.reshape(wait(), (*ops.shape(total), 1))
    opened()
    whole = values()
    keys, most = ops.shape(whole)[-2], ops.bound(whole)
    mixed = ops.matmul_within(exps, whole, bound=1.01 * keys * most)
    return ops.mul_rescaling(mixed, inverse, bound=_mixed_bound(keys, most), frac_bits=frac_bits)


def _is_many(ops: RescalingVerbs[V], scores: V) -> bool:
    return ops.number(scores, "softmax").elements > MANY


def _exps(
    ops: RescalingVerbs[V], scores: V, seen: Tensor | PublicInput, watch: RangeWatch[V] | None
) -> V:
    """Give exp of scores less what their row has in common, and 0 of what is not seen."""
    scores, is_many = ops.ready(scores), _is_many(ops, scores)
    # Scores that saturate give a wrong answer, so that somebody has to watch them.
    is_unwatched = watch is None and ops.number(scores, "softmax").bound > REACH
    if (is_many or is_unwatched) and not isinstance(seen, PublicInput):
        exps = _exps_below_largest(ops, scores, seen)
    else:
        exps = _exps_below_level(ops, scores, seen, watch)
    return ops.normalise_scale(exps) if is_many else exps  # those of many have more digits


def _shares(ops: RescalingVerbs[V], exps: V) -> V:
    """Divide by the sum of each row."""
    total = ops.sum(exps, dim=-1)
    if ops.is_few("reciprocal", total):
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
    ops: RescalingVerbs[V], scores: V, seen: Tensor | PublicInput, watch: RangeWatch[V] | None
) -> V:
    """Give exp of scores less a level that none of their row exceeds, and 0 of what is not seen."""
    can_saturate = ops.number(scores, "softmax").bound > REACH
    # Of many the dealer's bytes cost more than a round does; of long ones the sum needs room.
    is_cubic = not _is_many(ops, scores) and ops.shape(scores)[-1] <= _LONGEST_ROW
    scores = saturated(ops, scores, frac_bits=_SCORE_BITS if is_cubic else ops.frac_bits)
    levels = _levels(ops, scores, seen)
    if watch is not None and can_saturate:
        watch.loud.append(_loud(ops, levels))
    below = ops.sub(scores, _close_above(ops, levels))
    if is_cubic:
        known = ops.number(below, "softmax")
        value_bits = HEADROOM_BITS - 1 - ceil(log2(known.shape[-1]))
        exps = ops.apply(ops.make("decay", known.frac_bits, known.bound, value_bits), below)
    else:
        exps = ops.exp(below)
    if isinstance(seen, PublicInput):
        return ops.weigh(exps, seen)
    return exps if bool(seen.all()) else ops.weigh(exps, seen.to(torch.float64))


def saturated(ops: RescalingVerbs[V], x: V, *, frac_bits: int | None = None) -> V:
    """Bring numbers within ±56: as they are up to 40, and near ±48 beyond 48.

    They keep the usual ``frac_bits``, or fewer.

    Cost under sealed: that of a truncation, or 2 rounds where numbers can be larger.
    """
    spec, kept = ops.number(x, "saturating"), ops.frac_bits if frac_bits is None else frac_bits
    if spec.bound <= REACH or ops.has("rowwise"):
        return ops.truncated(ops.normalise_scale(x) if spec.frac_bits < kept else x, frac_bits=kept)
    if ops.is_checked:  # whose openings do not rescale
        x = ops.normalise_scale(x)
        spec = ops.number(x, "saturating")
    drop = max(0, spec.frac_bits - kept)
    return ops.apply(ops.make("saturate", kept, SATURATED, STEP, drop), ops.ready(x))


def _levels(ops: RescalingVerbs[V], x: V, seen: Tensor | PublicInput) -> V:
    """Tell of each row which whole numbers around zero its seen elements reach, within one."""
    side = int(ops.number(x, "counting").bound) + 2
    shown: Public | PublicInput
    shown = (
        seen if isinstance(seen, PublicInput) else Public.of(seen.to(torch.float64), frac_bits=0)
    )
    counts = ops.apply(ops.make("count_reaching", 0, 2 * side, shown), x)
    return ops.apply(ops.make("reached"), counts)


def _close_above(ops: RescalingVerbs[V], levels: V) -> V:
    """Give a whole number of at most two above the largest element that is seen, and not below."""
    side = ops.shape(levels)[-1] // 2
    above = ops.shift(ops.sum(levels, dim=-1), -float(side))
    above = ops.restate(above, bound=float(side))  # it is a count of 2·side less the half
    return ops.reshape(above, (*ops.shape(above), 1))


def _loud(ops: RescalingVerbs[V], levels: V) -> V:
    shape = ops.shape(levels)
    side = shape[-1] // 2
    reached = ops.take(levels, (side + _LOUD,), dim=len(shape) - 1)
    return ops.reshape(reached, (prod(shape[:-1]),))


def mix(ops: RescalingVerbs[V], weights: V, values: V) -> V:
    """Average rows of values by rows of a softmax: a product whose bound is that of the values.

    Range: weights of at least zero that add up to one per row, as `softmax` gives them. Error:
    that of the weights. Cost: a matrix product.
    """
    most = _mixed_bound(ops.shape(values)[-2], ops.bound(values))
    return ops.matmul_within(weights, values, bound=most)


def _mixed_bound(keys: int, bound: float) -> float:
    """Bound an average: the weights of a row of n may add up to a little more than one."""
    return (1.01 + 2.0**-12 * keys) * bound
