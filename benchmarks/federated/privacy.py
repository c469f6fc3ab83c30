"""Accuracy against ε on MNIST for every privacy word, over seeds, at equal ε, δ and relation.

Runs the light engine, one run per process at a time, and needs no Flower. Noise is calibrated by
our own accountant (privacy loss distributions by Fourier transform), for replacing the whole data
of one client; "central", "local" and "local-adaptive" have the same noise multiplier. The output
file is written after every run: means with 95 % intervals over seeds, and over the same seeds by
how much "shuffle" is ahead of "local" and "local-adaptive" of "local" at each ε.

    python benchmarks/run.py federated/privacy --out privacy.json [--workers 12] [--quick]
    python benchmarks/run.py federated/privacy --out privacy.json --picture privacy.svg --draw-only
"""

import argparse
import functools
import json
import math
import multiprocessing
import os
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from federated._picture import write_picture

from tacit.audit import mean_interval
from tacit.data import Partition, divide, load_dataset, measure_odds, search_path, split_dataset
from tacit.dp import REPLACE_CLIENT, BudgetTarget, Gaussian, Repeated, epsilon, least_noise
from tacit.federated import (
    CalibratedMechanism,
    FederatedSpec,
    Federation,
    Learner,
    LocalEngine,
    Privacy,
    PrivacyKind,
    RoundConfig,
    Training,
    build_model,
    calibrate,
    find_aggregator,
    run_rounds,
)
from tacit.federated.calibration import make_grid
from tacit.ring import KEY_BYTES, Prg

MODES: tuple[PrivacyKind, ...] = ("none", "central", "local", "local-adaptive", "shuffle")
PAIRS = (("shuffle", "local"), ("local-adaptive", "local"), ("central", "shuffle"))
DELTA = 1e-3


@dataclass(frozen=True)
class Setting:
    """What every run of a comparison has in common."""

    data: str
    model: str
    partition: str
    clients: int
    rounds: int
    steps: int
    batch: int
    rate: float
    clip: float
    reports: int


@functools.lru_cache(maxsize=1)
def load_rows(name: str) -> tuple[torch.Tensor, ...]:
    """Load training and test rows, once per process."""
    search = search_path(os.environ.get("TACIT_DATA"), Path.cwd(), Path.home() / ".cache")
    data = load_dataset(name, search)
    found = []
    for part in ("train", "test"):
        rows = split_dataset(data, part=part, seed=0)
        found += [torch.tensor(rows.features, dtype=torch.float32), torch.tensor(rows.labels)]
    return tuple(found)


def make_spec(setting: Setting, privacy: Privacy) -> FederatedSpec:
    """Write what all clients hold to: all stay, and all are honest but the one who looks."""
    terms = Federation(
        clients=setting.clients,
        rounds=setting.rounds,
        aggregator="shuffled" if privacy.kind == "shuffle" else "plain",
        minimum=setting.clients,
        drop_rate=0.0,
        colluding_share=0.0,
    )
    return FederatedSpec(federated=terms, privacy=privacy)


def calibrate_mode(
    setting: Setting, mode: PrivacyKind, target: float, dimension: int
) -> CalibratedMechanism:
    """Calibrate a mode with accountants that need no other library."""
    if mode in ("none", "shuffle"):
        asked = Privacy(
            kind=mode,
            clip=setting.clip,
            epsilon=None if mode == "none" else target,
            delta=DELTA,
            accountant=None if mode == "none" else "fourier",
            reports=setting.reports,
        )
        return calibrate(make_spec(setting, asked), dimension)
    span = 2 * setting.clip

    def event(multiplier: float) -> Gaussian:
        return Gaussian(sigma=span * multiplier, l2_sensitivity=span, relation=REPLACE_CLIENT)

    aim = BudgetTarget(epsilon=target, delta=DELTA, accountant="fourier")
    multiplier = least_noise(lambda z: [Repeated(event=event(z), count=setting.rounds)], aim)
    whole = [Repeated(event=event(multiplier), count=setting.rounds)]
    return CalibratedMechanism(
        privacy=Privacy(kind=mode, clip=setting.clip, epsilon=target, delta=DELTA),
        clip=setting.clip,
        event=event(multiplier),
        claim=epsilon(whole, delta=DELTA, accountant="fourier"),
        grid=make_grid(setting.clip, multiplier, dimension, 1),
    )


