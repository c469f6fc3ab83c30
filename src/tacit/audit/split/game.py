"""The audit of a finished split model, as its report shows it; gradients are another view."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor, nn

from tacit.audit.estimators import Ranking, auc, average, proportion
from tacit.audit.split.attacks import (
    cluster,
    fine_tune,
    fine_tune_whitened,
    gradient_norm,
    group,
    group_and_name,
    reconstruct,
    train_from_scratch,
)
from tacit.audit.split.views import (
    Make,
    SeenLayer,
    SeenRows,
    pick_leak,
    see_cut,
    see_layer,
)
from tacit.audit.views import Attack, seeded
from tacit.result import Metric

ATTACKS = {
    "fine-tune": fine_tune,
    "fine-tune-whitened": fine_tune_whitened,
    "k-means": cluster,
    "from-scratch": train_from_scratch,
    "gradient-norm": gradient_norm,
    "reconstruct": reconstruct,
    "group": group,
    "group-and-name": group_and_name,
}
"""Every attack on a split model; "before the cut" is fine-tune and k-means on another view."""

_COMPLETIONS: dict[str, Attack[SeenLayer, Tensor]] = {
    "fine-tuning": fine_tune,
    "fine-tuning, whitened": fine_tune_whitened,
}


@dataclass(frozen=True, kw_only=True, eq=False)
class SplitTarget:
    """A trained split model and the rows on which it is attacked; the audit's own knowledge.

    Attributes:
        bottom: one feature owner's part.
        make_model: a fresh whole model of the same architecture.
        pool: rows and labels that the leak is drawn from.
        targets: rows and labels that are attacked.
        classes: how many.
        before: an earlier layer of the bottom to attack too.
        as_sent: what the compressor lets through of a cut layer.
    """

    bottom: nn.Module
    make_model: Make
    pool: tuple[Tensor, Tensor]
    targets: tuple[Tensor, Tensor]
    classes: int
    before: str | None = None
    as_sent: Callable[[Tensor], Tensor] = lambda h: h


def audit_labels(target: SplitTarget, *, per_class: int = 1, seed: int = 0) -> tuple[Metric, ...]:
    """Attack the labels with `per_class` leaked labels of every class, and without any.

    The references are the attacker's base lines without a bottom model: a model from scratch on
    the same leak, and the clustering of the raw inputs.
    """
    generator = seeded(seed)
    rows, labels = target.pool
    chosen = pick_leak(labels, per_class, generator=generator)
    leak = rows[chosen], labels[chosen]
    x, truth = target.targets
    scratch = train_from_scratch(
        SeenRows(
            leaked=leak[0],
            leaked_labels=leak[1],
            targets=x,
            classes=target.classes,
            make_model=target.make_model,
        ),
        generator=generator,
    )
    base = score_labels(f"from scratch, {per_class} label per class", scratch, truth)
    raw = see_layer(nn.Flatten(), leaked=leak, targets=x, classes=target.classes)
    blind = _cluster("k-means on the inputs", raw, truth, generator)
    found = [base, blind]
    for layer in (None, *([target.before] if target.before else [])):
        seen = see_layer(
            target.bottom, leaked=leak, targets=x, classes=target.classes, before=layer
        )
        place = "" if layer is None else f", before the cut at {layer}"
        for name, attack in _COMPLETIONS.items():
            guess = attack(seen, generator=generator)
            tuned = score_labels(f"{name}, {per_class} label per class{place}", guess, truth)
            found.append(beside(tuned, base))
        clustered = _cluster(f"k-means{place}", seen, truth, generator)
        found.append(beside(clustered, blind))
    return tuple(found)


def audit_inputs(target: SplitTarget, *, seed: int = 0) -> Metric:
    """Attack the inputs with a decoder trained on the pool of pairs that leaked."""
    generator = seeded(seed)
    seen = see_cut(
        target.bottom, leaked=target.pool[0], targets=target.targets[0], as_sent=target.as_sent
    )
    guess = reconstruct(seen, generator=generator)
    return score_inputs("input reconstruction", guess, target.targets[0], target.pool[0])


def _cluster(name: str, seen: SeenLayer, truth: Tensor, generator: torch.Generator) -> Metric:
    return score_clusters(name, cluster(seen, generator=generator), truth, seen.classes)


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
