"""The gradient view of an audit: how surely training labels are read, pass by pass."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from tacit.audit.split.gradients import (
    as_layer,
    group,
    group_and_name,
    has_known_energy,
    look_early,
    sum_epochs,
    take_energy_out,
    whiten_early,
    whiten_epochs,
)
from tacit.audit.split.score import beside, score_clusters, score_labels
from tacit.audit.split.training import SeenTraining
from tacit.audit.split.views import SeenLayer
from tacit.audit.views import Attack, seeded
from tacit.result import Curve, Metric

BLIND = "gradient clusters, no label"
_LOOKS = (1, 2, 3, 5, 10, 20, 50, 100, 200, 500, 1000)
_WHITENED = 3
"""Passes up to which they are also whitened: later ones are mostly the defence's own."""
_UNDONE = 2
"""Passes from which the energy is taken out."""


@dataclass(frozen=True, eq=False)
class Told:
    """What gradients told of the labels of training rows.

    Attributes:
        blind: the best attack without any label, by the best naming of its groups.
        named: the best one with a few labels of every class.
        curves: both against the passes that were watched.
    """

    blind: Metric
    named: Metric
    curves: tuple[Curve, ...]

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """Return both."""
        return self.blind, self.named


def audit_gradients(
    seen: SeenTraining,
    truth: Tensor,
    *,
    per_class: int = 1,
    inputs: Tensor | None = None,
    owner: str = "",
) -> Told:
    """Read the labels of training rows off the gradients, after one pass, two, and so on.

    Of several ways to look the one that did best counts: an attacker without labels cannot know
    which it is, so this is the most that k-means gets.

    Args:
        seen: what a feature owner saw while training.
        truth: the labels of the watched rows.
        per_class: how many labels of every class leaked.
        inputs: the watched rows, for a base line: the same attacks without any gradient.
        owner: is named in the report, if there are several.
    """
    at = f", at {owner}" if owner else ""
    labels = "label" if per_class == 1 else "labels"
    blind, named = f"{BLIND}{at}", f"gradient clusters, {per_class} {labels} per class{at}"
    early = [
        Look(0.0, way, score_clusters(blind, guess, truth[rows], seen.classes))
        for way, rows, guess in _try_early(seen, seeded(0))
    ]
    told = []
    for name, attack, score, looks in (
        (blind, group, partial(_score_groups, truth, seen.classes), early),
        (named, group_and_name, partial(_score_names, truth), []),
    ):
        looks += [
            Look(epochs, way, score(name, guess))
            for epochs, way, guess in _try_passes(seen, attack, seeded(0))
        ]
        best = _best(looks)
        if inputs is not None:
            base = attack(as_layer(seen, inputs.flatten(1)), generator=seeded(0))
            best = beside(best, score("the same on the inputs", base))
        told.append((best, _draw(name, looks)))
    return Told(told[0][0], told[1][0], (told[0][1], told[1][1]))


@dataclass(frozen=True)
class Look:
    """How many passes were watched, how, and what that gave; 0 is a part of the first."""

    epochs: float
    way: str
    metric: Metric

    @property
    def share(self) -> float:
        """Return the share of labels that were found."""
        return self.metric.value or 0.0


def _score_groups(truth: Tensor, classes: int, name: str, guess: Tensor) -> Metric:
    return score_clusters(name, guess, truth, classes)


def _score_names(truth: Tensor, name: str, guess: Tensor) -> Metric:
    return score_labels(name, guess, truth)


def _try_early(
    seen: SeenTraining, generator: torch.Generator
) -> Iterator[tuple[str, Tensor, Tensor]]:
    """Yield how a part of the first pass was looked at, its rows, and what was guessed."""
    for part, (rows, layer) in enumerate(look_early(seen), start=1):
        yield f"part {part} of the first pass", rows, group(layer, generator=generator)
        white = group(whiten_early(layer), generator=generator)
        yield f"part {part} of the first pass, whitened", rows, white


def _try_passes(
    seen: SeenTraining, attack: Attack[SeenLayer, Tensor], generator: torch.Generator
) -> Iterator[tuple[int, str, Tensor]]:
    """Yield how many passes were watched, how, and what was guessed."""
    total = len(seen.epochs)
    for epochs in sorted({one for one in _LOOKS if one < total} | {total}):
        passes = "1 pass" if epochs == 1 else f"{epochs} passes"
        summed = attack(sum_epochs(seen, epochs), generator=generator)
        yield epochs, f"{passes}, summed", summed
        if epochs <= _WHITENED:
            white = attack(whiten_epochs(seen, epochs), generator=generator)
            yield epochs, f"{passes}, whitened", white
        if epochs == min(_UNDONE, total) and has_known_energy(seen):
            undone = take_energy_out(seen, summed, epochs=epochs)
            yield epochs, f"{passes}, energy taken out", undone


def _best(looks: list[Look]) -> Metric:
    # By the lower end: a part of a pass has few rows.
    best = max(looks, key=lambda one: one.metric.low or 0.0)
    note = f"best of {len(looks)} ways: {best.way}"
    return replace(best.metric, note=f"{best.metric.note}; {note}".lstrip("; "))


def _draw(name: str, looks: list[Look]) -> Curve:
    best: dict[float, float] = {}
    for one in looks:
        best[one.epochs] = max(best.get(one.epochs, 0.0), one.share)
    return Curve(
        title="Labels of training rows, read off gradients",
        x_label="passes over the rows that were watched; 0: a part of the first, for its own rows",
        y_label="share of labels that k-means finds",
        name=name,
        points=tuple(sorted(best.items())),
    )
