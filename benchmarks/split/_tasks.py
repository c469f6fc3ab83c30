"""Data for the split-learning benchmarks, from a folder of public sets or a prepared file."""

import gzip
import json
import lzma
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

TASKS = (
    "digits",
    "mnist",
    "fashion",
    "cifar10",
    "cifar10-full",
    "cifar10-half",
    "newsgroups",
    "yoochoose",
)
_WORD = re.compile(r"[a-z]{2,}")
_TOKENS, _VOCABULARY = 200, 20_000
_SESSION = 10


@dataclass(frozen=True)
class Data:
    """A task on its device: rows to train and to test on, and what a model must know of them."""

    name: str
    train_x: Tensor
    train_y: Tensor
    test_x: Tensor
    test_y: Tensor
    classes: int
    shape: tuple[int, ...]


def prepare(folder: Path, target: Path, names: tuple[str, ...]) -> None:
    """Write one compressed file per task, which `load` reads with NumPy alone."""
    target.mkdir(parents=True, exist_ok=True)
    for name in names:
        np.savez_compressed(target / f"{name}.npz", **_read(name, folder))


def load(name: str, folder: Path, *, device: str, rows: int | None = None) -> Data:
    """Load a task; pictures are scaled to deviation 1."""
    path = folder / f"{name}.npz"
    arrays = dict(np.load(path, allow_pickle=False)) if path.exists() else _read(name, folder)
    train_x, test_x = (torch.from_numpy(arrays[f"x_{part}"]) for part in ("train", "test"))
    train_y, test_y = (torch.from_numpy(arrays[f"y_{part}"]).long() for part in ("train", "test"))
    classes = int(max(train_y.max(), test_y.max())) + 1
    if name in ("newsgroups", "yoochoose"):
        train_x, test_x = train_x.long(), test_x.long()
        shape: tuple[int, ...] = (train_x.shape[1], int(max(train_x.max(), test_x.max())) + 1)
    else:
        train_x, test_x = _picture(train_x), _picture(test_x)
        mean, spread = train_x.mean(), train_x.std()
        train_x, test_x = (train_x - mean) / spread, (test_x - mean) / spread
        shape = tuple(train_x.shape[1:])
    if rows is not None and rows < len(train_x):
        kept = torch.randperm(len(train_x), generator=torch.Generator().manual_seed(0))[:rows]
        train_x, train_y = train_x[kept], train_y[kept]
    moved = (one.to(device) for one in (train_x, train_y, test_x, test_y))
    return Data(name, *moved, classes=classes, shape=shape)


def _picture(pixels: Tensor) -> Tensor:
    x = pixels.float() / 255
    return x.permute(0, 3, 1, 2).contiguous() if x.dim() == 4 else x


def _read(name: str, folder: Path) -> dict[str, np.ndarray]:
    if name in ("mnist", "fashion"):
        file = {"mnist": "mnist/mnist.npz", "fashion": "fashion_mnist/fashion_mnist.npz"}[name]
        return dict(np.load(folder / file))
    reads = {
        "digits": _digits,
        "cifar10": _cifar,
        "cifar10-full": _cifar_full,
        "cifar10-half": _cifar_half,
        "newsgroups": _newsgroups,
        "yoochoose": _yoochoose,
    }
    return reads[name](folder)


def _digits(folder: Path) -> dict[str, np.ndarray]:
    """Take the 1,797 digits of scikit-learn, the last 539 of them to test on."""
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    x = np.round(x.reshape(-1, 8, 8) * (255 / 16)).astype(np.uint8)
    return {"x_train": x[:1258], "y_train": y[:1258], "x_test": x[1258:], "y_test": y[1258:]}


def _cifar(folder: Path) -> dict[str, np.ndarray]:
    """Read the 10,000 + 2,000 pictures that are staged; needs Pillow, a prepared file does not."""
    labels = np.load(folder / "cifar10/labels.npz")
    found = {"y_train": labels["y_train"], "y_test": labels["y_test"]}
    for part, count in (("train", 10_000), ("test", 2_000)):
        found[f"x_{part}"] = _tiles(folder / f"cifar10/cifar10_{part}_{count}.webp")[:count]
    return found


