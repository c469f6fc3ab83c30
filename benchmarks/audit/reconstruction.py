"""Reconstruction from updates: iDLG on LeNet, cosine + TV on a small ResNet, batches, defences.

    python benchmarks/run.py audit/reconstruction --data FOLDER --out FILE.json [--quick]

FOLDER holds the public sets, or what ``split_protection.py --prepare`` wrote. Parts: ``idlg`` (at
least 95 % of single MNIST and CIFAR-10 pictures with a squared error below 1e-3 is the aim; labels
from the gradient, then Levenberg–Marquardt), ``lbfgs`` and ``dlg`` (the same with L-BFGS, labels
read or searched; on a CPU these are as fast as on a GPU),
``cosine`` (PSNR on CIFAR-10), ``batches``, ``steps`` (FedAvg with several local steps), ``sums``
(secure aggregation over several clients), ``noise`` and ``pruned`` (defences, beside the accuracy
of a model that is trained under them). With ``--peer FOLDER``, where ``pip install --no-deps
--target FOLDER breaching`` has put it, its "Inverting Gradients" attack runs on the same updates in
the part ``cosine``, picture by picture after ours.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

import torch
from peers.breaching_peer import load_breaching
from split._tasks import load
from torch import Tensor, nn

from tacit.audit import clopper_pearson, seeded
from tacit.audit.reconstruction import (
    RECOVERED,
    Defence,
    MatchDirection,
    MatchExactly,
    MatchNewton,
    Rebuilt,
    Round,
    SeenUpdate,
    Work,
    add_noise,
    audit_round,
    do_work,
    infer_labels,
    keep_largest,
    lenet,
    match_together,
    pair,
    psnr,
    score_rows,
    see_sum,
    see_update,
    small_resnet,
    squared_errors,
    ssim,
)

Row = dict[str, Any]
PARTS = ("idlg", "lbfgs", "dlg", "cosine", "batches", "steps", "sums", "noise", "pruned")


def pictures(options: argparse.Namespace, name: str) -> tuple[Tensor, Tensor]:
    """Return test pictures within [0, 1] with their labels, on the device."""
    data = load(name, options.data, device=options.device)
    low, high = data.test_x.min(), data.test_x.max()
    x = (data.test_x - low) / (high - low)
    return x.unsqueeze(1) if x.ndim == 3 else x, data.test_y


def victim(build: Callable[[], nn.Module], options: argparse.Namespace, seed: int) -> nn.Module:
    """Build a model with weights that follow from the seed."""
    torch.manual_seed(seed)
    return build().to(options.device)


def exact(options: argparse.Namespace, part: str) -> list[Row]:
    """Attack single pictures behind fresh LeNets in double precision, ten behind each."""
    rows = []
    for name in options.sets:
        x, y = pictures(options, name)
        errors: list[float] = []
        right, begun = 0, time.perf_counter()
        last = options.first + options.count
        for start in range(options.first, last, 10):
            torch.manual_seed(start // 10)
            model = lenet(x.shape[1], x.shape[2], 10).to(options.device).double()
            chosen = range(start, min(start + 10, last))
            truth = [x[i : i + 1].double() for i in chosen]
            seen = [
                see_update(model, one, y[i : i + 1], classes=10)
                for i, one in zip(chosen, truth, strict=True)
            ]
            for i, one, found in zip(chosen, truth, rebuild(options, part, seen), strict=True):
                errors.append(float(squared_errors(found.rows, one)))
                right += int(found.labels[0]) == int(y[i])
            progress(f"{part} {name} {chosen[-1]}: worst {max(errors):.1e}")
            row = _recovered(part, name, errors, right, time.perf_counter() - begun)
            keep(options, [*rows, row])
        rows.append(row)
        report(row)
    return rows


def rebuild(options: argparse.Namespace, part: str, seen: list[SeenUpdate]) -> list[Rebuilt]:
    """Attack updates of one model: by Newton's method all at once, by L-BFGS one by one."""
    few = options.quick
    if part == "idlg":
        settings = MatchNewton(
            steps=2 if few else 30, restarts=1 if few else 4,
            chunk=64 if options.device == "cpu" else 512,
        )  # fmt: skip
        return match_together(seen, settings, generator=seeded(options.first))
    how: Literal["read", "searched"] = "searched" if part == "dlg" else "read"
    attack = MatchExactly(steps=60 if few else 3000, labels=how)
    return [attack(one, generator=seeded(i)) for i, one in enumerate(seen)]


