"""How clients shape an update before it is clipped and put under noise, and how that is undone.

Everything here is known to all before the round: it follows from the global model, from what was
paid for earlier, or from the clip of the round. An update is divided by a scale and the mean is
multiplied by it, so the mechanism in between, and its event, stay those of uniform noise.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

from tacit.dp import QuantileClip
from tacit.federated.adaptive import Shares, attribute_scale, layer_scale, share_scale
from tacit.federated.calibration import BIT, CalibratedMechanism
from tacit.federated.contract import Floats


@dataclass(frozen=True, kw_only=True, eq=False)
class Outlook:
    """What all know at the beginning of a round.

    Attributes:
        scale: what every parameter is divided by.
        layers: ends of the layers and the L2 bound of each, where each has its own clip.
        small: parameters of small contribution.
        bound: the clip of the round, where it follows a quantile.
    """

    scale: NDArray[np.float64] | None = None
    layers: tuple[tuple[int, float], ...] = ()
    small: NDArray[np.bool_] | None = None
    bound: float | None = None


@final
class Shaper:
    """Keeps what changes from round to round: the clip, and the contributions."""

    def __init__(
        self, mechanism: CalibratedMechanism, names: Sequence[str], shapes: Sequence[Sequence[int]]
    ):
        self._mechanism, self._names, self._shapes = mechanism, names, shapes
        self._clip: QuantileClip | None = None
        if mechanism.quantile is not None and mechanism.follows is not None:
            self._clip = QuantileClip(l2_bound=mechanism.follows, quantile=mechanism.quantile)

    def outlook(self, weights: Floats, shares: Shares | None = None) -> Outlook:
        """Look at the global model, and at contributions where some were found."""
        if self._clip is not None:
            return Outlook(bound=self._clip.l2_bound)
        adaptive, clip = self._mechanism.adaptive, self._mechanism.clip
        if adaptive is None or clip is None:
            return Outlook()
        if adaptive.by == "layers" and isinstance(shares, Mapping):
            scale, layers = layer_scale(self._names, self._shapes, shares, clip=clip)
        else:
            scale, layers = attribute_scale(weights, self._shapes), ()
            if isinstance(shares, np.ndarray):
                scale = share_scale(shares, self._shapes)
        small = None
        if adaptive.p < 1:
            small = scale**2 < adaptive.threshold * float(np.mean(scale**2))
        return Outlook(scale=scale, layers=layers, small=small)

    def finish(self, mean: NDArray[np.float64], outlook: Outlook) -> NDArray[np.float64]:
        """Undo the shaping, and let the clip follow what the clients said about it."""
        if outlook.bound is not None and self._clip is not None:
            share = (min(max(float(mean[-1]) / BIT, -1.0), 1.0) + 1) / 2
            self._clip = self._clip.moved(share)
            return mean[:-1] * outlook.bound
        return mean if outlook.scale is None else mean * outlook.scale


def shape_update(values: Floats, outlook: Outlook) -> Floats:
    """Shape one client's update.

    Guarantee: none by itself: what comes out is clipped as a whole before noise is added.
    Cost: 0 rounds, 0 bits.
    """
    if outlook.bound is not None:
        norm = float(np.linalg.norm(values.astype(np.float64)))
        unit = values.astype(np.float64) / max(norm, outlook.bound)
        return np.append(unit, BIT if norm <= outlook.bound else -BIT)
    if outlook.layers:
        values = values.astype(np.float64)
        for start, (end, bound) in zip(
            [0, *(end for end, _ in outlook.layers)], outlook.layers, strict=False
        ):
            norm = float(np.linalg.norm(values[start:end]))
            values[start:end] *= min(1.0, bound / max(norm, 1e-300))
    return values if outlook.scale is None else values / outlook.scale
