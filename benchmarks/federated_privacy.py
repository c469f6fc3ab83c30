"""Accuracy against ε on MNIST for every privacy word, over seeds, at equal ε, δ and relation.

Runs in one process on the light engine, on whatever device is named, and needs no Flower. Noise is
calibrated by our own accountant (privacy loss distributions by Fourier transform), for replacing
the whole data of one client. Every run is a line of the output file; means with 95 % intervals over
seeds, and whether "shuffle" beats "local" and "local-adaptive" beats "local" at each ε, come last.

    python benchmarks/federated_privacy.py --out privacy.json [--quick] [--device cuda]
"""

import argparse
import json
import os
import statistics
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch

from tacit.dp import REPLACE_CLIENT, Gaussian, Repeated, Target, epsilon, least_noise
from tacit.learn import load_dataset, search_path, split_dataset
from tacit.learn.federated import (
    Adaptive,
    Course,
    Crowd,
    Hall,
    Learner,
    Privacy,
    Promise,
    Recipe,
    Terms,
    Wish,
    build_model,
    find_aggregator,
    promise,
    run_course,
)
from tacit.learn.federated.privacy import make_grid
from tacit.learn.partition import Partition, divide
from tacit.ring import KEY_BYTES, Prg

MODES: tuple[Privacy, ...] = ("none", "central", "local", "local-adaptive", "shuffle")
CLIP, DELTA = 1.0, 1e-3
_T95 = {2: 12.71, 3: 4.30, 4: 3.18, 5: 2.78, 6: 2.57, 8: 2.36, 10: 2.26}


def make_promise(mode: Privacy, target: float, crowd: Crowd, reports: int) -> Promise:
    """Calibrate a mode with accountants that need no other library."""
    if mode in ("none", "shuffle"):
        wish = Wish(
            kind=mode,
            clip=CLIP,
            epsilon=None if mode == "none" else target,
            delta=DELTA,
            accountant=None if mode == "none" else "fourier",
            reports=reports,
        )
        return promise(wish, crowd, is_split=False)

    def event(multiplier: float) -> Gaussian:
        return Gaussian(
            sigma=2 * CLIP * multiplier, l2_sensitivity=2 * CLIP, relation=REPLACE_CLIENT
        )

    aim = Target(epsilon=target, delta=DELTA, accountant="fourier")
    multiplier = least_noise(lambda z: [Repeated(event=event(z), count=crowd.rounds)], aim)
    whole = [Repeated(event=event(multiplier), count=crowd.rounds)]
    return Promise(
        kind=mode,
        clip=CLIP,
        event=event(multiplier),
        claim=epsilon(whole, delta=DELTA, accountant="fourier"),
        grid=make_grid(CLIP, multiplier, crowd.dimension, 1),
        adaptive=Adaptive() if mode == "local-adaptive" else None,
    )


def run_once(
    options: argparse.Namespace, mode: Privacy, target: float, seed: int
) -> dict[str, object]:
    """Train once and return what came out."""
    search = search_path(os.environ.get("TACIT_DATA"), Path.cwd(), Path.home() / ".cache")
    data = load_dataset(options.data, search)
    train, test = (split_dataset(data, part=part, seed=0) for part in ("train", "test"))
    generator = np.random.default_rng(seed)
    device = options.device
    features = torch.tensor(train.scaled(), dtype=torch.float32, device=device)
    learner = Learner(
        build_model(options.model, features.shape[1:], len(data.label_names), seed=seed).to(device),
        features,
        torch.tensor(train.labels, device=device),
        divide(train.labels, options.clients, Partition(how=options.partition), generator),
        recipe=Recipe(steps=options.steps, batch=options.batch, rate=options.rate),
    )
    crowd = Crowd(
        clients=options.clients,
        minimum=options.clients,
        colluding=0,
        rounds=options.rounds,
        dimension=learner.dimension,
    )
    promised = make_promise(mode, target, crowd, options.reports)
    terms = Terms(
        clients=options.clients,
        dimension=learner.dimension,
        minimum=options.clients,
        promise=promised,
        drop_rate=0.0,
        colluding_share=0.0,
    )
    x_test = torch.tensor(test.scaled(), dtype=torch.float32, device=device)
    y_test = torch.tensor(test.labels, device=device)
    begun = time.perf_counter()
    aggregator = find_aggregator("shuffled" if mode == "shuffle" else "plain")
    outcome = run_course(
        Hall(learner, aggregator, drop_rate=0.0, prg=Prg(seed.to_bytes(KEY_BYTES, "big"))),
        learner.first_weights(),
        terms,
        Course(rounds=options.rounds),
        judge=lambda weights: learner.accuracy(weights, x_test, y_test),
        on_round=lambda report: None,
    )
    last = outcome.rounds[-1]
    return {
        "mode": mode,
        "target": target,
        "epsilon": last.claim.epsilon,
        "delta": DELTA,
        "seed": seed,
        "accuracy": last.accuracy,
        "curve": [report.accuracy for report in outcome.rounds],
        "bytes_up": last.bytes_up,
        "seconds": time.perf_counter() - begun,
    }


