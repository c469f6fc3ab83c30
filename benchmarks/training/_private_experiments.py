"""What features, starts, partners and clipping are worth at ε = 2: in the clear, the same steps.

    python benchmarks/run.py training/_private_experiments mnist.npz
        features alone federated audit start
    python benchmarks/run.py training/_private_experiments cifar-features.npz alone federated start

On shares the same steps with the same noise give the same accuracy to 0.2 points
(`_private_dp.py`), so that tables of many trainings are made here. The file holds x_train, y_train,
x_test and y_test: pictures of 28 × 28 pixels (histograms of gradients), or rows of features. Three
owners, joint noise, δ = 1/(10·rows), softmax regression, momentum, full batches.
"""

import argparse
import json
from collections.abc import Callable
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch import Tensor, nn
from training._plans import plan_of

from tacit.audit.estimators import Ranking
from tacit.audit.privacy import one_run_epsilon
from tacit.mpc import Roles
from tacit.nn import HistogramsOfGradients
from tacit.ring import Prg
from tacit.training import Privacy, Training, TrainModel, TrainPlan, gradients
from tacit.training.gradients import plan_noise, shorten_rows
from tacit.training.loop import walk_plain
from tacit.training.noise import draw_alone

EPSILON, STEPS, RATE = 2.0, 50, 20.0
Data = tuple[Tensor, Tensor, Tensor, Tensor]


def task_of(rows: list[int], width: int, classes: int, **changes: Any) -> TrainPlan:
    """Return the training of so many rows of each owner."""
    model = nn.Linear(width, classes)
    nn.init.zeros_(model.weight)
    nn.init.zeros_(model.bias)
    steps = changes.pop("steps", STEPS)
    given = {"epsilon": EPSILON, "delta": 0.1 / sum(rows), "noise": "joint", **changes}
    return plan_of(
        model,
        (width,),
        dict(zip("abc", rows, strict=False)),
        roles=Roles("a", "b", "dealer"),
        model=TrainModel(bound=64.0),
        training=Training(epochs=steps, rate=RATE, optimiser="momentum"),
        privacy=Privacy(**given),
    )


def accuracy(data: Data, rows: list[int], noise: Any = None, **changes: Any) -> float:
    """Train in the clear with the noise of the task, and measure on the test rows."""
    x, y, x_test, y_test = data
    classes = int(y_test.max()) + 1
    task = task_of(rows, x.shape[1], classes, **changes)
    hot = nn.functional.one_hot(y[: sum(rows)], classes).double()
    found = None if noise is None else iter(noise(task))
    weights, _ = walk_plain(task, x[: sum(rows)], hot, noise=found)
    scores = shorten_rows(x_test, frac_bits=16) @ weights["weight"].T + weights["bias"]
    return float((scores.argmax(1) == y_test).double().mean())


def mean(measure: Callable[[], float], times: int = 3) -> str:
    """Repeat, and give mean and spread in percent."""
    found = [100 * measure() for _ in range(times)]
    return f"{np.mean(found):.2f} ± {np.std(found):.2f}"


def features(data: Data, raw: Data, each: int) -> dict[str, str]:
    """Compare features with the pixels themselves."""
    rows = [each] * 3
    return {
        "features": mean(lambda: accuracy(data, rows)),
        "raw": mean(lambda: accuracy(raw, rows)),
    }


def noise_of(parts: int, scale: float = 1.0) -> Callable[[TrainPlan], Any]:
    """Make noise of so many times the variance that the claim wants, ``scale`` of it each."""

    def words(task: TrainPlan) -> Any:
        plan = plan_noise(task)
        if plan is None:
            raise SystemExit("not a private task")
        for _ in range(task.spec.training.epochs):
            drawn = [draw_alone(plan.steps, Prg.from_os()) for _ in range(parts)]
            yield scale**0.5 * torch.stack(drawn).sum(dim=0)

    return words


def alone(data: Data, raw: Data, each: int) -> dict[str, str]:
    """Compare one owner, which draws all of the noise, with all of them."""
    return {
        "one owner": mean(lambda: accuracy(data, [each], noise_of(1))),
        "all three, joint noise": mean(lambda: accuracy(data, [each] * 3)),
        "all three, parts of four parties": mean(
            lambda: accuracy(data, [each] * 3, noise_of(1, 4 / 3))
        ),
    }


def federated(data: Data, raw: Data, each: int) -> dict[str, str]:
    """Compare with owners that add up updates, each of which is private by itself."""
    return {
        "on shares, joint noise": mean(lambda: accuracy(data, [each] * 3)),
        "every owner adds all of the noise": mean(lambda: accuracy(data, [each] * 3, noise_of(3))),
    }


