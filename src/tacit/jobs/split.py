"""Jobs of kind "split": one party's part in training or serving, and the attacks afterwards."""

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor, nn

from tacit.audit.split import Watch, audit_answers, audit_returned, audit_whole
from tacit.audit.split.report import draw_layer, state_told
from tacit.data.metrics import measure_odds
from tacit.errors import DataError
from tacit.jobs import folder
from tacit.jobs.forecast_split import forecast_split
from tacit.jobs.kind import Kind, Part, Place
from tacit.jobs.split_data import (
    Brought,
    check_inputs,
    divide_own,
    load_own,
    load_part,
    load_whole,
    top_of,
    values_of,
)
from tacit.jobs.split_job import SplitJob
from tacit.matching import align_rows, announce_ids
from tacit.party import Progress, Session
from tacit.result import Curve, Metric, Result
from tacit.split import (
    OwnFeatures,
    SplitTask,
    answer,
    cut_shape,
    introduce,
    load_weights,
    make_codec,
    save_weights,
)
from tacit.split.local import make_bottom
from tacit.split.part import LabelsDone, question, train_features, train_labels
from tacit.split.rows import Columns, Divided
from tacit.split.summary import Done, draw_epochs, summarise


def take_part(session: Session, job: SplitJob, place: Place) -> Part:
    """Do one party's part: train, then serve the test rows; or only serve."""
    # Weights start anywhere but at torch's fixed seed, which everyone knows.
    torch.seed()
    place.given.check(session.me, rows=True, model=False)
    is_label_owner = session.me == job.data.labels
    if job.serve is not None:
        return (_answer if is_label_owner else _ask)(session, job, place, job.serve.models)
    return (_own_labels if is_label_owner else _own_features)(session, job, place)


def attack(job: SplitJob, result: Result, search: Sequence[Path], progress: Progress) -> Result:
    """Attack the trained model with all that an attacker could hold, as only `tacit run` can."""
    if job.report.compare == "none" or job.data.set is None or job.serve is not None:
        return result
    data = load_whole(job, search)
    task, network = job.task(data.classes), job.model.network(data.classes)
    example = torch.tensor_split(data.train_x, task.bottoms, dim=-1)[0]
    bottom = make_bottom(network, task, example.shape[1:])
    load_weights(models_folder(job.out) / f"{task.feature_owners[0]}.npz", bottom)
    how = job.audit.how()
    metrics, curves = audit_whole(task, network, bottom, data, how=how, progress=progress)
    utility = (*result.utility, *metrics)
    return replace(result, utility=utility, curves=(*result.curves, *curves))


def models_folder(out: Path) -> Path:
    """Return where the trained parts of a job are kept, beside its result."""
    return out.with_name(f"{out.name}-models")


def to_csv(classes: Tensor, ids: Sequence[str]) -> str:
    """Write the predicted classes as a table, by id where there are ids."""
    names = ids or [str(row) for row in range(1, len(classes) + 1)]
    lines = [f"{name},{value}" for name, value in zip(names, classes.tolist(), strict=True)]
    return "\n".join([f"{'id' if ids else 'row'},prediction", *lines]) + "\n"


def _own_features(session: Session, job: SplitJob, place: Place) -> Part:
    rows, matched = _load(session, job, place)
    mine, task = _present(rows.features), job.task(rows.classes)
    bottom = make_bottom(job.model.network(task.classes), task, mine.train.shape[1:])
    state = _state_folder(job, session, place, rows)
    done = train_features(session, task, bottom, mine, folder=state)
    _keep(place, session.me, bottom, mine)
    is_first = session.me == task.feature_owners[0]
    files = {folder.PREDICTIONS: to_csv(done.classes, mine.test_ids)} if is_first else {}
    what = _done(rows, done.widths, done.start, matched)
    return Part(
        result=_result(session, job, place, task, what),
        files=files,
        values=done.classes,
        weights=bottom.state_dict(),
        checkpoints=(state,),
    )


def _own_labels(session: Session, job: SplitJob, place: Place) -> Part:
    rows, matched = _load(session, job, place)
    labels, task = _present(rows.labels), job.task(rows.classes)
    top, widths = top_of(job, task, place.search)
    own = None
    if rows.features is not None:
        network = job.model.network(task.classes)
        own = make_bottom(network, task, rows.features.train.shape[1:]), rows.features
    state = _state_folder(job, session, place, rows)
    watch = Watch(len(labels.train), task.pace, folder=state)
    done = train_labels(
        session,
        task,
        top,
        labels.train,
        widths=widths,
        own=own,
        folder=state,
        on_gradient=watch,
    )
    utility, curves, notes = _attack_seen(session, job, task, done, labels, watch)
    save_weights(models_folder(place.out) / f"{session.me}.npz", top)
    if own is not None:
        _keep(place, f"{session.me}-bottom", *own)
    what = _done(rows, done.widths, done.start, matched)
    result = _result(session, job, place, task, what)
    result = replace(result, utility=utility, curves=curves, notes=notes)
    return Part(result=result, weights=top.state_dict(), checkpoints=(state,))


