"""What a start from models that owners train alone is worth, in the clear with the same noise.

    python benchmarks/run.py training/_private_start

Digits of scikit-learn (histograms of gradients), three owners of 500 rows, ε = 2, δ = 1e-5, mean of
three trainings, 297 rows for the test: dealt out at random, and sorted by class.
"""

import json

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn
from training._plans import plan_of

from tacit.mpc import Roles
from tacit.nn import HistogramsOfGradients
from tacit.training import Privacy, Training, TrainModel
from tacit.training.loop import walk_plain

SETTINGS = (
    ("public", 0, 30),
    ("public", 0, 2),
    ("average", 15, 1),
    ("best", 15, 1),
    ("average", 10, 20),
    ("best", 10, 20),
)
ROWS = 1500


def main() -> None:
    """Print a table as JSON."""
    pictures, y = load_digits(return_X_y=True)
    x = torch.from_numpy(HistogramsOfGradients()(pictures.reshape(-1, 8, 8) / 16))
    orders = {
        "at random": np.random.default_rng(0).permutation(ROWS),
        "by class": np.argsort(y[:ROWS], kind="stable"),
    }
    labels = torch.from_numpy(y)
    found = [
        {
            "rows": name,
            "start": start,
            "steps alone": alone,
            "steps": steps,
            "accuracy": round(
                float(np.mean([_accuracy(x, labels, o, start, alone, steps) for _ in range(3)])), 4
            ),
        }
        for name, o in orders.items()
        for start, alone, steps in SETTINGS
    ]
    print(json.dumps(found, indent=1))


def _accuracy(
    x: torch.Tensor, y: torch.Tensor, order: np.ndarray, start: str, alone: int, steps: int
) -> float:
    model = nn.Linear(x.shape[1], 10)
    nn.init.zeros_(model.weight)
    nn.init.zeros_(model.bias)
    inputs = tuple(x.shape[1:])
    task = plan_of(
        model,
        inputs,
        dict.fromkeys("abc", ROWS // 3),
        roles=Roles("a", "b", "dealer"),
        model=TrainModel(bound=64.0),
        training=Training(epochs=steps, rate=10.0, optimiser="momentum"),
        privacy=Privacy(epsilon=2.0, delta=1e-5, start=start, start_steps=alone),  # type: ignore[arg-type]
    )
    hot = nn.functional.one_hot(y[order], 10).double()
    weights, _ = walk_plain(task, x[order], hot)
    scores = x[ROWS:] @ weights["weight"].T + weights["bias"]
    return float((scores.argmax(1) == y[ROWS:]).double().mean())


if __name__ == "__main__":
    main()
