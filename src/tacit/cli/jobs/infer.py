"""Jobs of kind "infer": a network made private, from a job file."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from tacit import ring
from tacit.cli import folder
from tacit.cli.jobs.code import OwnModel
from tacit.cli.jobs.given import NOTHING, Given, load_source
from tacit.cli.jobs.infer_job import InferJob
from tacit.cli.jobs.kind import Part, Place
from tacit.cli.jobs.train_data import align_in_the_clear, read_rows
from tacit.cli.jobs.train_job import OwnerTable
from tacit.errors import ConfigError, DataError, InputError
from tacit.learn.metrics import measure_classes, measure_odds, put_beside
from tacit.learn.private import Answer, Secured, secure
from tacit.learn.service import answer_columns, answer_once, load_share
from tacit.learn.training.model import as_input
from tacit.learn.vertical import align_rows, announce_ids
from tacit.learn.weights import load_weights, put_weights
from tacit.nn import import_module
from tacit.party import Session
from tacit.result import Metric, Result


def check_inputs(job: InferJob, parties: Sequence[str]) -> None:
    """Make sure that the owners among these parties say where their input is, and that it is."""
    for name, table in job.data.owners.items():
        if name in parties:
            _check_table(table, f"data.owners.{name}")
    if job.data.owner in parties and not job.data.owners:
        if job.data.set is None and job.data.file is None:
            raise ConfigError("data: wanted 'set' or 'file', got neither")
        _check_file(job.data.file, "data.file")
    if job.model.code is not None:
        OwnModel.read(job.model.code)
    if job.is_shared:
        _check_shares(job, [name for name in job.holders if name in parties])
    elif job.model.owner in parties:
        if job.model.file is None:
            raise ConfigError(f"model.file: missing; {job.model.owner!r} owns the model")
        _check_file(job.model.file, "model.file")


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
        ask = _ask_shared if job.is_shared else _ask_owner
        answer = ask(session, job, x, place.given)
    values = answer.values
    files = {} if values is None else {folder.PREDICTIONS: _table(values, labels, ids)}
    result = replace(
        answer.result,
        kind="infer",
        name=job.job.name,
        launched=place.launched,
        utility=() if values is None else _measure(values, labels),
    )
    return Part(result=result, files=files, values=values)


def _ask_shared(session: Session, job: InferJob, x: Tensor | None, given: Given) -> Answer:
    """Ask a network of which two parties hold a share each."""
    share = None
    if session.me in job.holders:
        share = _load_share(job, session.me, given)
    answer = answer_once(session, job.shared_task(), client=job.data.owner, share=share, x=x)
    return _as_classes(job, answer)


def _ask_columns(
    session: Session, job: InferJob, place: Place
) -> tuple[Answer, "np.ndarray | None", tuple[str, ...]]:
    """Ask a shared network about rows that owners of columns have in common."""
    mine, owners = None, tuple(job.data.owners)
    if session.me in owners:
        with session.progress.stage("load"):
            mine = read_rows(job.data.owners[session.me], session.me, place.search, place.given)
    counts = announce_ids(session, owners, () if mine is None else mine.ids)
    if mine is not None:
        mine = mine.take(align_rows(session, owners, mine.ids))
    answer = answer_columns(
        session,
        job.shared_task(),
        counts=counts,
        receiver=job.data.owner,
        share=_load_share(job, session.me, place.given) if session.me in job.holders else None,
        x=None if mine is None else mine.features,
    )
    labels = None if mine is None or mine.labels is None else mine.labels.numpy()
    return _as_classes(job, answer), labels, () if mine is None else mine.ids


def _as_classes(job: InferJob, answer: Answer) -> Answer:
    """Give classes as whole numbers in a row, where no scores were asked for."""
    if answer.values is None or job.protocol.reveal == "output":
        return answer
    return replace(answer, values=answer.values[:, 0].round())


def _ask_owner(session: Session, job: InferJob, x: Tensor | None, given: Given) -> Answer:
    """Ask a network that one party owns."""
    module = _network(job)
    with session.progress.stage("load"):
        if session.me == job.model.owner:
            load_owned(module, job, given)
    return make_private(job, module).join(session, x)


def make_private(job: InferJob, module: nn.Module) -> Secured:
    """Make the network of an owner private, as the job says."""
    return secure(
        module.double(),
        protocol=job.protocol.kind,
        crew=job.crew,
        reveal=job.protocol.reveal,
        frac_bits=job.ring.frac_bits,
        input_bound=job.data.bound,
        cap=job.model.cap,
    )


def complete(job: InferJob, result: Result, stage: Path, search: Sequence[Path]) -> Result:
    """Put the plaintext answers beside the private ones, if the job wants it."""
    answers = stage / folder.PREDICTIONS
    if job.report.compare != "plain" or not answers.exists():
        return result
    x, labels = load_rows(job, search)
    module = _network(job).double()
    if job.is_shared:
        _join_shares(module, job)
    else:
        load_owned(module, job)
    with torch.no_grad():
        plain = module.eval()(as_input(module, x))
    lines = answers.read_text(encoding="utf-8").splitlines()[1:]
    private = torch.tensor([float(line.split(",")[1]) for line in lines], dtype=torch.float64)
    classes = _classes(plain).double()
    utility = put_beside(result.utility, _measure(plain, labels))
    same = Metric(
        name="classes equal to plaintext",
        value=float((private == classes).double().mean()),
        unit="share",
        samples=len(classes),
        reference=1.0,
    )
    return replace(result, utility=(*utility, same))


def load_rows(
    job: InferJob, search: Sequence[Path], given: Given = NOTHING
) -> tuple[Tensor, "np.ndarray | None"]:
    """Load the rows, and their classes where they are known."""
    if job.data.owners:
        return _join_columns(job, search)
    dataset = load_source(job.data.source, "data", search, given)
    stretch = slice(*(job.data.rows or (0, len(dataset.features))))
    features = dataset.scaled()[stretch]
    features = features.reshape(len(features), *(job.data.shape or job.model.inputs))
    labels = dataset.labels[stretch] if dataset.is_labelled else None
    if not len(features):
        raise DataError(f"{dataset.name}: no rows are left")
    return torch.from_numpy(np.ascontiguousarray(features)), labels


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
    return (rows or end - first, *(job.data.shape or job.model.inputs))


def _join_columns(job: InferJob, search: Sequence[Path]) -> tuple[Tensor, "np.ndarray | None"]:
    """Put columns side by side, as only whoever tries a job with all files can."""
    rows = align_in_the_clear(
        {name: read_rows(table, name, search) for name, table in job.data.owners.items()}
    )
    labels = rows[job.data.owner].labels
    x = torch.cat([one.features for one in rows.values()], dim=1)
    return x, None if labels is None else labels.numpy()


def load_owned(module: nn.Module, job: InferJob, given: Given = NOTHING) -> None:
    """Put the owner's weights into the network."""
    if given.weights is not None:
        put_weights(module, given.weights, source="the model given")
        return
    if job.model.file is None:
        raise ConfigError("the job names no model; wanted model.file")
    load_weights(module, job.model.file)


