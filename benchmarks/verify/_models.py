"""Models and rows for the benchmarks of verification: trained here, once per process."""

import os
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from bench import NotMeasured

from tacit.data import load_dataset, search_path
from tacit.errors import DataError
from tacit.verify import (
    Budget,
    Counterexample,
    Domain,
    Ensemble,
    Inquiry,
    Robust,
    import_ensemble,
    verify,
    verify_each,
)
from tacit.verify.box import ball, box_intervals
from tacit.verify.objectives import make_objectives
from tacit.verify.robustness import search_box, search_on

Floats = np.ndarray
SEED = 0


@dataclass(frozen=True)
class Spec:
    """A model to train: which rows, and trees of which size."""

    data: str
    kind: str
    trees: int
    depth: int
    classes: tuple[int, ...] | None = None
    train_rows: int = 12_000

    @property
    def title(self) -> str:
        """Name it as in the tables."""
        name = self.data
        if self.classes is not None:
            name += " " + " vs ".join(map(str, self.classes))
        return f"{name}, {self.kind} {self.trees}×{self.depth}"


@dataclass(frozen=True)
class Trained:
    """A model in the form that is verified, and rows it has not seen."""

    ensemble: Ensemble
    rows: Floats
    labels: Floats
    accuracy: float


@cache
def train(spec: Spec) -> Trained:
    """Train on the first part of the rows, keep the rest to verify."""
    x, y, held_x, held_y = load_rows(spec)
    model = make_model(spec).fit(x, y)
    ensemble = import_ensemble(model)
    accuracy = float((ensemble.predict(held_x) == held_y).mean())
    return Trained(ensemble=ensemble, rows=held_x, labels=held_y, accuracy=accuracy)


@cache
def load_rows(spec: Spec) -> tuple[Floats, Floats, Floats, Floats]:
    """Load rows scaled to [0, 1] in float32: to train on, and to keep."""
    search = search_path(os.environ.get("TACIT_DATA"), Path(__file__), Path.home() / ".cache")
    try:
        data = load_dataset(spec.data, search)
    except DataError as error:
        raise NotMeasured(str(error)) from error
    rows = data.unscaled().reshape(len(data), -1)
    labels = np.asarray(data.labels)
    order = np.random.default_rng(SEED).permutation(len(rows))
    if data.published_test_rows:
        order = np.arange(len(rows))
    if spec.classes is not None:
        order = order[np.isin(labels[order], spec.classes)]
        labels = np.searchsorted(spec.classes, labels)
    held = order[-min(1000, len(order) // 3) :]
    seen = order[: -held.size][: spec.train_rows]
    if data.published_test_rows:
        low, high = np.zeros(1), np.full(1, 255.0)
    else:
        low, high = rows[seen].min(axis=0), rows[seen].max(axis=0)
    unit = ((rows - low) / np.where(high > low, high - low, 1.0)).astype(np.float32)
    return unit[seen], labels[seen], unit[held], labels[held]


def make_model(spec: Spec) -> Any:
    """Make an untrained model."""
    if spec.kind == "XGBoost":
        from xgboost import XGBClassifier

        return XGBClassifier(
            n_estimators=spec.trees, max_depth=spec.depth, n_jobs=1, random_state=SEED
        )
    from sklearn.ensemble import RandomForestClassifier

    return RandomForestClassifier(spec.trees, max_depth=spec.depth, random_state=SEED, n_jobs=1)


def warm_up(ensemble: Ensemble, row: Floats) -> None:
    """Compile, or load from disk, both the quick and the deep search."""
    verify(ensemble, row, 0.0)
    everything = ball(ensemble, row, np.inf, Domain())
    objectives = make_objectives(ensemble, ensemble.predict(row[None])[0], None)
    low, high = box_intervals(ensemble, everything)
    for decide in (search_box, search_on):
        decide(ensemble, objectives, low.copy(), high.copy(), Budget(nodes=2))


@dataclass(frozen=True)
class Measured:
    """Shares of rows, and processor time per row in milliseconds."""

    rows: int
    robust: float
    fragile: float
    unsolved: float
    verified: float | None
    """Right and robust; None without labels."""
    mean_ms: float
    median_ms: float
    p95_ms: float
    slowest_ms: float


def measure(
    ensemble: Ensemble, rows: Floats, labels: Floats | None, eps: float, *, seconds: float = 10.0
) -> Measured:
    """Verify rows and count."""
    warm_up(ensemble, rows[0])
    told = list(verify_each(ensemble, rows, Inquiry(eps, budget=Budget(seconds=seconds))))
    verdicts, times = [one.verdict for one in told], [1e3 * one.seconds for one in told]
    robust = np.array([isinstance(one, Robust) for one in verdicts])
    fragile = np.array([isinstance(one, Counterexample) for one in verdicts])
    right = None if labels is None else ensemble.predict(rows) == labels
    median, p95, slowest = np.quantile(times, [0.5, 0.95, 1.0]).tolist()
    return Measured(
        rows=len(rows),
        robust=float(robust.mean()),
        fragile=float(fragile.mean()),
        unsolved=float((~robust & ~fragile).mean()),
        verified=None if right is None else float((right & robust).mean()),
        mean_ms=float(np.mean(times)),
        median_ms=median,
        p95_ms=p95,
        slowest_ms=slowest,
    )
