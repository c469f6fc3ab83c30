"""A BERT encoder as a program of SPU, with the functions that PUMA (Dong et al. 2023) made for it.

GELU in four pieces; exp as (1 + x/32)^32, which is SPU's own with `EXP_ITERATIONS`, and 0 below
-14; one reciprocal per row of a softmax and one inverse root per row of a norm. Written from the
paper.
"""

import sys
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1]))
from mpc._encoder import EPS, HEAD, MATRICES, layers_of

Secret = Any  # an array of jax while a function is traced
EXP_ITERATIONS = 5


def _gelu(x: Secret) -> Secret:
    """Evaluate 0, a cubic from -4 on, a polynomial of degree six from -1.95 to 3, and x above."""
    import jax.numpy as jnp

    square = x * x
    cube, fourth, sixth = square * x, square * square, square * square * square
    low = -0.5054031199708174 - 0.42226581151983866 * x
    low = low - 0.11807612951181953 * square - 0.011034134030615728 * cube
    middle = 0.008526321541038084 + 0.5 * x + 0.3603292692789629 * square
    middle = middle - 0.037688200365904236 * fourth + 0.0018067462606141187 * sixth
    begins, turns, ends = (jnp.where(x >= at, 1.0, 0.0) for at in (-4.0, -1.95, 3.0))
    return (begins - turns) * low + (turns - ends) * middle + ends * x


def _softmax(x: Secret) -> Secret:
    import jax.numpy as jnp

    below = x - jnp.max(x, -1, keepdims=True)
    power = jnp.exp(below) * (below > -14.0)
    return power * (1.0 / jnp.sum(power, -1, keepdims=True))


def _norm(w: dict[str, Secret], name: str, x: Secret) -> Secret:
    import jax

    centred = x - x.mean(-1, keepdims=True)
    inverse = jax.lax.rsqrt((centred * centred).mean(-1, keepdims=True) + EPS)
    return centred * inverse * w[f"{name}/weight"] + w[f"{name}/bias"]


def _affine(w: dict[str, Secret], name: str, x: Secret) -> Secret:
    return x @ w[f"{name}/weight"].T + w[f"{name}/bias"]


def encoder(x: Secret, *weights: Secret) -> Secret:
    """Apply all layers."""
    tokens, width = x.shape

    def split(y: Secret) -> Secret:
        return y.reshape(tokens, width // HEAD, HEAD).transpose(1, 0, 2)

    for w in layers_of(weights):
        q, k, v = (split(_affine(w, name, x)) for name in MATRICES[:3])
        scores = q @ k.transpose(0, 2, 1) * HEAD**-0.5
        mixed = (_softmax(scores) @ v).transpose(1, 0, 2).reshape(tokens, width)
        x = _norm(w, "norm1", x + _affine(w, "out", mixed))
        x = _norm(w, "norm2", x + _affine(w, "down", _gelu(_affine(w, "up", x))))
    return x
