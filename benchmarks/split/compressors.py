"""Accuracy of split models against the bytes of their cut layer, for every compressor.

Run as a program: python benchmarks/run.py split/compressors --data FOLDER --device cuda
The order to see is that of table 3.2 of the thesis: randomised Top-k, Top-k, a smaller cut layer.
CIFAR-100, DBpedia and Tiny-ImageNet are replaced by CIFAR-10, 20 newsgroups, MNIST and
Fashion-MNIST, YooChoose by a sample of it.
"""

import time
from argparse import Namespace
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import split._sessions as sessions
import torch
from split._pool import Item, options, run_groups, seeds, summarise, write
from split._stack import BOTTOMS, RECIPES, Stack, Standing
from split._tasks import TASKS, Data, load
from split._train import Wanted, accuracy, share_right, train_all

from tacit.audit import mean_interval
from tacit.split import Codec, Compression, Halves

Cell = tuple[str, str, Compression]
WIDTHS = {
    "mnist": 128,
    "fashion": 128,
    "cifar10": 64,
    "cifar10-full": 64,
    "cifar10-half": 128,
    "cifar10-wide": 128,
    "newsgroups": 600,
    "yoochoose": 300,
}
COUNTS = {
    "mnist": (1, 2, 3, 4),
    "fashion": (1, 2, 4),
    "cifar10": (2, 3, 6),
    "cifar10-full": (2, 3, 6),
    "cifar10-half": (3, 6, 13),
    "cifar10-wide": (3, 6, 13),
    "newsgroups": (2, 4, 9),
    "yoochoose": (2, 4, 9),
}
"""Text and sessions as in table 3.2 of the thesis, whose ratios say that its texts have a cut layer
of 600 numbers."""
BITS = (1, 2, 4)
L1_WEIGHTS = (3e-2, 3e-3, 3e-4)
SESSIONS = ("yoochoose", True)
"""What is trained one by one, with what `_split_sessions` saves: sessions on a processor."""
ALPHAS = (0.02, 0.05, 0.2)
"""Tried besides each task's own where few values are kept."""


