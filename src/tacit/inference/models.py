"""Where models come from: a logistic regression, trained here or read, and fitted estimators.

Estimators are those of scikit-learn, XGBoost and LightGBM.
"""

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import tacit  # for `tacit.verify`, which is loaded when it is used: it brings a compiler
from tacit.data import Rows
from tacit.errors import ConfigError, DataError
from tacit.inference.forest import Forest, make_forest
from tacit.inference.predict import as_weights
from tacit.nn.weights import read_weights


def table_of(rows: Rows) -> Tensor:
    """Return features in rows and columns, or refuse pictures."""
    if rows.features.ndim != 2:
        raise DataError(
            f"{rows.name}: wanted a table of rows and features, "
            f"got an array of shape {rows.features.shape}"
        )
    return torch.from_numpy(np.ascontiguousarray(rows.features))


def train_logistic(rows: Rows) -> dict[str, Tensor]:
    """Train on the owner's own rows, in the clear, and fold the standardisation into the weights.

    Folding keeps the means and spreads of the training rows inside the model, where they are
    protected, instead of publishing them for the data owner to apply.
    """
    if rows.labels is None:
        raise DataError(
            f"{rows.name}: logistic regression wants labelled rows to train on, got none; "
            "name the column that holds the labels"
        )
    if set(np.unique(rows.labels)) != {0, 1}:
        raise DataError(
            f"{rows.name}: logistic regression wants the labels 0 and 1, "
            f"got {sorted(set(rows.labels.tolist()))[:10]}"
        )
    # Imported by who trains: it takes a second, and the other parties need it for nothing.
    from sklearn.linear_model import LogisticRegression
    from sklearn.preprocessing import StandardScaler

    x = table_of(rows).numpy()
    scaler = StandardScaler().fit(x)
    model = LogisticRegression(max_iter=1000).fit(scaler.transform(x), rows.labels)
    weight = model.coef_[0] / scaler.scale_
    bias = model.intercept_[0] - float(weight @ scaler.mean_)
    return as_weights(torch.from_numpy(weight), torch.tensor(bias))


def load_logistic(path: Path) -> dict[str, Tensor]:
    """Read a logistic regression from a file, for features divided by scale.

    ``weight`` (features) and ``bias`` by name, in .npz, .safetensors or .pt; the state of an
    ``nn.Linear`` of one output has them, alone or in an ``nn.Sequential``.

    Raises:
        DataError: there is no such file, or it holds something else.
    """
    return logistic_of(read_weights(path), source=f"model file {path}")


def logistic_of(state: Mapping[str, Tensor], *, source: str) -> dict[str, Tensor]:
    """Take a logistic regression out of the state of a linear layer, whatever it is called.

    Raises:
        DataError: these are not the weights of one linear layer of one output.
    """
    found = {name.rpartition(".")[2]: value for name, value in state.items()}
    if set(found) != {"weight", "bias"} or len(state) != 2:
        raise DataError(
            f"{source}: wanted 'weight' and 'bias', got {', '.join(state) or 'nothing'}"
        )
    weight, bias = found["weight"], found["bias"]
    # One number per feature, as a row, a column or a plain list, and one.
    is_list = weight.dim() in (1, 2) and weight.numel() == max(weight.shape) > 0
    if not is_list or bias.numel() != 1:
        raise DataError(
            f"{source}: wanted 'weight' of shape (features,) and 'bias' of shape (1,), "
            f"got {tuple(weight.shape)} and {tuple(bias.shape)}"
        )
    weights = as_weights(weight.double(), bias.double())
    if not all(bool(torch.isfinite(part).all()) for part in weights.values()):
        raise DataError(f"{source} holds NaN or infinite weights")
    return weights


def save_logistic(path: Path, weights: dict[str, Tensor]) -> None:
    """Write a model file that `load_logistic` reads."""
    np.savez(path, weight=weights["weight"].numpy()[:, 0], bias=weights["bias"].numpy())


class _Quadratic(nn.Module):
    """Scores that are linear in features and in their squares, as of Gaussian naive Bayes."""

    def __init__(self, weight: Tensor, bias: Tensor) -> None:
        super().__init__()
        self.linear = _linear(weight, bias)

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.linear(torch.cat([x, x * x], dim=1))
        return scores


def adopt(model: object, *, is_class: bool) -> nn.Linear | _Quadratic | Forest:
    """Turn a fitted estimator into a torch module, or a forest on shares.

    Linear models, linear support vectors and Gaussian naive Bayes become modules (also behind a
    StandardScaler in a pipeline), ensembles of trees become forests.

    Raises:
        ConfigError: it is no estimator that is known here; names it and what to do.
        DataError: its trees ask for something that is not computed on shares.
    """
    found = _adopted(model, is_class=is_class)
    if not isinstance(found, Forest):
        _check_kind(model, is_class=is_class)
        _check_answers(model, found)
    return found


