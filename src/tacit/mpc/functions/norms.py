"""Norms; those whose products rescale as they are opened, and what watches their rows' lengths."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import ceil, floor, log2, prod, sqrt
from typing import Generic, TypeVar

from tacit.errors import InputError
from tacit.mpc import shapes
from tacit.mpc.functions.curves import SMALLEST
from tacit.mpc.functions.poles import FEW
from tacit.mpc.functions.roots import rsqrt, times_inverse
from tacit.mpc.primitives import Primitives
from tacit.mpc.products import MatMul
from tacit.mpc.rescaling import RescalingVerbs
from tacit.mpc.share import HEADROOM_BITS, SPARE_BITS, words_of

V = TypeVar("V")

_LONGEST_MEAN = 2.0**18
"""Of rows that can be longer, those of mean square 2^-6 would be too short for `norm_within`."""
ENLARGED = 130.0
"""Rows are enlarged up to this bound before they are normalised: 128, and some rounding."""
_ROUGH_BITS = 10
"""Fraction bits of a row, by its largest length, whose length is only to be bounded."""


@dataclass
class RangeWatch(Generic[V]):
    """What a program computes on the way to tell, in the end, whether every value was in range.

    Attributes:
        lengths: sums of squares of rows, less the largest that is right; secret.
        short: 1 for every row that was too short; secret.
        loud: 1 for every row of scores that saturated; secret.
    """

    lengths: list[V] = field(default_factory=list)
    short: list[V] = field(default_factory=list)
    loud: list[V] = field(default_factory=list)


@dataclass(frozen=True)
class RowProduct(Generic[V]):
    """A part of a product of rows in front of their norm.

    Attributes:
        value: the part.
        bound: how large it can be behind the norm.
        spared_bits: how many fraction bits fewer it may have there.
    """

    value: V
    bound: float
    spared_bits: int = 0


def layer_norm(ops: Primitives[V], x: V, *, eps: float = 1e-5) -> V:
    """Bring the last dimension to mean 0 and variance 1.

    Range: variances of at least 2^-8, or of (bound / 64)² / 2^8 if the bound of x is below 64;
    rows of a smaller variance come out too small. Error: below 6e-3. Cost: a square, an inverse
    square root for one number per row, and a product.
    """
    shape = ops.shape(x)
    count, kept = shape[shapes.axis(shape, -1)], (*shape[:-1], 1)
    if ops.has("rowwise"):
        return ops.rowwise("layer_norm", x, dim=-1, parameter=eps)
    mean = ops.normalise_scale(ops.scale(ops.sum(x, dim=-1), 1 / count))
    centred = ops.normalise_scale(ops.sub(x, ops.reshape(mean, kept)))
    return _divided_by_root(ops, centred, eps)


def rms_norm(ops: Primitives[V], x: V, *, eps: float = 1e-5) -> V:
    """Bring the last dimension to a mean square of 1. Range, error: as `layer_norm`."""
    if ops.has("rowwise"):
        return ops.rowwise("rms_norm", x, dim=-1, parameter=eps)
    return _divided_by_root(ops, ops.normalise_scale(x), eps)


def _divided_by_root(ops: Primitives[V], rows: V, eps: float) -> V:
    """Divide rows by the root of their mean square."""
    shape = ops.shape(rows)
    # Numbers of a small bound are enlarged first: the inverse root begins at 2^-8, and enlarging
    # moves that towards smaller rows. Squares are enlarged after they are added up, as their sum
    # then has room in the word and need not be truncated one by one.
    factor = 2 ** max(0, floor(log2(ENLARGED / ops.number(rows, "normalising").bound)))
    squares = ops.total(ops.square(rows), dim=-1)
    # Dividing by a width that is no power of two truncates first, and would take short rows for 0.
    room = HEADROOM_BITS - ops.number(squares, "normalising").largest.bit_length()
    first = min(factor**2, 2 ** max(0, room))
    mean = ops.scale(ops.scale(squares, first), factor**2 / first / shape[-1])
    mean = ops.normalise_scale(ops.shift(mean, eps * factor**2))
    ops.note_least(SMALLEST / factor**2 - eps)
    inverse = ops.reshape(rsqrt(ops, mean), (*shape[:-1], 1))
    # At most √n, and what the error of the inverse root can add to it.
    bound = 1.01 * sqrt(shape[-1]) + 2.0**-12 * factor * ops.number(rows, "normalising").bound
    most = ops.number(mean, "normalising").bound
    normal = times_inverse(ops, rows, inverse, largest=most, bound=bound / factor)
    return ops.restate(ops.scale(normal, factor), bound=bound)


def norm_rows(ops: RescalingVerbs[V], x: V, *, eps: float, length: float, centred: bool) -> V:
    """Bring rows that are no longer than ``length`` to a mean square of 1, as cheaply as can be.

    Range: a mean square, with ``eps``, of at least 2^-24 to 2^-20 of the largest that is possible,
    as the plan notes: between 2^-20 and 2^-2; of many rows, or of rows that can be very long, that
    of `layer_norm`. Shorter rows come out too small.
    Error: that of `norm_within` or of `layer_norm`. Cost under sealed: 5 rounds for up to 512 rows,
    16 for more.
    """
    shape = ops.shape(x)
    mean = (length * 1.001) ** 2 / shape[shapes.axis(shape, -1)]
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
    watch: RangeWatch[V] | None = None,
) -> V:
    """Bring the last dimension to a mean square of 1, and before to mean 0 if it is to be centred.

    Range: rows of a mean square of at most ``largest_mean`` (whoever calls this must know that: a
    longer row wraps around) and, with ``eps``, at least 2^-24 to 2^-20 of it (what it is exactly,
    for rows of that length, the plan notes), or 2^-20 if that is more; whether all rows are,
    ``watch`` can tell.
    Error: below 0.2 % and 2^-12 for rows that are not among the shortest; of rows of n numbers near
    ``largest_mean`` up to 1 / (30·√n) of a result. Cost under sealed: 5 rounds; watching takes 8
    bytes each way and 32 from the dealer per element, and no round.
    """
    if ops.has("rowwise"):
        return ops.rowwise("layer_norm" if centred else "rms_norm", x, dim=-1, parameter=eps)
    rows = _rows(ops, x, eps=eps, largest_mean=largest_mean, centred=centred, watch=watch)
    return _normal(ops, rows, _inverse(ops, rows, watch)())


def product_behind_norm(
    ops: RescalingVerbs[V],
    x: V,
    matrix: V,
    *,
    eps: float,
    largest_mean: float,
    centred: bool,
    bound: float,
    parts: Callable[[V], Sequence[RowProduct[V]]],
    turns: bool = False,
    watch: RangeWatch[V] | None = None,
) -> tuple[list[V], Callable[[], V]]:
    """Multiply the rows that `norm_within` would give with a matrix, a round earlier.

    Rows as they are get multiplied while the norm computes by what to scale them, and the product
    is scaled. In between ``parts`` cuts it, or turns it, into (…, rows, n) by what is linear;
    ``bound`` is that of all of it, behind the norm. If it ``turns``, which takes fraction bits, the
    product is truncated before, for no round.

    Returns:
        The parts, with 20 fraction bits more than usual; and what gives the normalised rows, too.

    Range and error: those of `norm_within`. Cost under sealed: 5 rounds with the product; up to 48
    bytes from the dealer per element of it.
    """
    if ops.has("rowwise") or not ops.rescales_openings:
        normal = norm_within(
            ops, x, eps=eps, largest_mean=largest_mean, centred=centred, watch=watch
        )
        product = ops.matmul_within(normal, matrix, bound=bound)
        return [one.value for one in parts(product)], lambda: normal
    rows = _rows(ops, x, eps=eps, largest_mean=largest_mean, centred=centred, watch=watch)
    wait = _inverse(ops, rows, watch)
    # While the root is compared and selected, the product is made, and truncated.
    opened = ops.opened(
        ops.rescaled(rows.x, frac_bits=rows.bits), matrix, frac_bits=(rows.bits, None)
    )
    longest = bound * sqrt(largest_mean + eps)
    product = ops.apply(ops.make("multiply", MatMul(), longest), *opened)
    truncated = ops.post(product, is_exact=True, frac_bits=(rows.bits,)) if turns else None
    inverse = wait()
    if truncated is not None:
        truncated()
        product = ops.rescaled(product, frac_bits=rows.bits)
    pieces = parts(product)
    kept = [rows.bits - one.spared_bits for one in pieces]
    values = [one.value for one in pieces]
    ops.opened(*values, inverse, is_exact=True, frac_bits=(*kept, rows.inverse_bits))
    outs = [
        ops.mul_rescaling(one.value, inverse, bound=one.bound, frac_bits=(bits, rows.inverse_bits))
        for one, bits in zip(pieces, kept, strict=True)
    ]
    return outs, lambda: _normal(ops, rows, inverse)


@dataclass(frozen=True)
class _Rows(Generic[V]):
    """Rows in front of a norm.

    Attributes:
        x: the rows, centred if they are to be, with the bound that is known of them.
        squares: the sum of squares of each.
        most: the largest sum of squares.
        eps: what is added to the mean square.
        bits: fraction bits of the rows for products.
        inverse_bits: the same of what they are multiplied with.
        unit: what one is of a mean square in front of centring.
    """

    x: V
    squares: V
    shape: tuple[int, ...]
    most: float
    eps: float
    bits: int
    inverse_bits: int
    unit: float


def _rows(
    ops: RescalingVerbs[V],
    x: V,
    *,
    eps: float,
    largest_mean: float,
    centred: bool,
    watch: RangeWatch[V] | None,
) -> _Rows[V]:
    """Open rows for products, and square them."""
    shape = ops.shape(x)
    count = shape[shapes.axis(shape, -1)]
    whole = ceil(log2(count))
    x, unit = ops.ready(x), 1.0
    if centred:  # n·x less the sum of x, of which 2^-k is as good as the n-th part
        known = ops.number(x, "norm")
        free = 1 << (known.ring_bits - SPARE_BITS - 2)
        if words_of(known.bound, known.frac_bits + whole) >= free:
            x = ops.normalise_scale(x)  # one round more, where values are too large and too precise
        total = ops.reshape(ops.sum(x, dim=-1), (*shape[:-1], 1))
        x = ops.scale(ops.sub(ops.scale(x, count), total), 2.0**-whole)
        unit = (count / 2**whole) ** 2
        eps *= unit
    most = largest_mean * count
    # Short rows are small numbers: they keep more bits than usual, if their squares have room.
    bits = min(ops.frac_bits + 4, floor((HEADROOM_BITS - 1 - log2(most)) / 2))
    whole_row = x
    x = ops.restate(x, bound=sqrt(most)) if ops.number(x, "norm").bound > sqrt(most) else x
    is_watched = watch is not None and ops.has("flagged")
    if is_watched and ops.number(whole_row, "norm").bound ** 2 * count > most:
        assert watch is not None  # noqa: S101 - it says so
        watch.lengths.append(_excess(ops, whole_row, x, most, bits))
    squares = ops.mul_rescaling(x, x, bound=most, frac_bits=(bits, bits))
    total = ops.sum(squares, dim=-1, bound=most)
    return _Rows(x, total, shape, most, eps, bits, 2 * ops.frac_bits + 4 - bits, unit)


def _inverse(
    ops: RescalingVerbs[V], rows: _Rows[V], watch: RangeWatch[V] | None
) -> Callable[[], V]:
    """Begin to compute what rows are to be multiplied with, (…, 1)."""
    count = rows.shape[-1]
    whole = ceil(log2(count))
    reached = rows.most + rows.eps * count
    # Small rows are enlarged. Of a power of two and a little eps nothing more is taken away.
    down = max(-6, ceil((log2(reached) - whole - 16) / 2 - 2.0**-20))
    mean = ops.scale(rows.squares, 2.0 ** -(whole + 2 * down))
    mean = ops.shift(mean, rows.eps * count / 2 ** (whole + 2 * down))
    gain = sqrt(count / 2**whole)
    bound = reached / 2 ** (whole + 2 * down)
    shape = rows.shape[:-1]
    if watch is None or not ops.has("flagged"):
        least = SMALLEST * 2.0 ** (whole + 2 * down) / count
        ops.note_least((least - rows.eps) / rows.unit)
        wait = ops.begin_rescaling("rsqrt", mean, bound=bound, gain=gain)
        return lambda: ops.reshape(ops.scale(wait(), 2.0**-down), (*shape, 1))
    both = ops.begin_flagged("rsqrt", mean, bound=bound, gain=gain)

    def complete() -> V:
        inverse, short = both()
        watch.short.append(ops.reshape(short, (prod(shape),)))
        return ops.reshape(ops.scale(inverse, 2.0**-down), (*shape, 1))

    return complete


def _normal(ops: RescalingVerbs[V], rows: _Rows[V], inverse: V) -> V:
    bits, bound = (rows.bits, rows.inverse_bits), sqrt(rows.shape[-1]) * 1.01
    return ops.mul_rescaling(rows.x, inverse, bound=bound, frac_bits=bits)


def _excess(ops: RescalingVerbs[V], row: V, stated: V, most: float, bits: int) -> V:
    """Give what the sum of squares of rows is more than ``most``, as part of a power of four.

    The row, whose own bound is never exceeded, is opened with few bits, so that its squares do not
    wrap around; in one message with the row of which a smaller bound is ``stated``.
    """
    known, count, power = ops.number(row, "norm"), ops.shape(row)[-1], floor(log2(most) / 2)
    rough = ops.scale(row, 2.0**-power)
    reach = ops.number(rough, "norm").bound
    if (reach * 2**_ROUGH_BITS) ** 2 * count >= 2 ** (HEADROOM_BITS - 1):
        raise InputError(
            f"rows of values up to {known.bound:.3g} are too long to be watched beside a largest "
            f"mean square of {most / count:.3g}; measure longer rows"
        )
    ops.opened(stated, rough, is_exact=True, frac_bits=(bits, _ROUGH_BITS))
    squares = ops.mul_rescaling(rough, rough, frac_bits=(_ROUGH_BITS, _ROUGH_BITS))
    excess = ops.shift(ops.sum(squares, dim=-1), -most / 4.0**power)
    return ops.reshape(excess, (prod(ops.shape(row)[:-1]),))


def out_of_range(ops: RescalingVerbs[V], watch: RangeWatch[V]) -> V:
    """Count, as shares: rows whose length was out of range, and rows of scores that saturated.

    Guarantee: that of the kernels. Error: a row within an eighth of the largest may count. Cost
    under sealed: at most 4 rounds, 3 as a rule.
    """
    counts = []
    if watch.lengths:
        beyond = ops.indicate(ops.concatenate(watch.lengths, dim=0), as_it_is=True)
        counts.append(ops.sum(beyond, dim=0))
    counts += [ops.sum(ops.concatenate(watch.short, dim=0), dim=0)]
    wrong = counts[0] if len(counts) == 1 else ops.add(*counts)
    if watch.loud:
        loud = ops.sum(ops.concatenate(watch.loud, dim=0), dim=0)
    else:
        loud = ops.scale(wrong, 0.0)
    return ops.concatenate([ops.reshape(one, (1,)) for one in (wrong, loud)], dim=0)
