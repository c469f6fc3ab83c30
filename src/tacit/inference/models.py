"""Where a model owner's logistic regression comes from: trained on its own rows, or a file."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from tacit.data import Rows
from tacit.errors import DataError
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
