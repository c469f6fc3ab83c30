"""The gradient view of an audit: how surely training labels are read, pass by pass."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from tacit.audit.split.gradients import (
    as_layer,
    group,
    group_and_name,
    has_known_energy,
    sum_epochs,
    take_energy_out,
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

Score = Callable[[str, Tensor], Metric]


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
    ways: dict[str, tuple[Attack[SeenLayer, Tensor], Score]] = {
        f"{BLIND}{at}": (group, lambda name, guess: score_clusters(name, guess, truth, classes)),
        f"gradient clusters, {per_class} {labels} per class{at}": (
            group_and_name,
            lambda name, guess: score_labels(name, guess, truth),
        ),
    }
    classes, told = seen.classes, []
    for name, (attack, score) in ways.items():
        found = [
            (epochs, way, score(name, guess))
            for epochs, way, guess in _tries(seen, attack, seeded(0))
        ]
        best = _best(found)
        if inputs is not None:
            blind = attack(as_layer(seen, inputs.flatten(1)), generator=seeded(0))
            best = beside(best, score("the same on the inputs", blind))
        told.append((best, _draw(name, found)))
    return Told(told[0][0], told[1][0], (told[0][1], told[1][1]))


def _tries(
    seen: SeenTraining, attack: Attack[SeenLayer, Tensor], generator: torch.Generator
) -> Iterator[tuple[int, str, Tensor]]:
    """Yield how many passes were watched, how, and what was guessed."""
    total = len(seen.epochs)
    for epochs in sorted({one for one in _LOOKS if one < total} | {total}):
        summed = attack(sum_epochs(seen, epochs), generator=generator)
        yield epochs, "summed", summed
        if epochs <= _WHITENED:
            yield epochs, "whitened", attack(whiten_epochs(seen, epochs), generator=generator)
        if epochs == min(_UNDONE, total) and has_known_energy(seen):
            yield epochs, "energy taken out", take_energy_out(seen, summed, epochs=epochs)


def _best(found: list[tuple[int, str, Metric]]) -> Metric:
    epochs, way, best = max(found, key=lambda one: one[2].value or 0.0)
    passes = "1 pass" if epochs == 1 else f"{epochs} passes"
    note = f"best of {len(found)} ways: {passes}, {way}"
    return replace(best, note=f"{best.note}; {note}" if best.note else note)


def _draw(name: str, found: list[tuple[int, str, Metric]]) -> Curve:
    best: dict[int, float] = {}
    for epochs, _, metric in found:
        best[epochs] = max(best.get(epochs, 0.0), metric.value or 0.0)
    return Curve(
        title="Labels of training rows, read off gradients",
        x_label="passes over the rows that were watched",
        y_label="share of labels that k-means finds",
        name=name,
        points=tuple((float(epochs), value) for epochs, value in best.items()),
    )
