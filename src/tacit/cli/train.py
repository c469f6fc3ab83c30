"""Jobs of kind "train": one party's part, from its data to its view of the result."""

import hashlib
import io
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from tacit import __version__
from tacit.cli import folder
from tacit.cli.code import OwnModel
from tacit.cli.config import PartyEntry
from tacit.cli.digest import job_digest
from tacit.cli.kind import Part, Place
from tacit.cli.train_data import Rows, load_rows
from tacit.cli.train_job import TrainJob
from tacit.errors import ConfigError, DataError
from tacit.learn.capping import note_of
from tacit.learn.training import (
    Holding,
    StateFolder,
    Trained,
    TrainTask,
    sum_forecasts,
    train,
    train_plain,
)
from tacit.learn.vertical import align_rows
from tacit.learn.weights import to_safetensors
from tacit.mpc import find_protocol
from tacit.party import Session
from tacit.result import Claim, Curve, Metric, Result

_LOSS, _ACCURACY = "Loss while training", "Accuracy while training"
_MOST_DIMENSIONS = 4


def check_inputs(job: TrainJob, parties: Sequence[str]) -> None:
    """Make sure that the owners among these parties say where their data is, and that it is."""
    if job.model.code is not None:
        OwnModel.read(job.model.code)
    for name, owner in job.data.owners.items():
        if name not in parties:
            continue
        if owner.set is None and owner.file is None:
            raise ConfigError(f"data.owners.{name}: wanted 'set' or 'file', got neither")
        if owner.file is not None and not owner.file.is_file():
            raise DataError(f"data.owners.{name}.file: no such file: {owner.file}")


def take_part(session: Session, job: TrainJob, place: Place) -> Part:
    """Do one party's part."""
    mine = None
    if session.me in job.data.owners:
        with session.progress.stage("load"):
            mine = load_rows(job, session.me, place.search)
    if job.data.split == "columns" and mine is not None:
        common = align_rows(session, tuple(job.data.owners), mine.ids)
        mine = mine.take(common)
        mine.check_columns(session.me)
    with session.progress.stage("plan"):
        task = job.task(_exchange_holdings(session, job, mine))
    state = _state_folder(session, job, place, mine)
    trained = train(
        session,
        task,
        rows=None if mine is None else mine.features,
        labels=None if mine is None else mine.labels,
        folder=state,
    )
    return Part(
        result=_summarise(session, job, task, trained, place),
        files=_files(session, job, task, trained, mine),
        settle=None if state is None else state.remove,
    )


def complete(job: TrainJob, result: Result, stage: Path, search: Sequence[Path]) -> Result:
    """Put the same training in the clear beside the private one, if the job wants it."""
    if job.report.compare != "plain":
        return result
    rows = {name: load_rows(job, name, search) for name in job.data.owners}
    if job.data.split == "columns":
        rows = align_in_the_clear(rows)
    holdings = tuple(holding_of(name, one) for name, one in rows.items())
    task = job.task(holdings)
    along = 0 if job.data.split == "rows" else 1
    x = torch.cat([one.features for one in rows.values()], dim=along)
    y = torch.cat([one.labels for one in rows.values() if one.labels is not None])
    shown = train_plain(task, x, y)
    last = shown[-1]
    utility = tuple(
        replace(metric, reference={"accuracy": last[2], "loss": last[1]}.get(metric.name))
        for metric in result.utility
    )
    curves = (*result.curves, *_curves(shown, "in the clear"))
    return replace(result, utility=utility, curves=curves)


def _exchange_holdings(session: Session, job: TrainJob, mine: Rows | None) -> tuple[Holding, ...]:
    """Tell everyone how much data I have, and hear it from the others."""
    if mine is not None:
        own = tuple(mine.features.shape)
        padded = (*own, *(0,) * (_MOST_DIMENSIONS - len(own)))
        session.publish("data", (*padded, int(mine.labels is not None)))
    holdings = []
    for owner in job.data.owners:
        if owner == session.me and mine is not None:
            holdings.append(holding_of(owner, mine))
            continue
        *shape, has_labels = session.learn(owner, "data", _MOST_DIMENSIONS + 1)
        sizes = tuple(size for size in shape if size)
        if len(sizes) < 2 or any(size < 0 for size in sizes):
            raise DataError(f"{owner!r} says its data has the shape {tuple(shape)}")
        holdings.append(Holding(owner, sizes[0], sizes[1:], bool(has_labels)))
    return tuple(holdings)


