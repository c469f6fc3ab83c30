"""The attacks on membership: a number per record, the higher the surer that it is a member.

First those that only ask the model, then those with shadow models (difficulty calibration, a
learned attack, LiRA, RMIA), then those by who holds the weights or takes part in the training.
"""

import numpy as np
import torch
from scipy.stats import norm
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import Tensor

from tacit.audit.estimators import Scores
from tacit.audit.membership.views import (
    SeenGradients,
    SeenLabels,
    SeenRounds,
    SeenScores,
    SeenShadows,
)

_ENOUGH = 32
"""Models on a side from which a record's own variance is steadier than the common one."""
_LARGEST_LESSON = 20_000
_OFFLINE_SLOPE = 0.3
_TEMPERATURE, _MARGIN = 2.0, 0.6
"""Of the probabilities that RMIA compares: the paper's for pictures. Plain ones saturate at 1."""
_FLOOR = 1e-12


def loss(seen: SeenScores, *, generator: torch.Generator) -> Scores:
    """Score by the log-probability of the true class (Yeom et al. 2018)."""
    return to_scores(true_log_probs(seen.log_probs, seen.labels))


def confidence(seen: SeenScores, *, generator: torch.Generator) -> Scores:
    """Score by the largest log-probability, whatever the label (Salem et al. 2019)."""
    return to_scores(seen.log_probs.max(dim=-1).values)


def entropy(seen: SeenScores, *, generator: torch.Generator) -> Scores:
    """Score by minus the entropy of the answer (Shokri et al. 2017)."""
    return to_scores((seen.log_probs.exp() * seen.log_probs).sum(-1))


def modified_entropy(seen: SeenScores, *, generator: torch.Generator) -> Scores:
    """Score by minus the entropy that knows the label: low only if right and sure.

    Song and Mittal 2021, eq. 8.
    """
    p = seen.log_probs.double().exp()  # in single precision 1 − 1e-12 is 1
    rest = torch.log1p(-p.clamp(max=1 - 1e-12))
    true = seen.labels[:, None]
    wrong = (p * rest).sum(-1) - (p * rest).gather(1, true)[:, 0]
    right = (1 - p.gather(1, true)[:, 0]) * true_log_probs(seen.log_probs, seen.labels)
    return to_scores(right + wrong)


def label_gap(seen: SeenLabels, *, generator: torch.Generator) -> Scores:
    """Score 1 where the answer is right, else 0 (the gap attack of Yeom et al.)."""
    return to_scores((seen.answers[:, 0] == seen.labels).double())


def label_robustness(seen: SeenLabels, *, generator: torch.Generator) -> Scores:
    """Score by how much noise the right answer survives (Choquette-Choo et al. 2021)."""
    right = (seen.answers == seen.labels[:, None]).double()
    noisy = right[:, 1:].mean(1) if right.shape[1] > 1 else torch.zeros(len(right))
    return to_scores(right[:, 0] + noisy)


def true_log_probs(log_probs: Tensor, labels: Tensor) -> Tensor:
    """Return the log-probabilities of the true classes; leading axes are models."""
    chosen = labels.expand(log_probs.shape[:-1])[..., None]
    return log_probs.gather(-1, chosen)[..., 0].double()


def logit_gap(log_probs: Tensor, labels: Tensor) -> Tensor:
    """Return log p − log(1 − p) of the true class, without losing digits near 0 and 1."""
    true = true_log_probs(log_probs, labels)
    chosen = labels.expand(log_probs.shape[:-1])[..., None]
    others = log_probs.double().scatter(-1, chosen, -torch.inf).logsumexp(-1)
    return true - others.clamp(min=-80.0)  # float32 outputs hold no more digits than that


def to_scores(values: Tensor) -> Scores:
    """Return scores as the estimators take them."""
    return np.asarray(values.double().cpu().numpy(), np.float64)


