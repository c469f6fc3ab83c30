import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tacit.dp import (
    Bounded,
    QuantileClip,
    clip,
    clip_layers,
    epsilon,
    follow_quantile,
    joint_bound,
    round_randomly,
    rounded_bound,
)
from tacit.errors import ConfigError, DataError
from tacit.ring import Prg


def prg(label="clip"):
    return Prg(b"a key for tests.").fork(label)


@given(
    x=st.lists(st.floats(-1e6, 1e6, width=32), min_size=1, max_size=30),
    bound=st.floats(1e-6, 1e6),
)
def test_a_clipped_update_never_exceeds_its_bound_and_keeps_its_direction(x, bound):
    update = torch.tensor(x, dtype=torch.float32)
    clipped = clip(update, l2_bound=bound)
    assert float(clipped.value.norm()) <= bound
    long = float(update.double().norm())
    if long > 0:
        factor = min(1.0, bound / long)
        assert torch.allclose(clipped.value, update.double() * factor, rtol=1e-5, atol=0)


def test_an_update_within_the_bound_is_left_alone():
    update = torch.tensor([3.0, 4.0])
    assert torch.equal(clip(update, l2_bound=5.0).value, update.double())


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_an_update_that_is_not_finite_is_refused(bad):
    with pytest.raises(DataError, match="NaN or infinite"):
        clip(torch.tensor([0.0, bad]), l2_bound=1.0)


def test_nothing_can_claim_a_bound_it_does_not_keep():
    with pytest.raises(DataError, match="above its bound"):
        Bounded(torch.tensor([2.0]), 1.0)


@pytest.mark.parametrize("bound", [0.0, -1.0, math.nan, math.inf])
def test_a_bound_that_is_none_is_refused(bound):
    with pytest.raises(ConfigError, match="l2_bound"):
        clip(torch.zeros(1), l2_bound=bound)


def test_layers_are_clipped_one_by_one():
    layers = {"a": torch.tensor([10.0]), "b": torch.tensor([0.5])}
    clipped = clip_layers(layers, l2_bounds={"a": 3.0, "b": 4.0})
    assert float(clipped["a"].value[0]) == pytest.approx(3.0, rel=1e-5)
    assert float(clipped["b"].value[0]) == 0.5
    assert joint_bound({"a": 3.0, "b": 4.0}) == 5.0
    with pytest.raises(ConfigError, match="'c'"):
        clip_layers(layers, l2_bounds={"a": 3.0, "b": 4.0, "c": 1.0})


def test_the_bound_finds_the_quantile_and_pays_for_every_step():
    generator = torch.Generator().manual_seed(1)
    norms = torch.empty(1000).log_normal_(1.0, 0.5, generator=generator)
    clipping = QuantileClip(l2_bound=0.1, quantile=0.7, rate=0.5, count_noise=5.0)
    events = []
    source = prg()
    for _ in range(60):
        below = int((norms <= clipping.l2_bound).sum())
        clipping, event = follow_quantile(clipping, below=below, clients=1000, prg=source)
        events.append(event)
    assert clipping.l2_bound == pytest.approx(float(norms.quantile(0.7)), rel=0.1)
    assert epsilon(events, delta=1e-5, accountant="fourier").epsilon > 0.5


def test_more_below_than_there_are_is_refused():
    with pytest.raises(DataError, match="can be below"):
        follow_quantile(QuantileClip(l2_bound=1.0), below=3, clients=2, prg=prg())


@given(
    x=st.lists(st.floats(-10, 10), min_size=1, max_size=40),
    scale=st.floats(0.1, 1000),
    seed=st.integers(0, 2**32),
)
def test_rounding_keeps_the_bound_that_it_states(x, scale, seed):
    update = clip(torch.tensor(x), l2_bound=3.0)
    rounded, bound = round_randomly(update, scale=scale, prg=Prg(seed.to_bytes(16, "big")))
    assert (
        float(rounded.double().norm()) <= bound == rounded_bound(3.0, scale=scale, dimension=len(x))
    )
    assert float((rounded - update.value * scale).abs().max()) < 1 + 1e-9


def test_rounding_is_right_on_average():
    update = clip(torch.full((40_000,), 0.3), l2_bound=100.0)
    rounded, _ = round_randomly(update, scale=1.0, prg=prg())
    assert float(rounded.double().mean()) == pytest.approx(0.3, abs=0.015)
