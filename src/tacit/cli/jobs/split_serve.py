"""Jobs of kind "split" with [serve]: questions to a model that was trained before."""

from pathlib import Path

import torch
from torch import Tensor

from tacit.cli import folder
from tacit.cli.jobs.kind import Part, Place
from tacit.cli.jobs.split_data import (
    Columns,
    load_own,
    load_part,
    load_whole,
    make_bottom,
    make_top,
)
from tacit.cli.jobs.split_job import SplitJob
from tacit.cli.jobs.split_result import SERVE_ROWS, make_result, to_csv
from tacit.errors import DataError
from tacit.learn.split import (
    answer,
    ask,
    cut_shape,
    introduce,
    load_weights,
    make_codec,
    stop_asking,
)
from tacit.party import Session


def serve_part(session: Session, job: SplitJob, place: Place, models: Path) -> Part:
    """Do one party's part with its trained part from `models`: ask, or answer."""
    if session.me == job.data.labels:
        return _answer(session, job, place, models)
    return _ask(session, job, place, models)


def columns_file(models: Path, party: str) -> Path:
    """Return where a feature owner keeps the scale of its columns."""
    return models / f"{party}-columns.npz"


def _ask(session: Session, job: SplitJob, place: Place, models: Path) -> Part:
    with session.progress.stage("load"):
        rows, ids, classes = _questions(job, session.me, place, models)
        task = job.task(classes)
        bottom = make_bottom(job, task, rows)
        load_weights(models / f"{session.me}.npz", bottom)
    codec = make_codec(task.compression, cut_shape(bottom, rows)[0])
    widths = introduce(session, task, rows=0, width=codec.width)
    with session.progress.stage("serve"):
        found = ask(
            session,
            codec,
            bottom,
            rows,
            label_owner=task.label_owner,
            classes=task.classes,
            defences=task.defences,
            batch_rows=SERVE_ROWS,
        )
        stop_asking(session, task.label_owner)
    result = make_result(
        session, job, place, task, widths=widths, trained=(0, 0), asked=len(rows), matched={}
    )
    is_first = session.me == task.feature_owners[0]
    files = {folder.PREDICTIONS: to_csv(found, ids)} if is_first else {}
    return Part(result=result, files=files, values=found)


def _answer(session: Session, job: SplitJob, place: Place, models: Path) -> Part:
    with session.progress.stage("load"):
        known = job.data.set is not None
        classes = load_whole(job, place.search).classes if known else job.data.classes or 0
        task = job.task(classes)
        top, widths = make_top(job, task, place.search)
        load_weights(models / f"{session.me}.npz", top)
    codecs = {owner: make_codec(task.compression, width) for owner, width in widths.items()}
    introduce(session, task, rows=0, width=0)
    with session.progress.stage("serve"):
        answered = answer(session, codecs, top, classes=task.classes)
    asked = sum(len(one.logits) for one in answered)
    result = make_result(
        session, job, place, task, widths=widths, trained=(0, 0), asked=asked, matched={}
    )
    return Part(result=result)


def _questions(
    job: SplitJob, party: str, place: Place, models: Path
) -> tuple[Tensor, tuple[str, ...], int]:
    """Return the rows to ask about, their ids if they have any, and how many classes there are."""
    if job.data.set is not None:
        brought = load_part(job, party, place.search)
        return brought.test, (), brought.classes
    own = load_own(job, party, place.given)
    if len(own.values) < 1:
        raise DataError(f"data.files.{party}: wanted at least one row to ask about, got none")
    if job.model.vocabulary is not None:
        return own.values, own.ids, job.data.classes or 0
    scale = Columns(torch.zeros(2, own.values.shape[1]))
    load_weights(columns_file(models, party), scale)
    return scale(own.values), own.ids, job.data.classes or 0