def holding_of(owner: str, rows: Rows) -> Holding:
    """Say how much data an owner has."""
    shape = tuple(rows.features.shape)
    return Holding(owner, shape[0], shape[1:], rows.labels is not None)


def align_in_the_clear(rows: Mapping[str, Rows]) -> dict[str, Rows]:
    """Order the common rows alike, for the comparison on one machine."""
    common = sorted(set.intersection(*(set(one.ids) for one in rows.values())))
    places = {name: {row: at for at, row in enumerate(one.ids)} for name, one in rows.items()}
    return {name: one.take([places[name][row] for row in common]) for name, one in rows.items()}


def _state_folder(
    session: Session, job: TrainJob, place: Place, mine: Rows | None
) -> StateFolder | None:
    if not job.training.keep:
        return None
    binding = hashlib.sha256(
        job_digest(replace(job, parties={name: PartyEntry() for name in job.parties}))
    )
    binding.update(session.me.encode())
    if mine is not None:
        binding.update(mine.digest())
    path = place.out.absolute()
    return StateFolder(path.with_name(f".{path.name}-{session.me}.state"), binding.hexdigest())


def _files(
    session: Session, job: TrainJob, task: TrainTask, trained: Trained, mine: Rows | None
) -> dict[str, bytes]:
    files = {}
    if trained.halves:
        facts = {
            "frac_bits": torch.tensor(task.frac_bits),
            "bound": torch.tensor(task.weight_bound, dtype=torch.float64),
        }
        files[folder.half_name(session.me)] = _npz({**trained.halves, **facts})
    if trained.weights:
        state = {name: _single(one) for name, one in task.model.state(trained.weights).items()}
        about: dict[str, object] = {"tacit": __version__, "job": job.job.name}
        if mine is not None and job.data.split == "rows":
            about["scale"] = mine.scale
        files[folder.MODEL] = to_safetensors(state, about)
    return files


def _single(value: Tensor) -> Tensor:
    """Bring a weight to the precision of torch modules, which holds all bits of a ring's."""
    return value.float() if value.is_floating_point() else value


def _npz(tensors: Mapping[str, Tensor]) -> bytes:
    content = io.BytesIO()
    arrays = {name: value.cpu().numpy() for name, value in tensors.items()}
    np.savez(content, allow_pickle=False, **arrays)
    return content.getvalue()


def _summarise(
    session: Session, job: TrainJob, task: TrainTask, trained: Trained, place: Place
) -> Result:
    shown = trained.shown
    utility = _metrics(task, shown[-1]) if shown else ()
    again = f"Taken up again after step {trained.resumed_at}."
    return Result(
        kind="train",
        name=job.job.name,
        protocol=task.protocol,
        launched=place.launched,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        version=__version__,
        parties=(place.report(),),
        forecast=sum_forecasts(trained.runs),
        metered=session.cost(),
        leakage=session.ledger.entries(),
        claims=(*find_protocol(task.protocol).claims, *claims_beyond(task)),
        utility=utility,
        curves=_curves(shown, "private"),
        notes=tuple(
            note
            for note, is_so in (
                (again, trained.resumed_at > 0),
                (note_of(trained.cap or 0.0, "model.cap"), trained.cap is not None),
            )
            if is_so
        ),
    )


def _metrics(task: TrainTask, last: tuple[int, float, float]) -> tuple[Metric, ...]:
    _, loss, right = last
    return (
        Metric(name="accuracy", value=right, unit="fraction", samples=task.test_rows),
        Metric(name="loss", value=loss, unit="", samples=task.test_rows),
    )


def _curves(shown: Sequence[tuple[int, float, float]], name: str) -> tuple[Curve, ...]:
    if not shown:
        return ()
    lines = ((_LOSS, "mean loss", 1), (_ACCURACY, "share of right answers", 2))
    return tuple(
        Curve(
            title=title,
            x_label="step",
            y_label=label,
            name=name,
            points=tuple((float(one[0]), one[field]) for one in shown),
        )
        for title, label, field in lines
    )


def claims_beyond(task: TrainTask) -> tuple[Claim, ...]:
    """Say what no protocol can hide: what follows from what is opened."""
    if not task.give_to:
        return ()
    who = ", ".join(task.give_to)
    return (
        Claim(
            subject=f"what the trained model tells {who} about the rows it was trained on",
            guarantee="no guarantee",
            assumptions=(
                "a model remembers some of its data; only training with differential privacy "
                "bounds how much",
            ),
        ),
    )
