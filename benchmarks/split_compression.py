"""Accuracy of split models against the bytes of their cut layer, for every compressor.

Run as a program: python benchmarks/split_compression.py --data FOLDER --device cuda --workers 6
The order to see is that of table 3.2 of the thesis: randomised Top-k, Top-k, a smaller cut layer.
CIFAR-100, DBpedia and Tiny-ImageNet are replaced by CIFAR-10, 20 newsgroups, MNIST and
Fashion-MNIST, YooChoose by a sample of it.
"""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent))
from _split_pool import Item, data_of, options, run_all, summarise, write
from _split_train import accuracy, train

from tacit.learn.split import Compression

WIDTHS = {"mnist": 128, "fashion": 128, "cifar10": 128, "newsgroups": 300, "yoochoose": 300}
COUNTS = {
    "mnist": (1, 2, 4),
    "fashion": (1, 2, 4),
    "cifar10": (1, 2, 4),
    "newsgroups": (2, 4, 9),
    "yoochoose": (2, 4, 9),
}
RATIOS = ("high", "medium", "low")


def settings(task: str) -> list[tuple[str, str, Compression]]:
    """Return (ratio, name, compressor) for one task; a smaller layer gets at least the bytes."""
    width, alpha = WIDTHS[task], 0.05 if task == "yoochoose" else 0.1
    found = [("none", "none", Compression())]
    for ratio, k in zip(RATIOS, COUNTS[task], strict=True):
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
        ]
    found.append(("low", "quantise", Compression(kind="quantise", bits=2)))
    found.append(("low", "l1", Compression(kind="l1", weight=1e-3, threshold=1e-2)))
    return found


def work(item: Item) -> Item:
    """Train one model and measure it."""
    data, width = data_of(item), WIDTHS[item["task"]]
    compression = Compression(**item["compression"])
    halves = train(
        data, width=width, seed=item["seed"], compression=compression, epochs=item["epochs"]
    )
    codec, rows = halves.codec, 256
    served = codec.forward_bytes(rows, is_training=False)
    if served is None:
        halves.bottom.eval()
        h = halves.bottom(data.test_x[:rows]).detach().cpu()
        served, rows = codec.pack(h, is_training=False)[0].numel(), len(h)
    forward = codec.forward_bytes(256, is_training=True)
    return {
        "task": item["task"],
        "ratio": item["ratio"],
        "name": item["name"],
        "k": compression.k,
        "seed": item["seed"],
        "accuracy": accuracy(halves, data),
        "serving_percent": 100 * served / (rows * width * 4),
        "training_percent": 100 * (forward + codec.backward_bytes(256)) / (256 * width * 8),
    }


def main() -> None:
    """Run all tasks, compressors and seeds, and say which order came out."""
    asked = options(__doc__ or "", tuple(WIDTHS))
    items = [
        {"task": task, "ratio": ratio, "name": name, "seed": seed, "compression": vars(compression)}
        for task in asked.tasks
        for ratio, name, compression in settings(task)
        for seed in range(asked.seeds)
    ]
    rows = run_all(work, items, asked)
    keys = ("accuracy", "serving_percent", "training_percent")
    table = summarise(rows, keys, ("task", "ratio", "name", "k"))
    for one in table:
        print(
            f"{one['task']:11} {one['ratio']:6} {one['name']:15} k={one['k']!s:4} "
            f"{100 * one['accuracy']:6.2f} ± {100 * one['accuracy_half']:.2f} %   "
            f"serving {one['serving_percent']:6.2f} %  training {one['training_percent']:6.2f} %"
        )
    write(asked, {"rows": rows, "summary": table, "verdicts": _verdicts(table)})


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
    for line in found:
        print(line)
    return found


if __name__ == "__main__":
    main()
