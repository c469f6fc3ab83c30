"""What a report on a split model shows: attacks on what was seen, and pictures of the cut layer."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from sklearn.decomposition import PCA
from sklearn.manifold import TSNE
from torch import Tensor

from tacit.audit.split.attacks import (
    as_layer,
    cluster,
    find_neighbours,
    fine_tune,
    fine_tune_whitened,
    gradient_norm,
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
from tacit.audit.split.game import beside, score_clusters, score_labels, score_ranking
from tacit.audit.split.views import SeenLayer, SeenReturned, SeenTraining, Watch, pick_leak
from tacit.audit.views import Attack, seeded
from tacit.errors import DataError
from tacit.result import Curve, Metric
from tacit.split import SplitSpec, keep_probability, label_events

_LARGEST_CLOUD = 400


def audit_answers(
    spec: SplitSpec, cut: Tensor, labels: Tensor, *, per_class: int = 1
) -> list[Metric]:
    """Attack what the label owner itself saw: the cut layer as it came."""
    generator = seeded(0)
    chosen = pick_leak(labels, per_class, generator=generator)
    rest = torch.ones(len(labels), dtype=torch.bool)
    rest[chosen] = False
    if not int(rest.sum()):
        return []
    seen = SeenLayer(
        leaked=cut[chosen], leaked_labels=labels[chosen], targets=cut[rest], classes=spec.classes
    )
    truth = labels[rest]
    found = [
        score_labels(
            f"{name} on what was sent, {per_class} label per class",
            attack(seen, generator=generator),
            truth,
        )
        for name, attack in (
            ("fine-tuning", fine_tune),
            ("whitened fine-tuning", fine_tune_whitened),
        )
    ]
    if len(truth) >= spec.classes:
        guess = cluster(seen, generator=generator)
        found.append(score_clusters("k-means on what was sent", guess, truth, spec.classes))
    return found


def audit_returned(
    spec: SplitSpec,
    watch: Watch,
    labels: Tensor,
    *,
    per_class: int = 1,
    report: Callable[[int], None] = lambda done: None,
) -> tuple[list[Metric], list[Curve]]:
    """Attack what the label owner itself sent: the gradients, which depend on training labels."""
    found: list[Metric] = []
    curves: list[Curve] = []
    for done, owner in enumerate(spec.feature_owners):
        report(done)
        try:
            seen, truth = watch.see(
                owner,
                labels,
                per_class=per_class,
                classes=spec.classes,
                defences=spec.defences,
            )
        except DataError:  # resumed within its last epoch, or too few rows
            continue
        told = audit_gradients(seen, truth, per_class=per_class, owner=owner)
        found += told.metrics
        curves += told.curves
        if spec.classes == 2:
            found += _audit_norms(owner, seen, truth)
    return found, curves


def state_told(spec: SplitSpec, told: Sequence[Metric]) -> tuple[str, ...]:
    """Say in words how many labels of training rows the gradients gave away."""
    shares = [one for one in told if one.unit == "fraction" and one.value is not None]
    if not shares:
        return ("What gradients tell of the labels of training rows: not measured.",)
    best = max(shares, key=lambda one: one.value or 0.0)
    said = (
        f"Gradients gave away {100 * (best.value or 0):.1f} % of the labels of {best.samples} rows "
        f"trained on ({best.name}; {best.note})."
    )
    kept = [keep_probability(spec.classes, one.epsilon) for one in label_events(spec.defences)]
    if kept:
        return (said, f"Label privacy: {100 * min(kept):.1f} % of labels were trained on as is.")
    return (
        said,
        "Losses at the cut layer protect the finished bottom model, not these labels: "
        "wanted label-dp for them.",
    )


def draw_layer(cut: Tensor, labels: Tensor, *, tsne: bool) -> tuple[Curve, ...]:
    """Draw the cut layer as points in the plane, a colour for each class."""
    cloud, classes = cut[:_LARGEST_CLOUD], labels[:_LARGEST_CLOUD]
    if len(cloud) < 3 or cloud.shape[1] < 2:
        return ()
    values = cloud.double().numpy()
    found = [("PCA", PCA(2).fit_transform(values))]
    if tsne:
        near = min(30.0, (len(values) - 1) / 3)
        found.append(("t-SNE", TSNE(2, perplexity=near, random_state=0).fit_transform(values)))
    return tuple(
        Curve(
            title=f"The cut layer, {method}",
            x_label="first direction",
            y_label="second direction",
            name=f"class {one}",
            points=tuple((float(x), float(y)) for x, y in points[(classes == one).numpy()]),
            style="dots",
        )
        for method, points in found
        for one in sorted(set(classes.tolist()))
    )


def _audit_norms(owner: str, seen: SeenTraining, truth: Tensor) -> list[Metric]:
    """Tell a yes-or-no label by the length of the last gradients, where there are both kinds."""
    last = seen.epochs[-1]
    classes = truth[torch.cat([one.rows for one in last])]
    is_rare = classes == int(torch.bincount(truth, minlength=2).argmin())
    if not 0 < int(is_rare.sum()) < len(classes):
        return []
    rows = SeenReturned(gradients=torch.cat([one.gradient for one in last]))
    scores = gradient_norm(rows, generator=seeded(0))
    name = f"gradient norm at {owner}, last epoch"
    return [score_ranking(name, scores, is_rare)]


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
    groups: Score = partial(score_clusters, classes=seen.classes)
    told = []
    for name, attack, tries, score in (
        (BLIND, group, _try_alone, groups),
        (
            f"gradient clusters, {per_class} {labels} per class",
            group_and_name,
            _try_passes,
            score_labels,
        ),
        (JOINED, group, _try_joined, groups),
    ):
        looks = [
            (epochs, way, score(f"{name}{at}", guess, truth[rows]))
            for epochs, way, rows, guess in tries(seen, attack, seeded(0))
        ]
        best = _best(looks)
        if seen.inputs is not None:
            base = attack(as_layer(seen, seen.inputs), generator=seeded(0))
            best = beside(best, score("the same on the inputs", base, truth))
        told.append((best, _draw(f"{name}{at}", looks)))
    (blind, named, joined), curves = zip(*told, strict=True)
    return Told(blind, named, joined, curves)


Try = tuple[float, str, Tensor | slice, Tensor]
"""How many passes were watched (0 is a part of the first), how, of which rows, and the guess."""
Look = tuple[float, str, Metric]
"""The same, and what that gave."""
Score = Callable[[str, Tensor, Tensor], Metric]
_ALL = slice(None)
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
        yield epochs, f"{passes}, summed", _ALL, summed
        if epochs <= _WHITENED:
            white = attack(whiten_epochs(seen, epochs), generator=generator)
            yield epochs, f"{passes}, whitened", _ALL, white
        if epochs == min(_UNDONE, len(seen.epochs)) and has_known_energy(seen):
            undone = take_energy_out(seen, summed, epochs=epochs)
            yield epochs, f"{passes}, energy taken out", _ALL, undone


def _try_joined(seen: SeenTraining, attack: Grouping, generator: torch.Generator) -> Iterator[Try]:
    """Look at more and more passes, rows joined with those most like them."""
    near = find_neighbours(seen)
    for epochs, passes in _looks(seen):
        layer = join_neighbours(seen, epochs, near)
        yield epochs, passes, _ALL, attack(layer, generator=generator)


def _looks(seen: SeenTraining) -> list[tuple[int, str]]:
    total = len(seen.epochs)
    chosen = sorted({one for one in _LOOKS if one < total} | {total})
    return [(one, "1 pass" if one == 1 else f"{one} passes") for one in chosen]


def _best(looks: list[Look]) -> Metric:
    # By the lower end: a part of a pass has few rows.
    _, way, best = max(looks, key=lambda one: one[2].low or 0.0)
    note = f"best of {len(looks)} ways: {way}"
    return replace(best, note=f"{best.note}; {note}".lstrip("; "))


def _draw(name: str, looks: list[Look]) -> Curve:
    best: dict[float, float] = {}
    for epochs, _, metric in looks:
        best[epochs] = max(best.get(epochs, 0.0), metric.value or 0.0)
    return Curve(
        title="Labels of training rows, read off gradients",
        x_label="passes over the rows that were watched; 0: a part of the first, for its own rows",
        y_label="share of labels that k-means finds",
        name=name,
        points=tuple(sorted(best.items())),
    )
