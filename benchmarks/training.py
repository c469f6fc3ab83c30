"""Private training: accuracy beside plaintext, seconds and bytes of a step, and CrypTen beside us.

Run as a program, one part or several:
  python benchmarks/training.py steps crypten --quick
  python benchmarks/training.py accuracy epoch --out training.json
Parties are processes of one thread each on this machine, over TLS. `accuracy` trains privately and
in the clear with the same seeds and batches. `steps` has the shapes of tables 5.2 and 5.3 of seed
000 over links of 80 Mbit/s and 40 ms round-trip time; the seed's figures stand beside ours and
were measured by its author on another machine. `crypten` wants its environment under
benchmarks/.peers/crypten (`tacit bench mpc --peers` makes it). `epoch` compares what one epoch
of MNIST sends with its forecast.
"""

import argparse
import json
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any

import torch
from _training_parties import Network, Shape, run_parties, time_steps, train_whole
from torch import Tensor

from tacit.cli.environment import data_folders
from tacit.learn import load_dataset
from tacit.learn.training import train_plain

PROTOCOLS = ("permuted3", "sealed")
HERE = Path(__file__).parent
WIDE = Network(rtt_ms=40.0, mbit_per_s=80.0)
LENET = (
    *("conv 6 5 1 2", "relu", "avgpool 2", "conv 16 5", "relu", "avgpool 2", "flatten"),
    *("dense 120", "relu", "dense 84", "relu", "dense 10"),
)
SEED_SECONDS = {
    ("LR", "inference", 64): (0.099, 0.103),
    ("LR", "training", 64): (0.279, 0.209),
    ("DNN1", "inference", 64): (0.19, 0.39),
    ("DNN1", "training", 64): (0.54, 0.78),
    ("DNN2", "inference", 128): (1.26, 12.54),
    ("DNN2", "training", 128): (2.58, 24.84),
}
"""Seconds and megabytes that seed 000 states for its method in tables 5.2 and 5.3."""
STEP_MODELS: dict[str, tuple[tuple[str, ...], tuple[int, ...]]] = {
    "LR": (("dense 1",), (100,)),
    "DNN1": (("dense 50", "sigmoid", "dense 1"), (100,)),
    "DNN2": (("dense 500", "sigmoid", "dense 1"), (1000,)),
}
Rows = list[dict[str, Any]]


def main() -> None:
    """Run the parts asked for, print their rows and write them as JSON."""
    asked = _options()
    torch.set_num_threads(1)
    found: dict[str, Rows] = {}
    for part in asked.parts:
        found[part] = []
        for row in PARTS[part](asked):
            found[part].append(row)
            print(_line(part, row), flush=True)
    if asked.out is not None:
        content = {"torch": torch.__version__, "quick": asked.quick, **found}
        asked.out.write_text(json.dumps(content, indent=1) + "\n")


