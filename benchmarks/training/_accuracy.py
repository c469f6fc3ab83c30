"""Whole private trainings beside the same ones in the clear, for training/networks.py."""

import multiprocessing
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor, as_completed
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any

import torch
from torch import Tensor
from training._parties import Shape, run_parties, train_whole

from tacit.cli.environment import data_folders
from tacit.data import load_dataset
from tacit.training import train_plain

LENET = (
    *("conv 6 5 1 2", "relu", "avgpool 2", "conv 16 5", "relu", "avgpool 2", "flatten"),
    *("dense 120", "relu", "dense 84", "relu", "dense 10"),
)
Row = dict[str, Any]


@dataclass(frozen=True)
class Data:
    """Rows and labels that every process loads by itself: "mnist" or "gisette", so many rows."""

    name: str
    count: int
    inputs: tuple[int, ...]

    def load(self) -> tuple[Tensor, Tensor]:
        """Return rows in the shape the model wants, and labels."""
        rows, labels = {"mnist": load_mnist, "gisette": make_gisette}[self.name](self.count)
        return rows.reshape(-1, *self.inputs), labels


@dataclass(frozen=True, kw_only=True)
class Case:
    """One training: a model, its data, a seed, and under which protocol (None: in the clear)."""

    model: str
    shape: Shape
    data: Data
    test_rows: int
    protocol: str | None = None

    @property
    def words(self) -> str:
        """Name the case."""
        return f"{self.model}, {self.protocol or 'plain'}, seed {self.shape.seed}"


def load_mnist(count: int) -> tuple[Tensor, Tensor]:
    """Load so many rows of MNIST, and one-hot labels."""
    dataset = load_dataset("mnist", data_folders())
    rows = torch.from_numpy(dataset.features[:count]).double()
    labels = torch.from_numpy(dataset.labels[:count])
    return rows, torch.nn.functional.one_hot(labels, 10).double()


def make_gisette(count: int) -> tuple[Tensor, Tensor]:
    """Make a binary task like Gisette: 5000 features, half of them noise, sparse, 0 to 1."""
    generator = torch.Generator().manual_seed(7)
    labels = (torch.empty(count).uniform_(generator=generator) < 0.5).double()
    centres = torch.empty(2, 2500).normal_(generator=generator) * 0.045
    real = centres[labels.long()] + torch.empty(count, 2500).normal_(generator=generator) * 0.6
    noise = torch.empty(count, 2500).normal_(generator=generator) * 0.6
    # Gisette's features are pixels and products of pixels: most are zero.
    rows = torch.cat((real, noise), dim=1).clamp(0, 1).double()
    return rows, labels.reshape(-1, 1)


def models(
    *, epochs: int | None, rows: int, quick: bool, test_rows: int | None = None
) -> dict[str, Case]:
    """Return the trainings of the table in the clear, by name, the longest first.

    Args:
        epochs: passes over the data; None for as many as each model needs.
        rows: of MNIST.
        quick: few rows, to see that it works.
        test_rows: how many rows of MNIST to measure with; one in seven if not given.
    """
    count = 1500 if quick else rows
    test = test_rows or count // 7
    one = Shape(
        layers=("dense 128", "relu", "dense 10"),
        inputs=(784,),
        protocol="sealed",
        batch=128,
        epochs=epochs or 3,
        look_every=5 if quick else 117,
        optimiser="momentum",
        rate=0.05,
        schedule="cosine",
        weight_bound=8.0,
    )
    two = replace(one, layers=("dense 128", "relu", "dense 32", "sigmoid", "dense 10"))
    lenet = replace(one, layers=LENET, inputs=(1, 28, 28), cap=256.0, optimiser="adam", rate=0.002)
    # An epoch of LeNet takes minutes, so it has one, within which its rate falls.
    lenet = replace(lenet, schedule="linear", epochs=epochs or 1)
    binary = replace(one, layers=("dense 1",), inputs=(5000,), loss="logistic", batch=64)
    binary = replace(binary, optimiser="sgd", rate=0.02, schedule="constant", epochs=epochs or 5)
    binary = replace(binary, look_every=5 if quick else 31)
    shapes = {
        "LeNet": (lenet, "mnist", count, test),
        "784-128-32-10": (two, "mnist", count, test),
        "784-128-10": (one, "mnist", count, test),
        "Gisette-like": (binary, "gisette", 700 if quick else 7000, 100 if quick else 1000),
    }
    return {
        name: Case(model=name, shape=shape, data=Data(data, size, shape.inputs), test_rows=kept)
        for name, (shape, data, size, kept) in shapes.items()
    }


def run_cases(
    cases: list[Case], *, jobs: int, threads: int, live: Path | None
) -> Iterator[tuple[Case, Row]]:
    """Run trainings, so many at a time, and give each as soon as it is done.

    Args:
        cases: what to train, in order of importance. A private one takes three processes.
        jobs: trainings at a time.
        threads: of each of the processes.
        live: every look is added to this file at once.
    """
    context = multiprocessing.get_context("spawn")
    with (
        ThreadPoolExecutor(jobs) as pool,
        ProcessPoolExecutor(jobs, mp_context=context) as plainly,
    ):
        waiting: dict[Future[Row], Case] = {}
        for case in cases:
            if case.protocol is None:
                waiting[plainly.submit(_run_plain, case, threads)] = case
            else:
                waiting[pool.submit(_run_private, case, live, threads)] = case
        for done in as_completed(waiting):
            try:
                yield waiting[done], done.result()
            except Exception as error:
                print(f"{waiting[done].words} failed: {error!r}", file=sys.stderr, flush=True)


def _run_plain(case: Case, threads: int) -> Row:
    torch.set_num_threads(threads)
    rows, labels = case.data.load()
    start = monotonic()
    shown = train_plain(case.shape.task(len(rows), case.test_rows), rows, labels)
    return {"curve": shown, "seconds": monotonic() - start}


def _run_private(case: Case, live: Path | None, threads: int) -> Row:
    shape = replace(case.shape, protocol=case.protocol or "")
    work = partial(
        train_whole,
        shape=shape,
        load=case.data.load,
        test_rows=case.test_rows,
        live=live,
        name=case.words,
    )
    answers = run_parties(work, threads=threads)
    metered, forecast = (_total(answers, key) for key in ("metered", "forecast"))
    return {
        "curve": answers[0]["shown"],
        "seconds": answers[0]["seconds"],
        "metered_bytes": metered,
        "forecast_bytes": forecast,
        "off_by_percent": 100 * abs(metered / forecast - 1),
        "rounds": answers[0]["rounds"],
        "forecast_rounds": answers[0]["forecast_rounds"],
    }


def _total(answers: list[Row], key: str) -> int:
    return sum(sum(one[key].values()) for one in answers)
