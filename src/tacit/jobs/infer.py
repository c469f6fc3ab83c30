"""Jobs of kind "infer": a model made private, asked about rows, from a job file."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from tacit.data.metrics import put_beside
from tacit.errors import ConfigError, DisagreementError, InputError
from tacit.extras import check_extra
from tacit.files import check_file
from tacit.inference import (
    Forest,
    PrivateAnswer,
    Secured,
    Sizes,
    agree_on_forest,
    claims_of,
    plan_prediction,
    predict,
    secure,
)
from tacit.inference.answers import AnsweredRows, Labels, read_answers
from tacit.inference.forest import FOREST
from tacit.inference.inputs import (
    answer_plain,
    check_model,
    load_forest,
    load_held,
    load_linear,
    load_owned,
    load_rows,
)
from tacit.inference.predict import MODEL, told_in_prediction
from tacit.inference.secured import INPUT, Direct
from tacit.inference.service import (
    ServiceTask,
    answer_columns,
    answer_once,
    claim_of_columns,
)
from tacit.inference.service.once import COLUMNS, columns_program, plan_question, rows_program
from tacit.inference.spec import InferSpec
from tacit.jobs import folder
from tacit.jobs.config import Job
from tacit.jobs.kind import (
    Asked,
    Kind,
    Outlook,
    Part,
    Place,
    evenly,
    matched,
    matching_leaks,
    unread,
)
from tacit.matching import (
    align_in_the_clear,
    align_rows,
    announce_ids,
    claims_of_matching,
    declare_matching,
)
from tacit.mpc import Plan, find_protocol, sum_forecasts
from tacit.nn import logistic_class, logistic_score
from tacit.nn.code import OwnModel
from tacit.nn.models import linear
from tacit.party import Session
from tacit.result import Leak, Metric, Result
from tacit.spec import refuse, refuse_together

_ABSENT = "The owner's weights are not here; "


@dataclass(frozen=True, kw_only=True)
class InferJob(InferSpec, Job):
    """A whole job file of kind "infer"."""

    def __post_init__(self) -> None:
        refuse_together(self.check_tables, self.check_parties, self._check_enclave)
        self.check_room()

    def _check_enclave(self) -> None:
        owner, is_inside = self.model.owner or "", self.protocol.kind == "enclave"
        entry = self.parties.get(owner)
        if not is_inside or entry is None or self.ring.frac_bits is not None:
            return
        if entry.enclave is None:
            text = f'missing; wanted enclave = "simulated": {owner} must attest what it runs'
            refuse(f"parties.{owner}.enclave", text)

    def shared_task(self) -> ServiceTask:
        """Return what is answered from a shared network."""
        return ServiceTask.of(self, name=self.job.name, clients=(self.data.owner,))


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
        for name in job.holders:
            if name in parties:
                if name not in job.model.shares:
                    text = "missing; wanted the file with its share"
                    raise ConfigError(f"model.shares.{name}: {text}")
                check_file(job.model.shares[name], f"model.shares.{name}")
    elif job.model.owner in parties:
        check_model(job.model)


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
        ask = _ask_linear if job.is_linear else _ask_shared if job.is_shared else _ask_owner
        answer = ask(session, job, x, place)
    values = answer.values
    if job.is_shared and values is not None and job.protocol.reveal != "output":
        values = values[:, 0].round()  # classes, as whole numbers in a row
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
    """Ask a model of one linear layer, whose bounds are agreed and whose width is told."""
    weights = None
    if session.me == job.model.owner:
        with session.progress.stage("load"):
            weights = load_linear(job, place.search, place.given)
    if not job.is_direct:
        return predict(session, job, features=x, weights=weights)
    if weights is not None:
        session.publish(MODEL, (len(weights["weight"]),))
    else:
        (wide,) = session.learn(job.crew.server, MODEL)
        if x is not None and wide != x.shape[1]:
            raise DisagreementError(
                job.crew.server, f"its model wants {wide} features, the rows have {x.shape[1]}"
            )
        weights = _empty(wide)
    answer = make_private(job, weights).join(session, x)
    if answer.values is None:
        return answer
    # Under he its receiver makes a probability of the score.
    numbers = answer.values[:, 0]
    return replace(answer, values=numbers.sigmoid() if job.protocol.kind == "he" else numbers)


def _ask_shared(session: Session, job: InferJob, x: Tensor | None, place: Place) -> PrivateAnswer:
    """Ask a network of which two parties hold a share each."""
    share = load_held(job, session.me, place.given) if session.me in job.holders else None
    return answer_once(session, job.shared_task(), client=job.data.owner, share=share, x=x)


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
        share=load_held(job, session.me, place.given) if session.me in job.holders else None,
        x=None if mine is None else torch.from_numpy(mine.features),
    )
    labels = None if mine is None else mine.labels
    return answer, labels, () if mine is None else mine.ids


def _ask_owner(session: Session, job: InferJob, x: Tensor | None, place: Place) -> PrivateAnswer:
    """Ask a network or a forest that one party owns."""
    is_owner = session.me == job.model.owner
    if job.model.is_forest:
        mine = load_forest(job) if is_owner else None
        forest = agree_on_forest(session, job.crew.server, mine)
        return make_private(job, forest).join(session, x)
    module = job.model.module()
    with session.progress.stage("load"):
        if is_owner:
            load_owned(module, job, place.given, place.inside)
    return make_private(job, module).join(session, x)


def make_private(job: InferJob, model: nn.Module | Forest | Mapping[str, Tensor]) -> Secured:
    """Make a model private as the job says; weights alone are those of one linear layer."""
    weights: Mapping[str, Tensor] | None = None
    held: Any = model.double() if isinstance(model, nn.Module) else model
    reveal = job.protocol.reveal
    if isinstance(model, Mapping):
        inside = logistic_class if reveal == "class" else logistic_score
        weights, held, reveal = model, linear if job.protocol.kind == "he" else inside, "output"
    return secure(
        held,
        protocol=job.protocol.kind,
        weights=weights,
        crew=job.crew,
        reveal="class" if reveal == "class" else "output",
        frac_bits=job.ring.frac_bits if job.is_direct else job.frac_bits,
        bound=job.data.bound,
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
    plain = answer_plain(job, x, search)
    reveal = job.protocol.reveal
    clear = AnsweredRows(values=plain, reveal=reveal, labels=labels).measure()
    same = AnsweredRows(values=answers, reveal=reveal).compare(plain)
    return replace(result, utility=(*put_beside(result.utility, clear), same))


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


def forecast(job: InferJob, asked: Asked) -> Outlook:
    """Forecast the answers of a network, owned or shared."""
    if job.is_direct:
        return _forecast_direct(job, asked)
    if job.is_linear:
        return _forecast_linear(job, asked)
    asked.refuse("features")
    if job.data.owners:
        return _forecast_columns(job, asked)
    shape = find_shape(job, asked.search, asked.rows)
    parties = tuple(job.parties)
    if job.is_shared:
        task = job.shared_task()
        task.refuse_view(job.data.owner)
        walk = plan_question(task, rows_program(task, job.data.owner, shape), parties=parties)
        return Outlook(
            about=job.protocol.kind,
            lines=(f"rows of shape {shape}; {_steps(walk.runs[-1][0])}",),
            forecast=sum_forecasts(walk.runs),
            leaks=(*walk.leaks(), *INPUT.leaks(job.data.owner, parties)),
            claims=find_protocol(job.protocol.kind).claims,
        )
    note: tuple[str, ...] = (
        f"{_ABSENT}how large they are decides bits of masks, and is taken from fresh ones: bytes "
        "may differ a little.",
    )
    model, note = (load_forest(job), ()) if job.model.is_forest else _owned(job, note)
    private = make_private(job, model)
    plan = private.plan(private.facts(shape))
    return Outlook(
        about=plan.protocol,
        lines=(f"rows of shape {shape}; {_steps(plan)}", *note),
        forecast=sum_forecasts([(plan, 1)]),
        leaks=(*plan.leaks, *_forest_leaks(job), *private.told(parties)),
        claims=private.claims(),
    )


def _forecast_direct(job: InferJob, asked: Asked) -> Outlook:
    """Forecast answers between the two owners alone."""
    if job.is_linear:
        sizes = _sizes(job, asked)
        shape: tuple[int, ...] = (sizes.rows, sizes.features)
    else:
        asked.refuse("features")
        shape = find_shape(job, asked.search, asked.rows)
    private, note = find_direct(job, shape, asked.search)
    return Outlook(
        about=job.protocol.kind,
        lines=(*private.lines(shape), *note),
        forecast=private.forecast(shape),
        leaks=(
            *private.leaks(shape),
            *(MODEL.leaks(job.crew.server, tuple(job.parties)) if job.is_linear else ()),
            *_forest_leaks(job),
            *private.told(tuple(job.parties)),
        ),
        claims=private.claims(),
    )


def _forecast_linear(job: InferJob, asked: Asked) -> Outlook:
    """Forecast the answers of a model of one linear layer."""
    sizes = _sizes(job, asked)
    walker = plan_prediction(job, sizes)
    what = f"{sizes.rows} rows of {sizes.features} features; {_steps(walker.runs[0][0])}"
    return Outlook(
        about=walker.protocol,
        lines=(what,),
        forecast=walker.forecast(),
        leaks=(*walker.leaks(), *told_in_prediction(job, tuple(job.parties))),
        claims=claims_of(job),
    )


def find_direct(
    job: InferJob, shape: tuple[int, ...], search: Sequence[Path]
) -> tuple[Direct, tuple[str, ...]]:
    """Return the private model for a forecast, with the owner's weights if they are here."""
    note: tuple[str, ...] = (f"{_ABSENT}parameters are chosen for fresh ones.",)
    model: nn.Module | Forest | Mapping[str, Tensor]
    if job.model.is_forest:
        model, note = load_forest(job), ()
    elif job.is_linear:
        try:
            model, note = load_linear(job, search), ()
        except InputError:
            model = _empty(shape[1])
    else:
        model, note = _owned(job, note)
    made = make_private(job, model)
    assert isinstance(made, Direct)  # noqa: S101 - the job says so
    return made, note


