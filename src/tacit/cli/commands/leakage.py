"""``tacit leakage``: what the parties of a job could infer from what they see."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import torch

from tacit.audit import seeded
from tacit.audit.permutation import (
    DISTRIBUTIONS,
    WIDTHS,
    LabSettings,
    Subject,
    claims,
    correlation_curves,
    metrics,
    pictures,
    prediction_subject,
    sheets,
    simulate,
    study,
    training_subject,
)
from tacit.cli.environment import data_folders
from tacit.errors import ConfigError
from tacit.inference.inputs import load_linear
from tacit.inference.inputs import load_rows as load_questions
from tacit.inference.service import ServiceTask
from tacit.jobs.config import Job
from tacit.jobs.infer import InferJob, find_direct
from tacit.jobs.kinds import load_job
from tacit.jobs.train import TrainJob
from tacit.mpc import find_protocol
from tacit.nn import make_model, parse_layers
from tacit.party import Progress, Usage
from tacit.result import NOTHING_SENT, Curve, Result
from tacit.training import TrainPlan
from tacit.training.rows import join_owners

_LOOKS = 4
_SIMULATED_ROWS = 1000
_QUICK = LabSettings(runs=24, candidates=60, batches=(1, 8), attacked=4)
Note = Callable[[str], None]


def examine(
    path: Path, *, protocol: str | None, is_quick: bool, note: Note = lambda text: None
) -> Result:
    """Run the lab on a job that trains, or that asks a linear model, all of whose data is here.

    Args:
        path: the job file.
        protocol: another protocol than the job's to look at.
        is_quick: look at fewer rows.
        note: is told what is being done.
    """
    usage, progress = Usage(), Progress()
    job = load_job(path)
    if isinstance(job, InferJob) and job.is_direct:
        if protocol is not None:
            raise ConfigError(
                f"{path}: --protocol looks at shares, and {job.protocol.kind!r} has none; name "
                "another in a copy of the job"
            )
        return _direct(job, usage, progress)
    note("training in the clear, for weights to look at")
    subject = _subject(job, path, looks=2 if is_quick else _LOOKS)
    if protocol is not None:
        find_protocol(protocol)
        subject = replace(subject, protocol=protocol)
    note("watching real runs and attacking what was seen")
    findings = study(subject, _QUICK if is_quick else LabSettings())
    note("simulating projections and permutations")
    report = usage.report(name="lab", role="holds everything", progress=progress)
    return Result(
        kind="leakage",
        name=subject.name,
        protocol=subject.protocol,
        launched="threads",
        parties=(report,),
        forecast=None,
        metered=NOTHING_SENT,
        leakage=(),
        claims=(*find_protocol(subject.protocol).claims, *claims(findings)),
        utility=metrics(findings),
        curves=(*correlation_curves(findings), *_figure(is_quick)),
        pictures=pictures(findings),
        sheets=sheets(findings),
        notes=(
            "Whoever runs this holds all rows and weights; the parties of the job do not.",
            "Values seen were recorded from runs of the protocol on these rows; weights on the "
            "way come from the same training in the clear.",
        ),
    )


def _figure(is_quick: bool) -> tuple[Curve, ...]:
    rows, widths = (200, WIDTHS[::3]) if is_quick else (_SIMULATED_ROWS, WIDTHS)
    return tuple(
        curve
        for name in DISTRIBUTIONS
        for curve in simulate(name, rows=rows, generator=seeded(0), widths=widths)
    )


def _direct(job: InferJob, usage: Usage, progress: Progress) -> Result:
    """List what the two owners of a job see: values on the way are no one's, or the server's."""
    rows, _ = load_questions(job, data_folders())
    shape = tuple(rows.shape)
    private, _ = find_direct(job, shape, data_folders())
    is_hidden = job.protocol.kind == "he"
    return Result(
        kind="leakage",
        name=job.job.name,
        protocol=job.protocol.kind,
        launched="threads",
        parties=(usage.report(name="lab", role="holds everything", progress=progress),),
        forecast=None,
        metered=NOTHING_SENT,
        leakage=(*private.leaks(shape), *private.told(tuple(job.parties))),
        claims=private.claims(),
        utility=(),
        notes=(
            "Nothing was attacked: values on the way are ciphertexts of a key that the server has "
            "not, and there is nothing to correlate or to put in order. What answers themselves "
            "tell of the model, `tacit run` of an audit job measures."
            if is_hidden
            else "Nothing was attacked: a simulated enclave shows its party every row.",
        ),
    )


def _subject(job: Job, path: Path, *, looks: int) -> Subject:
    search = data_folders()
    if isinstance(job, TrainJob):
        return _training(job, search, looks=looks)
    if isinstance(job, InferJob) and job.is_linear:
        return _prediction(job, search)
    if isinstance(job, InferJob):
        got = "trees" if job.model.is_forest else "a model named by layers, inputs or shares"
        raise ConfigError(
            f"{path}: of jobs that ask a model on shares, this looks at those of one linear layer, "
            f"without [model] layers; got {got}. `tacit plan` lists what such a job shows, and an "
            "audit job attacks its answers"
        )
    raise ConfigError(f"{path}: wanted a job of kind 'train' or 'infer', got kind {job.job.kind!r}")


def _training(job: TrainJob, search: Sequence[Path], *, looks: int) -> Subject:
    features, labels, holdings = join_owners(job, search)
    plan = TrainPlan.of(job, holdings)
    return training_subject(plan, features, labels, name=job.job.name, looks=looks)


def _prediction(job: InferJob, search: Sequence[Path]) -> Subject:
    (features, labels), weights = load_questions(job, search), load_linear(job, search)
    model = make_model(
        parse_layers(["dense 1"], (features.shape[1],), seed=0), (features.shape[1],)
    )
    named = {
        name: weights[name.rpartition("/")[2]].reshape(value.shape)
        for name, value in model.initial.items()
    }
    task = ServiceTask(
        spec=replace(job, protocol=replace(job.protocol, reveal="class")),
        name=job.job.name,
        model=model,
        clients=(job.data.owner,),
    )
    unknown = torch.zeros(len(features), dtype=torch.int64)
    classes = unknown if labels is None else torch.from_numpy(labels)
    return prediction_subject(task, named, features, classes)
