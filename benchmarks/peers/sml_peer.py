"""sf-sml on spu, semi2k: ``sml_peer.py LEARNER ROWS COLUMNS`` answers ``measure`` with CPU seconds.

One fit on rows of a fixed seed, all parties of spu's simulator in this process. sml has no package
that installs: SML_SOURCES names the folder of its sources.
"""

import importlib
import json
import os
import sys
from time import process_time
from typing import Any

import numpy as np


def rows(count: int, columns: int) -> tuple[Any, Any]:
    """Return the rows and labels that both sides learn from."""
    coins = np.random.default_rng(0)
    y = coins.integers(0, 2, count)
    return coins.normal(size=(count, columns)) + 0.8 * y[:, None], y


def fitted(learner: str, x: Any, y: Any) -> tuple[Any, ...]:
    """Fit inside spu; return arrays of what was learned."""
    numpy = importlib.import_module("jax.numpy")
    if learner == "kmeans":
        kind = importlib.import_module("sml.cluster.kmeans").KMEANS
        model = kind(n_clusters=5, n_samples=x.shape[0], init="random", max_iter=10)
        model.fit(x)
        return (model.centers_,)
    if learner == "bayes":
        kind = importlib.import_module("sml.naive_bayes.gnb").GaussianNB
        model = kind(classes_=numpy.array([0, 1]), var_smoothing=1e-6)
        model.fit(x, y)
        return model.theta_, model.var_
    if learner == "pca":
        kind = importlib.import_module("sml.decomposition.pca").PCA
        model = kind(method="power_iteration", n_components=2, max_power_iter=50)
        model.fit(x)
        return (model._components,)
    kind = importlib.import_module("sml.linear_model.ridge").Ridge
    model = kind(alpha=1.0, solver="cholesky")
    model.fit(x, x[:, :1] - 0.5 * x[:, 1:2])
    return (model.coef,)


def run(learner: str, count: int, columns: int) -> float:
    """Fit once and return seconds of processor time."""
    lib = importlib.import_module("spu.libspu")
    simulation = importlib.import_module("spu.utils.simulation")
    simulator = simulation.Simulator.simple(2, lib.ProtocolKind.SEMI2K, lib.FieldType.FM64)
    x, y = rows(count, columns)
    begun = process_time()
    simulation.sim_jax(simulator, lambda x, y: fitted(learner, x, y))(x, y)
    return process_time() - begun


if __name__ == "__main__":
    sys.path.insert(0, os.environ["SML_SOURCES"])
    name, size, width = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    for line in sys.stdin:
        if line.strip() == "measure":
            print(json.dumps({"value": run(name, size, width)}), flush=True)
