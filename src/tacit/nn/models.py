"""Models as functions of ops."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

from tacit.nn.attention import affine, self_attention
from tacit.nn.ops import Ops

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


@dataclass(frozen=True, kw_only=True)
class Block:
    """The public shape of a Transformer block: heads, masks, positions and where its norms are.

    Attributes:
        heads: of the queries.
        groups: of keys and values, if fewer than heads.
        norm_first: whether a norm stands before its branch (as in GPT-2) or after the sum.
        is_causal: whether a token sees only what is before it.
        has_rotary: whether positions turn queries and keys.
        eps: of the norms.
    """

    heads: int
    groups: int | None = None
    norm_first: bool = True
    is_causal: bool = False
    has_rotary: bool = False
    eps: float = 1e-5


def transformer_block(ops: Ops[T], weights: Mapping[str, T], x: T, *, block: Block) -> T:
    """Apply attention and a two-layer network with GELU, each with a residual and a norm.

    ``weights`` has those of `self_attention` under ``attention/``, ``up`` and ``down`` with
    ``/weight`` (inputs, outputs) and ``/bias``, and ``norm1``, ``norm2`` with both.
    """
    attend = _part(weights, "attention")

    def look(y: T) -> T:
        return self_attention(
            ops,
            attend,
            y,
            heads=block.heads,
            groups=block.groups,
            is_causal=block.is_causal,
            has_rotary=block.has_rotary,
        )

    def think(y: T) -> T:
        return affine(ops, weights, "down", ops.gelu(affine(ops, weights, "up", y)))

    def norm(name: str, y: T) -> T:
        scaled = ops.mul(ops.layer_norm(y, eps=block.eps), weights[f"{name}/weight"])
        return ops.add(scaled, weights[f"{name}/bias"])

    for name, branch in (("norm1", look), ("norm2", think)):
        if block.norm_first:
            x = ops.add(x, branch(norm(name, x)))
        else:
            x = norm(name, ops.add(x, branch(x)))
    return x


def _part(weights: Mapping[str, T], prefix: str) -> dict[str, T]:
    """Take the weights of one part of a model."""
    start = f"{prefix}/"
    return {name[len(start) :]: value for name, value in weights.items() if name.startswith(start)}
