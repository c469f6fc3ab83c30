"""Attention as a function of ops: many heads, grouped queries, public masks, rotary positions."""

from collections.abc import Mapping
from math import sqrt
from typing import TypeVar

import torch
from torch import Tensor

from tacit.errors import InputError
from tacit.nn.ops import BoundedOps, Ops

T = TypeVar("T")


def causal_mask(queries: int, keys: int) -> Tensor:
    """Return which keys a query may see: those up to its own place, counted from the end."""
    return torch.ones(queries, keys, dtype=torch.bool).tril(keys - queries)


def mixing(keys: int) -> float:
    """Return how much longer than the longest of so many rows an average of them may come out."""
    return 1.02 + 2.0**-12 * keys


def attention(
    ops: Ops[T],
    q: T,
    k: T,
    v: T,
    *,
    kept: Tensor | None = None,
    scale: float | None = None,
    longest: float | None = None,
) -> T:
    """Average values by the softmax of the products of queries and keys.

    Args:
        ops: any interpreter.
        q: (batch, heads, queries, width).
        k: (batch, groups, keys, width); the heads are cut into that many groups, which share
            their keys and values (grouped-query attention).
        v: (batch, groups, keys, values' width).
        kept: a public mask (queries, keys), or (batch, heads, queries, keys); false hides a key
            from a query.
        scale: of the products; 1 / √width unless given.
        longest: how large a product of a query and a key can be, before it is scaled, if known.

    Returns:
        (batch, heads, queries, values' width).
    """
    batch, heads, queries, width = ops.shape(q)
    groups, keys = ops.shape(k)[1:3]
    if heads % groups:
        raise InputError(f"cannot share keys of {groups} groups between {heads} heads")
    # The heads of a group are more queries for the same keys, which are opened once.
    stacked = ops.reshape(q, (batch, groups, heads // groups * queries, width))
    scale = 1 / sqrt(width) if scale is None else scale
    if longest is not None and isinstance(ops, BoundedOps) and (kept is None or kept.dim() == 2):
        seen = torch.ones(queries, keys, dtype=torch.bool) if kept is None else kept
        most = 1.01 * abs(scale) * longest + 2.0**-8
        # Queries are scaled, not scores: there are fewer, and opening them rescales them.
        scores = ops.product_within(ops.scale(stacked, scale), ops.transpose(k, 2, 3), bound=most)
        mixed = ops.mix(ops.attention(scores, seen.repeat(heads // groups, 1)), v)
        return ops.reshape(mixed, (batch, heads, queries, -1))
    scores = ops.scale(ops.matmul(stacked, ops.transpose(k, 2, 3)), scale)
    if kept is not None:
        scores = ops.reshape(scores, (batch, groups, -1, queries, keys))
        if kept.dim() > 2:
            kept = kept.reshape(batch, groups, -1, queries, keys)
        scores = ops.hide(scores, kept)
        scores = ops.reshape(scores, (batch, groups, -1, keys))
    mixed = ops.mix(ops.softmax(scores, dim=-1), v)
    return ops.reshape(mixed, (batch, heads, queries, -1))


def split_heads(ops: Ops[T], x: T, heads: int) -> T:
    """Turn (batch, tokens, heads · width) into (batch, heads, tokens, width)."""
    batch, tokens, wide = ops.shape(x)
    if wide % heads:
        raise InputError(f"cannot cut a width of {wide} into {heads} heads")
    return ops.transpose(ops.reshape(x, (batch, tokens, heads, wide // heads)), 1, 2)


def merge_heads(ops: Ops[T], x: T) -> T:
    """Turn (batch, heads, tokens, width) into (batch, tokens, heads · width)."""
    batch, heads, tokens, width = ops.shape(x)
    return ops.reshape(ops.transpose(x, 1, 2), (batch, tokens, heads * width))


def rotary(ops: Ops[T], x: T, *, first: int = 0, base: float = 10_000.0) -> T:
    """Turn pairs of (…, tokens, width) by angles that grow with the position, which is public.

    The pairs are (i, i + width / 2), as in LLaMA. Nothing is sent: the angles are public.

    Args:
        ops: any interpreter.
        x: queries or keys.
        first: the position of the first token.
        base: of the geometric series of wavelengths.
    """
    tokens, width = ops.shape(x)[-2:]
    if width % 2:
        raise InputError(f"rotary positions want an even width, got {width}")
    speeds = base ** (-torch.arange(0, width, 2, dtype=torch.float64) / width)
    angles = torch.arange(first, first + tokens, dtype=torch.float64)[:, None] * speeds
    both = torch.cat((angles, angles), dim=-1)
    half, axis = width // 2, len(ops.shape(x)) - 1
    swapped = ops.take(x, [*range(half, width), *range(half)], dim=axis)
    signs = torch.tensor([-1.0] * half + [1.0] * half, dtype=torch.float64)
    return ops.add(ops.weigh(x, both.cos()), ops.weigh(swapped, both.sin() * signs))


def self_attention(
    ops: Ops[T],
    weights: Mapping[str, T],
    x: T,
    *,
    heads: int,
    groups: int | None = None,
    is_causal: bool = False,
    has_rotary: bool = False,
) -> T:
    """Attend from every token to every token of the same row.

    ``weights`` has ``query``, ``key``, ``value`` and ``out``, each with ``/weight``
    (inputs, outputs) and perhaps ``/bias``.
    """
    groups = groups or heads
    q, k, v = (
        split_heads(ops, affine(ops, weights, name, x), count)
        for name, count in (("query", heads), ("key", groups), ("value", groups))
    )
    if has_rotary:
        q, k = rotary(ops, q), rotary(ops, k)
    tokens = ops.shape(x)[1]
    kept = causal_mask(tokens, tokens) if is_causal else None
    return affine(ops, weights, "out", merge_heads(ops, attention(ops, q, k, v, kept=kept)))


def affine(ops: Ops[T], weights: Mapping[str, T], name: str, x: T) -> T:
    """Apply the affine map of that name; its bias may be missing."""
    out = ops.matmul(x, weights[f"{name}/weight"])
    return ops.add(out, weights[f"{name}/bias"]) if f"{name}/bias" in weights else out