def plan_runs(options: argparse.Namespace) -> Iterator[tuple[Privacy, float, int]]:
    """List every run; without privacy ε does not matter."""
    for seed in range(options.seeds):
        for mode in options.modes:
            for target in options.epsilons if mode != "none" else options.epsilons[:1]:
                yield mode, target, seed


def summarise(runs: list[dict[str, object]]) -> list[dict[str, object]]:
    """Give every mode and ε its mean with a 95 % interval over seeds."""
    groups: dict[tuple[str, float], list[float]] = {}
    for run in runs:
        groups.setdefault((str(run["mode"]), float(str(run["target"]))), []).append(
            float(str(run["accuracy"]))
        )
    rows: list[dict[str, object]] = []
    for (mode, target), scores in groups.items():
        half = None
        if len(scores) > 1:
            t = _T95.get(len(scores), 1.96 if len(scores) > 10 else 2.78)
            half = t * statistics.stdev(scores) / len(scores) ** 0.5
        rows.append(
            {
                "mode": mode,
                "epsilon": target,
                "mean": statistics.mean(scores),
                "half_width": half,
                "seeds": len(scores),
            }
        )
    return rows


def compare(rows: list[dict[str, object]], better: str, worse: str) -> list[str]:
    """Say at each ε which of two modes is ahead, and by how much."""
    found = {(row["mode"], row["epsilon"]): float(str(row["mean"])) for row in rows}
    said = []
    for mode, target in found:
        if mode == better and (worse, target) in found:
            gap = found[better, target] - found[worse, target]
            verdict = "beats" if gap > 0 else "does not beat"
            said.append(f"ε = {target}: {better} {verdict} {worse} by {gap:+.3f}")
    return said


def main() -> None:
    """Run everything and write the file as it grows."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("federated_privacy.json"))
    parser.add_argument("--quick", action="store_true", help="digits, few rounds, one seed")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--data", default="mnist")
    parser.add_argument("--model", default="linear")
    parser.add_argument("--partition", default="iid")
    parser.add_argument("--clients", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--rate", type=float, default=0.2)
    parser.add_argument("--reports", type=int, default=8)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--modes", nargs="+", default=list(MODES), choices=MODES)
    parser.add_argument("--epsilons", nargs="+", type=float, default=[2, 4, 8, 16, 32, 64])
    options = parser.parse_args()
    if options.quick:
        options.data, options.rounds, options.seeds, options.epsilons = "digits", 4, 1, [16.0]
        options.steps, options.batch = 5, 8
    runs: list[dict[str, object]] = []
    for mode, target, seed in plan_runs(options):
        runs.append(run_once(options, mode, target, seed))
        print(
            f"{mode:15} ε {target:6}  seed {seed}  accuracy {runs[-1]['accuracy']:.3f}", flush=True
        )
        rows = summarise(runs)
        verdicts = compare(rows, "shuffle", "local") + compare(rows, "local-adaptive", "local")
        whole = {"options": {**vars(options), "out": str(options.out)}, "runs": runs}
        options.out.write_text(json.dumps({**whole, "rows": rows, "verdicts": verdicts}, indent=1))
    print("\n".join(verdicts))


if __name__ == "__main__":
    main()
