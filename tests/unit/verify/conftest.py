"""Small random ensembles and the brute force that judges them: every interval of the box is
tried."""

import itertools
import os
import sys
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("numba", reason="tacit-ml[verify] is not installed")

from tacit.verify.models.build import Tree, build


@pytest.fixture(scope="session")
def brute():
    """This module: ensembles to verify and the brute force to compare with."""
    return sys.modules[__name__]


@pytest.fixture(scope="session")
def data():
    """The folder of data sets and models that are not in the repository."""
    named = [Path(part) for part in os.environ.get("TACIT_DATA", "").split(os.pathsep) if part]
    shared = [above / "shared" / "data" for above in Path(__file__).resolve().parents]
    for folder in (*named, *shared):
        if (folder / "tree_models").is_dir():
            return folder
    pytest.skip("needs the folder tree_models: set TACIT_DATA to the data folder")


MENU = (-2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 2.0)
"""Few thresholds, so that trees share them and inputs lie on them."""


def random_tree(rng, *, n_features, depth, scores, values):
    """Grow one tree; it may be a single leaf and may ask the same question twice."""
    rows = []

    def grow(level):
        at = len(rows)
        rows.append(None)
        if level == 0 or rng.random() < 0.2:
            rows[at] = (0, 0.0, -1, -1, values(rng, scores))
            return at
        feature, threshold = int(rng.integers(n_features)), float(rng.choice(MENU))
        left = grow(level - 1)
        right = grow(level - 1)
        rows[at] = (feature, threshold, left, right, np.zeros(scores))
        return at

    grow(depth)
    feature, threshold, left, right, value = zip(*rows, strict=True)
    return Tree(
        feature=np.array(feature),
        threshold=np.array(threshold),
        left=np.array(left),
        right=np.array(right),
        missing_left=np.zeros(len(rows), dtype=bool),
        value=np.array(value),
    )


def votes(rng, scores):
    """Make a leaf of whole votes: ties abound."""
    if scores == 1:
        return np.array([float(rng.integers(-2, 3))])
    return np.eye(scores)[rng.integers(scores)]


def reals(rng, scores):
    """Make a leaf of numbers that no sum of which is exact."""
    return np.float32(rng.normal(size=scores)).astype(np.float64)


def random_ensemble(
    rng, *, most=6, task="classify", scores=1, values=votes, sum_type="float64", **rule
):
    """Make an ensemble of fewer than `most` trees over up to four features."""
    n_features = int(rng.integers(1, 5))
    trees = [
        random_tree(
            rng,
            n_features=n_features,
            depth=int(rng.integers(0, 4)),
            scores=scores,
            values=values,
        )
        for _ in range(int(rng.integers(1, most)))
    ]
    return build(
        trees,
        base=values(rng, scores),
        n_features=n_features,
        task=task,
        input_type=sum_type,
        sum_type=sum_type,
        **rule,
    )


def random_boosted(rng, *, scores, most=6, sum_type="float64", **rule):
    """Make an ensemble in which each tree adds to one class only."""
    n_features = int(rng.integers(1, 5))

    def grow(label):
        def values(rng, scores):
            return np.eye(scores)[label] * np.float32(rng.normal())

        depth = int(rng.integers(0, 4))
        return random_tree(rng, n_features=n_features, depth=depth, scores=scores, values=values)

    trees = [grow(int(rng.integers(scores))) for _ in range(int(rng.integers(1, most)))]
    return build(
        trees,
        base=reals(rng, scores),
        n_features=n_features,
        task="classify",
        input_type=sum_type,
        sum_type=sum_type,
        **rule,
    )


