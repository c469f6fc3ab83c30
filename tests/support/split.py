"""Parties of a split model in threads, and of a split job as the command runs them."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from types import SimpleNamespace
from unittest import mock

import torch
from torch import nn

from support.jobs import take_parts
from tacit.jobs import split
from tacit.party import Meeting, run_threads
from tacit.split import (
    BottomTrainer,
    Compression,
    CutSpec,
    SplitData,
    SplitSpec,
    TopTrainer,
    TrainingPace,
    answer,
    ask,
    stop_asking,
)
from tacit.transport import Patience

# Two or three parties with small synthetic data

PATIENCE = Patience(connect_s=60, silence_s=60, heartbeat_s=1, stall_s=200)
CLASSES, WIDTH, FEATURES = 3, 8, 6


def rows(count=60, seed=0):
    """Return three clouds of points that a small model can tell apart."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(count) % CLASSES
    centres = torch.randn(CLASSES, FEATURES, generator=torch.Generator().manual_seed(9)) * 2
    return centres[labels] + 0.5 * torch.randn(count, FEATURES, generator=generator), labels


def make_bottom(seed=1, features=FEATURES, width=WIDTH):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(features, 16), nn.ReLU(), nn.Linear(16, width), nn.ReLU())


def make_top(seed=2, width=WIDTH):
    torch.manual_seed(seed)
    return nn.Linear(width, CLASSES)


def make_task(owners=("clinic",), compression=None, defences=(), **pace):
    pace = {"epochs": 3, "batch": 20, "optimiser": "sgd", "rate": 0.1, **pace}
    return SplitSpec(
        data=SplitData(features=owners, labels="lab", classes=CLASSES),
        split=CutSpec(compress=compression or Compression(), also_defend=defences),
        train=TrainingPace(**pace),
    )


@contextmanager
def fixed_keys() -> Iterator[None]:
    """Let the parties of a training draw the same keys in every run.

    Batches in fresh orders, compressed with fresh draws, now and then end in a model that is not
    as good as a test expects.
    """
    drawn = SimpleNamespace(urandom=lambda count: bytes(range(count)))
    with (
        mock.patch("tacit.split.top.os", drawn),
        mock.patch("tacit.split.bottom.os", drawn),
    ):
        yield


def run_split(
    task,
    *,
    x=None,
    y=None,
    bottoms=None,
    top=None,
    folders=None,
    questions=None,
    tasks=None,
    widths=None,
    progress=None,
    wrap=lambda me, link: link,
):
    """Train, then serve `questions` if there are any; return what every party got.

    Keys are the same in every run, unless there are folders to find them in again.
    """
    data, labels = rows()
    x = data if x is None else x
    y = labels if y is None else y
    owners = task.feature_owners
    slices = dict(zip(owners, torch.tensor_split(x, len(owners), dim=1), strict=True))
    asked = None if questions is None else torch.tensor_split(questions, len(owners), dim=1)
    bottoms = bottoms or {name: make_bottom(features=slices[name].shape[1]) for name in owners}
    top = top or make_top(width=WIDTH * len(owners))
    folders, tasks = folders or {}, tasks or {}
    widths = widths or dict.fromkeys(owners, WIDTH)

    def owner(session):
        mine = tasks.get(session.me, task)
        trainer = BottomTrainer(
            session, mine, bottoms[session.me], slices[session.me], folder=folders.get(session.me)
        )
        trainer.run()
        found = None
        if asked is not None:
            found = ask(
                session,
                mine,
                trainer.codec,
                bottoms[session.me],
                asked[owners.index(session.me)],
                batch=4,
            )
            stop_asking(session, "lab")
        return {"answers": found, "cost": session.cost(), "leaks": session.ledger.entries()}

    def lab(session):
        trainer = TopTrainer(session, task, top, y, widths=widths, folder=folders.get("lab"))
        epochs = trainer.run()
        logits = None
        if questions is not None:
            (found,) = answer(session, task, trainer.codecs, top)
            logits = found.logits
        return {
            "epochs": epochs,
            "logits": logits,
            "cost": session.cost(),
            "leaks": session.ledger.entries(),
        }

    meeting = Meeting(parties=(*owners, "lab"), job_digest=b"j" * 32, patience=PATIENCE)
    with fixed_keys() if folders == {} else nullcontext():
        found = run_threads(
            {**dict.fromkeys(owners, owner), "lab": lab}, meeting, progress=progress, wrap=wrap
        )
    return {**found, "bottoms": bottoms, "top": top}


def with_k(task, k):
    return replace(task, split=CutSpec(compress=Compression(kind="topk", k=k)))


# A split job

PATIENCE = Patience(connect_s=60, silence_s=60, heartbeat_s=1, stall_s=200)


@contextmanager
def fixed_weights() -> Iterator[None]:
    """Let models start alike in every run: parties in threads share torch's generator."""
    lock = threading.Lock()

    def alike(make):
        def build(*arguments):
            with lock:
                torch.manual_seed(0)
                return make(*arguments)

        return build

    with (
        mock.patch.object(torch, "seed", return_value=0),
        mock.patch.object(split, "make_bottom", alike(split.make_bottom)),
        mock.patch.object(split, "top_of", alike(split.top_of)),
    ):
        yield


def run_job(job):
    """Let every party take its part, from the same start in every run; return what each has."""
    with fixed_keys(), fixed_weights():
        return take_parts(job, job.out.parent, out=job.out, patience=PATIENCE)
