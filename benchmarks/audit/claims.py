"""DP-SGD on trial: the honest training must stand, planted bugs must be caught.

    python benchmarks/run.py audit/claims --out FILE.json [--runs 20] [--quick]

Each line is a training function, a way to test it, and over how many trials the claim was
contradicted: single rounds at a confidence of 1 − 1e-6, one run at 95 %. For the honest one every
contradiction is an error of the audit, and so is a lower bound above the accountant's ε.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from tacit.audit.privacy import audit_rounds, audit_training
from tacit.dp import DpSgd, Repeated, epsilon, train_dp_sgd
from tacit.ring import Prg

Train = Callable[..., Repeated]
DELTA = 1e-5
WHOLE = DpSgd(steps=2, sample_rate=1.0, clip=0.5, multiplier=1.0)
SAMPLED = DpSgd(steps=3, sample_rate=0.1, clip=1.0, multiplier=1.0)
LONG = DpSgd(steps=60, sample_rate=0.02, clip=1.0, multiplier=2.0)


def half_noise(
    model: nn.Module, x: Tensor, labels: Tensor, settings: DpSgd, *, prg: Prg
) -> Repeated:
    """Add half of the noise that was promised."""
    less = replace(settings, multiplier=settings.multiplier / 2)
    return train_dp_sgd(model, x, labels, less, prg=prg)


def no_clipping(
    model: nn.Module, x: Tensor, labels: Tensor, settings: DpSgd, *, prg: Prg
) -> Repeated:
    """Add the right noise to gradients that were not clipped."""
    loose = replace(settings, clip=1e3 * settings.clip, multiplier=settings.multiplier / 1e3)
    return train_dp_sgd(model, x, labels, loose, prg=prg)


def everyone(model: nn.Module, x: Tensor, labels: Tensor, settings: DpSgd, *, prg: Prg) -> Repeated:
    """Take all records at every step, and account for a sample."""
    whole = replace(settings, sample_rate=1.0, rate=settings.rate / settings.sample_rate)
    return train_dp_sgd(model, x, labels, whole, prg=prg)


TRIALS: list[tuple[str, Train, DpSgd, int]] = [
    ("honest, all records", train_dp_sgd, WHOLE, 1000),
    ("honest, sampled", train_dp_sgd, SAMPLED, 1000),
    ("noise halved", half_noise, WHOLE, 400),
    ("noise halved, sampled", half_noise, SAMPLED, 400),
    ("clipping skipped", no_clipping, WHOLE, 100),
    ("sampling skipped", everyone, SAMPLED, 1000),
]
RUNS: list[tuple[str, Train, DpSgd]] = [
    ("honest, all records", train_dp_sgd, WHOLE),
    ("honest, sampled", train_dp_sgd, LONG),
    ("noise halved", half_noise, WHOLE),
    ("clipping skipped", no_clipping, LONG),
    ("sampling skipped", everyone, LONG),
]


def by_rounds(name: str, train: Train, settings: DpSgd, rounds: int, runs: int) -> dict[str, Any]:
    """Try single rounds, several times."""
    found = [audit_rounds(train, settings, prg=_prg(i), rounds=rounds, seed=i) for i in range(runs)]
    return {
        "training": name,
        "test": f"single rounds, {rounds}",
        "runs": runs,
        "contradicted": sum(one.is_contradicted for one in found),
    }


def by_one_run(
    name: str, train: Train, settings: DpSgd, runs: int, canaries: int
) -> dict[str, Any]:
    """Try canaries in one training, several times."""
    claimed = epsilon([settings.event], delta=DELTA, accountant="fourier").epsilon or 0.0
    bounds = [
        audit_training(
            train, settings, delta=DELTA, prg=_prg(i), canaries=canaries, seed=i
        )[0].epsilon
        for i in range(runs)
    ]  # fmt: skip
    return {
        "training": name,
        "test": f"one run, {canaries} canaries",
        "runs": runs,
        "claimed": claimed,
        "largest_bound": max(bounds),
        "contradicted": sum(bound > claimed for bound in bounds),
    }


def _prg(number: int) -> Prg:
    return Prg((number + 1).to_bytes(16, "big"))


def main() -> None:
    """Run all trials and write them down as they are ready."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--canaries", type=int, default=400)
    parser.add_argument("--only", default="", help="single rounds of trainings named so")
    parser.add_argument("--skip-one-run", action="store_true")
    parser.add_argument("--quick", action="store_true", help="one run of everything")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    runs = 1 if options.quick else options.runs
    rows: list[dict[str, Any]] = []
    kept = [one for one in TRIALS if options.only in one[0]]
    work = [lambda one=one: by_rounds(*one, runs) for one in kept]
    if not options.skip_one_run:
        work += [lambda one=one: by_one_run(*one, runs, options.canaries) for one in RUNS]
    for each in work:
        begun = time.perf_counter()
        rows.append({**each(), "seconds": time.perf_counter() - begun})
        sys.stdout.write(json.dumps(rows[-1]) + "\n")
        sys.stdout.flush()
        if options.out:
            options.out.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
