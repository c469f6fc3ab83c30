"""How much of the labels a bottom model gives away, against task accuracy, for every defence.

Run as a program: python benchmarks/run.py split/protection --data FOLDER --device cuda --workers 3
The thesis's figures, read off its plots: fine-tuning with one label per class on MNIST 84 % without
a defence, 11 to 17 % with potential energy at 96.6 to 97.6 % task accuracy; CIFAR-10 73 % and
15 to 18 % at 86 to 90 %.
"""

import math
import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.pool import AsyncResult, Pool

import numpy as np
import torch
from split._pool import Item, options, run_groups, seeds
from split._tasks import Data, load
from split._train import RECIPES, Recipe, Wanted, accuracy, shift, train_all
from split._verdicts import BASE, KEYS, report
from torch import Tensor, nn

from tacit.audit import seeded
from tacit.audit.split import (
    SeenLayer,
    SeenRows,
    cluster,
    complete_deep_each,
    complete_each,
    even_out,
    pick_leak,
    score_clusters,
    see_layer,
    train_from_scratch,
    whiten,
)
from tacit.split import Defence, Halves, epsilon_of, make_model


@dataclass(frozen=True)
class Cut:
    """A model as the parties share it: kind, width of the cut, and of a hidden layer of the top."""

    kind: str
    width: int
    hidden: int = 0


@dataclass(frozen=True)
class Cell:
    """One model to train and to attack."""

    name: str
    strength: float
    defences: tuple[Defence, ...]
    cut: Cut


CUTS = {
    "mnist": Cut("mlp", 32, 256),
    "fashion": Cut("two-conv", 128, 256),
    "cifar10": Cut("resnet20", 64, 256),
    "cifar10-full": Cut("resnet20-quarters", 256, 256),
}
BLIND = {**CUTS, "cifar10-full": Cut("resnet20", 64, 256)}
"""What an attacker without a bottom model trains."""
# Smaller batches than for compression: the losses of pairs want steps rather than pairs.
PACES = {**RECIPES, "cifar10-full": Recipe(12, 256, 4e-3, at_once=2)}
BEFORE = {"mlp": "bottom.first", "two-conv": "bottom.flat"}  # else after the second block
DRAWS = 5
CLUSTERED = 2500
WIDEST = 3072
STRENGTHS: dict[str, dict[str, tuple[float, ...]]] = {
    "mnist": {
        "potential-energy": (0.25, 1.0, 4.0),
        "plane-energy": (1.0, 4.0),
        "energy+correlation": (0.01, 0.25, 1.0, 4.0),
        "distance-correlation": (1.0, 4.0, 16.0),
        "label-dp": (0.01, 0.04, 0.16),
    },
    "fashion": {
        "potential-energy": (0.001, 0.003, 0.01, 0.25),
        "energy+correlation": (0.0003, 0.001, 0.003, 0.005, 0.01, 0.03, 0.0625, 0.25),
        "distance-correlation": (1.0, 4.0, 16.0),
        "label-dp": (0.01, 0.16),
    },
    "cifar10": {
        "potential-energy": (1.0, 4.0),
        "energy+correlation": (0.25, 1.0, 4.0),
        "distance-correlation": (1.0, 16.0),
        "label-dp": (0.01, 0.16),
    },
    "cifar10-full": {
        "energy+correlation": (0.01, 0.25, 4.0),
        "distance-correlation": (1.0, 4.0),
        "label-dp": (0.01, 0.16),
    },
}
"""Weights, and for label privacy the share of labels that are flipped."""
_LESS = (
    (0.0005, 0.003),
    (0.002, 0.01),
    (0.004, 0.03),
    (0.008, 0.05),
    (0.02, 0.1),
    (0.05, 0.5),
    (math.inf, 1.0),
)
"""Below which weight of the energy how much correlation is added to it."""
AVERAGED = ", averaged"


def cells_of(
    task: str, only: Sequence[str] | None, strengths_only: Sequence[float] | None = None
) -> list[Cell]:
    """Return every model to train for a task."""
    makes: dict[str, Callable[[float], tuple[Defence, ...]]] = {
        "potential-energy": energy,
        "plane-energy": lambda weight: energy(weight, form="plane"),
        "energy+correlation": both,
        "distance-correlation": correlation,
        "label-dp": flip,
    }
    strengths = {"none": (0.0,), **STRENGTHS[task]}
    return [
        Cell(name, strength, makes[name](strength) if name in makes else (), CUTS[task])
        for name, each in strengths.items()
        for strength in each
        if (not only or name in only) and (not strengths_only or strength in strengths_only)
    ]


def energy(weight: float, form: str = "sphere") -> tuple[Defence, ...]:
    """Return potential energy alone."""
    return (Defence(kind="potential-energy", weight=weight, form=form),)


def correlation(weight: float) -> tuple[Defence, ...]:
    """Return distance correlation alone."""
    return (Defence(kind="distance-correlation", weight=weight),)


