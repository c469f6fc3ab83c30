"""Models of scikit-learn, XGBoost and LightGBM, as something that can be made private."""

import numpy as np
import torch
from torch import Tensor, nn

import tacit  # for `tacit.verify`, which is loaded when it is used: it brings a compiler
from tacit.errors import ConfigError
from tacit.learn.private.forest import Forest, make_forest


class _Quadratic(nn.Module):
    """Scores that are linear in features and in their squares, as of Gaussian naive Bayes."""

    def __init__(self, weight: Tensor, bias: Tensor) -> None:
        super().__init__()
        self.linear = _linear(weight, bias)

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.linear(torch.cat([x, x * x], dim=1))
        return scores


def adopt(model: object, *, is_class: bool) -> nn.Module | Forest:
    """Turn a fitted estimator into a torch module, or a forest on shares.

    Linear models, linear support vectors and Gaussian naive Bayes become modules (also behind a
    StandardScaler in a pipeline), ensembles of trees become forests.

    Raises:
        ConfigError: it is no estimator that is known here; names it and what to do.
        DataError: its trees ask for something that is not computed on shares.
    """
    steps = getattr(model, "steps", None)
    if steps is not None and len(steps) == 2 and type(steps[0][1]).__name__ == "StandardScaler":
        inner = adopt(steps[1][1], is_class=is_class)
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


def _unknown(model: object, why: str) -> ConfigError:
    return ConfigError(
        f"{type(model).__name__} cannot be made private: {why}. Known are torch modules, linear "
        "models, linear SVC, Gaussian naive Bayes (also behind a StandardScaler), and trees of "
        "scikit-learn, XGBoost and LightGBM"
    )


def _of_classes(model: object, weight: np.ndarray, bias: np.ndarray) -> tuple[Tensor, Tensor]:
    """Give a binary classifier two scores, as classes are positions of the largest one."""
    if hasattr(model, "classes_") and len(weight) == 1:
        weight = np.concatenate([np.zeros_like(weight), weight])
        bias = np.concatenate([np.zeros_like(bias), bias])
    return torch.from_numpy(weight), torch.from_numpy(bias)


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


def _scaled(inner: nn.Module | Forest, scaler: object) -> nn.Module:
    """Fold a scaler into the linear layer behind it."""
    if not isinstance(inner, nn.Linear):
        raise _unknown(scaler, "a scaler is folded into a linear model alone")
    mean = torch.as_tensor(np.asarray(getattr(scaler, "mean_", 0.0)), dtype=torch.float64)
    spread = torch.as_tensor(np.asarray(getattr(scaler, "scale_", 1.0)), dtype=torch.float64)
    weight = inner.weight / spread
    return _linear(weight.detach(), (inner.bias - weight @ mean.expand(weight.shape[1])).detach())