def _attack_seen(
    session: Session,
    job: SplitJob,
    task: SplitTask,
    done: LabelsDone,
    labels: Divided,
    watch: Watch,
) -> tuple[tuple[Metric, ...], tuple[Curve, ...], tuple[str, ...]]:
    """Measure the answers, and attack what the label owner itself saw and sent."""
    found, per_class, steps = done.answered, job.audit.leaked_per_class, session.progress
    utility = [*measure_odds(found.logits.softmax(1).numpy(), labels.test.numpy())]
    with steps.stage("attacking what was sent"):
        utility += audit_answers(task, found.cut, labels.test, per_class=per_class)
    with steps.stage("attacking gradients", len(task.feature_owners)) as advance:
        told, told_curves = audit_returned(
            task, watch, labels.train, per_class=per_class, report=advance
        )
    with steps.stage("drawing the cut layer"):
        drawn = draw_layer(found.cut, labels.test, tsne=job.audit.tsne)
    curves = (*draw_epochs(done.epochs), *told_curves, *drawn)
    return (*utility, *told), curves, state_told(task, told)


def _ask(session: Session, job: SplitJob, place: Place, models: Path) -> Part:
    with session.progress.stage("load"):
        rows, ids, classes = _questions(job, session.me, place, models, session.me)
        task = job.task(classes)
        bottom = make_bottom(job.model.network(classes), task, rows.shape[1:])
        load_weights(models / f"{session.me}.npz", bottom)
    codec = make_codec(task.compression, cut_shape(bottom, rows)[0])
    widths = introduce(session, task, rows=0, width=codec.width)
    found = question(session, task, codec, bottom, rows)
    result = _result(session, job, place, task, Done(widths=widths, asked=len(rows)))
    is_first = session.me == task.feature_owners[0]
    files = {folder.PREDICTIONS: to_csv(found, ids)} if is_first else {}
    return Part(result=result, files=files, values=found)


def _answer(session: Session, job: SplitJob, place: Place, models: Path) -> Part:
    with session.progress.stage("load"):
        known = job.data.set is not None
        classes = load_whole(job, place.search).classes if known else job.data.classes or 0
        task = job.task(classes)
        top, widths = top_of(job, task, place.search)
        load_weights(models / f"{session.me}.npz", top)
        own = None
        if task.label_owner_has_features:
            kept = f"{session.me}-bottom"
            rows, _, _ = _questions(job, session.me, place, models, kept)
            own = OwnFeatures(make_bottom(job.model.network(classes), task, rows.shape[1:]), rows)
            load_weights(models / f"{kept}.npz", own.bottom)
    codecs = {owner: make_codec(task.compression, width) for owner, width in widths.items()}
    introduce(session, task, rows=0, width=0)
    with session.progress.stage("serve"):
        answered = answer(session, codecs, top, classes=task.classes, own=own)
    asked = sum(len(one.logits) for one in answered)
    result = _result(session, job, place, task, Done(widths=widths, asked=asked))
    return Part(result=result)


def _questions(
    job: SplitJob, party: str, place: Place, models: Path, kept: str
) -> tuple[Tensor, tuple[str, ...], int]:
    """Return the rows to ask about, their ids if they have any, and how many classes there are."""
    if job.data.set is not None:
        brought = load_part(job, party, place.search)
        return _present(brought.features).test, (), brought.classes
    own = load_own(job, party, place.given)
    values = values_of(job, own)
    if values is None:
        raise DataError(f"data.files.{party}: wanted at least one row to ask about, got none")
    if job.model.vocabulary is not None:
        return values, own.ids, job.data.classes or 0
    scale = Columns(torch.zeros(2, values.shape[1]))
    load_weights(_columns_file(models, kept), scale)
    return scale(values), own.ids, job.data.classes or 0


def _load(session: Session, job: SplitJob, place: Place) -> tuple[Brought, dict[str, int]]:
    """Load what we bring, and match rows if the job says so; return how many ids everyone had."""
    with session.progress.stage("load"):
        if job.data.match is None:
            return load_part(job, session.me, place.search, place.given), {}
        own = load_own(job, session.me, place.given)
    owners = job.data.parties
    counts = announce_ids(session, owners, own.ids)
    common = align_rows(session, owners, own.ids, counts)
    return divide_own(job, own.take(common)), counts


def _present(rows: Divided | None) -> Divided:
    if rows is None:
        raise DataError("this party has no such rows in the job")
    return rows


def _done(rows: Brought, widths: dict[str, int], start: int, matched: dict[str, int]) -> Done:
    trained, asked = rows.counts
    return Done(widths=widths, trained=trained, start=start, asked=asked, matched=matched)


def _result(session: Session, job: SplitJob, place: Place, task: SplitTask, done: Done) -> Result:
    return summarise(
        session,
        task,
        done,
        name=job.job.name,
        launched=place.launched,
        report=place.report(),
    )


def _keep(place: Place, name: str, bottom: nn.Module, rows: Divided) -> None:
    """Keep a trained bottom, with the scale of its columns."""
    models = models_folder(place.out)
    save_weights(models / f"{name}.npz", bottom)
    if rows.columns is not None:
        save_weights(_columns_file(models, name), rows.columns)


def _columns_file(models: Path, name: str) -> Path:
    return models / f"{name}-columns.npz"


def _state_folder(job: SplitJob, session: Session, place: Place, rows: Brought) -> Path:
    """Return where checkpoints are: another task, or other data, has others."""
    data = replace(job.data, files={})
    what = f"{job.task(rows.classes).digest().hex()} {data} {job.model} {rows.digest().hex()}"
    mark = hashlib.sha256(what.encode()).hexdigest()[:16]
    return folder.state_of(place.out, session.me) / mark


KIND = Kind(
    record=SplitJob,
    check_inputs=check_inputs,
    take_part=take_part,
    attack=attack,
    forecast=forecast_split,
    keeps=lambda job: job.serve is None,
)
