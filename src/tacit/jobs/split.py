"""Jobs of kind "split": one party's part in training or serving, its forecast, and the attacks."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from tacit.audit.split import CutAudit, Watch, audit_answers, audit_returned, audit_whole
from tacit.audit.split.report import draw_layer, state_told
from tacit.data.ids import quoted
from tacit.data.metrics import measure_odds
from tacit.data.rows import Rows
from tacit.errors import ConfigError, DataError, InputError
from tacit.jobs import folder
from tacit.jobs.config import Job
from tacit.jobs.kind import Asked, Kind, Outlook, Part, Place, unread
from tacit.matching import (
    align_in_the_clear,
    align_rows,
    announce_ids,
    claims_of_matching,
    leaks_of_matching,
)
from tacit.party import Progress, Session
from tacit.result import Curve, Metric, Result
from tacit.spec import LOCAL, Problem, RefusedError, refuse_together
from tacit.split import CUT, OwnFeatures, answer, cut_shape, forecast, introduce, make_codec
from tacit.split.checkpoint import load_weights, save_weights
from tacit.split.local import make_bottom
from tacit.split.rows import (
    Brought,
    Columns,
    Divided,
    divide_own,
    load_own,
    load_part,
    load_whole,
    top_of,
    values_of,
)
from tacit.split.serve import SERVE_ROWS, Answered, question, train_features, train_labels
from tacit.split.spec import SplitSpec
from tacit.split.summary import Done, draw_epochs, leaks_of_split, summarise
from tacit.split.top import TopTrainer


@dataclass(frozen=True, kw_only=True)
class SplitJob(SplitSpec, Job):
    """A whole job file of kind "split"."""

    audit: CutAudit = field(default_factory=CutAudit, metadata=LOCAL)

    def __post_init__(self) -> None:
        refuse_together(super().__post_init__, self.check_parties, self._check_files)

    def _check_files(self) -> None:
        """Refuse what does not fit where rows come from files of their owners."""
        data, problems = self.data, []
        if data.set is None and (data.label is None or data.classes is None):
            text = "wanted a set, or files with 'label' and 'classes'"
            problems.append(Problem("data.set", text))
        if data.set is None and self.model.cut != CUT:
            text = f"with files, the label owner knows the model from the layer {CUT!r} on only"
            problems.append(Problem("model.cut", text))
        if self.audit.sweep and self.split.defend is None:
            problems.append(Problem("audit.sweep", "wanted split.defend, whose weight it changes"))
        if problems:
            raise RefusedError(*problems)


def check_inputs(job: SplitJob, parties: Sequence[str]) -> None:
    """Make sure, cheaply, that the files of these parties are there."""
    if job.serve is not None:
        for party in parties:
            trained = job.serve.models / f"{party}.npz"
            if not trained.is_file():
                raise DataError(f"serve.models: no trained part of {party!r}: {trained}")
        parties = [party for party in parties if party in job.data.features]
    if job.data.set is not None:
        return
    for party in parties:
        path = job.data.files.get(party)
        if path is None:
            raise ConfigError(f"data.files.{party}: missing; wanted the path of its rows")
        if not path.is_file():
            raise DataError(f"data.files.{party}: no such file: {path}")


def forecast_split(job: SplitJob, asked: Asked) -> Outlook:
    """Forecast training at a cut layer and one question, or the question alone."""
    asked.refuse("features")
    common, matched = _split_rows(job, asked)
    if job.data.set is not None:
        whole = load_whole(job, asked.search)
        trained, questions = len(whole.train_x), len(whole.test_x)
        job = job.with_classes(whole.classes)
    elif job.serve is None:
        labels_alone = Rows(features=np.empty((common, 0)), labels=np.zeros(common))
        trained, questions = divide_own(job, labels_alone).counts
    else:
        questions = common
    trained = 0 if job.serve is not None else trained
    parties, widths = tuple(job.parties), top_of(job, asked.search)[1]
    found = forecast(
        job, widths=widths, rows=trained, questions=(questions, SERVE_ROWS), matched=matched
    )
    cuts = ", ".join(f"{owner} {width}" for owner, width in widths.items())
    lines = [f"{trained} rows to train on, {questions} to ask about; width of the cut: {cuts}"]
    if found is None:
        lines.append(
            f"No forecast of bytes: under {job.split.compress.kind!r} the size of a message "
            "depends on the values in it."
        )
    return Outlook(
        about=job.about,
        lines=tuple(lines),
        forecast=found,
        leaks=(
            *(leaks_of_matching(matched, common, parties) if matched else ()),
            *leaks_of_split(job, widths, trained, questions, parties),
        ),
        claims=(*claims_of_matching(matched), *job.claims()),
    )


def _split_rows(job: SplitJob, asked: Asked) -> tuple[int, dict[str, int]]:
    """Return how many rows all owners have, and how many ids each, if rows are matched."""
    if job.data.set is not None:
        asked.refuse("rows")
        return 0, {}  # a known set says it itself
    owners = job.data.parties
    is_matched = job.data.match is not None and job.serve is None
    if asked.rows is not None:
        return asked.rows, dict.fromkeys(owners, asked.rows) if is_matched else {}
    try:
        if not is_matched:
            return len(load_own(job, job.data.features[0])), {}
        found = {owner: load_own(job, owner) for owner in owners}
    except InputError as error:
        raise unread(error, "--rows") from error
    common = align_in_the_clear(found)[owners[0]]
    return len(common.ids), {owner: len(one.ids) for owner, one in found.items()}


def take_part(session: Session, job: SplitJob, place: Place) -> Part:
    """Do one party's part: train, then serve the test rows; or only serve."""
    # Weights start anywhere but at torch's fixed seed, which everyone knows.
    torch.seed()
    place.given.check(session.me, rows=True, model=False)
    is_label_owner = session.me == job.label_owner
    if job.serve is not None:
        return (_answer if is_label_owner else _ask)(session, job, place, job.serve.models)
    with session.progress.stage("load"):
        if job.data.match is None:
            rows, counts = load_part(job, session.me, place.search, place.given), {}
        else:
            own = load_own(job, session.me, place.given)
    if job.data.match is not None:
        counts = announce_ids(session, job.data.parties, own.ids)
        common = align_rows(session, job.data.parties, own.ids, counts)
        rows = divide_own(job, own.take(common))
    job = job.with_classes(rows.classes)
    return (_own_labels if is_label_owner else _own_features)(session, job, place, rows, counts)


