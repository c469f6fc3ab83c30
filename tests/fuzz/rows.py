"""Functions of rows: softmax, attention, norms, losses, tables."""

import math
import random
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from fuzz.known import NOWHERE, Known, product
from fuzz.verb import Shape, Verb, a_full_dim, a_mask, any_shape, some_rows, twins
from tacit.mpc.functions.norms import RowProduct


def _softmax(x: Known, dim: int) -> Known:
    return Known(x.v.softmax(dim), (x.rows_e(dim) / 2 + 1e-3).clamp(max=1.0))


def _log_softmax(x: Known, dim: int) -> Known:
    return Known(x.v.log_softmax(dim), 2 * x.rows_e(dim) + 2e-3)


def _normed(x: Known, centred: bool) -> Known:
    mean = x.v.mean(-1, keepdim=True) if centred else torch.zeros_like(x.v[..., :1])
    square = ((x.v - mean) ** 2).mean(-1, keepdim=True)
    length, off = square.sqrt(), x.rows_e()
    value = (x.v - mean) / (square + 1e-5).sqrt()
    reach = 64 if centred else 128
    floor = max((min(x.bound, 1e9) / reach) ** 2 / 2**8, 2.0**-12 if centred else 2.0**-14)
    floor = max(floor, 2.0**-8) if x.bound > 64 * reach / 16 else floor
    steep = (2 + value.abs()) / (length - 2 * off).clamp(min=1e-9)
    error = steep * off + 4e-3 * (1 + value.abs())
    known = (square >= 2 * floor) & (length > 4 * off)
    return Known(value, torch.where(known.expand_as(value), error, NOWHERE))


def _norm_rows(rng: random.Random, shape: Shape) -> tuple[Shape, ...] | None:
    return (shape,) if len(shape) >= 2 and all(shape) and shape[-1] >= 3 else None


def _square_means(x: Known, centred: bool) -> Tensor:
    mean = x.v.mean(-1, keepdim=True) if centred else torch.zeros_like(x.v[..., :1])
    return ((x.v - mean) ** 2).mean(-1, keepdim=True)


def _largest_mean(bound: float, share: float) -> float:
    return max(bound * bound * share, 1e-3)


def _grain(most: float, count: int) -> float:
    """Return the last place of rows in front of a norm, for which their squares leave room."""
    return 2.0 ** -min(20, math.floor((61 - math.log2(most * count)) / 2))


def _product_of(x: Known, matrix: Known, centred: bool, most: float, ulp: float) -> Known:
    """Multiply rows before they are normalised: what that rounds grows with the inverse."""
    found = product(_within(x, centred, most, ulp), matrix, torch.matmul, 4 * ulp)
    length = _square_means(x, centred).sqrt().clamp(min=1e-9)
    return Known(found.v, found.e + 4 * _grain(most, x.v.shape[-1]) / length)


def _within(x: Known, centred: bool, most: float, ulp: float) -> Known:
    """Rows of a mean square of at most ``most``, which is promised, and 2^-20 of it at least."""
    square, off = _square_means(x, centred), x.rows_e()
    length = square.sqrt()
    mean = x.v.mean(-1, keepdim=True) if centred else torch.zeros_like(length)
    value = (x.v - mean) / (square + 1e-5).sqrt()
    floor = max(2.0**-20 * most, 2.0**-20)
    grain = _grain(most, x.v.shape[-1])
    steep = (2 + value.abs()) / (length - 2 * off).clamp(min=1e-9)
    shortest = 6e-3 * (floor / square.clamp(min=1e-9)).clamp(max=1)  # of which few digits are left
    longest = 0.034 * length / math.sqrt(most * x.v.shape[-1])  # whose inverses have few
    error = steep * (off + 4 * grain) + 4e-3 * (1 + value.abs())
    error = error + (shortest + longest) * value.abs()
    fits = (length + off) ** 2 < most * 0.999
    known = fits & (square >= floor) & (length > 4 * (off + grain))
    return Known(value, torch.where(known.expand_as(value), error, NOWHERE))


