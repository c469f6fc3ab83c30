"""Jobs of kind "split": one party's part in training and serving, and the audit afterwards."""

import hashlib
import shutil
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import torch

from tacit.audit.split import Watch
from tacit.cli import folder
from tacit.cli.jobs.kind import Part, Place
from tacit.cli.jobs.split_audit import (
    audit_answers,
    audit_returned,
    audit_whole,
    draw_epochs,
    draw_layer,
    state_told,
)
from tacit.cli.jobs.split_data import (
    Brought,
    divide_own,
    load_own,
    load_part,
    make_bottom,
    make_top,
)
from tacit.cli.jobs.split_job import SplitJob
from tacit.cli.jobs.split_result import SERVE_ROWS, make_result, models_folder, to_csv
from tacit.cli.jobs.split_serve import columns_file, serve_part
from tacit.learn.metrics import measure_odds
from tacit.learn.split import (
    BottomTrainer,
    TopTrainer,
    answer,
    ask,
    save_weights,
    stop_asking,
)
from tacit.learn.vertical import align_rows
from tacit.party import Session
from tacit.result import Result


def take_part(session: Session, job: SplitJob, place: Place) -> Part:
    """Do one party's part: train, then serve the test rows; or only serve."""
    # Weights start anywhere but at torch's fixed seed, which everyone knows.
    torch.seed()
    place.given.check(session.me, rows=True, model=False)
    if job.serve is not None:
        return serve_part(session, job, place, job.serve.models)
    if session.me == job.data.labels:
        return _own_labels(session, job, place)
    return _own_features(session, job, place)


def complete(job: SplitJob, result: Result, stage: Path, search: Sequence[Path]) -> Result:
    """Attack the trained model with all that an attacker could hold, as only `tacit run` can."""
    if job.report.compare == "none" or job.data.set is None or job.serve is not None:
        return result
    metrics, curves = audit_whole(job, models_folder(job.out), search)
    utility = (*result.utility, *metrics)
    return replace(result, utility=utility, curves=(*result.curves, *curves))


def _own_features(session: Session, job: SplitJob, place: Place) -> Part:
    rows, matched = _load(session, job, place)
    task = job.task(rows.classes)
    bottom = make_bottom(job, task, rows.train)
    state = _state_folder(job, session, place, rows)
    trainer = BottomTrainer(session, task, bottom, rows.train, folder=state)
    trainer.run()
    with session.progress.stage("serve"):
        classes = ask(
            session,
            trainer.codec,
            bottom,
            rows.test,
            label_owner=task.label_owner,
            classes=task.classes,
            defences=task.defences,
            batch_rows=SERVE_ROWS,
        )
        stop_asking(session, task.label_owner)
    models = models_folder(place.out)
    save_weights(models / f"{session.me}.npz", bottom)
    if rows.columns is not None:
        save_weights(columns_file(models, session.me), rows.columns)
    _forget(state, session)
    is_first = session.me == task.feature_owners[0]
    files = {folder.PREDICTIONS: to_csv(classes, rows.test_ids)} if is_first else {}
    result = make_result(
        session,
        job,
        place,
        task,
        widths=trainer.widths,
        trained=(len(rows.train), trainer.start),
        asked=len(rows.test),
        matched=matched,
    )
    return Part(result=result, files=files, values=classes, weights=bottom.state_dict())


def _own_labels(session: Session, job: SplitJob, place: Place) -> Part:
    rows, matched = _load(session, job, place)
    task = job.task(rows.classes)
    top, widths = make_top(job, task, place.search)
    watch = Watch(len(rows.train), task.pace)
    state = _state_folder(job, session, place, rows)
    trainer = TopTrainer(
        session,
        task,
        top,
        rows.train,
        widths=widths,
        folder=state,
        on_gradient=watch,
    )
    epochs = trainer.run()
    with session.progress.stage("serve"):
        (found,) = answer(session, trainer.codecs, top, classes=task.classes)
    with session.progress.stage("audit"):
        odds = found.logits.softmax(1).numpy()
        utility = [*measure_odds(odds, rows.test.numpy())]
        utility += audit_answers(job, task, found.cut, rows.test)
        told, told_curves = audit_returned(job, task, watch, rows.train)
        utility += told
        drawn = draw_layer(found.cut, rows.test, tsne=job.audit.tsne)
        curves = (*draw_epochs(epochs), *told_curves, *drawn)
    save_weights(models_folder(place.out) / f"{session.me}.npz", top)
    _forget(state, session)
    result = make_result(
        session,
        job,
        place,
        task,
        widths=trainer.widths,
        trained=(len(rows.train), trainer.start),
        asked=len(rows.test),
        matched=matched,
        utility=tuple(utility),
        curves=curves,
        notes=state_told(task, told),
    )
    return Part(result=result, weights=top.state_dict())


def _load(session: Session, job: SplitJob, place: Place) -> tuple[Brought, dict[str, int]]:
    """Load what we bring, and match rows if the job says so; return how many ids everyone had."""
    with session.progress.stage("load"):
        if job.data.match is None:
            return load_part(job, session.me, place.search, place.given), {}
        own = load_own(job, session.me, place.given)
    owners = (job.data.labels, *job.data.features)
    session.publish("ids", (len(own.ids),))
    counts = {
        owner: len(own.ids) if owner == session.me else session.learn(owner, "ids", 1)[0]
        for owner in owners
    }
    common = align_rows(session, owners, own.ids)
    return divide_own(job, session.me, own.take(common)), counts


def _state_folder(job: SplitJob, session: Session, place: Place, rows: Brought) -> Path:
    """Return where checkpoints are; another task, or other data, gets another folder."""
    data = replace(job.data, files={})
    what = f"{job.task(rows.classes).digest().hex()} {data} {job.model} {rows.digest().hex()}"
    mark = hashlib.sha256(what.encode()).hexdigest()[:16]
    return place.out.with_name(f"{place.out.name}-state") / mark / session.me


def _forget(state: Path, session: Session) -> None:
    """Remove our checkpoints once everyone is through: before, another might need them again."""
    session.agree("trained", hashlib.sha256(b"trained").digest())
    shutil.rmtree(state, ignore_errors=True)
    for folder_above in state.parents[:2]:
        with suppress(OSError):  # another party's are still there
            folder_above.rmdir()
