"""The privacy/accuracy frontier of a split job: one model for each strength of its defence.

The models do not need each other: they are trained here, one after the other, or side by side on a
Ray cluster.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

import torch
from torch import nn

from tacit.audit.split import Target, Told, Watch, audit_gradients, audit_labels
from tacit.cli.jobs.split_data import WholeData
from tacit.cli.jobs.split_job import SplitJob
from tacit.cluster import open_cluster
from tacit.learn.split import (
    Defence,
    Halves,
    SplitTask,
    fit_locally,
    halve,
    make_codec,
    make_model,
)
from tacit.result import Curve

_LARGEST_AUDIT = 5000
_SWEPT = {"potential-energy": "weight", "distance-correlation": "weight", "label-dp": "epsilon"}


@dataclass(frozen=True)
class Point:
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


class Trial(Protocol):
    """Trains and attacks the model with the main defence at one strength."""

    def __call__(self, strength: float) -> Point:
        """Return what came out."""
        ...


def draw_sweep(job: SplitJob, task: SplitTask, data: WholeData) -> tuple[Curve, ...]:
    """Draw attack success against task accuracy, and the base line of perfect protection."""
    trial = partial(try_strength, job, task, data)
    run = sweep_here if job.audit.ray is None else partial(sweep_on_ray, address=job.audit.ray)
    points = sorted(run(trial, job.audit.sweep), key=lambda one: (one.accuracy, one.attack))
    base = points[-1].base_line
    main = task.defences[0]
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


def sweep_here(trial: Trial, strengths: Sequence[float]) -> list[Point]:
    """Try one strength after the other."""
    return [trial(strength) for strength in strengths]


def sweep_on_ray(trial: Trial, strengths: Sequence[float], *, address: str) -> list[Point]:
    """Try all strengths at once, as tasks of a Ray cluster, one core each.

    The cluster's machines get the data of all parties, which only `tacit run` has: they must be
    one's own.

    Args:
        trial: what a task does.
        strengths: one task each.
        address: of the cluster, or "local" for one of this machine's cores.

    Raises:
        ConfigError: Ray is not installed, or no cluster answers there.
        DataError: a task failed on the cluster.
    """
    with open_cluster(address) as cluster:
        shared = cluster.share(trial)
        tasks = [cluster.submit(_try_alone, shared, strength) for strength in strengths]
        return [task.result() for task in tasks]


def try_strength(job: SplitJob, task: SplitTask, data: WholeData, strength: float) -> Point:
    """Train the whole model here with the main defence at one strength, and attack it."""
    main = task.defences[0]
    defences = (_with(main, strength), *task.defences[1:])
    trial = replace(task, defences=defences)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)  # all points start alike, wherever they are tried
        model = job.model
        halves = halve(model.kind, trial, data.train_x, width=model.width, hidden=model.hidden)
    told = watch_training(trial, halves, data)
    target = target_of(job, trial, halves.bottom, data)
    found = audit_labels(target, per_class=job.audit.leaked_per_class)
    return Point(
        accuracy=halves.accuracy(data.test_x, data.test_y),
        # The stronger of the two completions: the attacker may choose.
        attack=max(one.value or 0.0 for one in found[2:4]),
        base_line=found[0].value or 0.0,
        # The attacker may choose here too, and knows its rows.
        gradients=max(told.blind.value or 0.0, told.joined.value or 0.0),
    )


def watch_training(task: SplitTask, halves: Halves, data: WholeData) -> Told:
    """Train both parts here, and read training labels off the gradients that came back."""
    owner = task.feature_owners[0]
    watch = Watch(len(data.train_x), task.pace)
    fit_locally(
        task,
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
        classes=task.classes,
        defences=task.defences,
        inputs=data.train_x,
    )
    return audit_gradients(seen, truth)


def target_of(job: SplitJob, task: SplitTask, bottom: nn.Module, data: WholeData) -> Target:
    """Return what the audit attacks, with rows for the attacker and rows to attack."""
    shape = tuple(data.train_x.shape[1:])
    with torch.no_grad():
        width = bottom(data.train_x[:2]).shape[1]
    codec = make_codec(task.compression, width)
    return Target(
        bottom=bottom,
        make_model=lambda: make_model(
            job.model.kind,
            shape=shape,
            classes=data.classes,
            width=job.model.width,
            hidden=job.model.hidden,
        ),
        pool=(data.train_x[:_LARGEST_AUDIT], data.train_y[:_LARGEST_AUDIT]),
        targets=(data.test_x[:_LARGEST_AUDIT], data.test_y[:_LARGEST_AUDIT]),
        classes=data.classes,
        before=job.audit.before,
        as_sent=lambda h: codec.apply(h, is_training=False),
    )


def _try_alone(trial: Trial, strength: float) -> Point:
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