def _recovered(part: str, name: str, errors: list[float], right: int, seconds: float) -> Row:
    hits = sum(error < RECOVERED for error in errors)
    low, high = clopper_pearson(hits, len(errors))
    return {
        "part": part,
        "set": name,
        "recovered": hits / len(errors),
        "low": low,
        "high": high,
        "labels": right / len(errors),
        "samples": len(errors),
        "median_error": sorted(errors)[len(errors) // 2],
        "errors_each": errors,
        "seconds": seconds,
    }


def cosine(options: argparse.Namespace) -> list[Row]:
    """Attack single CIFAR-10 pictures behind a small ResNet, with ours and perhaps a peer's."""
    x, y = pictures(options, "cifar10")
    model = victim(lambda: small_resnet(3, 10, width=32), options, 0)
    steps = 20 if options.quick else options.steps
    ours = MatchDirection(steps=steps, restarts=1, smoothness=options.smoothness)
    attacks: dict[str, Callable[[SeenUpdate, int], Tensor]] = {
        "tacit": lambda seen, i: ours(seen, generator=seeded(i)).rows
    }
    if options.peer:
        breach = load_breaching(options.peer)
        attacks["breaching"] = lambda seen, i: breach(seen, infer_labels(seen), steps, i)
    chosen = slice(options.first, options.first + options.count)
    rest = torch.cat([x[: chosen.start], x[chosen.stop :]])
    found: dict[str, list[Tensor]] = {name: [] for name in attacks}
    spent = dict.fromkeys(attacks, 0.0)
    rows: list[Row] = []
    for i in range(options.first, options.first + options.count):
        seen = see_update(model, x[i : i + 1], y[i : i + 1], classes=10)
        rows = []
        for name, attack in attacks.items():
            begun = time.perf_counter()
            found[name].append(attack(seen, i))
            spent[name] += time.perf_counter() - begun
            guess = torch.cat(found[name])
            row = measured("cosine", name, guess, x[chosen][: len(guess)], rest)
            rows.append({**row, "seconds": spent[name], "steps": steps})
        progress(f"cosine {i}: " + ", ".join(f"{r['name']} {r['psnr_each'][-1]:.2f}" for r in rows))
        keep(options, rows)
    for row in rows:
        report(row)
    return rows


def batches(options: argparse.Namespace) -> list[Row]:
    """Attack clients with several pictures each."""
    rows = []
    for size in (2, 4) if options.quick else (1, 2, 4, 8, 16):
        rows.append(_clients(options, "batches", size, Work(), None, size))
    return rows


def steps(options: argparse.Namespace) -> list[Row]:
    """Attack clients that take several local steps before they answer."""
    counts = (1, 2) if options.quick else (1, 2, 5, 10)
    return [
        _clients(options, "steps", 4, Work(steps=k, rate=0.01, batch=2), None, k) for k in counts
    ]


def _clients(
    options: argparse.Namespace,
    part: str,
    size: int,
    work: Work,
    defence: Defence | None,
    strength: float,
) -> Row:
    x, y = pictures(options, "cifar10")
    rows = max(options.count // size, 1) * size
    target = Round(
        model=victim(lambda: small_resnet(3, 10, width=32), options, 0),
        rows=x[:rows],
        labels=y[:rows],
        others=x[rows:],
        classes=10,
        per_client=size,
        work=work,
    )
    attack = MatchDirection(
        steps=20 if options.quick else options.steps, restarts=1, smoothness=options.smoothness
    )
    begun = time.perf_counter()
    found = audit_round(target, "cosine + TV", attack, defence=defence)
    row = {"part": part, "strength": strength, "metrics": [asdict(m) for m in found.metrics]}
    row["seconds"] = time.perf_counter() - begun
    report(row)
    return row


def sums(options: argparse.Namespace) -> list[Row]:
    """Attack the sum over several clients with one picture each: secure aggregation."""
    x, y = pictures(options, "cifar10")
    model = victim(lambda: small_resnet(3, 10, width=32), options, 0)
    attack = MatchDirection(
        steps=20 if options.quick else options.steps, restarts=1, smoothness=options.smoothness
    )
    rows = []
    for clients in (2, 4) if options.quick else (1, 4, 16, 64):
        parts = [(x[i : i + 1], y[i : i + 1]) for i in range(clients)]
        found: Rebuilt = attack(see_sum(model, parts, classes=10), generator=seeded(0))
        truth = x[:clients]
        row = measured("sums", "tacit", pair(found.rows, truth), truth, x[clients:])
        rows.append({**row, "clients": clients})
        report(rows[-1])
    return rows


def defended(options: argparse.Namespace, part: str) -> list[Row]:
    """Sweep a defence, and train a model under it for what it costs."""
    strengths: Sequence[float] = (0.0, 1e-4, 1e-3, 1e-2, 1e-1)
    make: Callable[[float], Defence] = lambda s: add_noise(s, generator=seeded(1))  # noqa: E731
    if part == "pruned":
        strengths, make = (1.0, 0.3, 0.1, 0.03, 0.01), keep_largest
    rows = []
    for strength in strengths[:2] if options.quick else strengths:
        row = _clients(options, part, 1, Work(), make(strength), strength)
        row["accuracy"] = trained(options, make(strength))
        report({"part": part, "strength": strength, "accuracy": row["accuracy"]})
        rows.append(row)
    return rows


def trained(options: argparse.Namespace, defence: Defence) -> float:
    """Return the test accuracy of a model trained on updates of 16 clients under a defence."""
    data = load("cifar10", options.data, device=options.device)
    model = victim(lambda: small_resnet(3, 10, width=16), options, 0)
    generator = seeded(0)
    optimiser = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    for _ in range(2 if options.quick else 400):
        total: tuple[Tensor, ...] | None = None
        for _client in range(16):
            chosen = (torch.empty(16).uniform_(generator=generator) * len(data.train_x)).long()
            one = defence(do_work(model, data.train_x[chosen], data.train_y[chosen], Work()))
            total = one if total is None else tuple(a + b for a, b in zip(total, one, strict=True))
        for parameter, gradient in zip(model.parameters(), total or (), strict=True):
            parameter.grad = gradient / 16
        optimiser.step()
    with torch.no_grad():
        answers = [model(block).argmax(1) for block in torch.split(data.test_x, 500)]
    return float((torch.cat(answers) == data.test_y).double().mean())


def measured(part: str, name: str, guess: Tensor, truth: Tensor, others: Tensor) -> Row:
    """Return what was measured of paired guesses."""
    metrics = score_rows(name, guess, truth, others=others, generator=seeded(7))
    return {
        "part": part,
        "name": name,
        "psnr_each": psnr(guess, truth).tolist(),
        "ssim_each": ssim(guess, truth).tolist(),
        "metrics": [asdict(m) for m in metrics],
    }


def progress(text: str) -> None:
    """Show how far it is."""
    print(text, file=sys.stderr, flush=True)


def keep(options: argparse.Namespace, rows: list[Row]) -> None:
    """Write the rows that are there, after those of the parts before."""
    if options.out:
        options.out.write_text(json.dumps([*options.done, *rows], indent=1))


def report(row: Row) -> None:
    """Show a result in one line."""
    short = {k: v for k, v in row.items() if not k.endswith("_each") and k != "metrics"}
    for metric in row.get("metrics", ()):
        short[metric["name"].rsplit(": ", 1)[-1]] = round(metric["value"], 4)
    print(json.dumps(short), flush=True)


def main() -> None:
    """Run the parts that were asked for and write all rows."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--parts", nargs="+", default=list(PARTS), choices=PARTS)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--count", type=int, default=100, help="pictures that are attacked")
    parser.add_argument("--first", type=int, default=0, help="number of the first of them")
    parser.add_argument("--sets", nargs="+", default=["mnist", "cifar10"], help="for single ones")
    parser.add_argument("--steps", type=int, default=4000, help="of cosine matching")
    parser.add_argument("--smoothness", type=float, default=0.1)
    parser.add_argument("--peer", type=Path, help="folder that holds breaching, to run it too")
    parser.add_argument("--quick", action="store_true", help="two pictures, few steps")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    if options.quick:
        options.count = 2
    work: dict[str, Callable[[], list[Row]]] = {
        "idlg": lambda: exact(options, "idlg"),
        "lbfgs": lambda: exact(options, "lbfgs"),
        "dlg": lambda: exact(options, "dlg"),
        "cosine": lambda: cosine(options),
        "batches": lambda: batches(options),
        "steps": lambda: steps(options),
        "sums": lambda: sums(options),
        "noise": lambda: defended(options, "noise"),
        "pruned": lambda: defended(options, "pruned"),
    }
    options.done = []
    for part in options.parts:
        options.done += work[part]()
        keep(options, [])


if __name__ == "__main__":
    main()