def _own_features(
    session: Session, job: SplitJob, place: Place, rows: Brought, matched: dict[str, int]
) -> Part:
    mine = _present(rows.features)
    bottom = make_bottom(job, mine.train.shape[1:])
    state = _state_folder(job, session, place, rows)
    trainer, classes = train_features(session, job, bottom, mine, folder=state)
    _keep(place, session.me, bottom, mine)
    done = Done(widths=trainer.widths, start=trainer.start, matched=matched)
    return Part(
        result=_result(session, job, place, done, rows),
        files=_predictions(session, job, classes, mine.test_ids),
        values=classes,
        weights=bottom.state_dict(),
        checkpoints=(state,),
    )


def _own_labels(
    session: Session, job: SplitJob, place: Place, rows: Brought, matched: dict[str, int]
) -> Part:
    labels = _present(rows.labels)
    top, widths = top_of(job, place.search)
    own = None
    if rows.features is not None:
        own = make_bottom(job, rows.features.train.shape[1:]), rows.features
    state = _state_folder(job, session, place, rows)
    watch = Watch(len(labels.train), job.train, folder=state)
    trainer, answered = train_labels(
        session,
        job,
        top,
        labels.train,
        widths=widths,
        own=own,
        folder=state,
        on_gradient=watch,
    )
    utility, curves, notes = _attack_seen(session, job, trainer, answered, labels, watch)
    save_weights(models_folder(place.out) / f"{session.me}.npz", top)
    if own is not None:
        _keep(place, f"{session.me}-bottom", *own)
    done = Done(widths=trainer.widths, start=trainer.start, matched=matched)
    result = _result(session, job, place, done, rows)
    result = replace(result, utility=utility, curves=curves, notes=notes)
    return Part(result=result, weights=top.state_dict(), checkpoints=(state,))


def _attack_seen(
    session: Session,
    job: SplitJob,
    trainer: TopTrainer,
    answered: Answered,
    labels: Divided,
    watch: Watch,
) -> tuple[tuple[Metric, ...], tuple[Curve, ...], tuple[str, ...]]:
    """Measure the answers, and attack what the label owner itself saw and sent."""
    per_class, steps = job.audit.leaked_per_class, session.progress
    utility = [*measure_odds(answered.logits.softmax(1).numpy(), labels.test.numpy())]
    with steps.stage("attacking what was sent"):
        utility += audit_answers(job, answered.cut, labels.test, per_class=per_class)
    with steps.stage("attacking gradients", len(job.feature_owners)) as advance:
        told, told_curves = audit_returned(
            job, watch, labels.train, per_class=per_class, report=advance
        )
    with steps.stage("drawing the cut layer"):
        drawn = draw_layer(answered.cut, labels.test, tsne=job.audit.tsne)
    curves = (*draw_epochs(trainer.epochs), *told_curves, *drawn)
    return (*utility, *told), curves, state_told(job, told)