def measure_accuracy(asked: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Train privately and in the clear, and compare the last look."""
    for name, shape, rows, labels, test_rows in _accuracy_tasks(asked):
        task = shape.task(len(rows), test_rows)
        plain = train_plain(task, rows, labels)
        for protocol in asked.protocols:
            own = replace(shape, protocol=protocol)
            work = partial(train_whole, shape=own, rows=rows, labels=labels, test_rows=test_rows)
            answer = run_parties(work)[0]
            private = answer["shown"]
            yield {
                "model": name,
                "protocol": protocol,
                "accuracy": private[-1][2],
                "plain": plain[-1][2],
                "points": 100 * (private[-1][2] - plain[-1][2]),
                "seconds": answer["seconds"],
                "private_curve": private,
                "plain_curve": plain,
                "test_rows": test_rows,
            }


def _accuracy_tasks(
    asked: argparse.Namespace,
) -> Iterator[tuple[str, Shape, Tensor, Tensor, int]]:
    epochs = 1 if asked.quick else asked.epochs
    common = {"protocol": "permuted3", "batch": 128, "epochs": epochs, "look_every": 100}
    momentum = {"optimiser": "momentum", "rate": 0.05}
    if asked.quick:
        common["look_every"] = 5
    rows, labels = _mnist(1500 if asked.quick else 70_000)
    test = len(rows) // 7
    flat = rows.reshape(len(rows), -1)
    one = Shape(layers=("dense 128", "relu", "dense 10"), inputs=(784,), **common, **momentum)
    yield "784-128-10", one, flat, labels, test
    if not asked.quick:
        two = ("dense 128", "relu", "dense 32", "sigmoid", "dense 10")
        yield "784-128-32-10", replace(one, layers=two), flat, labels, test
        lenet = replace(one, layers=LENET, inputs=(1, 28, 28), cap=64.0)
        yield "LeNet", lenet, rows.reshape(-1, 1, 28, 28), labels, test
    rows, labels = make_gisette(700 if asked.quick else 7000)
    binary = Shape(
        layers=("dense 1",),
        inputs=(5000,),
        loss="logistic",
        **{**common, "batch": 64},
        rate=0.02,
    )
    yield "Gisette-like", binary, rows, labels, len(rows) // 7


def make_gisette(count: int) -> tuple[Tensor, Tensor]:
    """Make a binary task like Gisette: 5000 features, half of them noise, sparse, 0 to 1."""
    generator = torch.Generator().manual_seed(7)
    labels = (torch.empty(count).uniform_(generator=generator) < 0.5).double()
    centres = torch.empty(2, 2500).normal_(generator=generator) * 0.12
    real = centres[labels.long()] + torch.empty(count, 2500).normal_(generator=generator) * 0.6
    noise = torch.empty(count, 2500).normal_(generator=generator) * 0.6
    # Gisette's features are pixels and products of pixels: most are zero.
    rows = torch.cat((real, noise), dim=1).clamp(0, 1).double()
    return rows, labels.reshape(-1, 1)


def _mnist(count: int) -> tuple[Tensor, Tensor]:
    dataset = load_dataset("mnist", data_folders())
    rows = torch.from_numpy(dataset.scaled()[:count]).double()
    labels = torch.from_numpy(dataset.labels[:count])
    return rows, torch.nn.functional.one_hot(labels, 10).double()


def measure_steps(asked: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Time single steps and inferences over slow links."""
    steps = 4 if asked.quick else 20
    for (model, what, batch), (seconds, megabytes) in SEED_SECONDS.items():
        if model not in asked.models:
            continue
        layers, inputs = STEP_MODELS[model]
        for protocol in asked.protocols:
            shape = Shape(
                layers=layers, inputs=inputs, protocol=protocol, batch=batch, loss="logistic"
            )
            row = _time(shape, steps, what, WIDE)
            yield {
                "model": model,
                "what": what,
                "batch": batch,
                "protocol": protocol,
                **row,
                "seed_seconds": seconds,
                "seed_megabytes": megabytes,
            }


def _time(shape: Shape, steps: int, what: str, network: Network | None) -> dict[str, Any]:
    answers = run_parties(partial(time_steps, shape=shape, steps=steps, what=what), network)
    computing = answers[:2]
    took = max(one["end"] for one in computing) - min(one["start"] for one in computing)
    return {
        "seconds": took / steps,
        # Every message is counted by who sends and by who receives it.
        "megabytes": sum(one["bytes"] for one in answers) / 2e6 / steps,
        "planned_megabytes": answers[0]["planned_bytes"] / 1e6,
        "rounds": answers[0]["rounds"],
        "steps": steps,
    }


def measure_crypten(asked: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Time CrypTen's training step and ours in turn, on loopback."""
    batch, widths, steps = 128, (784, 128, 128, 10), 2 if asked.quick else 5
    python = HERE / ".peers" / "crypten" / "bin" / "python"
    layers = [f"dense {width}" for width in widths[1:]]
    words = [word for layer in layers for word in (layer, "relu")][:-1]
    for turn in range(1 if asked.quick else 3):
        for protocol in asked.protocols:
            # Weights of at most 2 keep the values of three layers within the word.
            shape = Shape(
                layers=tuple(words),
                inputs=(784,),
                protocol=protocol,
                batch=batch,
                weight_bound=2.0,
            )
            yield {
                "who": f"tacit {protocol}",
                "turn": turn,
                **_time(shape, steps, "training", None),
            }
        if not python.exists():
            yield {"who": "CrypTen", "turn": turn, "seconds": None, "note": f"no {python}"}
            continue
        asked_for = [str(number) for number in (steps, batch, *widths)]
        command = [str(python), str(HERE / "_training_crypten.py"), *asked_for]
        said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        seconds = json.loads(said.strip().splitlines()[-1])
        yield {"who": "CrypTen", "turn": turn, "seconds": statistics.mean(seconds), "steps": steps}


def measure_epoch(asked: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Train one epoch of MNIST under each protocol; compare what was sent with the forecast."""
    rows, labels = _mnist(1200 if asked.quick else 60_000)
    flat = rows.reshape(len(rows), -1)
    for protocol in asked.protocols:
        shape = Shape(
            layers=("dense 128", "relu", "dense 10"),
            inputs=(784,),
            protocol=protocol,
            batch=128,
            optimiser="sgd",
            look_every=100,
        )
        test = len(flat) // 7
        work = partial(train_whole, shape=shape, rows=flat, labels=labels, test_rows=test)
        started = monotonic()
        answers = run_parties(work)
        metered, forecast = (_total(answers, key) for key in ("metered", "forecast"))
        yield {
            "protocol": protocol,
            "rows": len(flat),
            "seconds": answers[0]["seconds"],
            "seconds_with_start": monotonic() - started,
            "metered_bytes": metered,
            "forecast_bytes": forecast,
            "off_by_percent": 100 * abs(metered / forecast - 1),
            "rounds": answers[0]["rounds"],
            "forecast_rounds": answers[0]["forecast_rounds"],
            "accuracy": answers[0]["shown"][-1][2],
        }


def _total(answers: list[dict[str, Any]], key: str) -> int:
    return sum(sum(one[key].values()) for one in answers)


PARTS: dict[str, Callable[[argparse.Namespace], Iterator[dict[str, Any]]]] = {
    "accuracy": measure_accuracy,
    "steps": measure_steps,
    "crypten": measure_crypten,
    "epoch": measure_epoch,
}


def _line(part: str, row: dict[str, Any]) -> str:
    shown = {key: value for key, value in row.items() if not key.endswith("_curve")}
    words = [
        f"{key}={value:.4g}" if isinstance(value, float) else f"{key}={value}"
        for key, value in shown.items()
    ]
    return f"{part}: " + ", ".join(words)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("parts", nargs="+", choices=list(PARTS))
    parser.add_argument("--protocols", nargs="+", default=list(PROTOCOLS))
    parser.add_argument("--models", nargs="+", default=list(STEP_MODELS), help="of part steps")
    parser.add_argument("--epochs", type=int, default=3, help="of part accuracy")
    parser.add_argument("--quick", action="store_true", help="little data, few repeats")
    parser.add_argument("--out", type=Path, help="write rows and curves to this JSON file")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
