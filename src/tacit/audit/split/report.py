"""What a report on a split model shows: attacks on what was seen, and pictures of the cut layer."""

from collections.abc import Callable, Sequence

import torch
from sklearn.decomposition import PCA
from sklearn.manifold import TSNE
from torch import Tensor

from tacit.audit.split.attacks import cluster, fine_tune, fine_tune_whitened, gradient_norm
from tacit.audit.split.course import audit_gradients
from tacit.audit.split.score import score_clusters, score_labels, score_ranking
from tacit.audit.split.training import SeenTraining, Watch
from tacit.audit.split.views import SeenGradients, SeenLayer, pick_leak
from tacit.audit.views import seeded
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
    rows = SeenGradients(gradients=torch.cat([one.gradient for one in last]))
    scores = gradient_norm(rows, generator=seeded(0))
    name = f"gradient norm at {owner}, last epoch"
    return [score_ranking(name, scores, is_rare)]