def calibrated_loss(seen: SeenShadows, *, generator: torch.Generator) -> Scores:
    """Score by the loss less what it is in models without the record (Watson et al. 2022)."""
    own = true_log_probs(seen.log_probs, seen.labels)
    others = true_log_probs(seen.shadow_log_probs, seen.labels)
    outside, _ = _moments(others, ~seen.shadow_coins)
    return to_scores(own - outside)


def shadow_classifier(seen: SeenShadows, *, generator: torch.Generator) -> Scores:
    """Score by a classifier that has learned members from the shadow models (Shokri et al. 2017).

    It sees the sorted answer, the log-odds of the true class and whether the answer is right.
    """
    models = len(seen.shadow_coins)
    lessons = _features(
        seen.shadow_log_probs.flatten(0, 1), seen.labels.repeat(models)
    )  # (models · rows, features)
    truth = seen.shadow_coins.flatten().numpy()
    if len(truth) > _LARGEST_LESSON:
        keys = torch.empty(len(truth)).uniform_(generator=generator)
        picks = keys.argsort()[:_LARGEST_LESSON].numpy()
        lessons, truth = lessons[picks], truth[picks]
    learned = make_pipeline(StandardScaler(), LogisticRegression(max_iter=500))
    learned.fit(lessons, truth)
    found = learned.decision_function(_features(seen.log_probs, seen.labels))
    return np.asarray(found, np.float64)


def lira_online(seen: SeenShadows, *, generator: torch.Generator) -> Scores:
    """Score by the likelihood ratio of the log-odds with and without the record.

    Carlini et al. 2022: a normal distribution for each record and side. With few models a side,
    all records share the spread.
    """
    own = logit_gap(seen.log_probs, seen.labels)
    others = logit_gap(seen.shadow_log_probs, seen.labels)
    inside, inner = _moments(others, seen.shadow_coins)
    outside, outer = _moments(others, ~seen.shadow_coins)
    return to_scores(_log_density(own, inside, inner) - _log_density(own, outside, outer))


def lira_offline(seen: SeenShadows, *, generator: torch.Generator) -> Scores:
    """Score by how unlikely the log-odds are without the record; no model needs to hold it."""
    own = logit_gap(seen.log_probs, seen.labels)
    others = logit_gap(seen.shadow_log_probs, seen.labels)
    outside, outer = _moments(others, ~seen.shadow_coins)
    z = to_scores((own - outside) / outer)
    return np.asarray(-norm.logsf(z), np.float64)


def rmia_online(seen: SeenShadows, *, generator: torch.Generator) -> Scores:
    """Score by the share of other records whose likelihood ratio is smaller.

    Zarifzadeh, Liu and Shokri 2024. A record's ratio is its probability in the target over its
    mean probability in models of which half hold it; the other records here are the candidates.
    Their γ is 1: another one only makes ties.
    """
    own = soft_log_probs(seen.log_probs, seen.labels)
    others = soft_log_probs(seen.shadow_log_probs, seen.labels)
    inside = _mean_probability(others, seen.shadow_coins)
    outside = _mean_probability(others, ~seen.shadow_coins)
    return _dominated(own - torch.log((inside + outside) / 2))


def rmia_offline(seen: SeenShadows, *, generator: torch.Generator) -> Scores:
    """Do the same with models that do not hold the record; its mean is extrapolated."""
    own = soft_log_probs(seen.log_probs, seen.labels)
    others = soft_log_probs(seen.shadow_log_probs, seen.labels)
    outside = _mean_probability(others, ~seen.shadow_coins)
    mean = ((1 + _OFFLINE_SLOPE) * outside + 1 - _OFFLINE_SLOPE) / 2
    return _dominated(own - torch.log(mean))


