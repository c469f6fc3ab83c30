"""Attacks that only ask the model: one number per record, compared with a threshold."""

import numpy as np
import torch
from torch import Tensor

from tacit.audit.membership.views import SeenLabels, SeenScores
from tacit.audit.ranking import Scores


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
