"""Baselines. Seeds are fixed; a fresh seed fails with probability below 1e-6."""

import math

import numpy as np
import pytest
import torch
from scipy import stats

from tacit.dp import clip
from tacit.errors import ConfigError, DataError
from tacit.learn.noise import (
    central_mean,
    local_gaussian,
    local_laplace,
    mean_of,
    nbafl_downlink_sigma,
    nbafl_uplink,
    nbafl_uplink_sigma,
)
from tacit.ring import Prg


def prg(label="baselines"):
    return Prg(b"a key for tests.").fork(label)


def test_the_central_mean_carries_the_noise_of_one():
    updates = [clip(torch.full((30_000,), 1e-3), l2_bound=2.0) for _ in range(10)]
    mean, event = central_mean(updates, multiplier=1.5, expected=10, prg=prg())
    noise = (np.asarray(mean) - 1e-3) * 10
    assert stats.kstest(noise, stats.norm(scale=3.0).cdf).pvalue > 1e-6
    assert event.multiplier == pytest.approx(1.5, rel=1e-4)


def test_updates_of_one_round_share_a_bound():
    updates = [clip(torch.zeros(2), l2_bound=1.0), clip(torch.zeros(2), l2_bound=2.0)]
    with pytest.raises(DataError, match="share one bound"):
        central_mean(updates, multiplier=1.0, expected=2, prg=prg())
    with pytest.raises(DataError, match="needs updates"):
        central_mean([], multiplier=1.0, expected=2, prg=prg())


def test_local_noise_covers_the_distance_of_any_two_updates():
    update = clip(torch.zeros(20_000), l2_bound=1.0)
    noisy, event = local_gaussian(update, multiplier=2.0, prg=prg())
    assert stats.kstest(np.asarray(noisy), stats.norm(scale=4.0).cdf).pvalue > 1e-6
    assert event.multiplier == pytest.approx(2.0, rel=1e-4)
    noisy, event = local_laplace(update, epsilon=3.0, prg=prg())
    scale = 2 * math.sqrt(20_000) / 3
    assert stats.kstest(np.asarray(noisy), stats.laplace(scale=scale).cdf).pvalue > 1e-6
    assert event.epsilon == pytest.approx(3.0, rel=1e-3)
    with pytest.raises(ConfigError, match="epsilon"):
        local_laplace(update, epsilon=0.0, prg=prg())


def test_nbafl_follows_its_paper_and_is_accounted_for_what_it_is():
    sigma = nbafl_uplink_sigma(clip=1.0, rounds=25, records=100, epsilon=50.0, delta=0.01)
    assert sigma == pytest.approx(math.sqrt(2 * math.log(125)) * 25 * 2 / (100 * 50))
    _, event = nbafl_uplink(clip(torch.zeros(4), l2_bound=1.0), sigma=sigma, prg=prg())
    assert event.l2_sensitivity >= 2.0
    shape = {"clip": 1.0, "records": 100, "epsilon": 50.0, "delta": 0.01}
    assert nbafl_downlink_sigma(rounds=5, clients=50, **shape) == 0
    assert nbafl_downlink_sigma(rounds=25, clients=50, **shape) > 0


def test_the_plain_mean_is_one():
    assert mean_of([torch.tensor([1.0]), torch.tensor([4.0])]).tolist() == [2.5]
    with pytest.raises(DataError):
        mean_of([])