def _join_shares(module: nn.Module, job: InferJob) -> None:
    """Put both shares together, as only whoever tries a job with all files can."""
    frac_bits = job.ring.frac_bits
    first, second = (_load_share(job, name) for name in job.holders)
    weights = {name: ring.decode(first[name] + second[name], frac_bits=frac_bits) for name in first}
    module.load_state_dict(import_module(module).state(weights))


def _load_share(job: InferJob, name: str, given: Given = NOTHING) -> dict[str, Tensor]:
    if given.weights is not None:
        return dict(given.weights)
    path = job.model.halves[name]
    return load_share(path, frac_bits=job.ring.frac_bits, bound=job.model.bound)


def _check_shares(job: InferJob, holders: Sequence[str]) -> None:
    for name in holders:
        path = job.model.halves.get(name)
        if path is None:
            raise ConfigError(f"model.halves.{name}: missing; wanted the file with its share")
        _check_file(path, f"model.halves.{name}")


def _classes(scores: Tensor) -> Tensor:
    """Give the class of every row of scores; one score says yes or no."""
    return (scores[:, 0] >= 0).long() if scores.shape[1] == 1 else scores.argmax(dim=-1)


def _network(job: InferJob) -> nn.Module:
    return job.model.module()


def _table(values: Tensor, labels: "np.ndarray | None", ids: Sequence[str]) -> str:
    """Write a line per row: its class, its scores if they were opened, its label if known.

    Rows are named by their ids, where they have any, and numbered from 1 where not.
    """
    scores = values if values.dim() > 1 else None
    classes = values if scores is None else _classes(scores)
    heads = ["id" if ids else "row", "class"]
    columns = [
        list(ids) or [str(row) for row in range(1, len(classes) + 1)],
        [str(int(one)) for one in classes.tolist()],
    ]
    if scores is not None:
        heads += [f"score {at}" for at in range(scores.shape[1])]
        columns += [[repr(value) for value in column] for column in scores.T.tolist()]
    if labels is not None:
        heads.append("label")
        columns.append([str(label) for label in labels.tolist()])
    return "\n".join([",".join(heads), *map(",".join, zip(*columns, strict=True))]) + "\n"


def _measure(values: Tensor, labels: "np.ndarray | None") -> tuple[Metric, ...]:
    if labels is None:
        return ()
    if values.dim() == 1:
        return measure_classes(values.numpy(), labels)
    return measure_odds(_odds(values).numpy(), labels)


def _odds(scores: Tensor) -> Tensor:
    """Turn scores into probabilities; one score is that of class 1."""
    return torch.sigmoid(scores[:, 0]) if scores.shape[1] == 1 else scores.softmax(dim=-1)


def _check_table(table: OwnerTable, key: str) -> None:
    if table.set is None and table.file is None:
        raise ConfigError(f"{key}: wanted 'set' or 'file', got neither")
    _check_file(table.file, f"{key}.file")


def _check_file(path: Path | None, key: str) -> None:
    if path is not None and not path.is_file():
        raise DataError(f"{key}: no such file: {path} (looked for from {Path.cwd()})")
