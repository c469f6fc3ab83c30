"""Train on edges of MNIST with DP, on shares and in the clear with the same words of noise.

    python benchmarks/_private_dp.py mnist.npz --rows 60000 --steps 50

Prints accuracy of both, ε, seconds and bytes. The file holds x_train, y_train, x_test and y_test.
"""

import argparse
import json
import time
from collections import defaultdict
from threading import get_ident
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch import Tensor

from tacit.learn.features import HistogramsOfGradients
from tacit.learners import Descent, Local, Privacy, private, train_private
from tacit.learners.makers import NoisePlan, draw_noise
from tacit.learners.private_plain import train_in_clear

OWNERS = ("first", "second", "third")


def main() -> None:
    """Measure one training."""
    parser = argparse.ArgumentParser()
    parser.add_argument("file")
    parser.add_argument("--rows", type=int, default=60_000)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--rate", type=float, default=20.0)
    parser.add_argument("--epsilon", type=float, default=2.0)
    found = parser.parse_args()
    data = np.load(found.file)
    x, x_test = _cut(data["x_train"][: found.rows]), _cut(data["x_test"])
    y, y_test = (torch.from_numpy(data[name].astype(np.int64)) for name in ("y_train", "y_test"))
    y = y[: found.rows]
    privacy = Privacy(epsilon=found.epsilon, delta=0.1 / found.rows, steps=found.steps)
    descent = Descent(rate=found.rate, fit_intercept=False)
    print(json.dumps(_measure(x, y, x_test, y_test, privacy, descent), indent=1))


def _cut(pictures: Any) -> Tensor:
    histograms = HistogramsOfGradients()
    parts = [histograms(pictures[at : at + 2000] / 255.0) for at in range(0, len(pictures), 2000)]
    return torch.from_numpy(np.concatenate(parts))


def _measure(
    x: Tensor, y: Tensor, x_test: Tensor, y_test: Tensor, privacy: Privacy, descent: Descent
) -> dict[str, Any]:
    drawn: dict[int, list[Tensor]] = defaultdict(list)

    def noted(plan: NoisePlan) -> Tensor:
        drawn[get_ident()].append(draw_noise(plan))
        return drawn[get_ident()][-1]

    cut = torch.tensor_split(torch.arange(len(x)), len(OWNERS))
    parts = {owner: (x[at].numpy(), y[at].numpy()) for owner, at in zip(OWNERS, cut, strict=True)}
    begun = time.perf_counter()
    with mock.patch.object(private, "draw_noise", noted), Local(*OWNERS, frac_bits=16) as parties:
        trained = train_private(parties, parts, classes=range(10), privacy=privacy, descent=descent)
    seconds = time.perf_counter() - begun
    noise = [torch.stack(one).sum(dim=0) for one in zip(*drawn.values(), strict=True)]
    plain = train_in_clear(x, y, noise, clip=privacy.clip, descent=descent)
    scores = trained.scores(x_test.numpy())
    weights = torch.as_tensor(trained.weights).double()
    return {
        "rows": len(x),
        "steps": privacy.steps,
        "epsilon": trained.claim.epsilon,
        "delta": privacy.delta,
        "accountant": trained.claim.accountant,
        "accuracy on shares": float((scores.argmax(1) == y_test).double().mean()),
        "accuracy in the clear": float(((x_test @ plain).argmax(1) == y_test).double().mean()),
        "largest difference of weights": float((weights - plain).abs().max()),
        "largest weight": float(plain.abs().max()),
        "seconds": seconds,
        "MB online": sum(one.payload_bytes for one in trained.cost.traffic if one.phase == "online")
        / 1e6,
    }


if __name__ == "__main__":
    main()
