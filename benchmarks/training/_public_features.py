"""Features of public networks, as their owners cut them out: a file for `_private_dp.py`.

    python benchmarks/run.py training/_public_features imdb DATA out.npz --rows 4000 --test 1000
    python benchmarks/run.py training/_public_features cifar10 DATA out.npz --rows 10000 --test 2000

DATA holds `imdb/` and `minilm_l6_int8/`, or `cifar10/` and `effnet_lite0/`. Texts become means of
the last hidden states of MiniLM over 96 tokens; pictures the 1,280 features before the last layer
of EfficientNet-Lite0, enlarged to 96 pixels. Rows are brought to norm 1.
"""

import argparse
import json
import lzma
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tacit.nn import ImageNetwork, TextNetwork


def _imdb(folder: Path) -> tuple[list[str], np.ndarray]:
    lines = lzma.decompress((folder / "imdb" / "imdb50k.jsonl.xz").read_bytes()).splitlines()
    rows = [json.loads(line) for line in lines]
    order = np.random.default_rng(0).permutation(len(rows))
    labels = np.array([int(rows[at]["label"] in (1, "1", "pos", "positive")) for at in order])
    return [rows[at]["text"] for at in order], labels


def _cifar(folder: Path) -> tuple[Tensor, np.ndarray]:
    from PIL import Image

    labels = np.load(folder / "cifar10" / "labels.npz")
    parts = []
    for part in ("train_10000", "test_2000"):
        sheet = np.asarray(Image.open(folder / "cifar10" / f"cifar10_{part}.webp").convert("RGB"))
        high, wide = sheet.shape[0] // 32, sheet.shape[1] // 32
        tiles = sheet.reshape(high, 32, wide, 32, 3).transpose(0, 2, 4, 1, 3)
        parts.append(tiles.reshape(-1, 3, 32, 32)[: int(part.split("_")[1])])
    y = np.concatenate([labels["y_train"], labels["y_test"]])
    return torch.from_numpy(np.concatenate(parts)).float(), y.astype(np.int64)


def main() -> None:
    """Write the file, and say what a linear probe without privacy reaches."""
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=["imdb", "cifar10"])
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--rows", type=int, default=4000)
    parser.add_argument("--test", type=int, default=1000)
    asked = parser.parse_args()
    given: Any
    given, labels = (_imdb if asked.kind == "imdb" else _cifar)(asked.data)
    network: Any
    if asked.kind == "imdb":
        network = TextNetwork(asked.data / "minilm_l6_int8")
    else:
        network = ImageNetwork(asked.data / "effnet_lite0" / "efficientnet_lite0_fp16.safetensors")
    chosen = [*range(asked.rows), *range(len(labels) - asked.test, len(labels))]
    begun = time.perf_counter()
    taken = [given[one] for one in chosen]
    x, y = network(taken if asked.kind == "imdb" else torch.stack(taken) / 255.0), labels[chosen]
    seconds = time.perf_counter() - begun
    train, test = slice(0, asked.rows), slice(asked.rows, None)
    np.savez(asked.out, x_train=x[train], y_train=y[train], x_test=x[test], y_test=y[test])
    from sklearn.linear_model import LogisticRegression

    probe = LogisticRegression(C=100.0, max_iter=500).fit(x[train], y[train])
    right = float(probe.score(x[test], y[test]))
    print(json.dumps({"rows": asked.rows, "seconds": round(seconds, 1), "probe": right}))


if __name__ == "__main__":
    main()
