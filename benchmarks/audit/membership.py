"""Membership inference on an over-fitted ResNet: LiRA and RMIA beside TF Privacy and ART.

    python benchmarks/run.py audit/membership --device cuda --data FOLDER --out FILE.json
    python benchmarks/run.py audit/membership --scores FILE.npz --peers --out FILE.json

The first trains targets and shadow models on halves of a CIFAR-10 subset, keeps their outputs in
FILE.npz and scores our attacks; FOLDER holds the public sets, or what ``split_protection.py
--prepare`` wrote. The second scores kept outputs again, and with ``--peers`` TensorFlow Privacy's
`advanced_mia` and ART's learned attack on the very same outputs, each in an environment of its own.
Aims: our LiRA within the interval of TF Privacy's at AUC and TPR at 0.1 % FPR; LiRA and RMIA above
ART.
"""

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from audit._fleet import Bench, Recipe, small_resnet, train_fleet
from bench import VenvPeer, prepare_environment
from torch import Tensor

from tacit.audit import Ranking, auc, seeded, toss, tpr_at
from tacit.audit.membership import ATTACKS, GAMES, SeenScores, SeenShadows

Row = dict[str, Any]
HERE = Path(__file__).parents[1]
PEERS = (
    VenvPeer(
        "tensorflow-privacy",
        ("tensorflow-privacy==0.8.12", "numpy<2", "scipy"),
        HERE / "peers" / "tfprivacy_peer.py",
        (),
        ("--no-deps",),
    ),
    VenvPeer(
        "art",
        ("adversarial-robustness-toolbox==1.20.1", "packaging"),
        HERE / "peers" / "art_peer.py",
        (),
    ),
)


