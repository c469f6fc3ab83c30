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
from tacit.cli import folder
from tacit.cli.jobs.code import OwnModel
from tacit.cli.jobs.config import PartyEntry
from tacit.cli.jobs.digest import job_digest
from tacit.cli.jobs.kind import Part, Place
from tacit.cli.jobs.train_data import Rows, align_in_the_clear, load_rows
from tacit.cli.jobs.train_job import TrainJob
from tacit.errors import ConfigError, DataError
from tacit.learn.capping import note_of
from tacit.learn.metrics import ACCURACY, measure_odds, proportion
from tacit.learn.training import (
    Holding,
    StateFolder,
    Trained,
    TrainTask,
    sum_forecasts,
    train,
    train_plain,
)
from tacit.learn.vertical import align_rows, announce_ids, claims_of_matching, declare_matching
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
            mine = mine.take(align_rows(session, owners, mine.ids))
            mine.check_columns(session.me)
    with session.progress.stage("plan"):
        task = job.task(_exchange_holdings(session, job, mine))
    state = _state_folder(session, job, place, mine)
    trained = train(
        session,
        task,
        rows=None if mine is None else mine.features,
        labels=None if mine is None else mine.labels,
        folder=state if job.training.keep else None,
        is_fresh=place.is_fresh,
    )
    result = _summarise(session, job, task, trained, place, counts)
    utility = (*result.utility, *_quality(session.me, task, trained, mine))
    return Part(
        result=replace(result, utility=utility),
        files=_files(session, job, task, trained, mine),
        values=trained.scores,
        weights=_state(task, trained),
        shares=trained.shares,
        settle=state.remove if job.training.keep or place.is_fresh else None,
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
        rows, *shape, has_labels = session.learn(owner, "data", _MOST_DIMENSIONS + 1)
        # An owner of labels may have no columns.
        sizes = tuple(size for size in shape if size) or (0,)
        if rows < 1 or any(size < 0 for size in sizes):
            raise DataError(f"{owner!r} says its data has the shape {(rows, *shape)}")
        holdings.append(Holding(owner, rows, sizes, bool(has_labels)))
    return tuple(holdings)


def holding_of(owner: str, rows: Rows) -> Holding:
    """Say how much data an owner has."""
    shape = tuple(rows.features.shape)
    return Holding(owner, shape[0], shape[1:], rows.labels is not None)


def _state_folder(session: Session, job: TrainJob, place: Place, mine: Rows | None) -> StateFolder:
    """Return where checkpoints are; addresses and the bound of weights may change on the way."""
    nowhere = {name: PartyEntry() for name in job.parties}
    steady = replace(job, parties=nowhere, model=replace(job.model, bound=1.0))
    binding = hashlib.sha256(job_digest(steady))
    binding.update(session.me.encode())
    if mine is not None:
        binding.update(mine.digest())
    path = place.out.absolute()
    return StateFolder(path.with_name(f".{path.name}-{session.me}.state"), binding.hexdigest())


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
        files[folder.MODEL] = to_safetensors(_state(task, trained), about)
    return files


def _state(task: TrainTask, trained: Trained) -> dict[str, Tensor]:
    """Return the trained network as `load_state_dict` takes it, for those it was given to."""
    if not trained.weights:
        return {}
    return {name: _single(one) for name, one in task.model.state(trained.weights).items()}


def _single(value: Tensor) -> Tensor:
    """Bring a weight to the precision of torch modules, which holds all bits of a ring's."""
    return value.float() if value.is_floating_point() else value


def _npz(tensors: Mapping[str, Tensor]) -> bytes:
    content = io.BytesIO()
    arrays = {name: value.cpu().numpy() for name, value in tensors.items()}
    np.savez(content, allow_pickle=False, **arrays)
    return content.getvalue()


def _summarise(
    session: Session,
    job: TrainJob,
    task: TrainTask,
    trained: Trained,
    place: Place,
    counts: Mapping[str, int],
) -> Result:
    shown = trained.shown
    utility = _metrics(task, shown[-1]) if shown else ()
    return Result(
        kind="train",
        name=job.job.name,
        protocol=task.protocol,
        launched=place.launched,
        parties=(place.report(),),
        forecast=sum_forecasts(trained.runs, before=declare_matching(counts) if counts else ()),
        metered=session.cost(),
        leakage=session.ledger.entries(),
        claims=(
            *find_protocol(task.protocol).claims,
            *claims_of_matching(counts),
            *claims_beyond(task),
        ),
        utility=utility,
        curves=_curves(shown, "private"),
        notes=_notes(trained),
    )


def _notes(trained: Trained) -> tuple[str, ...]:
    """Say what was out of the ordinary."""
    notes = {
        f"Taken up again after step {trained.resumed_at}.": trained.resumed_at,
        f"Weights were near half of their bound after step {trained.near_at}.": trained.near_at,
    }
    capped = () if trained.cap is None else (note_of(trained.cap, "model.cap"),)
    return (*(note for note, step in notes.items() if step), *capped)


def _metrics(task: TrainTask, last: tuple[int, float, float]) -> tuple[Metric, ...]:
    _, loss, right = last
    return (
        proportion(ACCURACY, round(right * task.test_rows), task.test_rows),
        Metric(name="loss", value=loss, unit="", samples=task.test_rows),
    )


def _quality(me: str, task: TrainTask, trained: Trained, mine: Rows | None) -> tuple[Metric, ...]:
    """Measure the scores that I may see, on the rows kept for measuring whose classes I know."""
    if trained.scores is None or mine is None or mine.labels is None:
        return ()
    before = [holding.owner for holding in task.holdings].index(me)
    first = sum(one.rows for one in task.holdings[:before]) if task.split == "rows" else 0
    rows = task.test_indices() - first
    is_mine = (rows >= 0) & (rows < len(mine.labels))
    if not is_mine.any():
        return ()
    scores, labels = trained.scores[torch.from_numpy(is_mine)], mine.labels[rows[is_mine]]
    if task.loss == "logistic":
        odds, classes = torch.sigmoid(scores[:, 0]), labels[:, 0].long()
    else:
        odds, classes = scores.softmax(dim=1), labels.argmax(dim=1)
    found = measure_odds(odds.numpy(), classes.numpy())
    if task.split == "columns":
        return found[1:]  # the accuracy is known already
    return tuple(replace(one, name=f"{one.name}, rows of {me}") for one in found)


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
    claims = []
    if task.give_to:
        reason = (
            "a model remembers some of its data; only training with differential privacy bounds "
            "how much"
        )
        subject = "what the trained model tells {} about the rows it was trained on"
        claims.append((subject.format(", ".join(task.give_to)), reason))
    if task.score_to:
        reason = (
            "a score is a function of the row and of the model: of a model without hidden layers, "
            "as many scores as columns are as many equations for what is not known of them"
        )
        subject = "what the scores of held-out rows tell {} about these rows and the model"
        claims.append((subject.format(", ".join(task.score_to)), reason))
    return tuple(
        Claim(subject=subject, guarantee="no guarantee", assumptions=(reason,))
        for subject, reason in claims
    )
