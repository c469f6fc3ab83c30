"""Adaptive local noise: less of it where the model has been seen to learn.

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
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

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
