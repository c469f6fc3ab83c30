"""Compressors of a picture model's cut layer in the setting of the thesis, many trainings at once.

Run as a program: python benchmarks/run.py split/pictures --data FOLDER --device cuda --workers 6
ResNet-20 with twice the channels, which makes its last layer 128 numbers wide as in table 3.2 of
the thesis, on CIFAR-10 in place of CIFAR-100. A tenth of the rows is held out; of all epochs the
one counts that is best there. Results are written after every training, seed by seed.
"""

import json
import multiprocessing
import queue
import time
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import replace
from multiprocessing import Queue
from multiprocessing.process import BaseProcess

import torch
from split._pictures import Recipe, Trainer, make_trainer
from split._pool import Item, options, seeds, write
from split._tasks import Data, load
from split.compressors import Cell, describe, report, settings

from tacit.split import Halves

KIND, WIDTH, TASK, PAIRS = "resnet20", 128, "cifar10-full", "cifar10-pairs"
Job = tuple[int, Cell]


def jobs(asked: Namespace) -> list[Job]:
    """Return what to train, seed by seed, so that whatever is done is a whole comparison."""
    cells = [
        one
        for one in settings("cifar10-wide", asked.alphas)
        if (not asked.only or one[1] in asked.only)
        and (not asked.ratios or one[0] in (*asked.ratios, "none"))
    ]
    return [(seed, cell) for seed in seeds(asked) for cell in cells]


def recipe_of(asked: Namespace) -> Recipe:
    """Return the recipe that was asked for."""
    found = Recipe(
        batch=asked.batch,
        rate=asked.rate,
        optimiser=asked.optimiser,
        decay=asked.decay,
        is_falling=not asked.constant,
        is_shifted=asked.shifted,
    )
    return replace(found, epochs=asked.epochs or found.epochs)


def name_of(asked: Namespace) -> str:
    """Return the name under which results are written."""
    return PAIRS if asked.pairs else "cifar10-wide"


def pair(data: Data) -> Data:
    """Lay every picture over another one, as further channels: ten times ten classes of pairs.

    Pictures to train on stay among themselves, and so do those to test on.
    """
    found = []
    for number, (x, y) in enumerate(
        ((data.train_x, data.train_y), (data.test_x, data.test_y)), start=1
    ):
        drawn = torch.randperm(len(x), generator=torch.Generator().manual_seed(number))
        other = drawn.to(x.device)
        found += [torch.cat((x, x[other]), dim=1), y * data.classes + y[other]]
    channels, *size = data.shape
    return Data(PAIRS, *found, classes=data.classes**2, shape=(2 * channels, *size))