def _ask(session: Session, job: SplitJob, place: Place, models: Path) -> Part:
    with session.progress.stage("load"):
        rows, ids, classes = _questions(job, session.me, place, models, session.me)
        job = job.with_classes(classes)
        bottom = make_bottom(job, rows.shape[1:])
        load_weights(models / f"{session.me}.npz", bottom)
    codec = make_codec(job.split.compress, cut_shape(bottom, rows)[0])
    widths = introduce(session, job, rows=0, width=codec.width)
    found = question(session, job, codec, bottom, rows)
    result = _result(session, job, place, Done(widths=widths, asked=len(rows)))
    return Part(result=result, files=_predictions(session, job, found, ids), values=found)


def _answer(session: Session, job: SplitJob, place: Place, models: Path) -> Part:
    with session.progress.stage("load"):
        if job.data.set is not None:
            job = job.with_classes(load_whole(job, place.search).classes)
        top, widths = top_of(job, place.search)
        load_weights(models / f"{session.me}.npz", top)
        own = None
        if job.label_owner_has_features:
            kept = f"{session.me}-bottom"
            rows, _, _ = _questions(job, session.me, place, models, kept)
            own = OwnFeatures(make_bottom(job, rows.shape[1:]), rows)
            load_weights(models / f"{kept}.npz", own.bottom)
    codecs = {owner: make_codec(job.split.compress, width) for owner, width in widths.items()}
    introduce(session, job, rows=0, width=0)
    with session.progress.stage("serve"):
        answered = answer(session, job, codecs, top, own=own)
    asked = sum(len(one.logits) for one in answered)
    return Part(result=_result(session, job, place, Done(widths=widths, asked=asked)))


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
    if job.model.vocabulary is None:
        scale = Columns(torch.zeros(2, values.shape[1]))
        load_weights(models / f"{kept}-columns.npz", scale)
        values = scale(values)
    return values, own.ids, job.classes


def _present(rows: Divided | None) -> Divided:
    if rows is None:
        raise DataError("this party has no such rows in the job")
    return rows


def _result(
    session: Session, job: SplitJob, place: Place, done: Done, rows: Brought | None = None
) -> Result:
    if rows is not None:
        trained, asked = rows.counts
        done = replace(done, trained=trained, asked=asked)
    name, launched = job.job.name, place.launched
    return summarise(session, job, done, name=name, launched=launched, report=place.report())


def _predictions(
    session: Session, job: SplitJob, classes: Tensor, ids: Sequence[str]
) -> dict[str, str | bytes]:
    """Write the predicted classes as a table, by id where there are ids: once, by the first."""
    if session.me != job.feature_owners[0]:
        return {}
    names = ids or [str(row) for row in range(1, len(classes) + 1)]
    lines = [f"{quoted(name)},{value}" for name, value in zip(names, classes.tolist(), strict=True)]
    text = "\n".join([f"{'id' if ids else 'row'},prediction", *lines]) + "\n"
    return {folder.PREDICTIONS: text}


def _keep(place: Place, name: str, bottom: nn.Module, rows: Divided) -> None:
    """Keep a trained bottom, with the scale of its columns."""
    models = models_folder(place.out)
    save_weights(models / f"{name}.npz", bottom)
    if rows.columns is not None:
        save_weights(models / f"{name}-columns.npz", rows.columns)


def _state_folder(job: SplitJob, session: Session, place: Place, rows: Brought) -> Path:
    """Return where checkpoints are: another spec, or other data, has others."""
    mark = hashlib.sha256(job.digest() + rows.digest()).hexdigest()[:16]
    return folder.state_of(place.out, session.me) / mark


def models_folder(out: Path) -> Path:
    """Return where the trained parts of a job are kept, beside its result."""
    return out.with_name(f"{out.name}-models")


def attack(job: SplitJob, result: Result, search: Sequence[Path], progress: Progress) -> Result:
    """Attack the trained model with all that an attacker could hold, as only `tacit run` can."""
    if job.report.compare == "none" or job.data.set is None or job.serve is not None:
        return result
    data = load_whole(job, search)
    job = job.with_classes(data.classes)
    example = torch.tensor_split(data.train_x, job.bottoms, dim=-1)[0]
    bottom = make_bottom(job, example.shape[1:])
    load_weights(models_folder(job.out) / f"{job.feature_owners[0]}.npz", bottom)
    metrics, curves = audit_whole(job, bottom, data, how=job.audit, progress=progress)
    utility = (*result.utility, *metrics)
    return replace(result, utility=utility, curves=(*result.curves, *curves))


KIND = Kind(
    record=SplitJob,
    check_inputs=check_inputs,
    take_part=take_part,
    attack=attack,
    forecast=forecast_split,
    keeps=lambda job: job.serve is None,
)
