"""Attacks by those who hold the weights, or take part while they are trained."""

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from tacit.audit.membership.thresholds import to_scores
from tacit.audit.membership.views import SeenGradients, SeenRounds
from tacit.audit.ranking import Scores

_FLOOR = 1e-12


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
