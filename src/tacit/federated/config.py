"""What both sides of an aggregation know before it begins, each derived from its own spec.

And what follows from it for an update: how a client shapes it before it is clipped and put under
noise, and how that is undone. An update is divided by a scale and the mean is multiplied by it, so
the mechanism in between, and its event, stay those of uniform noise. Scale and bound follow from
the global model, from what was paid for earlier, or from the clip of the round: all know them.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import final

import numpy as np
import torch
from numpy.typing import NDArray

from tacit.dp import QuantileClip, clip
from tacit.federated.adaptive import Shares, attribute_scale, layer_scale, share_scale
from tacit.federated.calibration import BIT, CalibratedMechanism, calibrate
from tacit.federated.contract import Floats, Update
from tacit.federated.grid import Grid
from tacit.federated.secagg.plan import MODEL_BYTES
from tacit.federated.spec import FederatedSpec, Federation
from tacit.ring import Prg


@dataclass(frozen=True, kw_only=True)
class RoundConfig:
    """All that a round needs to know; derived by `round_config`, and never written by hand.

    Attributes:
        spec: what is asked for.
        dimension: numbers in an update.
        mechanism: the clip and the noise, calibrated to the privacy of the spec.
        public_key: of the cipher of "encrypted", under which clients send.
        model: the digest of all that the clients of this round train on, which each finds in what
            it was given; zeros where one process plays all parties.
    """

    spec: FederatedSpec
    dimension: int
    mechanism: CalibratedMechanism
    public_key: bytes | None = field(default=None, repr=False)
    model: bytes = bytes(MODEL_BYTES)

    @property
    def federated(self) -> Federation:
        """Who takes part, and how their updates are added up."""
        return self.spec.federated

    @property
    def parameters(self) -> int:
        """Numbers in the model: without the one that a quantile takes."""
        return self.dimension - (self.mechanism.follows is not None)

    @property
    def agreed(self) -> bytes:
        """The digest of all that clients rely on each other for: the model, and what is added up.

        Half of a round's session, to which their keys are bound: clients of two jobs, one of which
        adds no noise or wants fewer in a sum, have no common key, though both name the same keys.
        """
        one, fed = self.mechanism, self.federated
        quantile = None if one.follows is None else one.privacy.quantile
        keys = None if fed.identities is None else sorted(fed.identities)
        facts = (
            (fed.clients, self.dimension, fed.minimum, fed.drop_rate, fed.share_in_round),
            (one.privacy.kind, one.clip, one.grid, quantile, one.follows, one.adaptive),
            (fed.server, keys, fed.largest_weight, fed.verified),
            (fed.cipher, fed.threshold, self.public_key),
        )
        return hashlib.sha256(b"tacit agreed" + self.model + repr(facts).encode()).digest()


def round_config(
    spec: FederatedSpec, dimension: int, *, public_key: bytes | None = None
) -> RoundConfig:
    """Derive the config of every round for a model of so many parameters.

    Args:
        spec: what is asked for.
        dimension: of the model.
        public_key: of the clients' cipher; that in the spec's file, if not given. One that is not
            there yet is missed by who needs it.

    Raises:
        ConfigError: the privacy that is asked for cannot be had.
    """
    # A clip that follows a quantile takes one more number: whether the update lies within it.
    size = dimension + (spec.privacy.quantile is not None)
    file = spec.federated.public_key
    if public_key is None and file is not None and file.is_file():
        public_key = file.read_bytes()
    mechanism = calibrate(spec, size)
    return RoundConfig(spec=spec, dimension=size, mechanism=mechanism, public_key=public_key)


def made_finite(update: Update, config: RoundConfig) -> Update:
    """Replace an update that is not finite by zeros, if the run promises privacy.

    Whether a client takes part must not depend on its data beyond what the noise covers: one that
    fell out because its training diverged would tell so without any noise. And a server that may do
    anything sends a model that overflows on the rows that it looks for: who fell out would be who
    has such rows, by name, in no sum. Without either the update stays, and is refused by name.
    """
    is_open = config.mechanism.privacy.kind == "none" and config.federated.server == "curious"
    if is_open or bool(np.isfinite(update.values).all()):
        return update
    return replace(update, values=np.zeros_like(update.values))


def clip_l2(values: Floats, bound: float | None) -> Floats:
    """Shorten a vector to an L2 norm; one that is not finite is refused.

    Raises:
        DataError: not finite.
    """
    if bound is None:
        return values
    return clip(torch.from_numpy(values), l2_bound=bound).value.numpy()


def go_bare(update: Update, mechanism: CalibratedMechanism, prg: Prg) -> NDArray[np.bool_] | None:
    """Choose the parameters that go without noise, where the job gives up the guarantee for it."""
    if mechanism.adaptive is None or mechanism.adaptive.p == 1 or update.small is None:
        return None
    coins = prg.below(2**53, update.small.size).numpy() >= round(mechanism.adaptive.p * 2**53)
    return np.asarray(update.small & coins)


def on_grid(grid: Grid, values: Floats, prg: Prg) -> NDArray[np.float64]:
    """Round to the grid without bias and add one part of the noise."""
    coins = prg.below(2**53, values.size).numpy() * 2.0**-53
    steps = np.floor(values.astype(np.float64) * grid.scale + coins)
    return (steps + grid.draw(values.size, prg)) / grid.scale


@dataclass(frozen=True, kw_only=True, eq=False)
class Shaping:
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
        if mechanism.privacy.quantile is not None and mechanism.follows is not None:
            self._clip = QuantileClip(
                l2_bound=mechanism.follows, quantile=mechanism.privacy.quantile
            )

    def shaping(self, weights: Floats, shares: Shares | None = None) -> Shaping:
        """Look at the global model, and at contributions where some were found."""
        if self._clip is not None:
            return Shaping(bound=self._clip.l2_bound)
        adaptive, clip = self._mechanism.adaptive, self._mechanism.clip
        if adaptive is None or clip is None:
            return Shaping()
        if adaptive.by == "layers" and isinstance(shares, Mapping):
            scale, layers = layer_scale(self._names, self._shapes, shares, clip=clip)
        else:
            scale, layers = attribute_scale(weights, self._shapes), ()
            if isinstance(shares, np.ndarray):
                scale = share_scale(shares, self._shapes)
        small = None
        if adaptive.p < 1:
            small = scale**2 < adaptive.threshold * float(np.mean(scale**2))
        return Shaping(scale=scale, layers=layers, small=small)

    def finish(self, mean: NDArray[np.float64], shaping: Shaping) -> NDArray[np.float64]:
        """Undo the shaping, and let the clip follow what the clients said about it."""
        if shaping.bound is not None and self._clip is not None:
            share = (min(max(float(mean[-1]) / BIT, -1.0), 1.0) + 1) / 2
            self._clip = self._clip.moved(share)
            return mean[:-1] * shaping.bound
        return mean if shaping.scale is None else mean * shaping.scale


def shape_update(values: Floats, shaping: Shaping) -> Floats:
    """Shape one client's update.

    Guarantee: none by itself: what comes out is clipped as a whole before noise is added.
    Cost: 0 rounds, 0 bits.
    """
    if shaping.bound is not None:
        norm = float(np.linalg.norm(values.astype(np.float64)))
        unit = values.astype(np.float64) / max(norm, shaping.bound)
        return np.append(unit, BIT if norm <= shaping.bound else -BIT)
    if shaping.layers:
        values = values.astype(np.float64)
        for start, (end, bound) in zip(
            [0, *(end for end, _ in shaping.layers)], shaping.layers, strict=False
        ):
            norm = float(np.linalg.norm(values[start:end]))
            values[start:end] *= min(1.0, bound / max(norm, 1e-300))
    return values if shaping.scale is None else values / shaping.scale