def both(weight: float, other: float | None = None) -> tuple[Defence, ...]:
    """Add correlation to energy, and less of it to less."""
    if other is None:
        other = next(much for below, much in _LESS if weight < below)
    return (*energy(weight), *correlation(other))


def flip(share: float, classes: int = 10) -> tuple[Defence, ...]:
    """Return label privacy that flips this share of the labels."""
    return (Defence(kind="label-dp", epsilon=epsilon_of(classes, share)),)


def main() -> None:
    """Run all tasks, defences and seeds, and say what came out."""
    asked = options(
        __doc__ or "",
        ("mnist", "fashion", "cifar10"),
        {"--strengths": {"type": float, "nargs": "+", "help": "only these"}},
    )
    pool = multiprocessing.get_context("spawn").Pool(asked.workers, initializer=_quiet)

    loaded = {
        task: load(task, asked.data, device=asked.device, rows=asked.rows) for task in asked.tasks
    }

    def groups() -> Iterator[tuple[str, Callable[[], list[Item]]]]:
        for seed in seeds(asked):
            for task, data in loaded.items():
                yield f"{task} {seed}", lambda t=task, d=data, s=seed: group(t, d, s)

    def group(task: str, data: Data, seed: int) -> list[Item]:
        jobs = [(one, seed) for one in cells_of(task, asked.only, asked.strengths)]
        found = attack(pool, data, jobs, asked.epochs) if jobs else []
        if not asked.only or BASE in asked.only:
            found.append(base_line(pool, data, BLIND[task], seed))
        return found

    rows = run_groups(groups(), asked, report)
    pool.terminate()
    for one in report(rows)["summary"]:
        shown = "  ".join(
            f"{key} {100 * one[key]:6.2f} ± {100 * one[f'{key}_half']:.2f}"
            for key in KEYS
            if key in one
        )
        print(f"{one['task']:8} {one['name']:21} {one['strength']:6g}  {shown}")
    print("\n".join(report(rows)["verdicts"]))


def attack(
    pool: Pool, data: Data, jobs: Sequence[tuple[Cell, int]], epochs: int | None
) -> list[Item]:
    """Train one model for each cell and seed, all at once, and attack them, all at once."""
    models = train_all(
        data,
        [
            Wanted(
                one.cut.width, seed, defences=one.defences, hidden=one.cut.hidden, kind=one.cut.kind
            )
            for one, seed in jobs
        ],
        recipe=PACES[data.name],
        epochs=epochs,
    )
    groups = [
        _start_cluster(pool, model.bottom, data, seed)
        for model, (_, seed) in zip(models, jobs, strict=True)
    ]
    ways: dict[int, dict[str, float]] = {}
    before: dict[int, dict[str, float]] = {}
    for cut, seed in dict.fromkeys((one.cut, seed) for one, seed in jobs):
        which = [at for at, (one, own) in enumerate(jobs) if (one.cut, own) == (cut, seed)]
        same = [models[at] for at in which]
        layer = BEFORE.get(cut.kind, "bottom.block2")
        ways.update(zip(which, complete(same, data, seed, cut), strict=True))
        before.update(zip(which, complete(same, data, seed, cut, before=layer), strict=True))
    return [
        {
            "task": data.name,
            "name": cell.name,
            "strength": cell.strength,
            "seed": seed,
            "cut": f"{cell.cut.kind} {cell.cut.width} {cell.cut.hidden}",
            "accuracy": accuracy(models[at], data),
            "fine_tune": _best(ways[at], averaged=False),
            "fine_tune_averaged": _best(ways[at], averaged=True),
            "fine_tune_before": max(before[at].values()),
            "ways": ways[at],
            "k_means": groups[at].get(),
        }
        for at, (cell, seed) in enumerate(jobs)
    ]


def _best(ways: dict[str, float], *, averaged: bool) -> float | None:
    """Return the best way on the cut layer as it is, or on the average of its quarters."""
    shares = [share for way, share in ways.items() if way.endswith(AVERAGED) == averaged]
    return max(shares, default=None)


