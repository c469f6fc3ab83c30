"""How large a problem is practical: bytes, rounds and processor seconds of the README's table.

All parties are threads of this process, so that its processor time is that of all of them together.
Every message is real; the network is not counted.
"""

import argparse
import time
from collections.abc import Callable

import numpy as np
import torch
import xgboost
from torch import nn

import tacit
from tacit.result import Cost


def main() -> None:
    """Answer rows with trees and with a network, then train an epoch, and print a row for each."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="a hundredth of the rows")
    scale = 100 if parser.parse_args().quick else 1
    torch.set_num_threads(1)
    draw = np.random.default_rng(0)
    network = nn.Sequential(nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10))
    pictures = draw.random((66_667 // scale, 784), dtype=np.float32)
    digits = draw.integers(0, 10, len(pictures))
    columns = draw.normal(size=(5_000, 23)).astype(np.float32)
    signs = (columns[:, 0] * columns[:, 1] + columns[:, 2] > 0).astype(int)
    trees = xgboost.XGBClassifier(n_estimators=50, max_depth=4).fit(columns, signs)

    ask(trees, columns[: 1_000 // scale], "sealed")
    for protocol in ("sealed", "permuted2"):
        ask(network.eval(), torch.from_numpy(pictures[: 10_000 // scale]), protocol)
    half = len(pictures) // 2
    owners = {
        "north": (pictures[:half], digits[:half]),
        "south": (pictures[half:], digits[half:]),
    }
    measure(
        f"an epoch over nine tenths of {len(pictures):,} rows, sealed",
        lambda: tacit.train(network, owners, epochs=1, batch=128, rate=0.05).cost,
    )


def ask(model: object, rows: np.ndarray | torch.Tensor, protocol: str) -> None:
    """Measure one batch of questions; the first of all, which loads what it needs, is left out."""
    private = tacit.secure(model, reveal="class", protocol=protocol)
    private(rows[:2])
    name = f"{type(model).__name__}, class of {len(rows):,} rows, {protocol}"
    measure(name, lambda: private(rows).cost)


def measure(name: str, run: Callable[[], Cost]) -> None:
    """Print what a run sent and took."""
    began = time.process_time()
    cost = run()
    seconds = time.process_time() - began
    online, offline = (
        sum(one.payload_bytes for one in cost.traffic if one.phase == phase) / 1e6
        for phase in ("online", "offline")
    )
    print(f"{name}: online {online:,.1f} MB, offline {offline:,.1f} MB,", end=" ")
    print(f"{cost.online_rounds:,} rounds, {seconds:.2f} s")


if __name__ == "__main__":
    main()
