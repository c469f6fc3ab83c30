"""Scores: the truth is brought to the guess, never to the attack."""

from dataclasses import replace

import numpy as np
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from tacit.audit.estimators import average, proportion
from tacit.audit.ranking import Ranking, auc
from tacit.result import Metric


def score_labels(name: str, guess: Tensor, truth: Tensor) -> Metric:
    """Return the share of labels that were guessed."""
    hits = int((guess.cpu() == truth.cpu()).sum())
    return proportion(name, hits, len(truth))


def score_clusters(name: str, guess: Tensor, truth: Tensor, classes: int) -> Metric:
    """Return the share that the best naming of the clusters gets right (eq. 4-26).

    The naming uses the truth (Hungarian method), so this is what a lucky attacker gets at most;
    it is above 1 / classes even if the clusters say nothing.
    """
    table = np.zeros((classes, classes), np.int64)
    np.add.at(table, (guess.cpu().numpy(), truth.cpu().numpy()), 1)
    rows, columns = linear_sum_assignment(-table)
    return proportion(name, int(table[rows, columns].sum()), len(truth), note="best naming")


def score_ranking(name: str, scores: Tensor, is_positive: Tensor) -> Metric:
    """Return the area under the ROC curve of a score for a yes-or-no secret; ½ is a guess."""
    truth = is_positive.cpu().numpy().astype(bool)
    value, low, high = auc(Ranking(scores.cpu().double().numpy(), truth))
    return Metric(name=name, value=value, unit="AUC", samples=len(truth), low=low, high=high)


def score_inputs(name: str, guess: Tensor, truth: Tensor, known: Tensor) -> Metric:
    """Return the mean squared error of guessed inputs.

    The reference is the error of guessing the mean of the inputs that leaked.
    """
    truth = truth.flatten(1).double().cpu()
    errors = (guess.flatten(1).double().cpu() - truth).square().mean(1)
    blind = (known.flatten(1).double().cpu().mean(0) - truth).square().mean()
    return average(
        name,
        errors.tolist(),
        "squared error",
        reference=float(blind),
        note="reference: the mean of the leaked inputs",
    )


def beside(metric: Metric, base: Metric) -> Metric:
    """Put a base line beside what an attack got."""
    note = f"reference: {base.name}"
    return replace(metric, reference=base.value, note=f"{metric.note}; {note}".lstrip("; "))
