"""Accuracy of split models against the bytes of their cut layer, for every compressor.

Run as a program: python benchmarks/split_compression.py --data FOLDER --device cuda
The order to see is that of table 3.2 of the thesis: randomised Top-k, Top-k, a smaller cut layer.
CIFAR-100, DBpedia and Tiny-ImageNet are replaced by CIFAR-10, 20 newsgroups, MNIST and
Fashion-MNIST, YooChoose by a sample of it.
"""

import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

sys.path.append(str(Path(__file__).parent))
import torch
from _split_pool import Item, options, run_groups, seeds, summarise
from _split_tasks import Data, load
from _split_train import Wanted, accuracy, share_right, train_all

from tacit.learn.split import Compression, Halves

Cell = tuple[str, str, Compression]
WIDTHS = {"mnist": 128, "fashion": 128, "cifar10": 64, "newsgroups": 300, "yoochoose": 300}
COUNTS = {
    "mnist": (1, 2, 4),
    "fashion": (1, 2, 4),
    "cifar10": (2, 3, 6),
    "newsgroups": (2, 4, 9),
    "yoochoose": (2, 4, 9),
}
RATIOS = ("high", "medium", "low")
BITS = (1, 2, 4)
L1_WEIGHTS = (3e-2, 3e-3, 3e-4)
ALPHAS = (0.02, 0.05, 0.2)
"""Tried besides each task's own where few values are kept."""


def settings(task: str) -> list[Cell]:
    """Return (ratio, name, compressor) for one task; a smaller layer gets at least the bytes."""
    width, alpha = WIDTHS[task], 0.05 if task == "yoochoose" else 0.1
    found: list[Cell] = [("none", "none", Compression())]
    for place, (ratio, k) in enumerate(zip(RATIOS, COUNTS[task], strict=True)):
        smaller = -(-k * (32 + (width - 1).bit_length()) // 32)
        found += [
            (ratio, "randtopk", Compression(kind="randtopk", k=k, alpha=alpha)),
            (ratio, "topk", Compression(kind="topk", k=k)),
            (ratio, "shrink", Compression(kind="shrink", k=smaller)),
            (
                ratio,
                "randtopk-coded",
                Compression(kind="randtopk-coded", k=k, alpha=alpha, bits=6, gradient_bits=8),
            ),
            (ratio, "quantise", Compression(kind="quantise", bits=BITS[place])),
            (ratio, "l1", Compression(kind="l1", weight=L1_WEIGHTS[place], threshold=1e-2)),
        ]
    if task == "mnist":
        found += [
            (f"k={k}", f"alpha={one}", Compression(kind="randtopk", k=k, alpha=one))
            for k in COUNTS[task][:1]
            for one in ALPHAS
        ]
    return found


class Stopping:
    """Early stopping, as in the thesis: of ten looks the one that is best on held-out rows counts.

    A tenth of the rows to train on is held out.
    """

    def __init__(self, data: Data, seed: int) -> None:
        order = torch.randperm(len(data.train_x), generator=torch.Generator().manual_seed(seed))
        order = order.to(data.train_x.device)
        out, left = order[: len(order) // 10], order[len(order) // 10 :]
        self.data = replace(data, train_x=data.train_x[left], train_y=data.train_y[left])
        self._held_out = data.train_x[out], data.train_y[out]
        self.best: dict[int, tuple[float, float]] = {}

    def look(self, number: int, halves: Halves) -> None:
        """Measure a model while it trains."""
        now = share_right(halves, self.data.name, *self._held_out)
        if now > self.best.get(number, (-1.0, 0.0))[0]:
            self.best[number] = now, accuracy(halves, self.data)


def measure(data: Data, cell: Cell, seed: int, halves: Halves) -> Item:
    """Return one trained model's bytes relative to no compression."""
    ratio, name, compression = cell
    codec, rows, width = halves.codec, 256, WIDTHS[data.name]
    served = codec.forward_bytes(rows, is_training=False)
    if served is None:
        halves.bottom.eval()
        h = halves.bottom(data.test_x[:rows]).detach().cpu()
        served, rows = codec.pack(h, is_training=False)[0].numel(), len(h)
    forward = codec.forward_bytes(256, is_training=True) or 0
    return {
        "task": data.name,
        "ratio": ratio,
        "name": name,
        "k": compression.k,
        "seed": seed,
        "last_accuracy": accuracy(halves, data),
        "serving_percent": 100 * served / (rows * width * 4),
        "training_percent": 100 * (forward + codec.backward_bytes(256)) / (256 * width * 8),
    }


def main() -> None:
    """Run all tasks, compressors and seeds, and say which order came out."""
    asked = options(__doc__ or "", tuple(WIDTHS))

    loaded = {
        task: load(task, asked.data, device=asked.device, rows=asked.rows) for task in asked.tasks
    }

    def groups() -> Iterator[tuple[str, Callable[[], list[Item]]]]:
        for seed in seeds(asked):
            for task, data in loaded.items():
                cells = [one for one in settings(task) if not asked.only or one[1] in asked.only]
                yield f"{task} {seed}", lambda d=data, c=cells, s=seed: group(d, c, s)

    def group(data: Data, cells: list[Cell], seed: int) -> list[Item]:
        wanted = [Wanted(WIDTHS[data.name], seed, compression) for _, _, compression in cells]
        stopping = Stopping(data, seed)
        trained = train_all(stopping.data, wanted, epochs=asked.epochs, watch=stopping.look)
        return [
            {**measure(data, cell, seed, halves), "accuracy": stopping.best[number][1]}
            for number, (cell, halves) in enumerate(zip(cells, trained, strict=True))
        ]

    rows = run_groups(groups(), asked, _report)
    for one in _report(rows)["summary"]:
        print(
            f"{one['task']:11} {one['ratio']:6} {one['name']:15} k={one['k']!s:4} "
            f"{100 * one['accuracy']:6.2f} ± {100 * one['accuracy_half']:.2f} %   "
            f"serving {one['serving_percent']:6.2f} %  training {one['training_percent']:6.2f} %"
        )
    print("\n".join(_report(rows)["verdicts"]))


def _report(rows: list[Item]) -> Item:
    keys = ("accuracy", "serving_percent", "training_percent")
    table = summarise(rows, keys, ("task", "ratio", "name", "k"))
    return {"summary": table, "verdicts": _verdicts(table)}


def _verdicts(table: list[Item]) -> list[str]:
    found = []
    place = {(one["task"], one["ratio"], one["name"]): one for one in table}
    for task, ratio in dict.fromkeys((one["task"], one["ratio"]) for one in table):
        names = ("randtopk", "topk", "shrink")
        if not all((task, ratio, name) in place for name in (*names, "randtopk-coded")):
            continue
        first, second, third = (place[task, ratio, name]["accuracy"] for name in names)
        holds = first > second > third
        found.append(f"{task} {ratio}: randtopk > topk > shrink {'holds' if holds else 'FAILS'}")
        plain, coded = place[task, ratio, "randtopk"], place[task, ratio, "randtopk-coded"]
        saved = plain["training_percent"] / coded["training_percent"]
        cost = 100 * (plain["accuracy"] - coded["accuracy"])
        found.append(f"{task} {ratio}: coded sends {saved:.2f} × less, {cost:+.2f} points lost")
    return found


if __name__ == "__main__":
    main()