def _adopted(model: object, *, is_class: bool) -> nn.Linear | _Quadratic | Forest:
    steps = getattr(model, "steps", None)
    if steps is not None and len(steps) == 2 and type(steps[0][1]).__name__ == "StandardScaler":
        inner = _adopted(steps[1][1], is_class=is_class)
        return _scaled(inner, steps[0][1])
    if hasattr(model, "coef_") and hasattr(model, "intercept_"):
        weight = np.atleast_2d(np.asarray(model.coef_, dtype=np.float64))
        bias = np.atleast_1d(np.asarray(model.intercept_, dtype=np.float64))
        if getattr(model, "kernel", "linear") != "linear" or len(bias) != len(weight):
            raise _unknown(model, "wanted a linear kernel and two classes")
        return _linear(*_of_classes(model, weight, bias))
    if hasattr(model, "theta_") and hasattr(model, "var_"):
        return _bayes(np.asarray(model.theta_), np.asarray(model.var_), model)
    if hasattr(model, "predict") or hasattr(model, "save_raw"):
        return make_forest(tacit.verify.import_ensemble(model), is_class=is_class)
    raise _unknown(model, "wanted a torch module, a function of ops, or a fitted estimator")


def features_of(made: nn.Linear | _Quadratic | Forest) -> int:
    """Return how many columns a row has for what was made of an estimator."""
    if isinstance(made, Forest):
        return made.features
    return made.linear.in_features // 2 if isinstance(made, _Quadratic) else made.in_features


def _unknown(model: object, why: str) -> ConfigError:
    return ConfigError(
        f"{type(model).__name__} cannot be made private: {why}. Known are torch modules, linear "
        "models, linear SVC, Gaussian naive Bayes (also behind a StandardScaler), and trees of "
        "scikit-learn, XGBoost and LightGBM"
    )


def _check_kind(model: object, *, is_class: bool) -> None:
    """Refuse the class of a regression."""
    if is_class and not hasattr(model, "classes_"):
        raise ConfigError(
            f"{type(model).__name__} has no classes, so its class would always be 0: take "
            "reveal='output'"
        )


def _check_answers(model: Any, made: nn.Linear | _Quadratic) -> None:
    """Compare with the estimator's own answers: some do more than their coefficients say.

    A Poisson regression applies exp, PLS centres its columns, an outlier detection takes a sign.
    """
    if not hasattr(model, "predict"):
        return
    wide = features_of(made)
    rows = np.sin(np.arange(1, 64 * wide + 1).reshape(64, wide))  # of no pattern, and many sizes
    rows *= 10.0 ** (np.arange(64) % 5 - 2)[:, None]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a model that was fitted to a frame wants names
        wanted = np.asarray(model.predict(rows))
    with torch.no_grad():
        found = made(torch.from_numpy(rows)).numpy()
    if hasattr(model, "classes_"):
        best = np.sort(found, axis=1)[:, -2:]
        is_clear = best[:, 1] - best[:, 0] > 1e-6 * np.abs(best).max(axis=1)
        is_same = np.asarray(model.classes_)[found.argmax(axis=1)] == wanted
        is_right = wanted.ndim == 1 and bool((is_same | ~is_clear).all())
    else:
        is_right = wanted.size == found.size and np.allclose(
            wanted.reshape(found.shape), found, rtol=1e-6, atol=1e-6 * np.abs(found).max()
        )
    if not is_right:
        raise _unknown(
            model,
            "what it predicts is not the linear score of its coefficients, but e.g. exp of it. "
            "Give that score as a torch.nn.Linear, and let its receiver do the rest",
        )


def _of_classes(model: object, weight: np.ndarray, bias: np.ndarray) -> tuple[Tensor, Tensor]:
    """Give a binary classifier two scores, as classes are positions of the largest one."""
    if hasattr(model, "classes_") and len(weight) == 1:
        weight = np.concatenate([np.zeros_like(weight), weight])
        bias = np.concatenate([np.zeros_like(bias), bias])
    return torch.tensor(weight), torch.tensor(bias)  # copies: a library's own may be read-only


def _linear(weight: Tensor, bias: Tensor) -> nn.Linear:
    layer = nn.Linear(weight.shape[1], weight.shape[0], dtype=torch.float64)
    with torch.no_grad():
        layer.weight.copy_(weight)
        layer.bias.copy_(bias)
    return layer


def _bayes(mean: np.ndarray, variance: np.ndarray, model: object) -> _Quadratic:
    """Write log p(class) + Σ log N(x; µ, σ²) as a polynomial, in a scale that fits the ring."""
    weight = np.concatenate([mean / variance, -0.5 / variance], axis=1)
    prior = np.log(np.asarray(getattr(model, "class_prior_")))  # noqa: B009 - any estimator
    bias = prior - 0.5 * (np.log(2 * np.pi * variance) + mean**2 / variance).sum(axis=1)
    # Neither a factor nor what all classes share changes which class is the likeliest.
    weight, bias = (one - one.mean(axis=0) for one in (weight, bias))
    scale = max(1.0, float(np.abs(weight).max()))
    return _Quadratic(torch.from_numpy(weight / scale), torch.from_numpy(bias / scale))


def _scaled(inner: nn.Module | Forest, scaler: object) -> nn.Linear:
    """Fold a scaler into the linear layer behind it."""
    if not isinstance(inner, nn.Linear):
        raise _unknown(scaler, "a scaler is folded into a linear model alone")
    # It notes the mean also where it does not take it away, and no scale where it has none.
    mean, spread = (
        torch.as_tensor(np.asarray(getattr(scaler, name) if does else off), dtype=torch.float64)
        for name, does, off in (
            ("mean_", getattr(scaler, "with_mean", True), 0.0),
            ("scale_", getattr(scaler, "with_std", True), 1.0),
        )
    )
    weight = inner.weight / spread
    return _linear(weight.detach(), (inner.bias - weight @ mean.expand(weight.shape[1])).detach())