def make_learner(setting: Setting, seed: int, device: str) -> Learner:
    """Divide the rows among the clients and build the model, both by the seed."""
    features, labels, _, _ = load_rows(setting.data)
    classes = int(labels.max()) + 1
    parts = divide(
        labels.numpy(),
        setting.clients,
        Partition(how=setting.partition),
        np.random.default_rng(seed),
    )
    model = build_model(setting.model, features.shape[1:], classes, seed=seed)
    recipe = Training(steps=setting.steps, batch=setting.batch, rate=setting.rate)
    return Learner(model.to(device), features.to(device), labels.to(device), parts, training=recipe)


def run_once(
    setting: Setting, promised: CalibratedMechanism, target: float, seed: int, device: str
) -> dict[str, Any]:
    """Train once and return what came out."""
    begun = time.perf_counter()
    learner = make_learner(setting, seed, device)
    spec = make_spec(setting, promised.privacy)
    config = RoundConfig(spec=spec, dimension=learner.dimension, mechanism=promised)
    x_test, labels = load_rows(setting.data)[2].to(device), load_rows(setting.data)[3].numpy()
    aggregator = find_aggregator(spec.federated.aggregator)
    outcome = run_rounds(
        LocalEngine(learner, aggregator, drop_rate=0.0, prg=Prg(seed.to_bytes(KEY_BYTES, "big"))),
        learner.first_weights(),
        spec,
        config=config,
        judge=lambda weights: measure_odds(learner.odds(weights, x_test).cpu().numpy(), labels),
        on_round=lambda report: None,
    )
    last = outcome.rounds[-1]
    return {
        "mode": promised.privacy.kind,
        "target": target,
        "epsilon": last.claim.epsilon,
        "seed": seed,
        "accuracy": last.accuracy,
        "curve": [report.accuracy for report in outcome.rounds],
        "bytes_up": last.bytes_up,
        "void": sum(report.void is not None for report in outcome.rounds),
        "seconds": time.perf_counter() - begun,
    }


def plan_runs(options: argparse.Namespace) -> Iterator[tuple[PrivacyKind, float, int]]:
    """List every run, seed after seed; without privacy ε does not matter."""
    for seed in range(options.seeds):
        for mode in options.modes:
            for target in options.epsilons if mode != "none" else options.epsilons[:1]:
                yield mode, target, seed