def _leak(data: Data, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    chosen = pick_leak(data.train_y.cpu(), 1, generator=generator).to(data.train_x.device)
    return data.train_x[chosen], data.train_y[chosen]


def complete(
    models: Sequence[Halves], data: Data, seed: int, cut: Cut, *, before: str | None = None
) -> list[dict[str, float]]:
    """Return for each model what each way to complete it gets right, averaged over several leaks.

    The models have the same cut, so that all of their completions can be learned at once.
    """
    layers = {"": [_see(model.bottom, data, seed, before) for model in models]}
    if before is None and cut.kind == "resnet20-quarters":
        layers[AVERAGED] = [_pooled(seen) for seen in layers[""]]
    found: list[dict[str, float]] = [{} for _ in models]
    for place, seen in layers.items():
        is_wide = seen[0].targets.shape[1] > WIDEST  # whitening a wide layer takes too long
        ways: dict[str, list[float]] = {"even": _shares(seen, even_out, data)}
        if not is_wide:
            ways["white"] = _shares(seen, whiten, data)
        if cut.hidden and before is None:
            ways["deep"] = _shares(seen, even_out, data, deep=(seeded(seed), cut.hidden))
        for name, shares in ways.items():
            for one, share in zip(found, shares, strict=True):
                one[name + place] = share
    return found


def _see(bottom: nn.Module, data: Data, seed: int, before: str | None = None) -> SeenLayer:
    leaks = [_leak(data, seeded(1000 * seed + draw)) for draw in range(DRAWS)]
    rows, labels = (torch.cat(parts) for parts in zip(*leaks, strict=True))
    return see_layer(
        bottom, leaked=(rows, labels), targets=data.test_x, classes=data.classes, before=before
    )


def _pooled(seen: SeenLayer) -> SeenLayer:
    """Average the four quarters, as the label owner's part may."""
    leaked, targets = (one.unflatten(1, (-1, 4)).mean(2) for one in (seen.leaked, seen.targets))
    return SeenLayer(
        leaked=leaked, leaked_labels=seen.leaked_labels, targets=targets, classes=seen.classes
    )


def _shares(
    seen: Sequence[SeenLayer],
    prepare: Callable[[SeenLayer], tuple[Tensor, Tensor]],
    data: Data,
    deep: tuple[torch.Generator, int] | None = None,
) -> list[float]:
    leaks, labels, targets = [], [], []
    for one in seen:
        leaked, rows = prepare(one)
        leaks += leaked.chunk(DRAWS)
        labels += one.leaked_labels.chunk(DRAWS)
        targets += [rows] * DRAWS
    if deep is None:
        guesses = complete_each(leaks, labels, targets, classes=data.classes)
    else:
        generator, hidden = deep
        guesses = complete_deep_each(
            leaks, labels, targets, classes=data.classes, hidden=hidden, generator=generator
        )
    shares = [float((guess == data.test_y).float().mean()) for guess in guesses]
    return [sum(shares[at : at + DRAWS]) / DRAWS for at in range(0, len(shares), DRAWS)]


def _start_cluster(pool: Pool, bottom: nn.Module, data: Data, seed: int) -> "AsyncResult[float]":
    targets = data.test_x[:CLUSTERED]
    leak = data.train_x[:1], data.train_y[:1]
    seen = see_layer(bottom, leaked=leak, targets=targets, classes=data.classes)
    truth = data.test_y[:CLUSTERED].cpu().numpy()
    return pool.apply_async(_cluster, (seen.targets.cpu().numpy(), truth, data.classes, seed))


def _cluster(targets: np.ndarray, truth: np.ndarray, classes: int, seed: int) -> float:
    values, labels = torch.from_numpy(targets), torch.from_numpy(truth)
    seen = SeenLayer(leaked=values[:1], leaked_labels=labels[:1], targets=values, classes=classes)
    guess = cluster(seen, generator=seeded(seed))
    return score_clusters("", guess, labels, classes).value or 0.0


def base_line(pool: Pool, data: Data, cut: Cut, seed: int) -> Item:
    """Return what an attacker gets without a bottom model, the best of the ways it may choose.

    A fresh network on the leaked rows, the same with the pictures shifted and mirrored while it
    learns, and the completions of the raw inputs.
    """
    blind = _start_cluster(pool, nn.Flatten(), data, seed)
    raw = [_see(nn.Flatten(), data, seed)]
    ways = {
        "raw even": _shares(raw, even_out, data)[0],
        "raw white": _shares(raw, whiten, data)[0],
    }
    ways["from scratch"] = _from_scratch(data, cut, seed, lambda rows: rows)
    if data.name.startswith("cifar10"):
        generator = torch.Generator(data.train_x.device).manual_seed(seed)
        ways["shifted"] = _from_scratch(data, cut, seed, lambda rows: shift(rows, generator))
    return {
        "task": data.name,
        "name": BASE,
        "strength": 0.0,
        "seed": seed,
        "fine_tune": max(ways.values()),
        "ways": ways,
        "k_means": blind.get(),
    }


def _from_scratch(data: Data, cut: Cut, seed: int, vary: Callable[[Tensor], Tensor]) -> float:
    shares = []
    for draw in range(DRAWS):
        rows, labels = _leak(data, seeded(1000 * seed + draw))
        seen = SeenRows(
            leaked=rows,
            leaked_labels=labels,
            targets=data.test_x,
            classes=data.classes,
            make_model=lambda: make_model(
                cut.kind,
                shape=data.shape,
                classes=data.classes,
                width=cut.width,
                hidden=cut.hidden,
            ),
        )
        guess = train_from_scratch(seen, generator=seeded(1000 * seed + draw), vary=vary)
        shares.append(float((guess == data.test_y).float().mean()))
    return sum(shares) / DRAWS


def _quiet() -> None:
    torch.set_num_threads(1)


if __name__ == "__main__":
    main()
