"""What a feature owner learns of labels while training and afterwards, for every defence.

Run as a program: python benchmarks/run.py split/gradients --data FOLDER --rows 20000 --seeds 3
Of each defence: task accuracy; the finished bottom model completed from one label per class; the
labels of the rows trained on, read off the gradients, without any label and with one per class.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace

import torch
from split._pool import Item, options, run_groups, seeds, summarise
from split._tasks import Data, load
from torch import nn

from tacit.audit import seeded
from tacit.audit.split import (
    Told,
    Watch,
    audit_gradients,
    fine_tune,
    fine_tune_whitened,
    pick_leak,
    see_layer,
)
from tacit.split import (
    CutSpec,
    Defence,
    Halves,
    NetworkSpec,
    SplitData,
    SplitSpec,
    TrainingPace,
    cut_model,
    fit_locally,
)

WIDTH, LEAKS = 32, 5
HIDDEN = {"digits": 0}
"""Of the label owner's part; 256 for the others."""
PACES = {
    "digits": TrainingPace(epochs=20, batch=64, rate=2e-3),
    "mnist": TrainingPace(epochs=10, batch=128, rate=1e-3),
}
ENERGIES = {
    "digits": (Defence(kind="potential-energy", weight=4),),
    "mnist": (
        Defence(kind="potential-energy", weight=0.25),
        Defence(kind="distance-correlation", weight=1),
    ),
}
EPSILONS, SCALES = (1.0, 2.0, 3.0, 4.0), (1.0, 2.0, 4.0, 8.0, 16.0)
KEYS = ("accuracy", "fine_tune", "base_line", "blind", "named", "joined", "inputs")


def settings(energy: tuple[Defence, ...]) -> dict[str, tuple[Defence, ...]]:
    """Return every set of defences by name."""
    private = {one: Defence(kind="label-dp", epsilon=one) for one in EPSILONS}
    noisy = {one: Defence(kind="gradient-noise", scale=one) for one in SCALES}
    return {
        "none": (),
        "energy": energy,
        **{f"label-dp {size:g}": (private[size],) for size in (2.0, 4.0)},
        **{f"label-dp {size:g} + energy": (one, *energy) for size, one in private.items()},
        **{f"gradient noise {size:g} + energy": (one, *energy) for size, one in noisy.items()},
    }


def main() -> None:
    """Run all settings and seeds, and say what came out."""
    torch.set_num_threads(1)
    asked = options(__doc__ or "", ("digits", "mnist"))
    data = {name: load(name, asked.data, device="cpu", rows=asked.rows) for name in asked.tasks}

    def groups() -> Iterator[tuple[str, Callable[[], list[Item]]]]:
        for seed in seeds(asked):
            for task, one in data.items():
                for name, defences in settings(ENERGIES[task]).items():
                    if not asked.only or name in asked.only:
                        yield (
                            f"{task} {seed} {name}",
                            lambda d=one, n=name, w=defences, s=seed: [
                                attack(d, n, w, s, asked.epochs)
                            ],
                        )

    rows = run_groups(groups(), asked, report)
    for one in report(rows)["summary"]:
        shown = "  ".join(f"{k} {100 * one[k]:5.1f} ± {100 * one[f'{k}_half']:.1f}" for k in KEYS)
        print(f"{one['task']:8} {one['name']:28} {shown}")


def attack(
    data: Data, name: str, defences: tuple[Defence, ...], seed: int, epochs: int | None
) -> Item:
    """Train one model and attack it, while it is trained and afterwards."""
    pace = PACES[data.name]
    task = SplitSpec(
        data=SplitData(features=("clinic",), labels="lab", classes=data.classes),
        model=NetworkSpec(width=WIDTH, hidden=HIDDEN.get(data.name, 256)),
        split=CutSpec(also_defend=defences),
        train=pace if epochs is None else replace(pace, epochs=epochs),
    )
    torch.manual_seed(seed)
    halves = cut_model(task.model(data.train_x.shape[1:], data.classes), task, data.train_x)
    told = train(task, halves, data, seed)
    return {
        "task": data.name,
        "name": name,
        "seed": seed,
        "accuracy": halves.accuracy(data.test_x, data.test_y),
        "fine_tune": complete(halves.bottom, data, seed),
        "base_line": complete(nn.Flatten(), data, seed),
        "blind": told.blind.value,
        "named": told.named.value,
        "joined": told.joined.value,
        "inputs": told.joined.reference,
        "ways": [one.note for one in told.metrics],
    }


def train(task: SplitSpec, halves: Halves, data: Data, seed: int) -> Told:
    """Train both parts here and attack the gradients."""
    watch = Watch(len(data.train_x), task.train)
    fit_locally(
        task,
        halves,
        data.train_x,
        data.train_y,
        seed=seed,
        on_gradient=lambda one: watch("clinic", one),
    )
    seen, truth = watch.see(
        "clinic",
        data.train_y,
        per_class=1,
        classes=data.classes,
        defences=task.defences,
        inputs=data.train_x,
        seed=seed,
    )
    return audit_gradients(seen, truth)


def complete(bottom: nn.Module, data: Data, seed: int) -> float:
    """Return the better of two completions from one label per class, averaged over leaks."""
    shares: dict[str, list[float]] = {"even": [], "white": []}
    for draw in range(LEAKS):
        generator = seeded(1000 * seed + draw)
        chosen = pick_leak(data.train_y, 1, generator=generator)
        leak = data.train_x[chosen], data.train_y[chosen]
        seen = see_layer(bottom, leaked=leak, targets=data.test_x, classes=data.classes)
        for way, guess in (("even", fine_tune), ("white", fine_tune_whitened)):
            right = guess(seen, generator=generator) == data.test_y
            shares[way].append(float(right.float().mean()))
    return max(sum(one) / len(one) for one in shares.values())


def report(rows: list[Item]) -> Item:
    """Return means and intervals over seeds."""
    return {"summary": summarise(rows, KEYS, ("task", "name"))}


if __name__ == "__main__":
    main()