class Best:
    """The epoch that is best on a tenth of the rows, held out, and what it does on test rows."""

    def __init__(self, trainer: Trainer, data: Data, seed: int) -> None:
        order = torch.randperm(len(data.train_x), generator=torch.Generator().manual_seed(seed))
        out, self.left = order.to(data.train_x.device).tensor_split([len(order) // 10])
        self._held_out = data.train_x[out], data.train_y[out]
        self._trainer, self._data = trainer, data
        self.held_out, self.epoch = -1.0, 0.0
        self.curve: list[tuple[float, float]] = []
        self._kept: list[torch.Tensor] = []

    def look(self, epoch: float, halves: Halves) -> None:
        """Measure a model while it trains."""
        now = self._trainer.share_right(halves, *self._held_out)
        self.curve.append((round(epoch, 2), round(now, 4)))
        if now > self.held_out:
            self.held_out, self.epoch = now, epoch
            self._kept = [one.clone() for one in _tensors(halves)]

    def accuracy(self, halves: Halves) -> float:
        """Go back to the best epoch, and return the share of test rows that are right."""
        for one, kept in zip(_tensors(halves), self._kept, strict=False):
            one.copy_(kept)
        return self._trainer.share_right(halves, self._data.test_x, self._data.test_y)


def _tensors(halves: Halves) -> list[torch.Tensor]:
    return [*halves.bottom.state_dict().values(), *halves.top.state_dict().values()]


def work(asked: Namespace, todo: "Queue[Job]", done: "Queue[Item]") -> None:
    """Train one model after the other until nothing is left, or no time."""
    torch.set_num_threads(1)
    end, recipe = asked.began + asked.seconds, recipe_of(asked)
    data = load(TASK, asked.data, device=asked.device, rows=asked.rows)
    data = pair(data) if asked.pairs else data
    trainer = make_trainer(data, kind=KIND, width=WIDTH, recipe=recipe)
    lasted = 0.0
    while time.monotonic() + lasted < end:
        try:
            seed, cell = todo.get(timeout=5)
        except queue.Empty:
            break
        best, began = Best(trainer, data, seed), time.monotonic()
        halves = trainer.train(cell[2], seed, best.left, best.look, until=end)
        lasted = time.monotonic() - began
        done.put(
            {
                **describe(name_of(asked), cell, seed, halves.codec),
                "accuracy": best.accuracy(halves),
                "held_out": best.held_out,
                "best_epoch": best.epoch,
                "curve": best.curve,
                "seconds": lasted,
                "is_compiled": trainer.is_fast,
                "is_whole": bool(best.curve) and best.curve[-1][0] > recipe.epochs - 0.5,
            }
        )
    done.put({})


def main() -> None:
    """Spread the trainings over processes and write what they found."""
    asked = options(
        __doc__ or "",
        (TASK,),
        {
            "--alphas": {"type": float, "nargs": "+", "default": [], "help": "more to try"},
            "--ratios": {"nargs": "+", "help": "only these: k=3 and so on"},
            "--batch": {"type": int, "default": Recipe.batch},
            "--rate": {"type": float, "default": Recipe.rate},
            "--optimiser": {"default": Recipe.optimiser, "choices": ("sgd", "adamw")},
            "--decay": {"type": float, "default": Recipe.decay},
            "--constant": {"action": "store_true", "help": "a rate that does not fall"},
            "--pairs": {"action": "store_true", "help": "two pictures at a time, 100 classes"},
            "--shifted": {"action": "store_true", "help": "pictures moved and mirrored"},
        },
    )
    asked.began = time.monotonic()
    context = multiprocessing.get_context("spawn")
    todo, done = context.Queue(), context.Queue()
    waiting = jobs(asked)
    for job in waiting:
        todo.put(job)
    workers = [
        context.Process(target=work, args=(asked, todo, done), daemon=True)
        for _ in range(min(asked.workers, len(waiting)))
    ]
    for worker in workers:
        worker.start()
    collect(asked, workers, done)


def collect(asked: Namespace, workers: Sequence[BaseProcess], done: "Queue[Item]") -> None:
    """Write every result as it comes, until all workers are through or dead."""
    rows: list[Item] = []
    ended = 0
    while ended < len(workers):
        try:
            row = done.get(timeout=10)
        except queue.Empty:
            if not any(worker.is_alive() for worker in workers):
                break
            continue
        if not row:
            ended += 1
            continue
        rows.append(row)
        print(
            f"{time.monotonic() - asked.began:.0f} s: seed {row['seed']} {row['ratio']} "
            f"{row['name']} {100 * row['accuracy']:.2f} (held out {100 * row['held_out']:.2f}, "
            f"epoch {row['best_epoch']:.0f}), {row['seconds']:.1f} s",
            flush=True,
        )
        if asked.out is not None:
            with asked.out.with_suffix(".lines").open("a") as lines:
                lines.write(json.dumps(row) + "\n")
        whole = [one for one in rows if one["is_whole"]]
        if whole:
            recipe = recipe_of(asked)
            write(asked, {"recipe": str(recipe), "rows": rows, **report(whole)})
    whole = [one for one in rows if one["is_whole"]]
    if whole:
        print("\n".join(report(whole)["verdicts"]))


if __name__ == "__main__":
    main()
