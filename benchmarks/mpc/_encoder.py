"""A BERT encoder for the mpc benchmarks: weights and the exact answer. Needs numpy alone.

A row is ``bert-LAYERS-TOKENS-WIDTH-FFN``, with heads of 64; its input is what the first layer
reads, normalised as embeddings are. Weights are random, as large as those of trained models.
"""

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
HEAD = 64
EPS = 1e-5
DEVIATION = 0.04
"""Of weights; those of BERT-base have about as much."""
MATRICES = ("query", "key", "value", "out", "up", "down")
PARTS = tuple(
    f"{name}/{kind}" for name in (*MATRICES, "norm1", "norm2") for kind in ("weight", "bias")
)
"""The tensors of a layer, in their order; matrices are (outputs, inputs), as in torch."""


def draw_encoder(
    draw: np.random.Generator, layers: int, tokens: int, width: int, ffn: int
) -> dict[str, Array]:
    """Draw an input and the weights, by name; all are cut at six deviations."""
    x = draw.normal(0, 1, (tokens, width))
    found = {"x": (x - x.mean(-1, keepdims=True)) / x.std(-1, keepdims=True)}
    shapes = dict.fromkeys(MATRICES, (width, width)) | {"up": (ffn, width), "down": (width, ffn)}
    for layer in range(layers):
        for part in PARTS:
            name, kind = part.split("/")
            if name in shapes and kind == "weight":
                values = _cut(draw, shapes[name], DEVIATION)
            else:
                size = shapes.get(name, (width,))[0]
                values = _cut(draw, (size,), 0.1) + float(name not in shapes and kind == "weight")
            found[f"layers/{layer}/{part}"] = values
    return found


def layers_of(weights: Sequence[Any]) -> Iterator[dict[str, Any]]:
    """Group tensors of whatever kind, which stand in the order of `PARTS`, by layer."""
    for start in range(0, len(weights), len(PARTS)):
        yield dict(zip(PARTS, weights[start : start + len(PARTS)], strict=True))


def run_encoder(x: Array, *weights: Array) -> Array:
    """Compute the answer in the clear."""
    tokens, width = x.shape

    def split(y: Array) -> Array:
        return y.reshape(tokens, width // HEAD, HEAD).transpose(1, 0, 2)

    for w in layers_of(weights):
        q, k, v = (split(_affine(w, name, x)) for name in MATRICES[:3])
        scores = q @ k.transpose(0, 2, 1) / math.sqrt(HEAD)
        powers = np.exp(scores - scores.max(-1, keepdims=True))
        mixed = powers / powers.sum(-1, keepdims=True) @ v
        joined = mixed.transpose(1, 0, 2).reshape(tokens, width)
        x = _norm(w, "norm1", x + _affine(w, "out", joined))
        wide = _affine(w, "up", x)
        active = wide * (1 + np.vectorize(math.erf, otypes=[np.float64])(wide / math.sqrt(2))) / 2
        x = _norm(w, "norm2", x + _affine(w, "down", active))
    return x


def _affine(w: dict[str, Array], name: str, x: Array) -> Array:
    return x @ w[f"{name}/weight"].T + w[f"{name}/bias"]


def _norm(w: dict[str, Array], name: str, x: Array) -> Array:
    normal = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + EPS)
    return np.asarray(normal * w[f"{name}/weight"] + w[f"{name}/bias"])


def _cut(draw: np.random.Generator, shape: tuple[int, ...], deviation: float) -> Array:
    return np.clip(draw.normal(0, deviation, shape), -6 * deviation, 6 * deviation)