def soft_log_probs(log_probs: Tensor, labels: Tensor) -> Tensor:
    """Return log-probabilities of the true classes at a temperature, less a margin.

    An over-fitted model gives its members a probability of almost 1, and so it does to half of the
    others: there the ratios of plain probabilities tell nothing apart.
    """
    chosen = labels.expand(log_probs.shape[:-1])[..., None]
    scaled = log_probs.double() / _TEMPERATURE
    true = scaled.gather(-1, chosen)[..., 0] - _MARGIN / _TEMPERATURE
    others = scaled.scatter(-1, chosen, -torch.inf).logsumexp(-1)
    return true - torch.logaddexp(true, others)


def _moments(values: Tensor, chosen: Tensor) -> tuple[Tensor, Tensor]:
    """Return mean and deviation over the chosen models for every record."""
    counts = chosen.sum(0).clamp(min=1)
    mean = torch.where(chosen, values, 0.0).sum(0) / counts
    squares = torch.where(chosen, (values - mean).square(), 0.0).sum(0)
    if int(counts.min()) >= _ENOUGH:
        return mean, (squares / (counts - 1)).sqrt().clamp(min=1e-6)
    freedom = (counts - 1).sum().clamp(min=1)
    common = (squares.sum() / freedom).sqrt().clamp(min=1e-6)
    return mean, common.expand_as(mean)


def _log_density(x: Tensor, mean: Tensor, deviation: Tensor) -> Tensor:
    return -((x - mean) / deviation).square() / 2 - deviation.log()


def _mean_probability(log_probs: Tensor, chosen: Tensor) -> Tensor:
    total = torch.where(chosen, log_probs.exp(), 0.0).sum(0)
    return (total / chosen.sum(0).clamp(min=1)).clamp(min=1e-30)


def _dominated(ratio: Tensor) -> Scores:
    """Return the share of records with a smaller ratio."""
    values = to_scores(ratio)
    below = np.searchsorted(np.sort(values), values, side="left") / len(values)
    return np.asarray(below, np.float64)


def _features(log_probs: Tensor, labels: Tensor) -> np.ndarray:
    ordered = log_probs.double().sort(dim=1, descending=True).values[:, :3]
    gap = logit_gap(log_probs, labels)
    right = (log_probs.argmax(1) == labels).double()
    columns = [ordered.clamp(min=-50.0), gap[:, None], right[:, None]]
    return np.asarray(torch.cat(columns, dim=1).numpy(), np.float64)


def gradient_norm(seen: SeenGradients, *, generator: torch.Generator) -> Scores:
    """Score by minus the length of the record's gradient: training has made members' short."""
    return to_scores(-seen.norms.square().sum(1).sqrt().clamp(min=_FLOOR).log())


def gradient_features(seen: SeenGradients, *, generator: torch.Generator) -> Scores:
    """Score by a classifier on the gradient's length in every layer (after Nasr et al. 2019).

    It learns from the records whose membership the attacker knows already.
    """
    columns = torch.cat([seen.norms, seen.losses[:, None]], dim=1).clamp(min=_FLOOR).log()
    features = np.asarray(columns.numpy(), np.float64)
    truth = seen.known_members.numpy()
    if len(truth) == 0 or truth.all() or not truth.any():
        return gradient_norm(seen, generator=generator)
    learned = make_pipeline(StandardScaler(), LogisticRegression(max_iter=500))
    learned.fit(features[seen.known.numpy()], truth)
    return np.asarray(learned.decision_function(features), np.float64)


def gradient_ascent(seen: SeenRounds, *, generator: torch.Generator) -> Scores:
    """Score by how small the loss is again after it was pushed up and the others answered.

    The active attack of Nasr et al. 2019: only who holds the record has a reason to bring its
    loss down.
    """
    return to_scores(-seen.returned.double().clamp(min=_FLOOR).log().mean(0))


def round_losses(seen: SeenRounds, *, generator: torch.Generator) -> Scores:
    """Score by the loss over the rounds without a push: what an honest participant could tell."""
    return to_scores(-seen.quiet.double().clamp(min=_FLOOR).log().mean(0))
