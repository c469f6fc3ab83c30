"""Learners on shares beside the same ones in the clear, and how they grow.

CPU seconds of one fit, protocol "sealed", all parties as threads of one process without TLS: what
two computing owners and the dealer spend together. The peers are scikit-learn and XGBoost on the
joined rows, which nobody has: the ratio is the price of privacy and no race. Trust here: all
parties follow the protocol, and no two of owners and dealer pool what they know. A fresh table is
shared in every fit; plans are made before, as their cost is paid once.
"""

from collections.abc import Callable
from functools import partial
from time import process_time
from typing import Any

import numpy as np
from bench import Case, InlinePeer
from sklearn.base import clone
from sklearn.datasets import make_classification
from xgboost import XGBClassifier

from tacit import learners
from tacit.learners import Learner, Local, Regressor
from tacit.learners.exported import counterpart

ROWS, COLUMNS, BINS = 2_000, 8, 16
TREE = {"max_depth": 3, "max_bins": BINS}


def cases(quick: bool) -> list[Case]:
    """List the learners at one size, and growth of two of them."""
    return [*_beside_plain(quick), *_growth(quick)]


def _beside_plain(quick: bool) -> list[Case]:
    models: list[Learner] = [
        learners.KMeans(4, max_iter=10),
        learners.GaussianNB(),
        learners.Ridge(),
        learners.LogisticRegression(max_iter=20),
        learners.PCA(2),
        learners.GradientBoostingClassifier(2 if quick else 10, **TREE),
    ]
    rows = 500 if quick else ROWS
    found = []
    for model in models:
        x, y = _rows(rows, COLUMNS)
        name, plain = "scikit-learn", counterpart(model)
        if plain is None:
            name, plain = "XGBoost", _xgboost(model)
        found.append(
            Case(
                name=f"{type(model).__name__}, {rows:,} × {COLUMNS}",
                metric="CPU time of a fit",
                unit="s",
                ours=partial(_ours, model, x, y),
                peers=(InlinePeer(name, partial(_plain, plain, x, y)),),
            )
        )
    return found


def _growth(quick: bool) -> list[Case]:
    """Let rows, columns, bins and owners grow, each by itself."""
    base = {"rows": 500 if quick else ROWS, "columns": COLUMNS, "bins": BINS, "owners": 2}
    factors = (1, 4) if quick else (1, 4, 16)
    found = []
    for what in base:
        for factor in factors if what in ("rows", "columns") else (1, 2, 4):
            size = base | {what: base[what] * factor}
            x, y = _rows(size["rows"], size["columns"])
            tree = learners.GradientBoostingClassifier(1, max_depth=3, max_bins=size["bins"])
            models: list[Learner] = [tree]
            if what != "bins":
                models.append(learners.KMeans(4, max_iter=5))
            for model in models:
                found.append(
                    Case(
                        name=f"{type(model).__name__}, {what} {size[what]:,}",
                        metric="CPU time of a fit",
                        unit="s",
                        ours=partial(_ours, model, x, y, size["owners"]),
                    )
                )
    return found


def _rows(rows: int, columns: int) -> tuple[Any, Any]:
    x, y = make_classification(
        rows, columns, n_informative=columns // 2, flip_y=0.1, random_state=0
    )
    return (x - x.mean(0)) / x.std(0), y


def _ours(model: Learner, x: Any, y: Any, owners: int = 2) -> float:
    """Fit once with the plans made, as a party does that has planned before it connects."""
    names = [f"owner{at}" for at in range(owners)]
    parts: dict[str, Any] = dict(zip(names, np.array_split(x, owners, axis=1), strict=True))
    parts[names[-1]] = parts[names[-1]], y
    with Local(*names) as parties:
        data = parties.columns(parts, is_classification=not isinstance(model, Regressor))
        planned = parties.planned()
        clone(model).fit(data, planned)
        parties.do(lambda engine: engine.plans.update(planned.walker.plans))
        return _seconds(lambda: clone(model).fit(data, parties))


def _plain(model: Any, x: Any, y: Any) -> float:
    return _seconds(lambda: clone(model).fit(x, y))


def _xgboost(model: Any) -> Any:
    return XGBClassifier(
        n_estimators=model.n_estimators,
        max_depth=model.max_depth,
        max_bin=model.max_bins,
        tree_method="hist",
        n_jobs=1,
    )


def _seconds(work: Callable[[], object]) -> float:
    begun = process_time()
    work()
    return process_time() - begun
