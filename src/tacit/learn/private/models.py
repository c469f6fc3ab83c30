"""Where a model owner's logistic regression comes from: trained on its own rows, or a file."""

from pathlib import Path
from zipfile import BadZipFile

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler
from torch import Tensor

from tacit.errors import DataError
from tacit.learn.dataset import Dataset
from tacit.learn.private.predict import as_weights


def scaled_features(dataset: Dataset) -> Tensor:
    """Divide features by their public scale, as every party of a job does."""
    if dataset.features.ndim != 2:
        raise DataError(
            f"{dataset.name}: wanted a table of rows and features, "
            f"got an array of shape {dataset.features.shape}"
        )
    return torch.from_numpy(np.ascontiguousarray(dataset.scaled()))


def train_logistic(dataset: Dataset) -> dict[str, Tensor]:
    """Train on the owner's own rows, in the clear, and fold the standardisation into the weights.

    Folding keeps the means and spreads of the training rows inside the model, where they are
    protected, instead of publishing them for the data owner to apply.
    """
    if set(np.unique(dataset.labels)) != {0, 1}:
        raise DataError(
            f"{dataset.name}: logistic regression wants the labels 0 and 1, "
            f"got {sorted(set(dataset.labels.tolist()))[:10]}"
        )
    x = scaled_features(dataset).numpy()
    scaler = StandardScaler().fit(x)
    model = LogisticRegression(max_iter=1000).fit(scaler.transform(x), dataset.labels)
    weight = model.coef_[0] / scaler.scale_
    bias = model.intercept_[0] - float(weight @ scaler.mean_)
    return as_weights(torch.from_numpy(weight), torch.tensor(bias))


def load_logistic(path: Path) -> dict[str, Tensor]:
    """Read ``weight`` (features) and ``bias`` from an .npz file, for features divided by scale."""
    try:
        # Opened here, because numpy leaves the file open when it is no archive.
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            weight, bias = arrays["weight"], arrays["bias"]
            found = as_weights(torch.from_numpy(weight), torch.from_numpy(np.asarray(bias)))
    except FileNotFoundError as error:
        raise DataError(f"model file {path} does not exist") from error
    except (KeyError, ValueError, TypeError, OSError, RuntimeError, BadZipFile, EOFError) as error:
        raise DataError(
            f"model file {path}: wanted an .npz with numeric arrays 'weight' and 'bias', "
            f"got {type(error).__name__}"
        ) from error
    if not all(bool(torch.isfinite(part).all()) for part in found.values()):
        raise DataError(f"model file {path} holds NaN or infinite weights")
    return found


def save_logistic(path: Path, weights: dict[str, Tensor]) -> None:
    """Write a model file that `load_logistic` reads."""
    np.savez(path, weight=weights["weight"].numpy()[:, 0], bias=weights["bias"].numpy())