def _cifar_full(folder: Path) -> dict[str, np.ndarray]:
    """Read all 60,000 pictures: labels.npz, and per batch of 10,000 a sheet of 100 by 100 tiles.

    Batches to train on that are not there are left out.
    """
    folder = folder / "cifar10-full"
    labels = np.load(folder / "labels.npz")
    sheets = [folder / f"data_batch_{number}.webp" for number in range(1, 6)]
    kept = [number for number, sheet in enumerate(sheets) if sheet.exists()]
    return {
        "y_train": labels["y_train"].reshape(5, -1)[kept].reshape(-1),
        "y_test": labels["y_test"],
        "x_train": np.concatenate([_tiles(sheets[number]) for number in kept]),
        "x_test": _tiles(folder / "test_batch.webp"),
    }


def _cifar_half(folder: Path) -> dict[str, np.ndarray]:
    """Read all 60,000 pictures at half their size: the mean of four pixels, for a processor."""
    found = _cifar_full(folder)
    for part in ("x_train", "x_test"):
        fours = found[part].reshape(-1, 16, 2, 16, 2, 3).mean((2, 4), dtype=np.float32)
        found[part] = np.round(fours).astype(np.uint8)
    return found


def _tiles(path: Path) -> np.ndarray:
    from PIL import Image

    Image.MAX_IMAGE_PIXELS = None
    with Image.open(path) as image:
        sheet = np.array(image.convert("RGB"))
    high, wide = sheet.shape[0] // 32, sheet.shape[1] // 32
    return sheet.reshape(high, 32, wide, 32, 3).swapaxes(1, 2).reshape(-1, 32, 32, 3)


def _newsgroups(folder: Path) -> dict[str, np.ndarray]:
    """Read 20 newsgroups: the first 200 words after the header, the 20,000 commonest words."""
    with lzma.open(folder / "newsgroups20/20news_bydate.jsonl.xz", "rt", encoding="utf8") as lines:
        posts = [json.loads(line) for line in lines]
    words = [_WORD.findall(post["text"].partition("\n\n")[2].lower())[:_TOKENS] for post in posts]
    is_train = np.array([post["split"] == "train" for post in posts])
    counts = Counter(w for post, keep in zip(words, is_train, strict=True) if keep for w in post)
    index = {word: i for i, (word, _) in enumerate(counts.most_common(_VOCABULARY - 2), start=2)}
    groups = {group: i for i, group in enumerate(sorted({post["group"] for post in posts}))}
    x = np.zeros((len(posts), _TOKENS), np.int32)
    for row, post in enumerate(words):
        x[row, : len(post)] = [index.get(word, 1) for word in post]
    y = np.array([groups[post["group"]] for post in posts])
    return {
        "x_train": x[is_train],
        "y_train": y[is_train],
        "x_test": x[~is_train],
        "y_test": y[~is_train],
    }


def _yoochoose(folder: Path) -> dict[str, np.ndarray]:
    """Read the sample of sessions: the items so far, padded on the left, and the next item.

    Every fifth session is for testing; a next item that training never saw is left out there.
    """
    with gzip.open(folder / "yoochoose/sessions_test.jsonl.gz", "rt", encoding="utf8") as lines:
        sessions = [json.loads(line)["items"] for line in lines]
    rows: dict[str, list[tuple[list[int], int]]] = {"train": [], "test": []}
    for number, items in enumerate(sessions):
        part = "test" if number % 5 == 4 else "train"
        rows[part] += [(items[max(0, i - _SESSION) : i], items[i]) for i in range(1, len(items))]
    known = {item for prefix, after in rows["train"] for item in (*prefix, after)}
    index = {item: i for i, item in enumerate(sorted(known), start=1)}
    found = {}
    for part, pairs in rows.items():
        kept = [(prefix, after) for prefix, after in pairs if after in index]
        x = np.zeros((len(kept), _SESSION), np.int32)
        for row, (prefix, _) in enumerate(kept):
            x[row, _SESSION - len(prefix) :] = [index.get(item, 0) for item in prefix]
        found[f"x_{part}"] = x
        found[f"y_{part}"] = np.array([index[after] for _, after in kept])
    return found
