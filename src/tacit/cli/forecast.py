"""Forecasts of jobs between parties, worked out from sizes alone."""

from collections import Counter
from dataclasses import replace

import torch
from torch import nn

from tacit.cli.config import Job
from tacit.cli.environment import data_folders
from tacit.cli.infer import find_shape, load_owned, make_private
from tacit.cli.infer_job import InferJob
from tacit.cli.outlook import Asked, Outlook
from tacit.cli.predict import load_data
from tacit.cli.predict_job import PredictJob
from tacit.cli.serve_job import ServeJob
from tacit.cli.split_data import OwnRows, divide_own, load_own, load_whole, make_top
from tacit.cli.split_job import SplitJob
from tacit.cli.split_result import SERVE_ROWS, matching_claims
from tacit.cli.train import align_in_the_clear, claims_beyond, holding_of
from tacit.cli.train_data import load_rows
from tacit.cli.train_job import TrainJob
from tacit.errors import ConfigError, InputError
from tacit.learn.private import Sizes, claims_of, plan_prediction
from tacit.learn.service import plan_once, plan_service
from tacit.learn.split import claims_of as split_claims
from tacit.learn.split import forecast as forecast_messages
from tacit.learn.training import Holding, plan_training, sum_forecasts
from tacit.mpc import Plan, find_protocol
from tacit.party import merge
from tacit.result import Leak


def forecast_prediction(job: PredictJob, asked: Asked) -> Outlook:
    """Forecast a prediction."""
    sizes = _sizes(job, asked)
    plan = plan_prediction(job.task(), sizes)
    what = f"{sizes.rows} rows of {sizes.features} features; {_steps(plan)}"
    return Outlook(
        about=plan.protocol,
        lines=(what,),
        forecast=plan.forecast(),
        leaks=(*plan.leaks, _sizes_leak(job, "how many rows and features there are", 2)),
        claims=claims_of(job.task()),
    )


def forecast_inference(job: InferJob, asked: Asked) -> Outlook:
    """Forecast the answers of a network, owned or shared."""
    asked.refuse("features")
    shape = find_shape(job, data_folders(), asked.rows)
    seen = _sizes_leak(job, "the shape of the rows", len(shape))
    if job.is_shared:
        task = job.shared_task()
        task.refuse_sight(job.data.owner)
        checked, plan = plan_once(
            task, client=job.data.owner, shape=shape, parties=tuple(job.parties)
        )
        return Outlook(
            about=plan.protocol,
            lines=(f"rows of shape {shape}; {_steps(plan)}",),
            forecast=sum_forecasts(((checked, 1), (plan, 1))),
            leaks=(*merge((*checked.leaks, *plan.leaks)), seen),
            claims=find_protocol(task.protocol).claims,
        )
    module, note = _owned(job)
    private = make_private(job, module)
    plan = private.plan(private.facts(shape))
    return Outlook(
        about=plan.protocol,
        lines=(f"rows of shape {shape}; {_steps(plan)}", *note),
        forecast=plan.forecast(),
        leaks=(*plan.leaks, seen),
        claims=private.claims(),
    )


def forecast_training(job: TrainJob, asked: Asked) -> Outlook:
    """Forecast a whole training, from sharing the rows to handing out the model."""
    task, runs = plan_training(job.task(_holdings(job, asked)))
    leaks = [
        replace(leak, elements=times * leak.elements) for plan, times in runs for leak in plan.leaks
    ]
    rows = ", ".join(f"{one.owner} {one.rows} × {one.features}" for one in task.holdings)
    steps = task.epochs * task.steps_per_epoch
    lines = [f"{rows}; {steps} steps of {task.batch} rows, {task.test_rows} rows to measure on"]
    if job.data.split == "columns":
        lines.append("Matching the owners' ids comes before all this and is not in the figures.")
    return Outlook(
        about=task.protocol,
        lines=tuple(lines),
        forecast=sum_forecasts(runs),
        leaks=(*merge(tuple(leaks)), _sizes_leak(job, "how much data every owner has", 1)),
        claims=(*find_protocol(task.protocol).claims, *claims_beyond(task)),
    )


def forecast_split(job: SplitJob, asked: Asked) -> Outlook:
    """Forecast training at a cut layer and one question, or the question alone."""
    asked.refuse("features")
    trained, questions, matched, classes = _split_rows(job, asked)
    task = job.task(classes)
    widths = make_top(job, task, data_folders())[1]
    found = forecast_messages(
        task,
        widths=widths,
        rows=trained,
        questions=(questions, SERVE_ROWS),
        matched=matched,
    )
    cuts = ", ".join(f"{owner} {width}" for owner, width in widths.items())
    lines = [f"{trained} rows to train on, {questions} to ask about; width of the cut: {cuts}"]
    if found is None:
        lines.append(
            f"No forecast of bytes: under {task.compression.kind!r} the size of a message depends "
            "on the values in it."
        )
    return Outlook(
        about=f"split at {job.model.cut!r}, {job.split.compress.kind}",
        lines=tuple(lines),
        forecast=found,
        leaks=(_sizes_leak(job, "the number of rows and the widths of the cut layers", 2),),
        claims=(*matching_claims(matched), *split_claims(task.defences)),
    )


