"""The gradient view of an audit: how surely training labels are read, pass by pass."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from tacit.audit.split.gradients import (
    as_layer,
    find_neighbours,
    group,
    group_and_name,
    has_known_energy,
    join_neighbours,
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
JOINED = "gradient clusters of like rows, no label"
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
        joined: the best without any label that also joins rows which are alike: what training
            tells of such rows, beside what it tells of each.
        curves: all against the passes that were watched.
    """

    blind: Metric
    named: Metric
    joined: Metric
    curves: tuple[Curve, ...]

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """Return all three."""
        return self.blind, self.named, self.joined


def audit_gradients(
    seen: SeenTraining, truth: Tensor, *, per_class: int = 1, owner: str = ""
) -> Told:
    """Read the labels of training rows off the gradients, after one pass, two, and so on.

    Of several ways to look the one that did best counts: an attacker without labels cannot know
    which it is, so this is the most that k-means gets. The base line, where the inputs are known,
    is the same on them, without any gradient.

    Args:
        seen: what a feature owner saw while training.
        truth: the labels of the watched rows.
        per_class: how many labels of every class leaked.
        owner: is named in the report, if there are several.
    """
    at = f", at {owner}" if owner else ""
    labels = "label" if per_class == 1 else "labels"
    groups = partial(_score_groups, truth, seen.classes)
    told = []
    for name, attack, tries, score in (
        (BLIND, group, _try_alone, groups),
        (
            f"gradient clusters, {per_class} {labels} per class",
            group_and_name,
            _try_passes,
            partial(_score_names, truth),
        ),
        (JOINED, group, _try_joined, groups),
    ):
        looks = [
            Look(epochs, way, score(f"{name}{at}", guess, rows))
            for epochs, way, rows, guess in tries(seen, attack, seeded(0))
        ]
        best = _best(looks)
        if seen.inputs is not None:
            base = attack(as_layer(seen, seen.inputs), generator=seeded(0))
            best = beside(best, score("the same on the inputs", base, None))
        told.append((best, _draw(f"{name}{at}", looks)))
    (blind, named, joined), curves = zip(*told, strict=True)
    return Told(blind, named, joined, curves)


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


def _score_groups(
    truth: Tensor, classes: int, name: str, guess: Tensor, rows: Tensor | None
) -> Metric:
    return score_clusters(name, guess, truth if rows is None else truth[rows], classes)


def _score_names(truth: Tensor, name: str, guess: Tensor, rows: Tensor | None) -> Metric:
    return score_labels(name, guess, truth if rows is None else truth[rows])


Try = tuple[float, str, Tensor | None, Tensor]
"""How many passes were watched, how, which rows if not all, and what was guessed."""
Grouping = Attack[SeenLayer, Tensor]


def _try_alone(seen: SeenTraining, attack: Grouping, generator: torch.Generator) -> Iterator[Try]:
    """Look at parts of the first pass, then at more and more passes."""
    for part, (rows, layer) in enumerate(look_early(seen), start=1):
        way = f"part {part} of the first pass"
        yield 0.0, way, rows, attack(layer, generator=generator)
        yield 0.0, f"{way}, whitened", rows, attack(whiten_early(layer), generator=generator)
    yield from _try_passes(seen, attack, generator)


def _try_passes(seen: SeenTraining, attack: Grouping, generator: torch.Generator) -> Iterator[Try]:
    """Look at more and more passes, in several ways."""
    for epochs, passes in _looks(seen):
        summed = attack(sum_epochs(seen, epochs), generator=generator)
        yield epochs, f"{passes}, summed", None, summed
        if epochs <= _WHITENED:
            white = attack(whiten_epochs(seen, epochs), generator=generator)
            yield epochs, f"{passes}, whitened", None, white
        if epochs == min(_UNDONE, len(seen.epochs)) and has_known_energy(seen):
            undone = take_energy_out(seen, summed, epochs=epochs)
            yield epochs, f"{passes}, energy taken out", None, undone


def _try_joined(seen: SeenTraining, attack: Grouping, generator: torch.Generator) -> Iterator[Try]:
    """Look at more and more passes, rows joined with those most like them."""
    near = find_neighbours(seen)
    for epochs, passes in _looks(seen):
        layer = join_neighbours(seen, epochs, near)
        yield epochs, passes, None, attack(layer, generator=generator)


def _looks(seen: SeenTraining) -> list[tuple[int, str]]:
    total = len(seen.epochs)
    chosen = sorted({one for one in _LOOKS if one < total} | {total})
    return [(one, "1 pass" if one == 1 else f"{one} passes") for one in chosen]


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