def _norm_share(rng: random.Random, shapes: Sequence[Shape]) -> dict[str, Any]:
    return {"centred": rng.random() < 0.5, "share": rng.choice([1.0, 1.0, 0.3])}


def _norm_within(ops: Any, x: Any, centred: bool, share: float) -> Any:
    most = _largest_mean(ops.bound(x), share)
    return ops.norm_within(ops.scale(x, 1.0), eps=1e-5, largest_mean=most, centred=centred)


def _norm_rows_of(ops: Any, x: Any, centred: bool, share: float) -> Any:
    length = math.sqrt(_largest_mean(ops.bound(x), share) * ops.shape(x)[-1])
    return ops.norm_rows(x, eps=1e-5, length=length, centred=centred)


def _either(x: Known, centred: bool, share: float, ulp: float) -> Known:
    """A protocol may take either norm: what is promised of both."""
    within = _within(x, centred, _largest_mean(x.bound, share), ulp)
    return Known(within.v, torch.maximum(within.e, _normed(x, centred).e))


def _behind(ops: Any, x: Any, matrix: Any, centred: bool, share: float) -> Any:
    most, count = _largest_mean(ops.bound(x), share), ops.shape(x)[-1]
    (out,), _ = ops.product_behind_norm(
        ops.scale(x, 1.0),
        matrix,
        eps=1e-5,
        largest_mean=most,
        centred=centred,
        bound=1.02 * count * ops.bound(matrix),
        parts=lambda product: [RowProduct(product, 1.02 * count * ops.bound(matrix))],
    )
    return out


def _seen(rng: random.Random, shapes: Sequence[Shape]) -> dict[str, Any] | None:
    return a_mask(rng, shapes) if rng.random() < 0.7 else {"kept": True}


def _attended(x: Known, kept: Any) -> Known:
    mask = torch.tensor(kept).expand_as(x.v)
    hidden = Known(torch.where(mask, x.v, -math.inf), torch.where(mask, x.e, 0.0))
    off = (hidden.rows_e() / 2 + 2e-3).clamp(max=1.02)
    # A row longer than a norm was promised is beyond its bound, and weights of it are no weights.
    return Known(hidden.v.softmax(-1), torch.where(hidden.rows_e().isfinite(), off, NOWHERE))


def _averaged(x: Known, y: Known, kept: Any, ulp: float) -> Known:
    found = product(_attended(x, kept), y, torch.matmul, 3 * ulp)
    return Known(found.v, found.e)


def _heads(rng: random.Random, shape: Shape) -> tuple[Shape, ...] | None:
    if not some_rows(rng, shape) or len(shape) < 2:
        return None
    return shape, (*shape[:-2], shape[-1], rng.choice([1, 3]))


def _flat(ops: Any, mask: Any, x: Any) -> Tensor:
    return torch.tensor(mask).expand(ops.shape(x)).clone()


def _cross(x: Known, y: Known, ulp: float) -> Known:
    logs = _log_softmax(x, -1)
    terms = product(logs, y, torch.mul, 2 * ulp)
    rows = terms.v[..., 0].numel()
    mean = -terms.v.sum() / rows  # by a public number that is rounded as well
    return Known(mean, terms.e.sum() / rows + 2 * ulp + 2 * ulp * mean.abs())


def _binary(x: Known, y: Known, ulp: float) -> Known:
    plain = functional.softplus(x.v, threshold=50) - x.v * y.v
    off = x.e + 7.5e-4 + x.e * y.v.abs() + y.e * x.v.abs() + x.e * y.e + 2 * ulp
    return Known(plain.mean(), off.mean() + 2 * ulp * (1 + plain.abs().mean()))


