"""The privacy/accuracy frontier of a split job: one model for each strength of its defence.

The models do not need each other: they are trained here, one after the other, or side by side on a
Ray cluster.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import nn

from tacit.audit.split.game import SplitTarget, audit_inputs, audit_labels
from tacit.audit.split.report import Told, audit_gradients
from tacit.audit.split.views import Watch
from tacit.cluster import open_cluster
from tacit.exclusive import seeded
from tacit.party import Progress
from tacit.result import Curve, Metric
from tacit.spec import Count, refuse
from tacit.split import (
    Defence,
    Halves,
    SplitSpec,
    cut_model,
    fit_locally,
    make_codec,
)
from tacit.split.rows import WholeData

_LARGEST_AUDIT = 5000
_SWEPT = {"potential-energy": "weight", "distance-correlation": "weight", "label-dp": "epsilon"}


@dataclass(frozen=True, kw_only=True)
class CutAudit:
    """[audit]: how the result is attacked.

    Attributes:
        leaked_per_class: labels that the attacker holds.
        before: an earlier layer to attack too, as the bottom model names it.
        sweep: strengths of the main defence to draw the frontier with; each trains a model.
        ray: the address of a Ray cluster of one's own to train them on, which gets the data of all
            parties; "local" for this machine's cores.
        tsne: whether to draw the cut layer by t-SNE besides PCA.
    """

    leaked_per_class: Count = 1
    before: str | None = None
    sweep: tuple[float, ...] = ()
    ray: str | None = None
    tsne: bool = False

    def __post_init__(self) -> None:
        if self.ray is not None and not self.sweep:
            refuse("ray", "wanted audit.sweep, which it spreads over machines")


@dataclass(frozen=True)
class Swept:
    """One model of the sweep: how well it does its task, and how well it is attacked.

    Attributes:
        accuracy: on the test rows.
        attack: share of test labels that the better fine-tuning of the bottom model gets right.
        base_line: what the attacker gets without a bottom model.
        gradients: share of training labels that clusters of gradients give, without any label.
    """

    accuracy: float
    attack: float
    base_line: float
    gradients: float


Trial = Callable[[float], Swept]
"""Trains and attacks the model with the main defence at one strength."""


def audit_whole(
    spec: SplitSpec,
    bottom: nn.Module,
    data: WholeData,
    *,
    how: CutAudit,
    progress: Progress | None = None,
) -> tuple[tuple[Metric, ...], tuple[Curve, ...]]:
    """Attack the first feature owner's bottom model, with the base lines beside; draw the sweep.

    Args:
        spec: what was trained.
        bottom: the first feature owner's trained part.
        data: the rows of all owners, in equal blocks of columns.
        how: the attacks.
        progress: is told what is being done.
    """
    steps = progress or Progress()
    train, test = (
        torch.tensor_split(x, spec.bottoms, dim=-1)[0] for x in (data.train_x, data.test_x)
    )
    block = replace(data, train_x=train, test_x=test)
    target = target_of(spec, bottom, block, before=how.before)
    with steps.stage("attacking labels at the cut"):
        metrics = audit_labels(target, per_class=how.leaked_per_class)
    with steps.stage("rebuilding inputs from the cut"):
        metrics = (*metrics, audit_inputs(target))
    if spec.bottoms > 1 or not how.sweep:
        return metrics, ()
    name = f"sweeping the defence {spec.defences[0].kind}"
    with steps.stage(name, len(how.sweep)) as advance:
        return metrics, draw_sweep(spec, data, how=how, report=advance)


def draw_sweep(
    spec: SplitSpec,
    data: WholeData,
    *,
    how: CutAudit,
    report: Callable[[int], None] = lambda done: None,
) -> tuple[Curve, ...]:
    """Draw attack success against task accuracy, and the base line of perfect protection."""
    trial = partial(try_strength, spec, data, how.leaked_per_class)
    run = sweep_here if how.ray is None else partial(sweep_on_ray, address=how.ray)
    points = sorted(
        run(trial, how.sweep, report=report), key=lambda one: (one.accuracy, one.attack)
    )
    base = points[-1].base_line
    main = spec.defences[0]
    swept = f"{main.kind}, {_setting(main)} swept"
    return (
        _frontier(
            f"the bottom model, {swept}", tuple((one.accuracy, one.attack) for one in points)
        ),
        _frontier(
            f"training labels by gradients, {swept}",
            tuple((one.accuracy, one.gradients) for one in points),
        ),
        _frontier(
            "from scratch: perfect protection below",
            ((points[0].accuracy, base), (points[-1].accuracy, base)),
        ),
    )


def sweep_here(
    trial: Trial, strengths: Sequence[float], *, report: Callable[[int], None] = lambda done: None
) -> list[Swept]:
    """Try one strength after the other."""
    found = []
    for strength in strengths:
        found.append(trial(strength))
        report(len(found))
    return found


def sweep_on_ray(
    trial: Trial,
    strengths: Sequence[float],
    *,
    address: str,
    report: Callable[[int], None] = lambda done: None,
) -> list[Swept]:
    """Try all strengths at once, as tasks of a Ray cluster, one core each.

    The cluster's machines get the data of all parties, which only `tacit run` has: they must be
    one's own.

    Args:
        trial: what a task does.
        strengths: one task each.
        address: of the cluster, or "local" for one of this machine's cores.
        report: told how many are tried.

    Raises:
        ConfigError: Ray is not installed, or no cluster answers there.
        DataError: a task failed on the cluster.
    """
    with open_cluster(address) as cluster:
        shared = cluster.share(trial)
        tasks = [cluster.submit(_try_alone, shared, strength) for strength in strengths]
        found = []
        for task in tasks:
            found.append(task.result())
            report(len(found))
        return found


def try_strength(spec: SplitSpec, data: WholeData, per_class: int, strength: float) -> Swept:
    """Train the whole model here with the main defence at one strength, and attack it."""
    defended = replace(spec.split, defend=_with(spec.defences[0], strength))
    trial = replace(spec, split=defended)
    with seeded(0):  # all points start alike, wherever they are tried
        halves = cut_model(spec.model(data.train_x.shape[1:], spec.classes), trial, data.train_x)
    told = watch_training(trial, halves, data)
    target = target_of(trial, halves.bottom, data)
    found = audit_labels(target, per_class=per_class)
    return Swept(
        accuracy=halves.accuracy(data.test_x, data.test_y),
        # The stronger of the two completions: the attacker may choose.
        attack=max(one.value or 0.0 for one in found[2:4]),
        base_line=found[0].value or 0.0,
        # The attacker may choose here too, and knows its rows.
        gradients=max(told.blind.value or 0.0, told.joined.value or 0.0),
    )


def watch_training(spec: SplitSpec, halves: Halves, data: WholeData) -> Told:
    """Train both parts here, and read training labels off the gradients that came back."""
    owner = spec.feature_owners[0]
    watch = Watch(len(data.train_x), spec.train)
    fit_locally(
        spec,
        halves,
        data.train_x,
        data.train_y,
        seed=0,
        on_gradient=lambda one: watch(owner, one),
    )
    seen, truth = watch.see(
        owner,
        data.train_y,
        per_class=1,
        classes=spec.classes,
        defences=spec.defences,
        inputs=data.train_x,
    )
    return audit_gradients(seen, truth)


def target_of(
    spec: SplitSpec,
    bottom: nn.Module,
    data: WholeData,
    *,
    before: str | None = None,
) -> SplitTarget:
    """Return what the audit attacks, with rows for the attacker and rows to attack."""
    with torch.no_grad():
        width = bottom(data.train_x[:2]).shape[1]
    codec = make_codec(spec.split.compress, width)
    return SplitTarget(
        bottom=bottom,
        make_model=lambda: spec.model(data.train_x.shape[1:], spec.classes),
        pool=(data.train_x[:_LARGEST_AUDIT], data.train_y[:_LARGEST_AUDIT]),
        targets=(data.test_x[:_LARGEST_AUDIT], data.test_y[:_LARGEST_AUDIT]),
        classes=data.classes,
        before=before,
        as_sent=lambda h: codec.apply(h, is_training=False),
    )


def _try_alone(trial: Trial, strength: float) -> Swept:
    torch.set_num_threads(1)
    return trial(strength)


def _with(defence: Defence, strength: float) -> Defence:
    if _setting(defence) == "weight":
        return replace(defence, weight=strength)
    if _setting(defence) == "epsilon":
        return replace(defence, epsilon=strength)
    return replace(defence, scale=strength)


def _setting(defence: Defence) -> str:
    return _SWEPT.get(defence.kind, "scale")


def _frontier(name: str, points: tuple[tuple[float, float], ...]) -> Curve:
    return Curve(
        title="Attack success against task accuracy",
        x_label="task accuracy",
        y_label="share of labels that the attack gets right",
        name=name,
        points=points,
    )
