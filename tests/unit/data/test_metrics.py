"""Metrics against scikit-learn, SciPy, brute force and published values."""

import numpy as np
import pytest
from scipy.stats import ks_2samp
from sklearn.metrics import f1_score, roc_auc_score

from tacit.data import add_majority, clopper_pearson, measure_classes, measure_odds, put_beside
from tacit.errors import DataError


def draw(rows, *, seed=0, shift=1.0, digits=2):
    """Draw labels and probabilities that know a little about them, with ties."""
    generator = np.random.default_rng(seed)
    labels = generator.integers(0, 2, rows)
    logits = generator.normal(size=rows) + shift * (2 * labels - 1)
    return np.round(1 / (1 + np.exp(-logits)), digits), labels


def by_name(metrics):
    return {metric.name: metric for metric in metrics}


def test_binary_metrics_are_those_of_scikit_learn_and_scipy():
    odds, labels = draw(300)
    found = by_name(measure_odds(odds, labels))
    assert found["accuracy"].value == np.mean((odds >= 0.5) == labels)
    assert found["F1"].value == pytest.approx(f1_score(labels, odds >= 0.5))
    assert found["AUC"].value == pytest.approx(roc_auc_score(labels, odds))
    gap = ks_2samp(odds[labels == 1], odds[labels == 0]).statistic
    assert found["KS"].value == pytest.approx(gap)


def test_metrics_of_many_classes_are_means_over_them():
    generator = np.random.default_rng(1)
    labels = generator.integers(0, 4, 200)
    odds = generator.dirichlet(np.ones(4), 200) + np.eye(4)[labels]
    odds /= odds.sum(axis=1, keepdims=True)
    found = by_name(measure_odds(odds, labels))
    assert found["F1"].value == pytest.approx(f1_score(labels, odds.argmax(1), average="macro"))
    area = roc_auc_score(labels, odds, multi_class="ovr", average="macro")
    assert found["AUC"].value == pytest.approx(area)
    assert "KS" not in found


def test_the_interval_of_the_area_has_delongs_variance():
    odds, labels = draw(60, seed=2)
    yes, no = odds[labels == 1], odds[labels == 0]
    # Straight from the paper: all pairs, not ranks.
    pairs = (yes[:, None] > no).astype(float) + 0.5 * (yes[:, None] == no)
    area = pairs.mean()
    variance = pairs.mean(1).var(ddof=1) / len(yes) + pairs.mean(0).var(ddof=1) / len(no)
    half = 1.959964 * np.sqrt(variance) / (area * (1 - area))
    ends = [1 / (1 + np.exp(-(np.log(area / (1 - area)) + sign * half))) for sign in (-1, 1)]
    metric = by_name(measure_odds(odds, labels))["AUC"]
    assert (metric.low, metric.high) == pytest.approx(ends, rel=1e-5)


def test_the_interval_of_the_area_covers_the_truth_as_often_as_it_says():
    # Normal scores two deviations apart have an area of Φ(2/√2) = 0.92135. Of 400 samples 95 % are
    # to be covered; fewer than 91 % would be so with a probability below 0.001.
    samples = (draw(80, seed=seed, digits=9) for seed in range(400))
    metrics = [by_name(measure_odds(*sample))["AUC"] for sample in samples]
    assert np.mean([one.low <= 0.92135 <= one.high for one in metrics]) > 0.91


@pytest.mark.parametrize(("rows", "low"), [(4, 0.025**0.5), (40, 0.025**0.05)])
def test_perfect_order_is_not_taken_for_certainty(rows, low):
    labels = np.arange(rows) % 2
    metric = by_name(measure_odds(0.1 + 0.8 * labels, labels))["AUC"]
    assert (metric.value, metric.high) == (1.0, 1.0)
    assert metric.low == pytest.approx(low)
    worst = by_name(measure_odds(0.9 - 0.8 * labels, labels))["AUC"]
    assert (worst.low, worst.high) == (0.0, pytest.approx(1 - low))


def test_calibration_is_the_gap_between_confidence_and_right_answers():
    labels = np.array([1, 1, 1, 0] * 25)
    good = by_name(measure_odds(np.full(100, 0.75), labels))["calibration error"]
    bold = by_name(measure_odds(np.full(100, 0.95), labels))["calibration error"]
    assert good.value == pytest.approx(0.0)
    assert bold.value == pytest.approx(0.2)


def test_rows_of_one_class_have_no_area_and_say_so():
    found = by_name(measure_odds(np.array([0.2, 0.8]), np.array([1, 1])))
    assert found["AUC"].value is None
    assert "one class" in found["KS"].note
    assert found["accuracy"].value == 0.5


def test_answers_and_labels_must_be_as_many():
    with pytest.raises(DataError, match="each of 3 labels, got 2"):
        measure_classes(np.zeros(2), np.zeros(3))
    with pytest.raises(DataError, match="each of 0 labels"):
        measure_classes(np.zeros(0), np.zeros(0))


def test_the_interval_of_a_proportion_matches_published_values():
    # Newcombe (1998), Table I, method 5.
    assert clopper_pearson(81, 263) == pytest.approx((0.2527, 0.3676), abs=5e-5)
    assert clopper_pearson(15, 148) == pytest.approx((0.0578, 0.1617), abs=5e-5)
    assert clopper_pearson(0, 20) == pytest.approx((0.0, 0.1684), abs=5e-5)


@pytest.mark.parametrize("count", [1, 4, 100])
def test_rows_that_all_came_out_alike_do_not_make_the_interval_a_point(count):
    (accuracy, *_) = measure_classes(np.ones(count), np.ones(count))
    assert (accuracy.value, accuracy.high) == (1.0, 1.0)
    assert accuracy.low == pytest.approx(0.025 ** (1 / count))


def test_plain_values_are_put_beside_those_of_the_same_name():
    odds, labels = draw(50)
    both = put_beside(measure_odds(odds, labels), measure_classes(odds >= 0.5, labels))
    assert {one.name: one.reference is not None for one in both} == {
        **{"accuracy": True, "F1": True},
        **{"AUC": False, "KS": False, "calibration error": False},
        "most frequent class": False,  # nobody computed it in another way
    }


def test_accuracy_stands_beside_that_of_naming_one_class_always():
    accuracy, often, _ = measure_classes(np.zeros(10), np.array([0] * 7 + [1, 2, 2]))
    assert (accuracy.value, often.value, often.samples) == (0.7, 0.7, 10)
    assert often.name == "most frequent class"
    (done,) = (one for one in add_majority([accuracy], np.zeros(4)) if one is not accuracy)
    assert (done.value, done.note) == (1.0, "the rows are all of one class")
    assert add_majority([accuracy, often], np.zeros(4)) == (accuracy, often)
    assert add_majority([], np.zeros(4)) == ()