def start(data: Data, raw: Data, each: int) -> dict[str, str]:
    """Compare starts with rows at random and by class: ε is that of the whole training."""
    x, y, x_test, y_test = data
    order = torch.argsort(y[: 3 * each], stable=True)
    sorted_data = (x[: 3 * each][order], y[: 3 * each][order], x_test, y_test)
    found = {}
    for name, given in (("at random", data), ("by class", sorted_data)):
        for kind, own, steps in (
            ("public", 0, 2),
            ("average", 20, 1),
            ("best", 20, 1),
            ("public", 0, STEPS),
            ("average", 20, 30),
            ("best", 20, 30),
        ):
            found[f"{name}: {kind}, {own} steps alone, {steps} together"] = mean(
                lambda given=given, kind=kind, own=own, steps=steps: accuracy(  # type: ignore[misc]
                    given, [each] * 3, start=kind, start_steps=own, steps=steps
                )
            )
    return found


def audit(data: Data, raw: Data, each: int) -> dict[str, Any]:
    """Look for canaries: each has a feature of its own, and is there or not by a coin."""
    count, rows = 1000, 3000
    x, y = data[0][:rows], data[1][:rows]
    wide = torch.cat([0.5 * x, torch.zeros(rows, count)], dim=1)
    marks = torch.cat([torch.zeros(count, x.shape[1]), torch.eye(count)], dim=1).double()
    classes = int(y.max()) + 1
    found: dict[str, Any] = {"claim": EPSILON}
    for name, is_clipped in (("clipped", True), ("clipping left out", False)):
        bounds = []
        for run in range(5):
            coins = np.random.default_rng(run)
            joined = coins.integers(0, 2, count).astype(bool)
            labels = torch.from_numpy(coins.integers(0, classes, count))
            task = task_of([rows + count], wide.shape[1], classes, clip=2.0**-3, steps=10)
            given = torch.cat([wide, marks * torch.from_numpy(joined)[:, None]])
            hot = nn.functional.one_hot(torch.cat([y, labels]), classes).double()
            hot[rows:] *= torch.from_numpy(joined)[:, None]
            weights = _audited(task, given, hot, is_clipped=is_clipped, absent=~joined, rows=rows)
            own = weights["weight"][:, x.shape[1] :].T
            scores = own.gather(1, labels[:, None])[:, 0].numpy()
            ranking = Ranking(scores=scores, is_positive=joined)
            delta = 0.1 / (rows + count)
            bounds.append(round(one_run_epsilon(ranking, delta=delta).epsilon, 3))
        found[name] = bounds
    return found


def _audited(
    task: TrainPlan, x: Tensor, y: Tensor, *, is_clipped: bool, absent: np.ndarray, rows: int
) -> dict[str, Tensor]:
    """Train with records that add nothing where they are absent."""
    real = gradients.clip_factors

    def factors(ops: Any, uses: Any, found: Any, **given: Any) -> Tensor:
        kept = real(ops, uses, found, **given)
        if not is_clipped:
            kept = torch.ones_like(kept)
        kept[rows:][torch.from_numpy(absent)] = 0.0
        return kept

    with mock.patch.object(gradients, "clip_factors", factors):
        weights, _ = walk_plain(task, x, y)
    return weights


PARTS = {
    "features": features,
    "alone": alone,
    "federated": federated,
    "start": start,
    "audit": audit,
}


def main() -> None:
    """Print every table that is asked for."""
    parser = argparse.ArgumentParser()
    parser.add_argument("file")
    parser.add_argument("parts", nargs="+", choices=list(PARTS))
    parser.add_argument("--rows", type=int, default=4000, help="of each owner")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    found = np.load(asked.file)
    y, y_test = (torch.from_numpy(found[name].astype(np.int64)) for name in ("y_train", "y_test"))
    order = np.random.default_rng(0).permutation(len(y))[: 3 * asked.rows]
    x, x_test = found["x_train"][order], found["x_test"]
    raw = [torch.from_numpy(one.reshape(len(one), -1) / 255.0) for one in (x, x_test)]
    made = [torch.from_numpy(one).double() for one in (x, x_test)]
    if x.ndim == 3:
        rule = HistogramsOfGradients()
        made = [torch.from_numpy(rule(one / 255.0)) for one in (x, x_test)]
    y = y[order]
    for part in asked.parts:
        table = PARTS[part]((made[0], y, made[1], y_test), (raw[0], y, raw[1], y_test), asked.rows)
        print(json.dumps({part: table}, indent=1, ensure_ascii=False), flush=True)


if __name__ == "__main__":
    main()
