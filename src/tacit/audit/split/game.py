"""The audit of a finished split model, as its report shows it; gradients are another view."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from tacit.audit.split.attacks import (
    cluster,
    fine_tune,
    fine_tune_whitened,
    gradient_norm,
    reconstruct,
    train_from_scratch,
)
from tacit.audit.split.gradients import group, group_and_name
from tacit.audit.split.score import beside, score_clusters, score_inputs, score_labels
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
class Target:
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


def audit_labels(target: Target, *, per_class: int = 1, seed: int = 0) -> tuple[Metric, ...]:
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


def audit_inputs(target: Target, *, seed: int = 0) -> Metric:
    """Attack the inputs with a decoder trained on the pool of pairs that leaked."""
    generator = seeded(seed)
    seen = see_cut(
        target.bottom, leaked=target.pool[0], targets=target.targets[0], as_sent=target.as_sent
    )
    guess = reconstruct(seen, generator=generator)
    return score_inputs("input reconstruction", guess, target.targets[0], target.pool[0])


def _cluster(name: str, seen: SeenLayer, truth: Tensor, generator: torch.Generator) -> Metric:
    return score_clusters(name, cluster(seen, generator=generator), truth, seen.classes)
