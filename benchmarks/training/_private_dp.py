"""Train on features with DP, on shares and in the clear with the same words of noise.

    python benchmarks/run.py training/_private_dp mnist.npz --rows 60000 --steps 50 --noise joint

Prints accuracy of both, ε, seconds and bytes. The file holds x_train, y_train, x_test and y_test;
pictures (28 × 28 pixels of 0 to 255) become histograms of gradients, other rows stay as they are.
"""

import argparse
import json
import resource
import time
from collections import defaultdict
from threading import get_ident
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch import Tensor, nn

import tacit
from tacit.nn import HistogramsOfGradients
from tacit.ring import Prg
from tacit.training import Privacy, Training, schedule
from tacit.training.gradients import plan_noise, shorten_rows
from tacit.training.loop import walk_plain
from tacit.training.noise import NoisePlan, coarse_of, draw_coins, draw_noise

OWNERS = ("first", "second", "third")


def main() -> None:
    """Measure one training."""
    parser = argparse.ArgumentParser()
    parser.add_argument("file")
    parser.add_argument("--rows", type=int, default=60_000)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--rate", type=float, default=20.0)
    parser.add_argument("--epsilon", type=float, default=2.0)
    parser.add_argument("--block", type=int, default=2, help="cells on a side that share a norm")
    parser.add_argument("--noise", choices=["parts", "joint"], default="parts")
    found = parser.parse_args()
    data = np.load(found.file)
    x, x_test = (_rows(one, found.block) for one in (data["x_train"][: found.rows], data["x_test"]))
    y, y_test = (torch.from_numpy(data[name].astype(np.int64)) for name in ("y_train", "y_test"))
    how = Training(epochs=found.steps, rate=found.rate, optimiser="momentum")
    print(json.dumps(_measure(x, y[: len(x)], x_test, y_test, found, how), indent=1))


def _rows(given: Any, block: int) -> Tensor:
    if given.ndim != 3:
        return torch.from_numpy(given).double()
    histograms = HistogramsOfGradients(block=block)
    parts = [histograms(given[at : at + 2000] / 255.0) for at in range(0, len(given), 2000)]
    return torch.from_numpy(np.concatenate(parts))


def _measure(
    x: Tensor, y: Tensor, x_test: Tensor, y_test: Tensor, asked: Any, how: Training
) -> dict[str, Any]:
    drawn: dict[int, list[Tensor]] = defaultdict(list)
    coins: dict[int, list[Tensor]] = defaultdict(list)

    def noted(plan: NoisePlan, prg: Prg) -> Tensor:
        drawn[get_ident()].append(draw_noise(plan, prg))
        return drawn[get_ident()][-1]

    def tossed(shape: tuple[int, ...], prg: Prg) -> Tensor:
        coins[get_ident()].append(draw_coins(shape, prg))
        return coins[get_ident()][-1]

    classes = int(y.max()) + 1
    model = nn.Linear(x.shape[1], classes)
    nn.init.zeros_(model.weight)
    nn.init.zeros_(model.bias)
    cut = torch.tensor_split(torch.arange(len(x)), len(OWNERS))
    owners = {name: (x[at], y[at]) for name, at in zip(OWNERS, cut, strict=True)}
    begun, worked = time.perf_counter(), time.process_time()
    with (
        mock.patch.object(schedule, "draw_noise", noted),
        mock.patch.object(schedule, "draw_coins", tossed),
    ):
        trained = tacit.train(
            model,
            owners,
            training=how,
            privacy=Privacy(epsilon=asked.epsilon, delta=0.1 / len(x), noise=asked.noise),
        )
    seconds, worked = time.perf_counter() - begun, time.process_time() - worked
    noise = [torch.stack(one).sum(dim=0) for one in zip(*drawn.values(), strict=True)]
    plan = plan_noise(trained.plan)
    assert plan is not None  # noqa: S101 - it was trained with one
    for at, both in enumerate(zip(*coins.values(), strict=True)):
        noise[at] = noise[at] + coarse_of(both[0] + both[1], step=plan.steps.step) * 2.0**-16
    hot = nn.functional.one_hot(y, classes).double()
    plain, _ = walk_plain(trained.plan, x, hot, noise=iter(noise))
    scores = shorten_rows(x_test, frac_bits=16) @ plain["weight"].T + plain["bias"]
    assert trained.claim is not None  # noqa: S101 - it was trained with one
    assert trained.model is not None  # noqa: S101 - its weights are given
    far = (trained.model.state_dict()["weight"].double() - plain["weight"]).abs().max()
    return {
        "rows": len(x),
        "steps": how.epochs,
        "epsilon": trained.claim.epsilon,
        "delta": trained.claim.delta,
        "accountant": trained.claim.accountant,
        "accuracy on shares": float((trained.predict(x_test) == y_test).double().mean()),
        "accuracy in the clear": float((scores.argmax(1) == y_test).double().mean()),
        "largest difference of weights": float(far),
        "largest weight": float(plain["weight"].abs().max()),
        "noise multiplier in all": (plan.steps.whole / plan.steps.wanted) ** 0.5
        * (float(plan.steps.wanted) ** 0.5 / 2**16 / plan.steps.l2_sensitivity),
        "seconds": seconds,
        "seconds of processor time": worked,
        "GiB at most": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
        "MB online": sum(one.payload_bytes for one in trained.cost.traffic if one.phase == "online")
        / 1e6,
    }


if __name__ == "__main__":
    main()
