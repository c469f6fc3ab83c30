"""LiRA and its kin against plain formulas."""

import numpy as np
import torch
from scipy.stats import norm

from tacit.audit import seeded, toss
from tacit.audit.membership import SeenShadows
from tacit.audit.membership.attacks import (
    lira_offline,
    lira_online,
    logit_gap,
    modified_entropy,
    rmia_offline,
    rmia_online,
    soft_log_probs,
)
from tacit.audit.membership.views import SeenScores

ROWS, CLASSES = 12, 3


def view(models):
    draw = np.random.default_rng(models)
    own, shadows = (
        torch.log_softmax(torch.tensor(draw.normal(0, 2, shape)), -1)
        for shape in ((ROWS, CLASSES), (models, ROWS, CLASSES))
    )
    return SeenShadows(
        log_probs=own,
        labels=torch.tensor(draw.integers(0, CLASSES, ROWS)),
        shadow_log_probs=shadows,
        shadow_coins=toss(ROWS, models, generator=seeded(0)),
    )


def odds(log_probs, labels):
    p = np.take_along_axis(log_probs.exp().numpy(), labels[:, None], -1)[:, 0]
    return np.log(p) - np.log1p(-p)


def test_the_log_odds_keep_their_digits_where_probabilities_do_not():
    log_probs = torch.log_softmax(torch.tensor([[60.0, 0.0, 0.0]], dtype=torch.float64), -1)
    gap = logit_gap(log_probs, torch.tensor([0]))
    assert abs(float(gap[0]) - (60 - np.log(2))) < 1e-9


def test_online_lira_is_the_ratio_of_two_normals_per_record():
    seen = view(80)
    labels, coins = seen.labels.numpy(), seen.shadow_coins.numpy()
    shadows = np.stack([odds(one, labels) for one in seen.shadow_log_probs])
    own = odds(seen.log_probs, labels)
    wanted = []
    for row in range(ROWS):
        inside, outside = shadows[coins[:, row], row], shadows[~coins[:, row], row]
        wanted.append(
            norm.logpdf(own[row], inside.mean(), inside.std(ddof=1))
            - norm.logpdf(own[row], outside.mean(), outside.std(ddof=1))
        )
    np.testing.assert_allclose(lira_online(seen, generator=seeded(0)), wanted, rtol=1e-9)


def test_few_models_share_one_spread_and_offline_needs_those_without_the_record():
    seen = view(6)
    labels, coins = seen.labels.numpy(), seen.shadow_coins.numpy()
    shadows = np.stack([odds(one, labels) for one in seen.shadow_log_probs])
    outside = np.where(~coins, shadows, np.nan)
    mean = np.nanmean(outside, 0)
    spread = np.sqrt(np.nansum((outside - mean) ** 2) / (ROWS * 2))
    wanted = -norm.logsf(odds(seen.log_probs, labels), mean, spread)
    np.testing.assert_allclose(lira_offline(seen, generator=seeded(0)), wanted, rtol=1e-9)


def softened(log_probs, labels, temperature=2.0, margin=0.6):
    """The soft-margin softmax at a temperature, as the paper writes it."""
    raised = np.exp(log_probs.numpy() / temperature)
    true = np.take_along_axis(raised, labels[:, None], -1)[:, 0]
    lowered = true * np.exp(-margin / temperature)
    return lowered / (lowered + raised.sum(-1) - true)


def test_rmia_is_the_share_of_records_that_are_dominated():
    seen = view(6)
    labels = seen.labels.numpy()
    shadows = np.stack([softened(one, labels) for one in seen.shadow_log_probs])
    ratio = softened(seen.log_probs, labels) / shadows.mean(0)  # half of the models hold each
    wanted = [(ratio < one).mean() for one in ratio]
    np.testing.assert_allclose(rmia_online(seen, generator=seeded(0)), wanted)


def test_offline_rmia_extrapolates_the_mean_from_models_without_the_record():
    seen = view(6)
    labels, coins = seen.labels.numpy(), seen.shadow_coins.numpy()
    shadows = np.stack([softened(one, labels) for one in seen.shadow_log_probs])
    outside = np.nanmean(np.where(~coins, shadows, np.nan), 0)
    ratio = softened(seen.log_probs, labels) / ((1 + 0.3) / 2 * outside + (1 - 0.3) / 2)
    wanted = [(ratio < one).mean() for one in ratio]
    np.testing.assert_allclose(rmia_offline(seen, generator=seeded(0)), wanted)


def test_ratios_tell_records_apart_where_plain_probabilities_are_all_one():
    logits = torch.tensor([[30.0, 0.0], [40.0, 0.0]], dtype=torch.float64)
    found = soft_log_probs(torch.log_softmax(logits, -1), torch.tensor([0, 0]))
    assert float(found[0]) < float(found[1]) < 0


def test_modified_entropy_is_song_and_mittals():
    p = np.array([[0.7, 0.2, 0.1], [0.05, 0.9, 0.05]])
    labels = np.array([0, 2])
    wanted = []
    for row, label in zip(p, labels, strict=True):
        value = (1 - row[label]) * np.log(row[label])
        value += sum(q * np.log(1 - q) for k, q in enumerate(row) if k != label)
        wanted.append(value)
    seen = SeenScores(log_probs=torch.tensor(np.log(p)), labels=torch.tensor(labels))
    np.testing.assert_allclose(modified_entropy(seen, generator=seeded(0)), wanted)


def test_a_sure_answer_in_single_precision_still_has_a_modified_entropy():
    log_probs = torch.tensor([[0.0, -90.0], [-1.0, -0.4587]], dtype=torch.float32)
    seen = SeenScores(log_probs=log_probs, labels=torch.tensor([0, 0]))
    assert np.isfinite(modified_entropy(seen, generator=seeded(0))).all()
