"""Shaping: what a client puts in stays within the clip, and the mean comes back in full size."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.federated import make_spec
from tacit.federated import AdaptiveNoise, Privacy, calibrate
from tacit.federated.adaptive import layer_scale, share_scale
from tacit.federated.calibration import BIT
from tacit.federated.config import Shaper, Shaping, shape_update

NAMES, SHAPES = ["0.weight", "0.bias", "2.weight"], [(4, 6), (4,), (2, 4)]
SIZE = 36


def make(**asked):
    privacy = Privacy(clip=2.0, epsilon=30.0, delta=1e-3, **asked)
    spec = make_spec(clients=10, rounds=3, aggregator="plain", privacy=privacy)
    return calibrate(spec, SIZE)


@given(st.floats(0.0, 1.0), st.integers(0, 2**32 - 1))
def test_layers_together_stay_within_the_clip_whatever_their_shares(share, seed):
    scale, layers = layer_scale(NAMES, SHAPES, {"0": share, "2": 1 - share}, clip=2.0)
    values = np.random.default_rng(seed).normal(0, 5, SIZE)
    shaped = shape_update(values, Shaping(scale=scale, layers=layers))
    assert np.linalg.norm(shaped) <= 2.0 * (1 + 1e-9)
    assert [end for end, _ in layers] == [28, 36]


def test_a_layer_that_contributes_more_gets_less_noise():
    scale, _ = layer_scale(NAMES, SHAPES, {"0": 0.1, "2": 0.9}, clip=1.0)
    even, _ = layer_scale(NAMES, SHAPES, {"0": 0.5, "2": 0.5}, clip=1.0)
    # The mean is multiplied by the scale, and so is the noise.
    assert scale[-1] < even[-1]
    assert scale[0] > even[0]


def test_small_updates_come_back_as_they_were():
    shaper = Shaper(make(kind="local-adaptive", adaptive=AdaptiveNoise(by="layers")), NAMES, SHAPES)
    shaping = shaper.shaping(np.zeros(SIZE), {"0": 0.3, "2": 0.7})
    values = np.random.default_rng(0).normal(0, 1e-3, SIZE)
    assert np.allclose(shaper.finish(shape_update(values, shaping), shaping), values)


def test_attributes_by_their_shares_have_scales_within_limits():
    shares = np.array([0.9, *[0.02] * 5])
    scale = share_scale(shares, SHAPES)
    assert np.isclose(np.mean(scale**2), 1.0)
    assert scale[0] == scale[6] > scale[1]
    assert scale.max() / scale.min() <= 3.01


def test_a_clip_that_follows_a_quantile_grows_while_updates_are_longer():
    shaper = Shaper(make(kind="central", quantile=0.5), NAMES, SHAPES)
    shaping = shaper.shaping(np.zeros(SIZE))
    assert shaping.bound == 2.0
    long = shape_update(np.full(SIZE, 1.0), shaping)
    assert long[-1] == -BIT
    assert np.linalg.norm(long[:-1]) == pytest.approx(1.0)
    mean = shaper.finish(long, shaping)
    assert np.linalg.norm(mean) == pytest.approx(2.0)
    assert shaper.shaping(np.zeros(SIZE)).bound > 2.0


def test_a_clip_that_follows_a_quantile_shrinks_while_updates_are_shorter():
    shaper = Shaper(make(kind="central", quantile=0.5), NAMES, SHAPES)
    shaping = shaper.shaping(np.zeros(SIZE))
    values = np.full(SIZE, 1e-3)
    shaped = shape_update(values, shaping)
    assert shaped[-1] == BIT
    assert np.allclose(shaper.finish(shaped, shaping), values)
    assert shaper.shaping(np.zeros(SIZE)).bound < 2.0


def test_only_parameters_of_small_contribution_may_go_bare():
    shaper = Shaper(
        make(kind="local-adaptive", adaptive=AdaptiveNoise(p=0.5, threshold=0.8)), NAMES, SHAPES
    )
    weights = np.full(SIZE, 0.01)
    weights[:24].reshape(4, 6)[:, 2] = 1.0
    small = shaper.shaping(weights).small
    assert small is not None
    assert not small[:24].reshape(4, 6)[:, 2].any()
    assert small[0]
