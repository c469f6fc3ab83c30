"""Reconstruction from updates: iDLG on LeNet, cosine + TV on a small ResNet, batches, defences.

    python benchmarks/audit_reconstruction.py --data FOLDER --out FILE.json [--quick]

FOLDER holds the public sets, or what ``split_protection.py --prepare`` wrote. Parts: ``idlg`` (at
least 95 % of single MNIST and CIFAR-10 pictures with a squared error below 1e-3 is the aim; labels
from the gradient, then Levenberg–Marquardt), ``lbfgs`` and ``dlg`` (the same with L-BFGS, labels
read or searched; on a CPU these are as fast as on a GPU),
``cosine`` (PSNR on CIFAR-10), ``batches``, ``steps`` (FedAvg with several local steps), ``sums``
(secure aggregation over several clients), ``noise`` and ``pruned`` (defences, beside the accuracy
of a model that is trained under them). With ``--peer``, and breaching installed beside tacit, its
"Inverting Gradients" attack runs on the same updates in the part ``cosine``.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parent))
import torch
from _split_tasks import load
from torch import Tensor, nn

from tacit.audit import Attack, clopper_pearson, seeded
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
    keep_largest,
    lenet,
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
    """Attack single pictures behind fresh LeNets in double precision."""
    few = options.quick
    attacks: dict[str, Attack[SeenUpdate, Rebuilt]] = {
        "idlg": MatchNewton(
            steps=1 if few else 40, restarts=1 if few else 6, warm_up=20 if few else 150,
            chunk=64 if options.device == "cpu" else 512,
        ),
        "lbfgs": MatchExactly(steps=60 if few else 3000),
        "dlg": MatchExactly(steps=60 if few else 3000, labels="searched"),
    }  # fmt: skip
    rows = []
    for name in ("mnist", "cifar10"):
        x, y = pictures(options, name)
        errors, right, spent = [], 0, time.perf_counter()
        for i in range(options.count):
            torch.manual_seed(i // 10)
            model = lenet(x.shape[1], x.shape[2], 10).to(options.device).double()
            one, label = x[i : i + 1].double(), y[i : i + 1]
            seen = see_update(model, one, label, classes=10)
            found = attacks[part](seen, generator=seeded(i))
            errors.append(float(squared_errors(found.rows, one)))
            right += int(found.labels[0]) == int(label[0])
            progress(f"{part} {name} {i + 1}/{options.count}: {errors[-1]:.1e}")
        hits = sum(error < RECOVERED for error in errors)
        low, high = clopper_pearson(hits, len(errors))
        rows.append(
            {
                "part": part,
                "set": name,
                "recovered": hits / len(errors),
                "low": low,
                "high": high,
                "labels": right / len(errors),
                "samples": len(errors),
                "median_error": sorted(errors)[len(errors) // 2],
                "errors_each": errors,
                "seconds": time.perf_counter() - spent,
            }
        )
        report(rows[-1])
    return rows


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
        attacks["breaching"] = lambda seen, i: breach(seen, steps, options)
    rows = []
    for name, attack in attacks.items():
        found, begun = [], time.perf_counter()
        for i in range(options.count):
            seen = see_update(model, x[i : i + 1], y[i : i + 1], classes=10)
            found.append(attack(seen, i))
            progress(f"cosine {name} {i + 1}/{options.count}")
        guess, truth = torch.cat(found), x[: options.count]
        row = measured("cosine", name, guess, truth, x[options.count :])
        rows.append({**row, "seconds": time.perf_counter() - begun, "steps": steps})
        report(rows[-1])
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
        _clients(options, "steps", 4, Work(steps=k, learning_rate=0.01, batch=2), None, k)
        for k in counts
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


def breach(seen: SeenUpdate, steps: int, options: argparse.Namespace) -> Tensor:
    """Run breaching's Inverting Gradients on the same update; labels are given to it too."""
    import breaching  # type: ignore[import-not-found]
    from omegaconf import OmegaConf  # type: ignore[import-not-found]

    from tacit.audit.reconstruction import infer_labels

    folder = Path(breaching.__file__).parent / "config" / "attack"
    base, own = (
        OmegaConf.load(folder / f"{n}.yaml") for n in ("_default_optimization_attack",
                                                      "invertinggradients")
    )  # fmt: skip
    own.pop("defaults", None)
    base.pop("defaults", None)
    settings = OmegaConf.merge(base, own)
    settings.optim.max_iterations = steps
    settings.optim.callback = steps
    settings.label_strategy = None
    setup = {"device": torch.device(options.device), "dtype": torch.float32}
    loss = nn.CrossEntropyLoss()
    attacker = breaching.attacks.prepare_attack(seen.model, loss, settings, setup)
    meta = OmegaConf.create(
        {
            "shape": list(seen.shape),
            "classes": seen.classes,
            "modality": "vision",
            "mean": [0.0] * seen.shape[0],
            "std": [1.0] * seen.shape[0],
        }
    )
    payload = {
        "parameters": [p.detach() for p in seen.model.parameters()],
        "buffers": [b.detach() for b in seen.model.buffers()],
        "metadata": meta,
    }
    shared = {
        "gradients": list(seen.update),
        "buffers": None,
        "metadata": {
            "num_data_points": seen.records,
            "labels": infer_labels(seen),
            "local_hyperparams": None,
            "data_key": "inputs",
        },
    }
    found, _ = attacker.reconstruct([payload], [shared], {}, dryrun=False)
    rows: Tensor = found["data"].detach().clamp(0, 1)
    return rows


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
    parser.add_argument("--steps", type=int, default=4000, help="of cosine matching")
    parser.add_argument("--smoothness", type=float, default=0.1)
    parser.add_argument("--peer", action="store_true", help="run breaching too")
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
    rows: list[Row] = []
    for part in options.parts:
        rows += work[part]()
        if options.out:
            options.out.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
