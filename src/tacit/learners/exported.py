"""Learners beside scikit-learn's: a counterpart to fit in the clear, or fitted when opened."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from sklearn import cluster, decomposition, linear_model, naive_bayes, neighbors, svm

from tacit.errors import InputError
from tacit.learners.base import Learner, Shared
from tacit.learners.bayes import GaussianNB
from tacit.learners.clusters import KMeans
from tacit.learners.linear import Lasso, LinearRegression, Ridge
from tacit.learners.margins import LinearSVC, LogisticRegression
from tacit.learners.neighbours import KNeighbors
from tacit.learners.scaling import PCA

# scikit-learn has no types.
Estimator = Any
Opened = Mapping[str, Any]


def counterpart(model: Learner) -> Estimator | None:
    """Return scikit-learn's learner of the same kind and parameters, not fitted; None if none."""
    if type(model) not in _COUNTERPARTS:
        return None
    kind, names, _ = _COUNTERPARTS[type(model)]
    given = {name: getattr(model, name) for name in names}
    weights = getattr(model, "class_weight", None)
    if weights is not None:
        given["class_weight"] = dict(enumerate(weights))
    return kind(**given)


def to_sklearn(model: Learner) -> Estimator:
    """Return scikit-learn's fitted learner with what was opened to this process.

    Raises:
        InputError: results are still shares here, or scikit-learn has no such learner.

    Guarantee: none beyond the ledger; opening was the step that told something.
    """
    made = counterpart(model)
    _, _, put = _COUNTERPARTS.get(type(model), (None, (), None))
    if put is None or made is None:
        known = ", ".join(sorted(one.__name__ for one, (*_, put) in _COUNTERPARTS.items() if put))
        raise InputError(f"{type(model).__name__} is not exported to scikit-learn; {known} are")
    if not hasattr(model, "data_"):
        raise InputError(f"this {type(model).__name__} is not fitted yet; call fit first")
    opened = {name: getattr(model, f"{name}_") for name in model.results}
    closed = [name for name, value in opened.items() if isinstance(value, Shared)]
    if closed:
        raise InputError(f"{closed[0]}_ is a share here; call reveal(to=...) for this party first")
    made.n_features_in_ = model.data_.shape[1]
    if hasattr(model, "classes_"):
        made.classes_ = model.classes_
    put(made, opened)
    return made


def _put_kmeans(made: Estimator, opened: Opened) -> None:
    made.cluster_centers_ = np.ascontiguousarray(opened["cluster_centers"])
    made.inertia_ = float(opened["inertia"][0])
    made._n_threads = 1  # as its own fit leaves it, without which it does not predict


def _put_bayes(made: Estimator, opened: Opened) -> None:
    made.theta_, made.var_ = opened["theta"], opened["var"]
    made.class_prior_ = opened["class_prior"]


def _put_linear(made: Estimator, opened: Opened) -> None:
    made.coef_, made.intercept_ = opened["coef"][:, 0], float(opened["intercept"].reshape(-1)[0])


def _put_margins(made: Estimator, opened: Opened) -> None:
    made.coef_, made.intercept_ = opened["coef"][:-1].T, opened["coef"][-1]


def _put_components(made: Estimator, opened: Opened) -> None:
    made.components_, made.mean_ = opened["components"], opened["mean"].reshape(-1)
    made.explained_variance_ = opened["explained_variance"].reshape(-1)
    made.n_components_ = len(made.components_)


_LINEAR = ("alpha", "fit_intercept")
_COUNTERPARTS: Mapping[
    type[Learner], tuple[Any, tuple[str, ...], Callable[[Estimator, Opened], None] | None]
] = {
    KMeans: (cluster.KMeans, ("n_clusters", "n_init", "random_state"), _put_kmeans),
    GaussianNB: (naive_bayes.GaussianNB, ("var_smoothing",), _put_bayes),
    Ridge: (linear_model.Ridge, _LINEAR, _put_linear),
    LinearRegression: (linear_model.LinearRegression, ("fit_intercept",), _put_linear),
    Lasso: (linear_model.Lasso, _LINEAR, _put_linear),
    LogisticRegression: (linear_model.LogisticRegression, ("C",), _put_margins),
    LinearSVC: (svm.LinearSVC, ("C",), _put_margins),
    PCA: (decomposition.PCA, ("n_components",), _put_components),
    KNeighbors: (neighbors.KNeighborsClassifier, ("n_neighbors",), None),
}
"""What fits in the clear, which parameters both have, and how it is handed what was opened."""