def _groups(x: Known, groups: int) -> Known:
    shape = x.v.shape
    rows = Known(x.v.reshape(shape[0], groups, -1), x.e.reshape(shape[0], groups, -1), x.bound)
    found = _normed(rows, centred=True)
    return found.moved(lambda t: t.reshape(shape))


ROWS: dict[str, Verb] = {
    "softmax": Verb(
        any_shape,
        lambda ops, x, dim: ops.softmax(x, dim=dim),
        lambda x, dim, ulp: _softmax(x, dim),
        a_full_dim,
        is_curve=True,
    ),
    "log_softmax": Verb(
        any_shape,
        lambda ops, x, dim: ops.log_softmax(x, dim=dim),
        lambda x, dim, ulp: _log_softmax(x, dim),
        a_full_dim,
        is_curve=True,
    ),
    "layer_norm": Verb(
        _norm_rows,
        lambda ops, x: ops.layer_norm(x, eps=1e-5),
        lambda x, ulp: _normed(x, centred=True),
        is_curve=True,
    ),
    "rms_norm": Verb(
        _norm_rows,
        lambda ops, x: ops.rms_norm(x, eps=1e-5),
        lambda x, ulp: _normed(x, centred=False),
        is_curve=True,
    ),
    "hide": Verb(
        some_rows,
        lambda ops, x, kept: ops.softmax(ops.hide(x, _flat(ops, kept, x)), dim=-1),
        lambda x, kept, ulp: _attended(x, kept),
        a_mask,
        is_curve=True,
    ),
    "attention": Verb(
        some_rows,
        lambda ops, x, kept: ops.attention(x, _flat(ops, kept, x)),
        lambda x, kept, ulp: _attended(x, kept),
        _seen,
        is_curve=True,
    ),
    "attention_mixed": Verb(
        _heads,
        lambda ops, x, y, kept: ops.attention_mixed(
            x, _flat(ops, kept, x), lambda: y, frac_bits=(ops.frac_bits, ops.frac_bits)
        ),
        lambda x, y, kept, ulp: _averaged(x, y, kept, ulp),
        _seen,
        is_curve=True,
        posts=True,
    ),
    "mix": Verb(
        _heads,
        lambda ops, x, y: ops.mix(ops.softmax(x, dim=-1), y),
        lambda x, y, ulp: _averaged(x, y, True, ulp),
        is_curve=True,
    ),
    "norm_within": Verb(
        _norm_rows,
        _norm_within,
        lambda x, centred, share, ulp: _within(x, centred, _largest_mean(x.bound, share), ulp),
        _norm_share,
        is_curve=True,
    ),
    "norm_rows": Verb(
        _norm_rows,
        _norm_rows_of,
        lambda x, centred, share, ulp: _either(x, centred, share, ulp),
        _norm_share,
        is_curve=True,
    ),
    "product_behind_norm": Verb(
        lambda rng, shape: (
            (shape, (shape[-1], rng.randint(1, 3))) if _norm_rows(rng, shape) else None
        ),
        _behind,
        lambda x, m, centred, share, ulp: _product_of(
            x, m, centred, _largest_mean(x.bound, share), ulp
        ),
        _norm_share,
        is_curve=True,
        posts=True,
    ),
    "group_norm": Verb(
        lambda rng, shape: ((2, 4, 3),),
        lambda ops, x, groups: ops.group_norm(x, groups=groups),
        lambda x, groups, ulp: _groups(x, groups),
        lambda rng, shapes: {"groups": rng.choice([1, 2])},
        is_curve=True,
    ),
    "cross_entropy": Verb(
        lambda rng, shape: (shape, shape) if some_rows(rng, shape) else None,
        lambda ops, x, y: ops.cross_entropy(x, y),
        lambda x, y, ulp: _cross(x, y, ulp),
        is_curve=True,
    ),
    "binary_cross_entropy": Verb(
        twins,
        lambda ops, x, y: ops.binary_cross_entropy(x, y),
        lambda x, y, ulp: _binary(x, y, ulp),
        is_curve=True,
    ),
}
