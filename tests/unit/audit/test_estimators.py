"""Intervals cover what they say, against known values."""

import numpy as np
import pytest
import torch
from scipy.stats import binom, norm
from sklearn.metrics import roc_auc_score, roc_curve

from tacit.audit import (
    Ranking,
    advantage,
    auc,
    bootstrap,
    clopper_pearson,
    draw_roc,
    mean_interval,
    measure_ranking,
    proportion,
    roc,
    seeded,
    tpr_at,
)
from tacit.audit.embedding import score_tokens
from tacit.audit.estimators import average
from tacit.audit.split import score_ranking
from tacit.errors import ConfigError, DataError


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


def two_kinds(seed, *, members=60, others=80, shift=1.0, ties=False):
    draw = np.random.default_rng(seed)
    scores = np.concatenate([draw.normal(shift, 1, members), draw.normal(0, 1, others)])
    return Ranking(np.round(scores, 1) if ties else scores, np.arange(len(scores)) < members)


@pytest.mark.parametrize("ties", [False, True])
def test_auc_and_roc_agree_with_scikit_learn(ties):
    ranking = two_kinds(0, ties=ties)
    assert auc(ranking)[0] == pytest.approx(roc_auc_score(ranking.is_positive, ranking.scores))
    false, true, _ = roc_curve(ranking.is_positive, ranking.scores, drop_intermediate=False)
    mine = roc(ranking)
    np.testing.assert_allclose(mine[0], false)
    np.testing.assert_allclose(mine[1], true)


def test_delongs_variance_is_the_sum_over_all_pairs():
    ranking = two_kinds(3, ties=True)
    wins = ranking.positives[:, None] - ranking.negatives[None]
    psi = (wins > 0) + (wins == 0) / 2
    spread = np.sqrt(psi.mean(1).var(ddof=1) / 60 + psi.mean(0).var(ddof=1) / 80)
    area, low, high = auc(ranking)
    logit = np.log(np.array([low, high]) / (1 - np.array([low, high])))
    assert np.diff(logit)[0] == pytest.approx(2 * 1.959964 * spread / (area * (1 - area)))


def test_the_interval_covers_the_true_area_about_as_often_as_it_says():
    truth = 0.7602499389065233  # Φ(1 / √2)
    hits = sum(low <= truth <= high for _, low, high in (auc(two_kinds(i)) for i in range(400)))
    # Binomial(400, 0.95) is below 360 with a probability of less than 1e-4.
    assert hits >= 360


def test_a_perfect_score_has_an_interval_that_is_not_a_point():
    ranking = Ranking(np.arange(20.0), np.arange(20) >= 10)
    area, low, high = auc(ranking)
    assert (area, high) == (1.0, 1.0)
    assert low == pytest.approx(0.025 ** (1 / 10))


def test_tpr_at_a_rate_allows_no_more_false_alarms_than_that():
    scores = np.array([9, 8, 7, 6, 5, 4, 3, 2, 1, 0.0])
    truth = np.array([1, 1, 0, 1, 0, 0, 0, 0, 0, 0], bool)
    assert tpr_at(Ranking(scores, truth), 0.0)[0] == pytest.approx(2 / 3)
    assert tpr_at(Ranking(scores, truth), 0.14)[0] == pytest.approx(2 / 3)
    assert tpr_at(Ranking(scores, truth), 1 / 7)[0] == 1.0


@pytest.mark.parametrize(
    ("count", "rate", "shift", "ties"),
    [
        (5000, 0.001, 2.4, False),
        (1000, 0.001, 2.4, False),
        (1000, 0.01, 1.5, True),
        (300, 0.01, 0.0, False),
    ],
)
def test_the_interval_covers_the_true_share_though_its_threshold_is_found_in_the_same_scores(
    count, rate, shift, ties
):
    """With the threshold taken as given it covered in 25 to 60 % of cases: 5 negatives decide."""
    sizes = {"members": count, "others": count, "shift": shift, "ties": ties}
    least = norm.isf(rate)
    if ties:  # scores of one place: a threshold lies between two of them
        least = np.ceil(least * 10 + 0.5 - 1e-9) / 10 - 0.05
    truth = norm.sf(least - shift)
    found = [tpr_at(two_kinds(seed, **sizes), rate) for seed in range(200)]
    assert all(low <= best <= high for best, low, high in found)
    # Binomial(200, 0.95) is below 177 with a probability of less than 1e-4.
    assert sum(low <= truth <= high for _, low, high in found) >= 177
    assert np.mean([high - low for _, low, high in found]) < 0.5


def test_equal_scores_are_not_told_apart():
    ranking = Ranking(np.zeros(10), np.arange(10) < 5)
    assert auc(ranking)[0] == 0.5
    assert tpr_at(ranking, 0.5)[0] == 0.0
    assert advantage(ranking)[0] == 0.0


def test_the_interval_of_the_advantage_holds_although_the_largest_is_taken():
    truth = 2 * 0.6914624612740131 - 1  # of two normals one apart
    found = [advantage(two_kinds(i, members=200, others=200)) for i in range(100)]
    assert all(low <= truth <= high for _, low, high in found)


@pytest.mark.parametrize(
    ("scores", "truth"),
    [
        (np.zeros(3), np.zeros(4, bool)),
        (np.zeros(3), np.ones(3, bool)),
        (np.array([0.0, np.nan]), np.array([True, False])),
    ],
)
def test_what_cannot_be_ranked_is_refused(scores, truth):
    with pytest.raises(DataError):
        Ranking(scores, truth)


def test_the_curve_has_logarithmic_axes_and_no_zeros():
    curve = draw_roc("x", two_kinds(0, members=2000, others=2000))
    assert (curve.x_axis, curve.y_axis) == ("log", "log")
    assert len(curve.points) <= 400
    assert all(x > 0 and y > 0 for x, y in curve.points)
    assert curve.points[-1] == (1.0, 1.0)


def test_metrics_say_when_there_are_too_few_strangers_for_a_rate():
    notes = {one.name: one.note for one in measure_ranking("a", two_kinds(0))}
    assert "no false positive" in notes["a: TPR at 0.1 % FPR"]
