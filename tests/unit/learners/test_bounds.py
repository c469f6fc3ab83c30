"""Every bound that a learner states holds, for data that nobody would wish for."""

from contextlib import contextmanager

import numpy as np
import pytest

from tacit.learners import (
    PCA,
    GaussianNB,
    GradientBoostingClassifier,
    GradientBoostingRegressor,
    KMeans,
    Lasso,
    LinearRegression,
    LinearSVC,
    Local,
    LogisticRegression,
    Ridge,
    StandardScaler,
)
from tacit.mpc.secret_ops import SecretOps
from tacit.mpc.share import Share

ROWS = 24
COINS = np.random.default_rng(0)
PLAIN = COINS.normal(size=(ROWS, 3))
HALF = np.arange(ROWS) % 2
SMALL = np.linspace(-0.25, 0.25, ROWS)[:, None] * np.array([[1.0, 0.5]])
SPIKE = np.where(np.arange(ROWS)[:, None] == 0, 40.0, 0.01 * PLAIN)
NEAR = PLAIN[:, :1] + 0.01 * PLAIN


@contextmanager
def watched(monkeypatch):
    """Collect both parties' shares of every step, with what is stated about them."""
    seen, plain = {}, SecretOps.apply

    def apply(self, kernel, *operands):
        found = plain(self, kernel, *operands)
        if isinstance(found, Share):
            step = type(kernel).__name__, found.words, found.spec
            seen.setdefault(self._session.me, []).append(step)
        return found

    with monkeypatch.context() as patch:
        patch.setattr(SecretOps, "apply", apply)
        yield seen


def broken(seen):
    """Return steps whose value is larger than was stated, by how much."""
    steps = zip(*(seen[one] for one in sorted(seen)), strict=True)
    sizes = ((a, (x + y).double().abs().max().item(), spec) for (a, x, spec), (_, y, _) in steps)
    return [(a, size / (1 << s.frac_bits), s.bound) for a, size, s in sizes if size > s.largest]


CASES = {
    "constant features, least squares": (LinearRegression(), 0 * PLAIN + 3, HALF * 0 + 7.3),
    "nearly equal features": (LinearRegression(), NEAR, 50 * np.sign(PLAIN[:, 1])),
    "small features, lasso": (Lasso(1e-4, max_iter=60), SMALL, 16 * SMALL[:, 0]),
    "small features, ridge": (
        Ridge(1e-4, solver="admm", max_iter=60),
        SMALL,
        16 * SMALL[:, 0],
    ),
    "large labels, trees": (
        GradientBoostingRegressor(1, max_depth=1, max_bins=3),
        PLAIN,
        100 * PLAIN[:, 0],
    ),
    "features of nothing, components": (PCA(2), 0 * PLAIN, None),
    "two rows, components": (PCA(2), PLAIN[:2], None),
    "one direction, components": (PCA(2), np.repeat(PLAIN[:, :1], 3, axis=1), None),
    "features of nothing, scaled": (StandardScaler(), 0 * PLAIN, None),
    "all rows alike, clusters": (KMeans(3, max_iter=2), 0 * PLAIN + 3, None),
    "one far row, clusters": (KMeans(2, max_iter=2, n_init=2), SPIKE, None),
    "classes without rows": (GaussianNB(), PLAIN, 5 * HALF),
    "classes apart": (LogisticRegression(C=1e6, max_iter=5), 20.0 * HALF[:, None] - 10, HALF),
    "features of nothing, margins": (LinearSVC(max_iter=5), 0 * PLAIN, HALF),
    "trees without a penalty": (
        GradientBoostingClassifier(
            2, max_depth=1, max_bins=3, learning_rate=1.0, reg_lambda=0.0, min_child_weight=0.0
        ),
        SPIKE,
        HALF,
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_no_value_is_larger_than_a_learner_states(case, monkeypatch):
    model, x, y = CASES[case]
    half = len(x) // 2
    parts = [x[:half], x[half:]]
    if y is not None:
        parts = [(x[:half], y[:half]), (x[half:], y[half:])]
    options = {}
    if y is not None:
        is_whole = y.dtype.kind == "i"
        options = {"classes": range(max(y) + 1)} if is_whole else {"is_classification": False}
    with watched(monkeypatch) as seen, Local("bank", "shop") as parties:
        table = parties.rows(dict(zip(("bank", "shop"), parts, strict=True)), **options)
        model.fit(table, parties)
        if y is not None:
            model.score(table)
    assert broken(seen) == []
