"""Private training: accuracy beside plaintext, seconds and bytes of a step, and CrypTen beside us.

Run as a program, one part or several:
  python benchmarks/run.py training/networks steps crypten --quick
  python benchmarks/run.py training/networks accuracy epoch --out training.json
Parties are processes of one thread each on this machine, over TLS. `accuracy` trains privately and
in the clear with the same seeds and batches. `steps` has the shapes of tables 5.2 and 5.3 of seed
000 over links of 80 Mbit/s and 40 ms round-trip time; the seed's figures stand beside ours and
were measured by its author on another machine. `crypten` wants its environment under
benchmarks/.peers/crypten (`python benchmarks/run.py mpc/operations --peers` makes it). `epoch`
compares what one epoch of MNIST sends with its forecast.
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
from typing import Any

import torch
from training._accuracy import Case, Row, models, run_cases
from training._parties import Network, Shape, run_parties, time_steps

PROTOCOLS = ("permuted3", "sealed")
HERE = Path(__file__).parents[1]
WIDE = Network(rtt_ms=40.0, mbit_per_s=80.0)
SEED = {
    ("LR 100", "inference", 64): (0.099, 0.103),
    ("LR 100", "training", 64): (0.279, 0.209),
    ("LR 100", "inference", 128): (0.108, 0.202),
    ("LR 100", "training", 128): (0.281, 0.413),
    ("LR 1000", "inference", 64): (0.132, 0.996),
    ("LR 1000", "training", 64): (0.294, 1.988),
    ("LR 1000", "inference", 128): (0.114, 1.975),
    ("LR 1000", "training", 128): (0.334, 3.949),
    ("DNN1", "inference", 64): (0.19, 0.39),
    ("DNN1", "training", 64): (0.54, 0.78),
    ("DNN1", "inference", 128): (0.20, 0.70),
    ("DNN1", "training", 128): (0.59, 1.38),
    ("DNN2", "inference", 64): (1.05, 10.69),
    ("DNN2", "training", 64): (1.86, 17.97),
    ("DNN2", "inference", 128): (1.26, 12.54),
    ("DNN2", "training", 128): (2.58, 24.84),
}
"""Seconds and megabytes that seed 000 states for its method in tables 5.2 and 5.3."""
STEP_MODELS: dict[str, tuple[tuple[str, ...], tuple[int, ...]]] = {
    "LR 100": (("dense 1",), (100,)),
    "LR 1000": (("dense 1",), (1000,)),
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
            if asked.out is not None:  # after every row: whoever stops this keeps what is done
                content = {"torch": torch.__version__, "quick": asked.quick, **found}
                asked.out.write_text(json.dumps(content, indent=1) + "\n")


def measure_accuracy(asked: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Train privately and in the clear, and compare the last looks."""
    cases = _cases(asked)
    plain: dict[tuple[str, int], Row] = {}
    private: list[tuple[Case, Row]] = []
    for case, row in run_cases(cases, jobs=asked.jobs, threads=asked.threads, live=asked.live):
        key = (case.model, case.shape.seed)
        if case.protocol is None:
            plain[key] = row
        else:
            private.append((case, row))
        for pair in [one for one in private if (one[0].model, one[0].shape.seed) in plain]:
            private.remove(pair)
            yield _beside(*pair, plain[pair[0].model, pair[0].shape.seed])


def _cases(asked: argparse.Namespace) -> list[Case]:
    """List the trainings asked for; those of the first seed come first."""
    chosen = models(
        epochs=asked.epochs, rows=asked.rows, quick=asked.quick, test_rows=asked.test_rows
    )
    if asked.look_every is not None:
        chosen = {
            name: replace(case, shape=replace(case.shape, look_every=asked.look_every))
            for name, case in chosen.items()
        }
    return [
        replace(case, shape=replace(case.shape, seed=seed), protocol=protocol)
        for seed in asked.seeds
        for protocol in (*asked.protocols, None)
        for name, case in chosen.items()
        if not asked.models or name in asked.models
    ]


def _beside(case: Case, private: Row, plain: Row) -> dict[str, Any]:
    (_, loss, right), (_, plain_loss, plain_right) = private["curve"][-1], plain["curve"][-1]
    return {
        "model": case.model,
        "protocol": case.protocol,
        "seed": case.shape.seed,
        "epochs": case.shape.epochs,
        "steps": private["curve"][-1][0],
        "test_rows": case.test_rows,
        "accuracy": right,
        "plain": plain_right,
        "points": 100 * (right - plain_right),
        "loss": loss,
        "plain_loss": plain_loss,
        **{key: value for key, value in private.items() if key != "curve"},
        "plain_seconds": plain["seconds"],
        "private_curve": private["curve"],
        "plain_curve": plain["curve"],
    }


def measure_steps(asked: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Time single steps and inferences over slow links."""
    steps = 4 if asked.quick else asked.repeats
    for (model, what, batch), (seconds, megabytes) in SEED.items():
        if asked.models and model not in asked.models:
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
        command = [str(python), str(HERE / "training" / "_crypten.py"), *asked_for]
        said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        seconds = json.loads(said.strip().splitlines()[-1])
        yield {"who": "CrypTen", "turn": turn, "seconds": statistics.mean(seconds), "steps": steps}


def measure_epoch(asked: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Train one epoch of MNIST under each protocol; compare what was sent with the forecast."""
    whole = models(epochs=1, rows=asked.rows, quick=asked.quick)["784-128-10"]
    shape = replace(whole.shape, optimiser="sgd", rate=0.1, schedule="constant")
    cases = [replace(whole, shape=shape, protocol=protocol) for protocol in asked.protocols]
    for case, row in run_cases(cases, jobs=asked.jobs, threads=asked.threads, live=asked.live):
        accuracy = row.pop("curve")[-1][2]
        rows = case.data.count - case.test_rows
        yield {"protocol": case.protocol, "rows": rows, **row, "accuracy": accuracy}


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
    parser.add_argument("--models", nargs="+", help="of parts steps and accuracy; all by default")
    parser.add_argument("--epochs", type=int, help="of part accuracy; by model if not given")
    parser.add_argument("--rows", type=int, default=70_000, help="of MNIST")
    parser.add_argument("--test-rows", type=int, help="of MNIST, to measure with")
    parser.add_argument("--look-every", type=int, help="steps between looks; by model if not given")
    parser.add_argument("--repeats", type=int, default=20, help="of part steps")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0], help="of part accuracy")
    parser.add_argument("--jobs", type=int, default=1, help="trainings at a time, 3 cores each")
    parser.add_argument("--threads", type=int, default=1, help="of each process of a training")
    parser.add_argument("--live", type=Path, help="add every look of a training to this file")
    parser.add_argument("--quick", action="store_true", help="little data, few repeats")
    parser.add_argument("--out", type=Path, help="write rows and curves to this JSON file")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
