"""Jobs of kind "train": one party's part, from its data to its view of the result."""

import hashlib
import io
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from tacit import __version__
from tacit.data.metrics import ACCURACY, add_majority
from tacit.data.rows import Rows
from tacit.dp import Book
from tacit.jobs import folder
from tacit.jobs.config import PartyEntry, job_digest
from tacit.jobs.kind import Part, Place
from tacit.jobs.train_data import join_owners, load_rows
from tacit.jobs.train_job import TrainJob
from tacit.matching import align_rows, announce_ids
from tacit.nn import merge_adapters
from tacit.nn.code import OwnModel
from tacit.nn.weights import to_safetensors
from tacit.party import Session
from tacit.result import Result
from tacit.training import StateFolder, Trained, TrainTask, train, train_plain
from tacit.training.summary import curves_of, summarise
from tacit.training.task import exchange_holdings

NOT_COMPARED = (
    "No training in the clear stands beside this one: its figures would be outside the ε of this."
)


def check_inputs(job: TrainJob, parties: Sequence[str]) -> None:
    """Make sure that the owners among these parties say where their data is, and that it is."""
    if job.model.code is not None:
        OwnModel.read(job.model.code)
    for name, owner in job.data.owners.items():
        if name in parties:
            owner.source(name).check()


def take_part(session: Session, job: TrainJob, place: Place) -> Part:
    """Do one party's part."""
    mine, is_owner = None, session.me in job.data.owners
    place.given.check(session.me, rows=is_owner, model=False)
    if is_owner:
        with session.progress.stage("load"):
            mine = load_rows(job, session.me, place.search, place.given)
    counts: dict[str, int] = {}
    if job.data.split == "columns":
        owners = tuple(job.data.owners)
        counts = announce_ids(session, owners, () if mine is None else mine.ids)
        if mine is not None:
            mine = mine.take(align_rows(session, owners, mine.ids, counts))
            mine.check_columns(session.me)
    with session.progress.stage("plan"):
        owners, split = tuple(job.data.owners), job.data.split
        task = job.task(exchange_holdings(session, owners, mine, split=split))
    state = _state_folder(session, job, place, mine)
    labels = None if mine is None or mine.labels is None else torch.from_numpy(mine.labels)
    trained = train(
        session,
        task,
        rows=None if mine is None else torch.from_numpy(mine.features),
        labels=labels,
        folder=state if job.training.keep else None,
        is_fresh=place.is_fresh,
        book=_book(job, session.me),
    )
    result = summarise(
        session,
        task,
        trained,
        report=place.report(),
        counts=counts,
        labels=labels,
    )
    return Part(
        result=replace(result, launched=place.launched),
        files=_files(session, job, task, trained, mine),
        values=trained.scores,
        weights=_state(job, task, trained),
        shares=trained.shares,
        checkpoints=(state.path,) if job.training.keep or place.is_fresh else (),
    )


def _book(job: TrainJob, me: str) -> Book | None:
    """Return where an owner counts what private trainings spend on its rows."""
    owner = job.data.owners.get(me)
    if owner is None or owner.book is None or owner.most_epsilon is None:
        return None
    return Book(owner.book, owner.most_epsilon)


def complete(job: TrainJob, result: Result, stage: Path, search: Sequence[Path]) -> Result:
    """Put the same training in the clear beside the private one, if the job wants it.

    With [privacy] there is none: a second training on the same rows, shown as it is, would be
    outside the ε that stands beside it.
    """
    if job.report.compare != "plain":
        return result
    if job.privacy is not None:
        return replace(result, notes=(*result.notes, NOT_COMPARED))
    x, y, holdings = join_owners(job, search)
    task = job.task(holdings)
    shown = train_plain(task, x, y)
    if not shown:
        return result
    last = shown[-1]
    known = {ACCURACY: last[2], "loss": last[1]}
    utility = [replace(metric, reference=known.get(metric.name)) for metric in result.utility]
    labels = y[task.test_indices()]
    classes = labels[..., 0] if task.loss == "logistic" else labels.argmax(-1)
    curves = (*result.curves, *curves_of(shown, "in the clear"))
    return replace(result, utility=add_majority(utility, classes.flatten().numpy()), curves=curves)


def _state_folder(session: Session, job: TrainJob, place: Place, mine: Rows | None) -> StateFolder:
    """Return where checkpoints are; addresses and the bound of weights may change on the way."""
    nowhere = {name: PartyEntry() for name in job.parties}
    steady = replace(job, parties=nowhere, model=replace(job.model, bound=1.0))
    binding = hashlib.sha256(job_digest(steady))
    binding.update(session.me.encode())
    if mine is not None:
        binding.update(mine.digest())
    return StateFolder(folder.state_of(place.out, session.me), binding.hexdigest())


def _files(
    session: Session, job: TrainJob, task: TrainTask, trained: Trained, mine: Rows | None
) -> dict[str, bytes]:
    files = {}
    if trained.shares:
        facts = {
            "frac_bits": torch.tensor(task.frac_bits),
            "bound": torch.tensor(task.weight_bound, dtype=torch.float64),
        }
        files[folder.share_name(session.me)] = _npz({**trained.shares, **facts})
    if trained.weights:
        about: dict[str, object] = {"tacit": __version__, "job": job.job.name}
        if mine is not None and job.data.split == "rows":
            about["scale"] = mine.scale
        files[folder.MODEL] = to_safetensors(_state(job, task, trained), about)
    return files


def _state(job: TrainJob, task: TrainTask, trained: Trained) -> dict[str, Tensor]:
    """Return the trained network as `load_state_dict` takes it, for those it was given to.

    That is the network of the job: with its ends, and with what its layers and adapters became.
    """
    if not trained.weights:
        return {}
    found = task.model.state(trained.weights)
    if job.model.adapters is not None:
        module = job.trainable(task.model.inputs).module.double()
        module.load_state_dict(found, strict=False)
        found = dict(merge_adapters(module).state_dict())
    if job.model.table is not None or job.model.head is not None:
        found = {**job.module(task.model.inputs).state_dict(), **found}
    return {name: _single(one) for name, one in found.items()}


def _single(value: Tensor) -> Tensor:
    """Bring a weight to the precision of torch modules, which holds all bits of a ring's."""
    return value.float() if value.is_floating_point() else value


def _npz(tensors: Mapping[str, Tensor]) -> bytes:
    content = io.BytesIO()
    arrays = {name: value.cpu().numpy() for name, value in tensors.items()}
    np.savez(content, allow_pickle=False, **arrays)
    return content.getvalue()