def train(options: argparse.Namespace, target: Path) -> None:
    """Train targets, then shadow models in complementary pairs, and keep their outputs.

    Every record is inside exactly half of the shadow models whenever the time is up.
    """
    x, y, classes = load_pool(options)
    pairs = [toss(len(y), 2, generator=seeded(2 + i)) for i in range(options.shadows // 2)]
    fair = torch.empty(options.targets, len(y)).uniform_(generator=seeded(1)) < 0.5
    every = torch.cat([fair, *pairs])
    recipe = Recipe(epochs=options.epochs, batch=options.batch, rate=options.rate)
    begun = time.perf_counter()
    bench = Bench(lambda: small_resnet(x.shape[1], classes, options.width), x, y, recipe)
    outputs: list[Tensor] = []
    for one in train_fleet(bench, every, seconds=options.seconds, note=note):
        outputs.append(one)
        if len(outputs) % 32 == 0:
            keep(target, y, every, outputs, options.targets, time.perf_counter() - begun)
    keep(target, y, every, outputs, options.targets, time.perf_counter() - begun)
    note(f"trained {len(outputs)} models in {time.perf_counter() - begun:.0f} s")


def keep(
    target: Path, y: Tensor, coins: Tensor, outputs: list[Tensor], targets: int, seconds: float
) -> None:
    """Write what is there so far, in half precision: a logarithm is then off by 0.1 %."""
    found = torch.stack(outputs)
    part = target.with_suffix(".part.npz")
    np.savez_compressed(
        part,
        labels=y.cpu().numpy().astype(np.int64),
        outputs=found[targets:].half().numpy(),
        coins=coins[targets : len(found)].numpy(),
        target_outputs=found[:targets].half().numpy(),
        target_coins=coins[:targets].numpy(),
        seconds=np.array(seconds),
    )
    part.replace(target)


def load_pool(options: argparse.Namespace) -> tuple[Tensor, Tensor, int]:
    """Return the pictures that are members or not; without a folder, noise with labels."""
    if options.data is None:
        generator = torch.Generator().manual_seed(0)
        x = torch.randn(options.rows, 3, 16, 16, generator=generator)
        y = torch.randint(0, 4, (options.rows,), generator=generator)
        return x.to(options.device), y.to(options.device), 4
    from split._tasks import load

    data = load("cifar10", options.data, device=options.device, rows=options.rows)
    return data.train_x, data.train_y, data.classes


def score_ours(kept: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return (targets, rows) scores of every attack on outputs."""
    labels, coins = torch.from_numpy(kept["labels"]), torch.from_numpy(kept["coins"])
    shadows = torch.from_numpy(kept["outputs"])
    names = (*GAMES["scores"].attacks, *GAMES["shadows"].attacks)
    found: dict[str, list[np.ndarray]] = {name: [] for name in names}
    for outputs in torch.from_numpy(kept["target_outputs"]):
        scores = SeenScores(log_probs=outputs, labels=labels)
        shadowed = SeenShadows(
            log_probs=outputs, labels=labels, shadow_log_probs=shadows, shadow_coins=coins
        )
        for name in names:
            seen = scores if name in GAMES["scores"].attacks else shadowed
            found[name].append(ATTACKS[name](seen, generator=seeded(0)))
    return {f"tacit, {name}": np.stack(one) for name, one in found.items()}


def score_peers(scores: Path, environments: Path) -> dict[str, np.ndarray]:
    """Let every peer score the same outputs."""
    found: dict[str, np.ndarray] = {}
    for peer in PEERS:
        note(f"installing and running {peer.name}")
        python = prepare_environment(peer, environments)
        target = scores.with_suffix(f".{peer.name}.npz")
        subprocess.run([str(python), str(peer.script), str(scores), str(target)], check=True)
        with np.load(target, allow_pickle=False) as arrays:
            found |= {f"{peer.name}, {name}": arrays[name] for name in arrays.files}
    return found


def measure(scores: dict[str, np.ndarray], truth: np.ndarray) -> list[Row]:
    """Return AUC and low-rate TPR of every attack, over all targets together."""
    rows = []
    for name, values in scores.items():
        ranking = Ranking(values.astype(np.float64).ravel(), truth.ravel())
        row: Row = {"attack": name, "auc": auc(ranking)}
        for rate in (0.001, 0.01):
            row[f"tpr@{rate:g}"] = tpr_at(ranking, rate)
        rows.append(row)
        shown = "  ".join(f"{key} {value[0]:.4f}" for key, value in row.items() if key != "attack")
        note(f"{name:36} {shown}")
    return rows


def accuracies(kept: dict[str, np.ndarray]) -> dict[str, float]:
    """Return how well the targets do on members and on strangers."""
    right = kept["target_outputs"].argmax(-1) == kept["labels"]
    inside = kept["target_coins"]
    return {"members": float(right[inside].mean()), "strangers": float(right[~inside].mean())}


def note(text: str) -> None:
    """Say how far it is."""
    print(text, file=sys.stderr, flush=True)


def parse() -> argparse.Namespace:
    """Read the options."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--data", type=Path, help="folder of public sets; noise without it")
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--shadows", type=int, default=128)
    parser.add_argument("--targets", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=1e9, help="train no new pair after that")
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--width", type=int, default=32)
    parser.add_argument("--rate", type=float, default=0.1)
    parser.add_argument("--quick", action="store_true", help="tiny, to see that it works")
    parser.add_argument("--scores", type=Path, help="kept outputs, instead of training")
    parser.add_argument("--peers", action="store_true", help="install and run the peers too")
    parser.add_argument("--environments", type=Path, default=Path(".bench"))
    parser.add_argument("--out", type=Path, default=Path("audit_membership.json"))
    options = parser.parse_args()
    if options.quick:
        options.rows, options.shadows, options.targets = 160, 8, 2
        options.epochs, options.batch, options.width = 8, 16, 4
    return options


def main() -> None:
    """Train or load, score, write."""
    options = parse()
    scores = options.scores or options.out.with_suffix(".npz")
    if options.scores is None:
        train(options, scores)
    with np.load(scores, allow_pickle=False) as arrays:
        kept = {name: arrays[name] for name in arrays.files}
    for name in ("outputs", "target_outputs"):
        kept[name] = kept[name].astype(np.float32)
    found = score_ours(kept)
    if options.peers:
        found |= score_peers(scores, options.environments)
    rows = measure(found, kept["target_coins"])
    record = {
        "pool": len(kept["labels"]),
        "shadows": len(kept["coins"]),
        "targets": len(kept["target_coins"]),
        "training_seconds": float(kept["seconds"]),
        "accuracy": accuracies(kept),
        "rows": rows,
    }
    options.out.write_text(json.dumps(record, indent=1))


if __name__ == "__main__":
    main()