def summarise(runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Give every mode and ε its mean with a 95 % interval over seeds."""
    groups: dict[tuple[str, float], list[float]] = {}
    for run in runs:
        groups.setdefault((run["mode"], run["target"]), []).append(run["accuracy"])
    rows = []
    for mode, target in sorted(groups, key=lambda key: (MODES.index(key[0]), key[1])):
        mean, low, high = mean_interval(groups[mode, target])
        is_known = math.isfinite(low)
        rows.append(
            {
                "mode": mode,
                "epsilon": target,
                "mean": mean,
                "low": low if is_known else None,
                "high": high if is_known else None,
                "seeds": len(groups[mode, target]),
            }
        )
    return rows


def compare(runs: list[dict[str, Any]], better: str, worse: str) -> list[str]:
    """Say at each ε by how much one mode is ahead of another, over the seeds that both have."""
    scores = {(run["mode"], run["target"], run["seed"]): run["accuracy"] for run in runs}
    said = []
    for target in sorted({key[1] for key in scores if key[0] == better}):
        gaps = [
            score - scores[worse, target, seed]
            for (mode, at, seed), score in scores.items()
            if mode == better and at == target and (worse, target, seed) in scores
        ]
        if gaps:
            mean, low, high = mean_interval(gaps)
            sure = "beats" if low > 0 else "loses to" if high < 0 else "is not told apart from"
            said.append(
                f"ε = {target:g}: {better} {sure} {worse}: {mean:+.4f} [{low:+.4f}, {high:+.4f}] "
                f"over {len(gaps)} seeds"
            )
    return said


def be_alone() -> None:
    """Keep a worker to one thread."""
    torch.set_num_threads(1)


def run_all(options: argparse.Namespace, setting: Setting) -> None:
    """Run everything and write the file as it grows."""
    runs: list[dict[str, Any]] = []
    began, device = time.monotonic(), options.device
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(options.workers, context, initializer=be_alone) as pool:
        plan = list(plan_runs(options))
        dimension = make_learner(setting, 0, "cpu").dimension
        promised = {
            (mode, target): pool.submit(calibrate_mode, setting, mode, target, dimension)
            for mode, target, _ in plan
        }
        waiting = [
            pool.submit(run_once, setting, promised[mode, target].result(), target, seed, device)
            for mode, target, seed in plan
        ]
        for done in as_completed(waiting):
            runs.append(done.result())
            run = runs[-1]
            print(
                f"{len(runs)}/{len(plan)} {time.monotonic() - began:.0f} s  {run['mode']:15} "
                f"ε {run['target']:6g}  seed {run['seed']}  accuracy {run['accuracy']:.4f}  "
                f"({run['seconds']:.1f} s)",
                flush=True,
            )
            write(options, setting, runs)
            if time.monotonic() - began > options.seconds:
                print("stopped: the time is up", flush=True)
                pool.shutdown(wait=False, cancel_futures=True)
                break
    print("\n".join(json.loads(options.out.read_text())["verdicts"]))


def write(options: argparse.Namespace, setting: Setting, runs: list[dict[str, Any]]) -> None:
    """Write runs, rows and verdicts; whole at every moment."""
    verdicts = [text for pair in PAIRS for text in compare(runs, *pair)]
    whole = {
        "setting": vars(setting),
        "delta": DELTA,
        "rows": summarise(runs),
        "verdicts": verdicts,
        "runs": runs,
    }
    part = options.out.with_suffix(".part")
    part.write_text(json.dumps(whole, indent=1))
    part.replace(options.out)


def draw(options: argparse.Namespace) -> None:
    """Draw what the output file holds."""
    whole = json.loads(options.out.read_text())
    setting = whole["setting"]
    seeds = min(row["seeds"] for row in whole["rows"])
    title = (
        f"Accuracy on {setting['data'].upper()}, {setting['clients']} clients, model "
        f"{setting['model']}; 95 % intervals over {seeds} seeds"
    )
    write_picture(whole["rows"], options.picture, title=title, delta=whole["delta"])


def read_options() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("federated_privacy.json"))
    parser.add_argument("--picture", type=Path, help="draw the outcome as SVG")
    parser.add_argument("--draw-only", action="store_true", help="draw an earlier outcome")
    parser.add_argument("--quick", action="store_true", help="digits, few rounds, one seed")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=math.inf, help="stop after so long")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--data", default="mnist")
    parser.add_argument("--model", default="linear")
    parser.add_argument("--partition", default="iid")
    parser.add_argument("--clients", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--rate", type=float, default=0.2)
    parser.add_argument("--clip", type=float, default=1.0)
    parser.add_argument("--reports", type=int, default=64)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--modes", nargs="+", default=list(MODES), choices=MODES)
    parser.add_argument("--epsilons", nargs="+", type=float, default=[1, 3, 10, 30, 100])
    options = parser.parse_args()
    if options.quick:
        options.data, options.rounds, options.seeds, options.epsilons = "digits", 4, 1, [10.0]
        options.steps, options.batch, options.reports = 5, 8, 8
    return options


def main() -> None:
    """Run, or only draw."""
    options = read_options()
    names = Setting.__dataclass_fields__
    if not options.draw_only:
        run_all(options, Setting(**{name: getattr(options, name) for name in names}))
    if options.picture is not None:
        draw(options)


if __name__ == "__main__":
    main()