def forecast_service(job: ServeJob, asked: Asked) -> Outlook:
    """Forecast the start of a service, and every size of a batch."""
    asked.refuse("rows", "features")
    task = job.task()
    planned = plan_service(task, parties=tuple(job.parties))
    lines = ["The figures below are for starting: weights are checked, and opened under masks."]
    for size, plans in planned.batches.items():
        cost = sum_forecasts((plan, 1) for plan in plans).cost
        volume = dict.fromkeys(("offline", "online"), 0)
        for one in cost.traffic:
            volume[one.phase] += one.payload_bytes
        lines.append(
            f"A batch of up to {size} rows: {volume['online']:,} B in {cost.online_rounds} rounds, "
            f"offline {volume['offline']:,} B; what goes to and from clients comes on top."
        )
    largest = [leak for plan in planned.batches[task.most_rows] for leak in plan.leaks]
    start = [leak for plan in planned.start for leak in plan.leaks]
    answers = Leak(
        to=", ".join(job.clients),
        what=f"the {task.reveal} of every row of theirs",
        why="the declared result",
        kind="output",
        elements=1,
    )
    return Outlook(
        about=task.protocol,
        lines=tuple(lines),
        forecast=sum_forecasts((plan, 1) for plan in planned.start),
        leaks=(*merge((*start, *largest)), answers),
        claims=find_protocol(task.protocol).claims,
    )


def _sizes(job: PredictJob, asked: Asked) -> Sizes:
    if asked.rows is not None and asked.features is not None:
        return Sizes(rows=asked.rows, features=asked.features)
    try:
        found = load_data(job, data_folders()).features.shape
    except InputError as error:
        raise _unread(error, "--rows and --features") from error
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


def _holdings(job: TrainJob, asked: Asked) -> tuple[Holding, ...]:
    owners, is_columns = tuple(job.data.owners), job.data.split == "columns"
    if asked.rows is not None and asked.features is not None:
        rows = _evenly(asked.rows, owners)
        widths = _evenly(asked.features, owners)
        return tuple(
            Holding(name, asked.rows, (widths[name],), name == job.data.labels)
            if is_columns
            else Holding(name, rows[name], job.data.shape or (asked.features,), has_labels=True)
            for name in owners
        )
    try:
        found = {name: load_rows(job, name, data_folders()) for name in owners}
    except InputError as error:
        raise _unread(error, "--rows and --features, of all owners together") from error
    if is_columns:
        found = align_in_the_clear(found)
    return tuple(holding_of(name, one) for name, one in found.items())


def _evenly(total: int, names: tuple[str, ...]) -> dict[str, int]:
    each, more = divmod(total, len(names))
    return {name: each + (at < more) for at, name in enumerate(names)}


def _split_rows(job: SplitJob, asked: Asked) -> tuple[int, int, dict[str, int], int]:
    """Return rows to train on, rows to ask about, ids of every owner, and classes."""
    if job.data.set is not None:
        asked.refuse("rows")
        whole = load_whole(job, data_folders())
        trained = 0 if job.serve is not None else len(whole.train_x)
        return trained, len(whole.test_x), {}, whole.classes
    owners, classes = (job.data.labels, *job.data.features), job.data.classes or 0
    is_matched = job.data.match is not None and job.serve is None
    total, counts = asked.rows, {}
    try:
        if total is None and is_matched:
            ids = {owner: load_own(job, owner).ids for owner in owners}
            counts = {owner: len(found) for owner, found in ids.items()}
            total = len(set.intersection(*map(set, ids.values())))
        elif total is None:
            total = len(load_own(job, job.data.features[0]).values)
    except InputError as error:
        raise _unread(error, "--rows") from error
    if is_matched and not counts:
        counts = dict.fromkeys(owners, total)
    if job.serve is not None:
        return 0, total, {}, classes
    divided = divide_own(job, job.data.labels, OwnRows(values=torch.zeros(total)))
    return len(divided.train), len(divided.test), counts, classes


def _unread(error: InputError, options: str) -> ConfigError:
    return ConfigError(f"the sizes cannot be read from the data here ({error}); give {options}")


def _steps(plan: Plan) -> str:
    kernels = Counter(type(step.kernel).__name__ for step in plan.steps)
    return f"{len(plan.steps)} steps: " + ", ".join(
        f"{count} × {name}" for name, count in sorted(kernels.items())
    )


def _sizes_leak(job: Job, what: str, elements: int) -> Leak:
    return Leak(
        to=", ".join(job.parties), what=what, why="sizes are public", kind="size", elements=elements
    )
