"""Jobs of kind "infer": a network made private, from a job file."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn

from tacit import ring
from tacit.data.metrics import put_beside
from tacit.data.source import NOTHING, Given, shaped
from tacit.errors import ConfigError, InputError
from tacit.extras import check_extra
from tacit.files import check_file
from tacit.inference import (
    Forest,
    PrivateAnswer,
    Secured,
    agree_on_forest,
    predict,
    predict_plain,
    secure,
    table_of,
)
from tacit.inference.answers import AnsweredRows, Labels, read_answers
from tacit.inference.service import answer_columns, answer_once, load_share
from tacit.jobs import folder
from tacit.jobs.infer_data import load_forest, load_linear, load_owned, load_part, load_trees
from tacit.jobs.infer_direct import ask_direct
from tacit.jobs.infer_job import InferJob
from tacit.jobs.kind import Part, Place
from tacit.matching import align_in_the_clear, align_rows, announce_ids
from tacit.nn import as_input, import_module
from tacit.nn.code import OwnModel
from tacit.party import Session
from tacit.result import Metric, Result


def check_inputs(job: InferJob, parties: Sequence[str]) -> None:
    """Make sure, cheaply, that the owners among these parties say where their input is.

    Raises:
        ConfigError: an owner names no input.
        DataError: a file is not there.
    """
    if job.protocol.kind == "he":
        check_extra("he", "protocol.kind: 'he'", "tenseal", "zstandard")
    elif not job.is_direct and not job.has_dealer:
        check_extra("he", f"protocol.kind: {job.protocol.kind!r}", "numba")
    if job.model.is_forest and job.model.owner in parties:
        check_extra("verify", "model.file: an ensemble of trees", "numba")
    for name, table in job.data.owners.items():
        if name in parties:
            table.source(name).check()
    if job.data.owner in parties and not job.data.owners:
        job.data.source.check()
    if job.model.code is not None and (not job.is_linear or job.model.owner in parties):
        OwnModel.read(job.model.code)
    if job.is_shared:
        _check_shares(job, [name for name in job.holders if name in parties])
    elif job.model.owner in parties:
        _check_model(job)


def _check_model(job: InferJob) -> None:
    model = job.model
    if model.is_forest:
        if model.file is None:
            raise ConfigError(f"model.file: missing; {model.owner!r} owns the forest")
        check_file(model.file, "model.file")
    elif job.is_linear and model.train is not None:
        model.train.source("model.train").check()
    elif model.file is not None:
        check_file(model.file, "model.file")
    elif job.is_linear and model.code is None:
        raise ConfigError(
            f"{model.owner!r} owns the model, but the job names none; "
            "wanted model.train, model.file or model.code"
        )
    elif not job.is_linear:
        raise ConfigError(f"model.file: missing; {model.owner!r} owns the model")


def take_part(session: Session, job: InferJob, place: Place) -> Part:
    """Do one party's part."""
    place.given.check(
        session.me,
        rows=session.me in (job.data.owner, *job.data.owners),
        model=session.me in (job.model.owner, *job.holders),
    )
    x, labels = None, None
    ids: tuple[str, ...] = ()
    if job.data.owners:
        answer, labels, ids = _ask_columns(session, job, place)
    else:
        with session.progress.stage("load"):
            if session.me == job.data.owner:
                x, labels = load_rows(job, place.search, place.given)
        if job.is_direct:
            answer = ask_direct(session, job, x, place)
        else:
            ask = _ask_linear if job.is_linear else _ask_shared if job.is_shared else _ask_owner
            answer = ask(session, job, x, place)
    values = answer.values
    files: dict[str, str | bytes] = {}
    utility: tuple[Metric, ...] = ()
    if values is not None:
        answers = AnsweredRows(values=values, reveal=job.protocol.reveal, labels=labels, ids=ids)
        head = "prediction" if job.is_linear else "class"
        files, utility = {folder.PREDICTIONS: answers.to_csv(head=head)}, answers.measure()
    result = replace(
        answer.result,
        kind="infer",
        name=job.job.name,
        launched=place.launched,
        parties=(place.report(),),
        utility=utility,
    )
    return Part(result=result, files=files, values=values)


def _ask_linear(session: Session, job: InferJob, x: Tensor | None, place: Place) -> PrivateAnswer:
    """Ask a model of one linear layer, whose bounds are agreed and whose width the rows tell."""
    weights = None
    if session.me == job.model.owner:
        with session.progress.stage("load"):
            weights = load_linear(job, place.search, place.given)
    return predict(session, job.task(), features=x, weights=weights)


def _ask_shared(session: Session, job: InferJob, x: Tensor | None, place: Place) -> PrivateAnswer:
    """Ask a network of which two parties hold a share each."""
    share = None
    if session.me in job.holders:
        share = _load_share(job, session.me, place.given)
    answer = answer_once(session, job.shared_task(), client=job.data.owner, share=share, x=x)
    return _as_classes(job, answer)


def _ask_columns(
    session: Session, job: InferJob, place: Place
) -> tuple[PrivateAnswer, Labels, tuple[str, ...]]:
    """Ask a shared network about rows that owners of columns have in common."""
    mine, owners = None, tuple(job.data.owners)
    if session.me in owners:
        with session.progress.stage("load"):
            mine = job.data.owners[session.me].source(session.me).load(place.search, place.given)
    counts = announce_ids(session, owners, () if mine is None else mine.ids)
    if mine is not None:
        mine = mine.take(align_rows(session, owners, mine.ids, counts))
    answer = answer_columns(
        session,
        job.shared_task(),
        counts=counts,
        receiver=job.data.owner,
        share=_load_share(job, session.me, place.given) if session.me in job.holders else None,
        x=None if mine is None else torch.from_numpy(mine.features),
    )
    labels = None if mine is None else mine.labels
    return _as_classes(job, answer), labels, () if mine is None else mine.ids