def all_points(ensemble, box):
    """List one input per interval of the box."""
    axes = []
    for f in range(ensemble.n_features):
        cuts = np.unique(ensemble.threshold[ensemble.feature == f])
        around = [cuts, np.nextafter(cuts, np.inf), np.nextafter(cuts, -np.inf)]
        single = cuts.astype(np.float32)
        around += [np.nextafter(single, np.float32(np.inf)).astype(np.float64)]
        tries = np.concatenate([*around, [box.low[f], box.high[f], box.center[f]]])
        tries = tries[(tries >= box.low[f]) & (tries <= box.high[f])]
        if ensemble.integer is not None and ensemble.integer[f]:
            tries = np.concatenate([np.floor(tries), np.ceil(tries)])
            tries = tries[(tries >= box.low[f]) & (tries <= box.high[f])]
        keys = np.asarray(tries, dtype=ensemble.input_type).astype(np.float64)
        _, first = np.unique(np.searchsorted(cuts, keys), return_index=True)
        axes.append(tries[first])
    return np.array(list(itertools.product(*axes)))


def is_robust(ensemble, box, rho=None):
    """Try every interval."""
    center = ensemble.predict(box.center[None])[0]
    found = ensemble.predict(all_points(ensemble, box))
    if rho is None:
        return bool((found == center).all())
    return all(
        abs(Fraction(float(out)) - Fraction(float(center))) <= Fraction(rho) for out in found
    )


def random_input(rng, n_features):
    """Draw an input that lies on thresholds as often as beside them."""
    on = rng.choice(MENU, size=n_features)
    return np.where(rng.random(n_features) < 0.5, on, rng.uniform(-2.5, 2.5, n_features))


def boundary_rows(rng, model, count=600, *, with_missing=False):
    """Draw inputs of which many lie on a threshold or right beside it, in float32 and float64."""
    rows = rng.normal(size=(count, model.n_features))
    for row in rows:
        for f in rng.integers(0, model.n_features, 3):
            cuts = model.threshold[model.feature == f]
            if cuts.size:
                cut = rng.choice(cuts)
                single = np.float32(cut)
                near = (
                    cut,
                    np.nextafter(cut, np.inf),
                    np.nextafter(cut, -np.inf),
                    np.nextafter(single, np.float32(np.inf)),
                    np.nextafter(single, np.float32(-np.inf)),
                )
                row[f] = near[rng.integers(len(near))]
    rows = np.clip(rows, -1e30, 1e30)
    if with_missing:
        rows[rng.random(rows.shape) < 0.1] = np.nan
    return rows


def training_set(seed=0, *, missing=False):
    """Make 400 rows with a binary, a four-class and a real target; column 5 is whole-numbered."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(400, 6))
    x[:, 5] = np.round(x[:, 5])
    real = x[:, 0] * x[:, 1] + x[:, 2]
    if missing:
        x[rng.random(x.shape) < 0.1] = np.nan
    return x, {"binary": (real > 0).astype(int), "several": np.digitize(real, [-1, 0, 1])} | {
        "real": real
    }


MIXED_KINDS = np.array([False, True, False, False, True])
"""Which features of the mixed set are categories."""


def mixed_training_set(seed=0):
    """Make 600 rows with numbers, zeros, categories and missing values, and targets of them."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(600, 5))
    x[rng.random(x.shape) < 0.15] = 0.0
    x[:, 1], x[:, 4] = rng.integers(0, 12, 600), rng.integers(0, 5, 600)
    x[rng.random(x.shape) < 0.2] = np.nan
    full = np.nan_to_num(x)
    real = full[:, 0] * full[:, 2] + np.sin(3 * full[:, 1]) + full[:, 4] % 2 + np.isnan(x[:, 3])
    several = np.digitize(real, [0.0, 0.7, 1.5])
    return x, {"binary": (real > 0.7).astype(int), "several": several, "real": real}


def mixed_rows(rng, count):
    """Draw rows like these, with unseen, negative and broken categories; some have no value."""
    x = 1.5 * rng.normal(size=(count, 5))
    x[rng.random(x.shape) < 0.1] = 0.0
    x[:, 1], x[:, 4] = rng.integers(-2, 15, count), rng.integers(-1, 7, count)
    x[:, 1] += (rng.random(count) < 0.2) * rng.uniform(-1, 1, count)
    x[rng.random(x.shape) < 0.15] = np.nan
    x[rng.random(count) < 0.02] = np.nan
    return x