def _empty(wide: int) -> dict[str, Tensor]:
    """Return a linear model that says nothing."""
    return {
        "weight": torch.ones((wide, 1), dtype=torch.float64),
        "bias": torch.zeros(1, dtype=torch.float64),
    }


def _forest_leaks(job: InferJob) -> tuple[Leak, ...]:
    """List what the owner of a forest tells of it."""
    return FOREST.leaks(job.crew.server, tuple(job.parties)) if job.model.is_forest else ()


def _sizes(job: InferJob, asked: Asked) -> Sizes:
    if asked.rows is not None and asked.features is not None:
        return Sizes(rows=asked.rows, features=asked.features)
    try:
        found = load_rows(job, asked.search)[0].shape
    except InputError as error:
        raise unread(error, "--rows and --features") from error
    return Sizes(rows=asked.rows or found[0], features=asked.features or found[1])


def _owned(job: InferJob, note: tuple[str, ...]) -> tuple[nn.Module, tuple[str, ...]]:
    """Return the network, with the owner's weights if they are here, or else a note."""
    module = job.model.module()
    try:
        load_owned(module, job)
    except InputError:
        return module, note
    return module, ()


def _forecast_columns(job: InferJob, asked: Asked) -> Outlook:
    """Forecast the answers about rows whose columns lie with several owners."""
    task, receiver = job.shared_task(), job.data.owner
    task.refuse_view()
    rows, widths, counts = _columns(job, asked)
    program = columns_program(task, receiver, widths, rows)
    walk = plan_question(task, program, parties=tuple(job.parties))
    return Outlook(
        about=job.protocol.kind,
        lines=(f"{rows} common rows; {_steps(walk.runs[-1][0])}", *matched(counts)),
        forecast=sum_forecasts(walk.runs, before=declare_matching(counts)),
        leaks=(
            *matching_leaks(job, counts, rows),
            *walk.leaks(),
            *COLUMNS.leaks_of_all(widths, tuple(job.parties)),
        ),
        claims=(
            *find_protocol(job.protocol.kind).claims,
            *claims_of_matching(counts),
            claim_of_columns(task, receiver),
        ),
    )


def _columns(job: InferJob, asked: Asked) -> tuple[int, dict[str, int], dict[str, int]]:
    """Return the common rows, and the columns and ids of every owner."""
    owners = tuple(job.data.owners)
    if asked.rows is not None:
        widths = evenly(job.model.inputs[0], owners)
        return asked.rows, widths, dict.fromkeys(owners, asked.rows)
    try:
        found = {
            name: table.source(name).load(asked.search) for name, table in job.data.owners.items()
        }
    except InputError as error:
        raise unread(error, "--rows") from error
    counts = {name: len(one.ids) for name, one in found.items()}
    common = align_in_the_clear(found)
    widths = {name: one.features.shape[1] for name, one in common.items()}
    return len(common[owners[0]].ids), widths, counts


def _steps(plan: Plan) -> str:
    kernels = Counter(type(step.kernel).__name__ for step in plan.steps)
    return f"{len(plan.steps)} steps: " + ", ".join(
        f"{count} × {name}" for name, count in sorted(kernels.items())
    )


KIND = Kind(
    record=InferJob,
    check_inputs=check_inputs,
    take_part=take_part,
    complete=complete,
    forecast=forecast,
)
