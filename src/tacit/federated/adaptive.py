"""AdaptiveNoise local noise: less of it where the model has been seen to learn.

The scale of every parameter follows from the global model, which everyone has and which is the
outcome of private rounds: looking at it costs no ε. An update is divided by the scale before it is
clipped and put under noise, and the mean is multiplied by it afterwards. In the space of the scaled
updates the mechanism is that of uniform noise, so the events are the same.

For a matrix of weights the scale goes by column, that is by attribute: the contribution of an
attribute is how much its weights have grown beyond those of attributes that carry nothing. With
magnitudes m the best scale is in proportion to √m; while nothing stands out of the noise, the scale
is the same for all.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.learn.noise import layer_factors, layer_shares

Floats = NDArray[np.floating[Any]]

_BASE = 0.1  # the quantile of attributes that stands for those that carry nothing
_MOST = 3.0  # the largest scale, relative to the smallest
_TINY = 1e-3


def attribute_scale(weights: Floats, shapes: Sequence[Sequence[int]]) -> NDArray[np.float64]:
    """Compute the scale of every parameter from the model's weights.

    Args:
        weights: of the global model, flat.
        shapes: of its parameters in order.

    Guarantee: none needed: it depends on the global model alone.
    Cost: 0 rounds, 0 bits.
    """
    scales, at = [], 0
    for shape in shapes:
        size = math.prod(shape)
        scales.append(_scale_one(weights[at : at + size], shape))
        at += size
    scale: NDArray[np.float64] = np.concatenate(scales)
    return scale / math.sqrt(float(np.mean(scale**2)))


def share_scale(
    shares: NDArray[np.float64], shapes: Sequence[Sequence[int]]
) -> NDArray[np.float64]:
    """Compute the scale of every parameter from the contributions of a row's attributes.

    The first layer's columns get √share, within the same limits as `attribute_scale`; all other
    parameters the average.
    """
    rising = np.sqrt(shares / max(float(shares.mean()), 1e-300))
    rising = np.clip(rising, 1 / math.sqrt(_MOST), math.sqrt(_MOST))
    scales, is_first = [], True
    for shape in shapes:
        size = math.prod(shape)
        if is_first and len(shape) == 2 and shape[1] == shares.size:
            scales.append(np.broadcast_to(rising, tuple(shape)).reshape(-1))
            is_first = False
        else:
            scales.append(np.ones(size))
    scale: NDArray[np.float64] = np.concatenate(scales)
    return scale / math.sqrt(float(np.mean(scale**2)))


def layer_scale(
    names: Sequence[str],
    shapes: Sequence[Sequence[int]],
    contributions: Mapping[str, float],
    *,
    clip: float,
) -> tuple[NDArray[np.float64], tuple[tuple[int, float], ...]]:
    """Split clip and budget over the layers: each layer's own L2 bound, and its scale.

    A layer is bounded by its part of the clip, by size. Divided by C/(clip·√share) the layers
    together have a norm of at most the clip, whatever the shares, so that they cost what one vector
    of this clip costs.

    Returns the scale of every parameter, and where each layer ends with its bound.
    """
    sizes: dict[str, int] = {}
    for name, shape in zip(names, shapes, strict=True):
        layer = name.rpartition(".")[0]
        sizes[layer] = sizes.get(layer, 0) + math.prod(shape)
    total = sum(sizes.values())
    bounds = {layer: clip * math.sqrt(size / total) for layer, size in sizes.items()}
    weights = {layer: max(contributions.get(layer, 0.0), 0.0) for layer in sizes}
    shares = layer_shares(weights, sizes, bounds)
    factors = layer_factors(bounds, shares)
    scale = np.concatenate([np.full(sizes[layer], factors[layer] / clip) for layer in sizes])
    ends = np.cumsum(list(sizes.values())).tolist()
    return scale, tuple(zip(ends, bounds.values(), strict=True))


def _scale_one(weights: Floats, shape: Sequence[int]) -> NDArray[np.float64]:
    if len(shape) < 2:
        return np.ones(weights.size)
    matrix = weights.reshape(shape[0], -1)
    energy = np.mean(matrix.astype(np.float64) ** 2, axis=0)
    # What attributes that carry nothing show is noise and first weights; stay two deviations clear.
    floor = max(float(np.quantile(energy, _BASE)), _TINY * float(energy.mean()))
    if floor == 0.0:
        return np.ones(weights.size)
    clear = floor * (1 + 2 * math.sqrt(2 / len(matrix)))
    column = np.minimum((1 + np.maximum(energy - clear, 0.0) / floor) ** 0.25, _MOST)
    return np.broadcast_to(column, matrix.shape).reshape(-1)