def settings(task: str, alphas: Sequence[float] = ()) -> list[Cell]:
    """Return (ratio, name, compressor) for one task; a smaller layer gets at least the bytes."""
    width, alpha = WIDTHS[task], 0.05 if task == "yoochoose" else 0.1
    found: list[Cell] = [("none", "none", Compression())]
    for k in COUNTS[task]:
        ratio, smaller = f"k={k}", -(-k * (32 + (width - 1).bit_length()) // 32)
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
    for bits, weight in zip(BITS, L1_WEIGHTS, strict=True):
        found += [
            (f"{bits} bits", "quantise", Compression(kind="quantise", bits=bits)),
            (f"weight {weight}", "l1", Compression(kind="l1", weight=weight, threshold=1e-2)),
        ]
    counts, alphas = (COUNTS[task], alphas) if task != "mnist" else (COUNTS[task][:2], ALPHAS)
    return found + [
        (f"k={k}", f"alpha={one}", Compression(kind="randtopk", k=k, alpha=one))
        for k in counts
        for one in alphas
    ]


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
        self.best_look: dict[int, int] = {}
        self._looks: Counter[int] = Counter()

    def look(self, number: int, halves: Halves) -> None:
        """Measure a model while it trains."""
        self._looks[number] += 1
        now = share_right(halves, self.data.name, *self._held_out)
        if now > self.best.get(number, (-1.0, 0.0))[0]:
            self.best[number] = now, accuracy(halves, self.data)
            self.best_look[number] = self._looks[number]


def measure(data: Data, cell: Cell, seed: int, halves: Halves) -> Item:
    """Return one trained model's bytes relative to no compression."""
    codec, rows = halves.codec, 256
    served = codec.forward_bytes(rows, is_training=False)
    if served is None:
        halves.bottom.eval()
        h = halves.bottom(data.test_x[:rows]).detach().cpu()
        served, rows = codec.pack(h, is_training=False)[0].numel(), len(h)
    found = describe(data.name, cell, seed, codec)
    found["last_accuracy"] = accuracy(halves, data)
    found["serving_percent"] = 100 * served / (rows * codec.width * 4)
    return found


def describe(task: str, cell: Cell, seed: int, codec: Codec) -> Item:
    """Return what a model is, and its bytes relative to no compression where they are fixed."""
    forward = codec.forward_bytes(256, is_training=True) or 0
    served = codec.forward_bytes(256, is_training=False)
    return {
        "task": task,
        "ratio": cell[0],
        "name": cell[1],
        "k": cell[2].k,
        "seed": seed,
        "serving_percent": None if served is None else 100 * served / (256 * codec.width * 4),
        "training_percent": 100 * (forward + codec.backward_bytes(256)) / (256 * codec.width * 8),
    }


def run_stack(
    asked: Namespace, data: Data, cells: list[Cell], *, seconds: float, known: list[Item]
) -> list[Item]:
    """Train all seeds and compressors of a small task at once; each look is written to the file."""
    wanted = [Wanted(WIDTHS[data.name], seed, cell[2]) for cell in cells for seed in seeds(asked)]
    places = [(cell, seed) for cell in cells for seed in seeds(asked)]
    recipe = RECIPES[data.name]
    if data.name == "yoochoose":
        recipe = replace(
            recipe,
            batch=asked.batch,
            looks=1,
            rate=asked.rates[0],
            label_rate=asked.rates[1],
            is_falling=True,
            dropout=asked.dropout,
            is_bent=asked.elu,
        )
    recipe = replace(
        recipe,
        epochs=asked.epochs or recipe.epochs,
        batch=min(recipe.batch, len(data.train_x) // (2 * recipe.at_once)),
    )
    stack = Stack(data, wanted, recipe, is_recorded=not asked.eager)
    rows: list[Item] = []
    began = time.monotonic()

    def watch(now: Standing) -> None:
        rows[:] = [
            {
                **describe(data.name, cell, seed, stack.halves[number].codec),
                "accuracy": now.accuracy[number],
                "held_out": now.held_out[number],
                "best_epoch": now.best_epoch[number],
                "last_accuracy": now.last[number],
                "epochs": now.epochs,
            }
            for number, (cell, seed) in enumerate(places)
        ]
        every = known + rows
        write(asked, {"rows": every, **report(every), "seconds": time.monotonic() - began})
        shown = " ".join(f"{100 * one:.1f}" for one in now.accuracy[:: asked.seeds])
        print(f"{time.monotonic() - began:.0f} s, epoch {now.epochs:.1f}: {shown}", flush=True)

    stack.train(seconds=seconds, watch=watch)
    first = range(0, len(places), asked.seeds)
    for number, mine in zip(first, stack.library_accuracies(first), strict=True):
        rows[number]["library_accuracy"] = mine
    return rows


def train_sessions(
    asked: Namespace, data: Data, wanted: Wanted, look: Callable[[int, Halves], None]
) -> Halves:
    """Train one session model on a processor, and print how its states lie in the end."""
    recipe = sessions.Recipe(
        batch=asked.batch,
        bottom_rate=asked.rates[0],
        top_rate=asked.rates[1],
        dropout=asked.dropout,
    )
    recipe = replace(recipe, epochs=asked.epochs or recipe.epochs)
    halves = sessions.train(data, wanted, recipe, lambda halves: look(0, halves))
    print(sessions.crowding(halves, data.test_x[:2048]), flush=True)
    return halves


def main() -> None:
    """Run all tasks, compressors and seeds, and say which order came out."""
    asked = options(
        __doc__ or "",
        tuple(task for task in WIDTHS if task in TASKS),
        {
            "--eager": {"action": "store_true", "help": "record no steps on the device"},
            "--alphas": {"type": float, "nargs": "+", "default": [], "help": "more to try"},
            "--ratios": {"nargs": "+", "help": "only these: k=2 and so on"},
            "--rates": {
                "type": float,
                "nargs": 2,
                "default": (5e-4, 6e-3),
                "help": "the feature owner's and the label owner's, for sessions",
            },
            "--batch": {"type": int, "default": 128, "help": "rows of a step, for sessions"},
            "--elu": {"action": "store_true", "help": "bend the logits, for sessions on a device"},
            "--dropout": {"type": float, "default": 0.25, "help": "of items, for sessions"},
        },
    )
    began = time.monotonic()
    torch.backends.cudnn.benchmark = True
    loaded = {
        task: load(task, asked.data, device=asked.device, rows=asked.rows) for task in asked.tasks
    }
    chosen = {
        task: [
            one
            for one in settings(task, asked.alphas)
            if (not asked.only or one[1] in asked.only)
            and (not asked.ratios or one[0] in asked.ratios)
        ]
        for task in loaded
    }
    rows: list[Item] = []
    is_alone = asked.device == "cpu"
    stacked = [task for task in loaded if task in BOTTOMS and (task, is_alone) != SESSIONS]
    for place, task in enumerate(stacked):
        left = asked.seconds - (time.monotonic() - began)
        cells = [one for one in chosen[task] if one[1] != "l1"]  # whose bytes depend on the values
        chosen[task] = [one for one in chosen[task] if one[1] == "l1"]
        share = left / (len(stacked) - place)
        if cells:
            rows += run_stack(asked, loaded[task], cells, seconds=share, known=rows)

    def groups() -> Iterator[tuple[str, Callable[[], list[Item]]]]:
        for seed in seeds(asked):
            for task, data in loaded.items():
                for cells in _apart(chosen[task], is_alone=is_alone):
                    of = f" {cells[0][0]} {cells[0][1]}" if is_alone else ""
                    yield f"{task} {seed}{of}", lambda d=data, c=cells, s=seed: group(d, c, s)

    def group(data: Data, cells: list[Cell], seed: int) -> list[Item]:
        wanted = [Wanted(WIDTHS[data.name], seed, compression) for _, _, compression in cells]
        stopping = Stopping(data, seed)

        def look(number: int, halves: Halves) -> None:
            stopping.look(number, halves)
            if number == len(wanted) - 1:
                best = " ".join(f"{100 * right:.1f}" for _, right in stopping.best.values())
                print(f"{data.name} {seed}: {best}", flush=True)

        if (data.name, is_alone) == SESSIONS:
            trained = [train_sessions(asked, stopping.data, wanted[0], look)]
        else:
            trained = train_all(stopping.data, wanted, epochs=asked.epochs, watch=look)
        return [
            {
                **measure(data, cell, seed, halves),
                "accuracy": stopping.best[number][1],
                "best_look": stopping.best_look[number],
            }
            for number, (cell, halves) in enumerate(zip(cells, trained, strict=True))
        ]

    rows += run_groups(groups(), asked, report)
    if stacked:
        write(asked, {"rows": rows, **report(rows)})
    for one in report(rows)["summary"]:
        print(
            f"{one['task']:11} {one['ratio']:6} {one['name']:15} k={one['k']!s:4} "
            f"{100 * one['accuracy']:6.2f} ± {100 * one['accuracy_half']:.2f} %   "
            f"serving {one['serving_percent']:6.2f} %  training {one['training_percent']:6.2f} %"
        )
    print("\n".join(report(rows)["verdicts"]))


def _apart(cells: list[Cell], *, is_alone: bool) -> list[list[Cell]]:
    """Group what is trained before the file is written: side by side on a device, else alone."""
    return [[one] for one in cells] if is_alone else [cells] if cells else []


def report(rows: list[Item]) -> Item:
    """Return means with intervals, and which order came out."""
    keys = ("accuracy", "serving_percent", "training_percent")
    table = summarise(rows, keys, ("task", "ratio", "name", "k"))
    return {"summary": table, "verdicts": _verdicts(rows, table)}


def _verdicts(rows: list[Item], table: list[Item]) -> list[str]:
    """Compare seed by seed: equal seeds have equal rows, orders and first weights."""
    found = []
    place = {(one["task"], one["ratio"], one["name"]): one for one in table}
    for task, ratio in dict.fromkeys((one["task"], one["ratio"]) for one in table):
        for better, worse in (
            ("randtopk", "topk"),
            ("topk", "shrink"),
            ("randtopk-coded", "randtopk"),
        ):
            if (task, ratio, better) not in place or (task, ratio, worse) not in place:
                continue
            first, second = (
                {
                    one["seed"]: one["accuracy"]
                    for one in rows
                    if (one["task"], one["ratio"], one["name"]) == (task, ratio, name)
                }
                for name in (better, worse)
            )
            pairs = [(one, second[seed]) for seed, one in first.items() if seed in second]
            mean, low, high = mean_interval([100 * (one - other) for one, other in pairs])
            fewer = (
                place[task, ratio, worse]["training_percent"]
                / place[task, ratio, better]["training_percent"]
            )
            found.append(
                f"{task} {ratio}: {better} - {worse} {mean:+.2f} ± {(high - low) / 2:.2f} points, "
                f"{len(pairs)} seeds, {fewer:.2f} times fewer bytes"
            )
    return found


if __name__ == "__main__":
    main()
