"""Random learners, fitted on shares, and random ensembles of trees, asked in private.

What comes is compared with scikit-learn on the same rows.
"""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from sklearn import ensemble, linear_model, naive_bayes, neighbors, tree

import tacit
from fuzz.judge import Verdict
from tacit import learners
from tacit.errors import TacitError
from tacit.mpc import PROTOCOLS
from tacit.party import without_setup

SURE = 1e-3
"""Of two classes that come nearer than this, either may be answered."""


@dataclass(frozen=True)
class Task:
    """An estimator, its settings, its data, and how the rows are divided."""

    name: str
    options: dict[str, Any] = field(default_factory=dict)
    rows: int = 24
    columns: int = 3
    classes: int = 2
    by: str = "columns"
    protocol: str = "sealed"
    seed: int = 0

    def data(self) -> tuple[np.ndarray, np.ndarray]:
        """Make rows whose classes lie apart, so that a right answer is one."""
        coins = np.random.default_rng(self.seed)
        y = np.arange(self.rows) % self.classes
        x = coins.normal(size=(self.rows, self.columns)) + 2.5 * coins.normal(
            size=(self.classes, self.columns)
        )[y].round(1)
        return (x / np.abs(x).max(0)).round(6), y


@dataclass(frozen=True)
class Kind:
    """A learner here, the same there, settings, and whether it answers numbers."""

    ours: Callable[..., Any]
    theirs: Callable[..., Any]
    draw: Callable[[random.Random], dict[str, Any]] = lambda rng: {}
    is_number: bool = False


LEARNERS: dict[str, Kind] = {
    "gaussian": Kind(learners.GaussianNB, naive_bayes.GaussianNB),
    "ridge": Kind(
        learners.Ridge,
        linear_model.Ridge,
        lambda rng: {"alpha": rng.choice([0.5, 1.0, 4.0])},
        is_number=True,
    ),
    "neighbours": Kind(
        learners.KNeighbors,
        neighbors.KNeighborsClassifier,
        lambda rng: {"n_neighbors": rng.choice([1, 3])},
    ),
    "logistic": Kind(
        lambda **how: learners.LogisticRegression(max_iter=25, **how),
        linear_model.LogisticRegression,
        lambda rng: {"C": rng.choice([0.5, 1.0])},
    ),
}
TREES: dict[str, Callable[..., Any]] = {
    "tree": tree.DecisionTreeClassifier,
    "forest": ensemble.RandomForestClassifier,
    "extra": ensemble.ExtraTreesClassifier,
    "boosted": ensemble.GradientBoostingClassifier,
}


def draw_task(seed: int) -> Task:
    """Draw an estimator; the same seed gives the same one."""
    rng = random.Random(seed)  # noqa: S311 - tasks are no secrets
    name = rng.choice([*LEARNERS, *TREES])
    if name in LEARNERS:
        options = LEARNERS[name].draw(rng)
    else:
        options = {"max_depth": rng.randint(1, 4), "random_state": seed}
        options |= {} if name == "tree" else {"n_estimators": rng.randint(1, 4)}
    return Task(
        name,
        options,
        rng.choice([12, 24, 40]),
        rng.randint(2, 5),
        rng.randint(2, 4),
        rng.choice(["rows", "columns"]),
        rng.choice([*PROTOCOLS]),
        seed,
    )


def judge_task(task: Task) -> Verdict:
    """Fit or ask it in private, and compare with what scikit-learn answers."""
    try:
        return (_judge_learner if task.name in LEARNERS else _judge_trees)(task)
    except TacitError as refusal:
        known = type(refusal).__name__ in ("ConfigError", "DataError", "InputError", "RangeError")
        return Verdict("refused" if known else "wrong", f"{type(refusal).__name__}: {refusal}")
    except Exception as error:
        return Verdict("wrong", f"it ended in {type(error).__name__}: {error}")


def _judge_learner(task: Task) -> Verdict:
    kind, (x, y) = LEARNERS[task.name], task.data()
    wanted = y + x @ np.arange(1, task.columns + 1) if kind.is_number else y
    cut = task.rows // 3
    with learners.Local("bank", "shop", protocol=task.protocol) as parties:
        if task.by == "rows":
            parts = {"bank": (x[:cut], wanted[:cut]), "shop": (x[cut:], wanted[cut:])}
            data = parties.rows(parts)
        else:
            data = parties.columns({"bank": x[:, :1], "shop": (x[:, 1:], wanted)})
        got = kind.ours(**task.options).fit(data, parties).predict(data)
    other = kind.theirs(**task.options).fit(x, wanted)
    if kind.is_number:
        off = float(np.abs(got - other.predict(x)).max())
        return Verdict("right") if off < 0.02 else Verdict("wrong", f"off by {off:.3g}")
    return _compared(got, other, x, share=0.9)


def _judge_trees(task: Task) -> Verdict:
    x, y = task.data()
    model = TREES[task.name](**task.options).fit(x, y)
    answer = tacit.secure(model, reveal="class", protocol=task.protocol)(torch.from_numpy(x))
    if without_setup(answer.cost) != answer.result.forecast.cost:
        return Verdict("wrong", "the metered cost is not the forecast")
    return _compared(answer.values.reshape(-1).numpy(), model, x, share=1.0)


def _compared(got: np.ndarray, other: Any, x: np.ndarray, *, share: float) -> Verdict:
    """Compare classes where the library is sure; a learner that goes on may answer a few others."""
    chances = np.sort(other.predict_proba(x), 1)
    sure = chances[:, -1] - chances[:, -2] > SURE
    same = np.asarray(got).reshape(-1) == other.predict(x)
    if not sure.any() or same[sure].mean() >= share:
        return Verdict("right")
    return Verdict("wrong", f"{int((~same[sure]).sum())} of {int(sure.sum())} classes are others")


def shrink_task(task: Task) -> Task:
    """Make a wrong task smaller for as long as it stays wrong."""
    while True:
        for smaller in _smaller(task):
            if judge_task(smaller).outcome == "wrong":
                task = smaller
                break
        else:
            return task


def _smaller(task: Task) -> Iterator[Task]:
    for name, least in (("rows", 6), ("columns", 2), ("classes", 2)):
        if getattr(task, name) > least:
            yield replace(task, **{name: max(least, getattr(task, name) // 2)})
    for name in ("n_estimators", "max_depth"):
        if task.options.get(name, 1) > 1:
            yield replace(task, options=task.options | {name: task.options[name] - 1})
