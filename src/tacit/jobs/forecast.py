"""Forecasts of jobs between parties, worked out from sizes alone."""

from collections import Counter

from torch import nn

from tacit.errors import InputError
from tacit.inference import Sizes, claims_of, plan_prediction
from tacit.inference.facts import INPUT
from tacit.inference.forest import FOREST
from tacit.inference.predict import MODEL, told_in_prediction
from tacit.inference.service import claim_of_columns, plan_columns, plan_once, plan_service
from tacit.inference.service.attend import foreseen
from tacit.inference.service.once import COLUMNS
from tacit.jobs.infer import find_shape, make_private
from tacit.jobs.infer import load_rows as load_questions
from tacit.jobs.infer_data import load_forest, load_owned
from tacit.jobs.infer_direct import find_direct
from tacit.jobs.infer_job import InferJob
from tacit.jobs.kind import Asked, Outlook, evenly, matched, matching_leaks, unread
from tacit.jobs.serve_job import ServeJob
from tacit.matching import (
    align_in_the_clear,
    claims_of_matching,
    declare_matching,
)
from tacit.mpc import Plan, find_protocol, sum_forecasts
from tacit.result import Leak


def _forecast_linear(job: InferJob, asked: Asked) -> Outlook:
    """Forecast the answers of a model of one linear layer."""
    sizes = _sizes(job, asked)
    walker = plan_prediction(job.task(), sizes)
    what = f"{sizes.rows} rows of {sizes.features} features; {_steps(walker.runs[0][0])}"
    return Outlook(
        about=walker.protocol,
        lines=(what,),
        forecast=walker.forecast(),
        leaks=(*walker.leaks(), *told_in_prediction(job.task(), tuple(job.parties))),
        claims=claims_of(job.task()),
    )


def forecast_inference(job: InferJob, asked: Asked) -> Outlook:
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
        walk = plan_once(task, client=job.data.owner, shape=shape, parties=parties)
        return Outlook(
            about=task.protocol,
            lines=(f"rows of shape {shape}; {_steps(walk.runs[-1][0])}",),
            forecast=sum_forecasts(walk.runs),
            leaks=(*walk.leaks(), *INPUT.leaks(job.data.owner, parties)),
            claims=find_protocol(task.protocol).claims,
        )
    model, note = (load_forest(job), ()) if job.model.is_forest else _owned(job)
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


def _forest_leaks(job: InferJob) -> tuple[Leak, ...]:
    """List what the owner of a forest tells of it."""
    return FOREST.leaks(job.crew.server, tuple(job.parties)) if job.model.is_forest else ()


def forecast_service(job: ServeJob, asked: Asked) -> Outlook:
    """Forecast the start of a service, and every size of a batch."""
    asked.refuse("rows", "features")
    task = job.task()
    walk = plan_service(task, parties=tuple(job.parties))
    lines = ["The figures below are for starting: weights are checked, and opened under masks."]
    for size in task.sizes:
        cost = sum_forecasts((plan, 1) for plan in walk.plans_of(size)).cost
        volume = dict.fromkeys(("offline", "online"), 0)
        for one in cost.traffic:
            volume[one.phase] += one.payload_bytes
        many = "1 row" if size == 1 else f"up to {size} rows"
        lines.append(
            f"A batch of {many}: {volume['online']:,} B in {cost.online_rounds} rounds, "
            f"offline {volume['offline']:,} B; what goes to and from clients comes on top."
        )
    return Outlook(
        about=task.protocol,
        lines=tuple(lines),
        forecast=sum_forecasts((plan, 1) for plan in walk.plans_of(0)),
        leaks=foreseen(task, walk),
        claims=find_protocol(task.protocol).claims,
    )


def _sizes(job: InferJob, asked: Asked) -> Sizes:
    if asked.rows is not None and asked.features is not None:
        return Sizes(rows=asked.rows, features=asked.features)
    try:
        found = load_questions(job, asked.search)[0].shape
    except InputError as error:
        raise unread(error, "--rows and --features") from error
    return Sizes(rows=asked.rows or found[0], features=asked.features or found[1])


def _owned(job: InferJob) -> tuple[nn.Module, tuple[str, ...]]:
    """Return the network, with the owner's weights if they are here."""
    module = job.model.module()
    try:
        load_owned(module, job)
    except InputError:
        note = (
            "The owner's weights are not here; how large they are decides bits of masks, and is "
            "taken from fresh ones: bytes may differ a little."
        )
        return module, (note,)
    return module, ()


def _forecast_columns(job: InferJob, asked: Asked) -> Outlook:
    """Forecast the answers about rows whose columns lie with several owners."""
    task, receiver = job.shared_task(), job.data.owner
    task.refuse_view()
    rows, widths, counts = _columns(job, asked)
    walk = plan_columns(
        task, receiver=receiver, widths=widths, rows=rows, parties=tuple(job.parties)
    )
    return Outlook(
        about=task.protocol,
        lines=(f"{rows} common rows; {_steps(walk.runs[-1][0])}", *matched(counts)),
        forecast=sum_forecasts(walk.runs, before=declare_matching(counts)),
        leaks=(
            *matching_leaks(job, counts, rows),
            *walk.leaks(),
            *COLUMNS.leaks_of_all(widths, tuple(job.parties)),
        ),
        claims=(
            *find_protocol(task.protocol).claims,
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
