"""Intervals cover what they say, against known values."""

import numpy as np
import pytest
import torch
from scipy.stats import binom

from tacit.audit import bootstrap, clopper_pearson, mean_interval, proportion, seeded
from tacit.audit.embedding import score_tokens
from tacit.audit.estimators import average
from tacit.audit.split import score_ranking
from tacit.errors import ConfigError


def test_clopper_pearson_is_the_inverse_of_the_binomial_tails():
    low, high = clopper_pearson(7, 20)
    assert float(binom.sf(6, 20, low)) == pytest.approx(0.025)
    assert float(binom.cdf(7, 20, high)) == pytest.approx(0.025)
    assert clopper_pearson(0, 10)[0] == 0.0
    assert clopper_pearson(10, 10)[1] == 1.0
    assert clopper_pearson(0, 10)[1] == pytest.approx(1 - 0.025**0.1)


@pytest.mark.parametrize(("hits", "trials"), [(-1, 3), (4, 3), (0, 0)])
def test_impossible_counts_are_refused(hits, trials):
    with pytest.raises(ConfigError):
        clopper_pearson(hits, trials)


def test_the_bootstrap_of_a_mean_is_near_its_normal_interval():
    sample = np.random.default_rng(0).normal(5, 2, 400)
    low, high = bootstrap(lambda s: float(s.mean()), sample, generator=seeded(0))
    assert low == pytest.approx(sample.mean() - 1.96 * 0.1, abs=0.05)
    assert high == pytest.approx(sample.mean() + 1.96 * 0.1, abs=0.05)
    with pytest.raises(ConfigError):
        bootstrap(lambda s: 0.0, sample[:0], generator=seeded(0))


def test_the_mean_of_few_has_students_interval():
    mean, low, high = mean_interval([1.0, 2.0, 3.0])
    assert (mean, high - mean) == pytest.approx((2.0, 4.302653 / 3**0.5), rel=1e-5)
    assert low == pytest.approx(4 - high)
    assert mean_interval([1.0])[1:] == (-np.inf, np.inf)


def test_what_came_out_alike_every_time_is_never_given_an_interval_of_one_point():
    """Four of four recovered is not "100 to 100 %"."""
    assert mean_interval([1.0] * 4)[1:] == (-np.inf, np.inf)
    metric = average("x", [1.0] * 4, "dB")
    assert (metric.value, metric.low, metric.high) == (1.0, None, None)
    guess = torch.ones(4, 8, dtype=torch.long)
    tokens = score_tokens("x", guess, guess, vocab=100)
    assert (tokens.low, tokens.high) == clopper_pearson(4, 4)
    is_rare = torch.tensor([True, False] * 4)
    alike = score_ranking("x", torch.zeros(8), is_rare)
    apart = score_ranking("x", is_rare.double(), is_rare)
    assert alike.low < alike.value == 0.5 < alike.high
    assert (apart.low, apart.high) == clopper_pearson(4, 4)


def test_a_proportion_carries_its_sample():
    metric = proportion("x", 3, 4)
    assert (metric.value, metric.samples) == (0.75, 4)
    assert metric.low < 0.75 < metric.high
