"""Models as functions of ops: logistic regression, and attention with grouped queries and masks."""

from collections.abc import Mapping
from math import sqrt
from typing import TypeVar

import torch
from torch import Tensor

from tacit.errors import InputError
from tacit.nn.ops import BoundedOps, Ops

T = TypeVar("T")


def linear(ops: Ops[T], weights: Mapping[str, T], x: T) -> T:
    """Apply an affine map; ``weight`` is (features, outputs), ``bias`` is (outputs,)."""
    return ops.add(ops.matmul(x, weights["weight"]), weights["bias"])


def logistic_score(ops: Ops[T], weights: Mapping[str, T], x: T) -> T:
    """Give the probability of the positive class by logistic regression."""
    return ops.sigmoid(linear(ops, weights, x))


def logistic_class(ops: Ops[T], weights: Mapping[str, T], x: T) -> T:
    """Give only the class, 0 or 1: the sign of the score, never the score itself."""
    return ops.is_positive(linear(ops, weights, x))


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
