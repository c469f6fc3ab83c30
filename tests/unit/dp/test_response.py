"""Randomised responses. Seeds are fixed; a fresh seed fails with probability below 1e-6."""

import math

import pytest
import torch
from scipy import stats

from tacit.dp import (
    DirectionReport,
    Responder,
    clip,
    dummies,
    estimate_direction_sum,
    estimate_sum,
    respond,
    respond_direction,
)
from tacit.errors import ConfigError, DataError
from tacit.ring import Prg

COUNT = 300_000


def prg(label="response"):
    return Prg(b"a key for tests.").fork(label)


@pytest.mark.parametrize("b", [1, 2, 7])
@pytest.mark.parametrize("rate", [1.0, 0.3])
def test_reports_have_the_probabilities_that_the_event_is_made_of(b, rate):
    responder = Responder(epsilon=1.1, b=b, rate=rate)
    reports, event = respond(torch.ones(COUNT), responder, prg=prg())
    observed = torch.bincount(reports, minlength=b + 1).numpy()
    gamma = responder.gamma
    expected = [COUNT * gamma / (b + 1)] * b + [COUNT * (1 - gamma + gamma / (b + 1))]
    assert stats.chisquare(observed, expected).pvalue > 1e-6
    likeliest, least = expected[-1] / COUNT, expected[0] / COUNT
    assert math.log(likeliest / least) == pytest.approx(event.event.epsilon, rel=1e-9)
    assert event.count == COUNT


def test_gamma_counts_b_plus_one_values():
    assert Responder(epsilon=math.log(3), b=1).gamma == pytest.approx(2 / 4)
    assert Responder(epsilon=2.0, b=5).event.epsilon == pytest.approx(2.0)


def test_dummies_lower_the_local_epsilon():
    assert Responder(epsilon=2.0, b=1, rate=0.1).event.epsilon < 0.2


@pytest.mark.parametrize("b", [1, 4])
@pytest.mark.parametrize("x", [0.0, 0.37, 1.0])
def test_the_estimate_is_unbiased_within_its_variance(b, x):
    responder = Responder(epsilon=1.0, b=b)
    reports, _ = respond(torch.full((COUNT,), x), responder, prg=prg(f"{b} {x}"))
    estimate = float(estimate_sum(reports.sum(), responder, reports=COUNT))
    assert abs(estimate - COUNT * x) < 5 * math.sqrt(responder.variance(COUNT))


def test_a_blanket_without_zero_would_be_noticed():
    """The domain {1..b} biases the estimate by far more than its noise."""
    responder = Responder(epsilon=1.0, b=4)
    reports, _ = respond(torch.zeros(COUNT), responder, prg=prg())
    wrong = torch.where(reports == 0, torch.ones_like(reports), reports)
    estimate = float(estimate_sum(wrong.sum(), responder, reports=COUNT))
    assert abs(estimate) > 20 * math.sqrt(responder.variance(COUNT))


def test_the_variance_bound_covers_what_is_measured():
    responder = Responder(epsilon=1.0, b=3)
    reports, _ = respond(torch.full((2000, 500), 0.5), responder, prg=prg())
    estimates = estimate_sum(reports.sum(dim=1), responder, reports=500)
    measured = float(estimates.var())
    assert 0.5 * responder.variance(500) < measured < 1.1 * responder.variance(500)


def test_dummies_are_uniform():
    observed = torch.bincount(dummies(COUNT, 4, prg=prg())).numpy()
    assert stats.chisquare(observed).pvalue > 1e-6


@pytest.mark.parametrize("x", [-0.01, 1.01, math.nan, math.inf])
def test_numbers_outside_the_unit_interval_are_refused(x):
    with pytest.raises(DataError, match=r"\[0, 1\]"):
        respond(torch.tensor([0.5, x]), Responder(epsilon=1.0, b=1), prg=prg())


@pytest.mark.parametrize("change", [{"epsilon": 0.0}, {"epsilon": math.nan}, {"b": 0}, {"rate": 0}])
def test_settings_without_meaning_are_refused(change):
    with pytest.raises(ConfigError):
        Responder(**{"epsilon": 1.0, "b": 1, **change})


def test_a_vector_behind_one_bit_is_estimated_without_bias():
    update = clip(torch.tensor([0.6, -0.3, 0.0, 0.2]), l2_bound=1.0)
    source = prg()
    reports = [respond_direction(update, epsilon=2.0, prg=source)[0] for _ in range(3000)]
    total = estimate_direction_sum(reports, dimension=4, l2_bound=1.0, epsilon=2.0)
    deviation = math.sqrt(3000 * math.pi / 2 / math.tanh(1.0) ** 2)  # of one entry, from above
    assert float((total - 3000 * update.value).abs().max()) < 5 * deviation


def test_the_sign_is_true_as_often_as_epsilon_says():
    update = clip(torch.tensor([2.0]), l2_bound=1.0)  # full length, one dimension
    source = prg()
    reports = [respond_direction(update, epsilon=1.0, prg=source)[0] for _ in range(4000)]
    right = sum(
        float(estimate_direction_sum([r], dimension=1, l2_bound=1.0, epsilon=1.0)) > 0
        for r in reports
    )
    assert stats.binomtest(right, 4000, 1 / (1 + math.exp(-1.0))).pvalue > 1e-6


def test_directions_are_uniform_unit_vectors():
    """Of n directions in d dimensions, √d times an entry is as good as normal, and they add up."""
    size, count = 400, 500
    found = torch.stack(
        [
            estimate_direction_sum(
                [DirectionReport(prg(f"{at}").bytes(16), 1)],
                dimension=size,
                l2_bound=1.0,
                epsilon=50.0,
            )
            for at in range(count)
        ]
    )
    unit = found / found.norm(dim=1, keepdim=True)
    scaled = (unit * math.sqrt(size)).flatten().numpy()
    assert stats.kstest(scaled, "norm").pvalue > 1e-6
    assert float((unit @ unit.T).fill_diagonal_(0).abs().max()) < 6 / math.sqrt(size)


def test_a_zero_update_is_reported_like_any_other():
    report, event = respond_direction(clip(torch.zeros(3), l2_bound=1.0), epsilon=1.0, prg=prg())
    assert report.sign in (-1, 1)
    assert (event.epsilon, event.levels) == (1.0, 2)


def test_what_is_no_report_is_refused():
    with pytest.raises(DataError, match="16 bytes and a sign"):
        DirectionReport(b"short", 1)
    with pytest.raises(DataError, match="16 bytes and a sign"):
        DirectionReport(bytes(16), 0)