def _as_classes(job: InferJob, answer: PrivateAnswer) -> PrivateAnswer:
    """Give classes as whole numbers in a row, where no scores were asked for."""
    if answer.values is None or job.protocol.reveal == "output":
        return answer
    return replace(answer, values=answer.values[:, 0].round())


def _ask_owner(session: Session, job: InferJob, x: Tensor | None, place: Place) -> PrivateAnswer:
    """Ask a network or a forest that one party owns."""
    if job.model.is_forest:
        mine = load_forest(job) if session.me == job.model.owner else None
        forest = agree_on_forest(session, job.crew.server, mine)
        return make_private(job, forest).join(session, x)
    module = job.model.module()
    with session.progress.stage("load"):
        if session.me == job.model.owner:
            load_owned(module, job, place.given)
    return make_private(job, module).join(session, x)


def make_private(job: InferJob, model: nn.Module | Forest) -> Secured:
    """Make the model of an owner private, as the job says."""
    return secure(
        model.double() if isinstance(model, nn.Module) else model,
        protocol=job.protocol.kind,
        crew=job.crew,
        reveal="class" if job.protocol.reveal == "class" else "output",
        frac_bits=job.frac_bits,
        input_bound=job.data.bound,
        cap=job.model.cap,
    )


def complete(job: InferJob, result: Result, stage: Path, search: Sequence[Path]) -> Result:
    """Put the plaintext answers beside the private ones, if the job wants it."""
    answers = stage / folder.PREDICTIONS
    if job.report.compare == "plain" and answers.exists():
        return compare_plain(job, result, read_answers(answers), search)
    return result


def compare_plain(job: InferJob, result: Result, answers: Tensor, search: Sequence[Path]) -> Result:
    """Put the answers of a plain computation beside the private ones.

    Only for someone who holds both sides' inputs, as when all parties run on one machine.
    """
    x, labels = load_rows(job, search)
    plain = _answer_plain(job, x, search)
    reveal = job.protocol.reveal
    clear = AnsweredRows(values=plain, reveal=reveal, labels=labels).measure()
    same = AnsweredRows(values=answers, reveal=reveal).compare(plain)
    return replace(result, utility=(*put_beside(result.utility, clear), same))


def _answer_plain(job: InferJob, x: Tensor, search: Sequence[Path]) -> Tensor:
    if job.is_linear:
        reveal: Literal["class", "score"] = "class" if job.protocol.reveal == "class" else "score"
        return predict_plain(x, load_linear(job, search), reveal=reveal)
    if job.model.is_forest and job.model.file is not None:
        return torch.from_numpy(load_trees(job.model.file).predict(x.numpy()))
    module = job.model.module().double()
    if job.is_shared:
        _join_shares(module, job)
    else:
        load_owned(module, job)
    with torch.no_grad():
        answers: Tensor = module.eval()(as_input(module, x))
    return answers


def load_rows(
    job: InferJob, search: Sequence[Path], given: Given = NOTHING
) -> tuple[Tensor, Labels]:
    """Load the rows, and their classes where they are known."""
    if job.data.owners:
        return _join_columns(job, search)
    rows = load_part(job, job.data.source, search, given)
    if job.model.is_forest:  # thresholds are in the units of the rows
        return torch.from_numpy(rows.unscaled()), rows.labels
    if job.is_linear:
        return table_of(rows), rows.labels
    key, shape = "data.shape", job.data.shape
    if shape is None:
        key, shape = "model.inputs", job.model.inputs
    return torch.from_numpy(shaped(rows.features, shape, key)), rows.labels


def find_shape(job: InferJob, search: Sequence[Path], rows: int | None) -> tuple[int, ...]:
    """Return the shape of all rows together; they are read here unless their number is given.

    Raises:
        ConfigError: they are not here, and no number is given.
    """
    if rows is None and job.data.rows is None:
        try:
            return tuple(load_rows(job, search)[0].shape)
        except InputError as error:
            raise ConfigError(f"the rows cannot be read here ({error}); give --rows") from error
    first, end = job.data.rows or (0, 0)
    sides = (load_forest(job).features,) if job.model.is_forest else job.model.inputs
    return (rows or end - first, *(job.data.shape or sides))


def _join_columns(job: InferJob, search: Sequence[Path]) -> tuple[Tensor, Labels]:
    """Put columns side by side, as only whoever tries a job with all files can."""
    rows = align_in_the_clear(
        {name: table.source(name).load(search) for name, table in job.data.owners.items()}
    )
    labels = rows[job.data.owner].labels
    x = np.concatenate([one.features for one in rows.values()], axis=1)
    return torch.from_numpy(x), labels


def _join_shares(module: nn.Module, job: InferJob) -> None:
    """Put both shares together, as only whoever tries a job with all files can."""
    frac_bits = job.frac_bits
    first, second = (_load_share(job, name) for name in job.holders)
    weights = {name: ring.decode(first[name] + second[name], frac_bits=frac_bits) for name in first}
    module.load_state_dict(import_module(module).state(weights))


def _load_share(job: InferJob, name: str, given: Given = NOTHING) -> dict[str, Tensor]:
    if given.weights is not None:
        return dict(given.weights)
    path = job.model.shares[name]
    return load_share(path, frac_bits=job.frac_bits, bound=job.model.weight_bound)


def _check_shares(job: InferJob, holders: Sequence[str]) -> None:
    for name in holders:
        path = job.model.shares.get(name)
        if path is None:
            raise ConfigError(f"model.shares.{name}: missing; wanted the file with its share")
        check_file(path, f"model.shares.{name}")
