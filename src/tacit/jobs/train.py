"""Jobs of kind "train": one party's part, from its data to its view of the result."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from tacit import __version__
from tacit.data import Holding
from tacit.data.metrics import ACCURACY, add_majority
from tacit.data.prepare import state_prepare
from tacit.data.rows import Rows
from tacit.dp.book import as_drawn
from tacit.errors import InputError
from tacit.jobs import folder
from tacit.jobs.config import Job, binding_of
from tacit.jobs.kind import (
    Asked,
    Kind,
    Outlook,
    Part,
    Place,
    evenly,
    matched,
    matching_leaks,
    to_npz,
    unread,
)
from tacit.matching import align_in_the_clear, claims_of_matching, declare_matching
from tacit.mpc import find_protocol
from tacit.nn.code import OwnModel, check_network
from tacit.nn.weights import to_safetensors
from tacit.party import Session, merge
from tacit.party.cost import forecast_seconds
from tacit.report.format import show_bytes, show_seconds
from tacit.result import Forecast, Result
from tacit.spec import refuse, refuse_together
from tacit.training import (
    PrivacyPlan,
    StateFolder,
    Trained,
    TrainPlan,
    TrainSpec,
    plan_training,
    train,
    train_plain,
)
from tacit.training.loop import BEGUN, book_of
from tacit.training.plan import whole_state
from tacit.training.rows import (
    HOLDING,
    exchange_holdings,
    holding_of,
    join_owners,
    load_rows,
    match_rows,
)
from tacit.training.summary import claims_beyond, curves_of, summarise

NOT_COMPARED = (
    "No training in the clear stands beside this one: its figures would be outside the ε of this."
)


@dataclass(frozen=True, kw_only=True)
class TrainJob(TrainSpec, Job):
    """A whole job file of kind "train"."""

    def __post_init__(self) -> None:
        refuse_together(super().__post_init__, self._check_network, self.check_parties)

    def _check_network(self) -> None:
        if (wrong := check_network(self.model.layers, self.model.code)) is not None:
            refuse("model.layers", wrong)


def check_inputs(job: TrainJob, parties: Sequence[str]) -> None:
    """Make sure that the owners among these parties say where their data is, and that it is."""
    if job.model.code is not None:
        OwnModel.read(job.model.code)
    for name, owner in job.data.owners.items():
        if name in parties:
            owner.source(name).check()


def take_part(session: Session, job: TrainJob, place: Place) -> Part:
    """Do one party's part."""
    mine, is_owner = None, session.me in job.data.owners
    place.given.check(session.me, rows=is_owner, model=False)
    if is_owner:
        with session.progress.stage("load"):
            mine = load_rows(job, session.me, place.search, place.given)
    mine, counts = match_rows(session, job, mine)
    with session.progress.stage("plan"):
        owners, split = tuple(job.data.owners), job.data.split
        plan = TrainPlan.of(job, exchange_holdings(session, owners, mine, split=split))
    state = _state_folder(session, job, place, mine)
    labels = None if mine is None or mine.labels is None else torch.from_numpy(mine.labels)
    trained = train(
        session,
        plan,
        rows=None if mine is None else torch.from_numpy(mine.features),
        labels=labels,
        folder=state if job.training.keep else None,
        is_fresh=place.is_fresh,
        book=book_of(job, session.me),
    )
    result = summarise(
        session,
        plan,
        trained,
        name=job.job.name,
        report=place.report(),
        counts=counts,
        labels=labels,
    )
    return Part(
        result=replace(result, launched=place.launched),
        files=_files(session, plan, trained, mine, name=job.job.name),
        values=trained.scores,
        weights=_state(plan, trained),
        shares=trained.shares,
        checkpoints=(state.path,) if job.training.keep or place.is_fresh else (),
    )


def complete(job: TrainJob, result: Result, stage: Path, search: Sequence[Path]) -> Result:
    """Put the same training in the clear beside the private one, if the job wants it.

    With [privacy] there is none: a second training on the same rows, shown as it is, would be
    outside the ε that stands beside it.
    """
    if job.report.compare != "plain":
        return result
    if job.privacy is not None:
        return replace(result, notes=(*result.notes, NOT_COMPARED))
    x, y, holdings = join_owners(job, search)
    plan = TrainPlan.of(job, holdings)
    shown = train_plain(plan, x, y)
    if not shown:
        return result
    last = shown[-1]
    known = {ACCURACY: last[2], "loss": last[1]}
    utility = [replace(metric, reference=known.get(metric.name)) for metric in result.utility]
    labels = y[plan.test_indices()]
    classes = labels[..., 0] if plan.loss == "logistic" else labels.argmax(-1)
    curves = (*result.curves, *curves_of(shown, "in the clear"))
    return replace(result, utility=add_majority(utility, classes.flatten().numpy()), curves=curves)


def forecast_training(job: TrainJob, asked: Asked) -> Outlook:
    """Forecast a whole training, from sharing the rows to handing out the model."""
    holdings, counts = _holdings(job, asked)
    walk = plan_training(TrainPlan.of(job, holdings))
    plan, privacy = walk.task, walk.privacy
    leaks = [
        replace(leak, elements=times * leak.elements)
        for run, times in walk.walker.runs
        for leak in run.leaks
    ]
    rows = ", ".join(f"{one.owner} {one.rows} × {one.features}" for one in plan.holdings)
    steps = plan.steps
    kept = f"{plan.test_rows} rows to measure on"
    if privacy is not None and not plan.test_rows:
        kept = (
            "no row to measure on, whatever data.test_share says, as privacy.looks is 'none': "
            "'noisy', with show_to, counts right answers for a part of ε"
        )
    what = f"{rows}; {steps} steps of {plan.batch} rows, {kept}"
    forecast = walk.walker.forecast(before=declare_matching(counts) if counts else ())
    promised = () if privacy is None else (privacy.sentence(),)
    return Outlook(
        about=plan.spec.protocol.spelled,
        lines=(what, *matched(counts), *promised, *_booked(job, privacy), _amount(forecast)),
        forecast=forecast,
        leaks=(
            *matching_leaks(job, counts, plan.holdings[0].rows),
            *merge(tuple(leaks)),
            *HOLDING.leaks_of_all(job.data.owners, tuple(job.parties)),
            *BEGUN.leaks_of_all(job.parties, tuple(job.parties)),
        ),
        claims=(
            *find_protocol(plan.spec.protocol.spelled).claims,
            *claims_of_matching(counts),
            *claims_beyond(plan, privacy),
        ),
    )


def _booked(job: TrainJob, plan: PrivacyPlan | None) -> Iterator[str]:
    """Say what the books of owners come to with this training, or refuse it as they would."""
    for name in job.data.owners:
        if (book := book_of(job, name)) is not None and job.privacy and plan:
            many, spent = book.foresee(as_drawn(plan.events), job.privacy.delta)
            yield f"With this training the book of {name} counts {many}: ε = {spent:.4g} together"


def _amount(forecast: Forecast) -> str:
    """Say what a training sends and takes."""
    sent = sum(one.payload_bytes for one in forecast.cost.traffic)
    waited = forecast_seconds(forecast.cost, rtt_ms=1.0, mbit_per_s=1000.0)
    seconds = waited.offline_seconds + waited.online_seconds + (forecast.computing_seconds or 0.0)
    return (
        f"{show_bytes(sent)} in all; about {show_seconds(seconds)} with 1 ms and 1 Gbit/s between "
        "parties"
    )


def _holdings(job: TrainJob, asked: Asked) -> tuple[tuple[Holding, ...], dict[str, int]]:
    """Return how much data every owner has, and how many ids, if rows are matched."""
    owners, is_columns = tuple(job.data.owners), job.data.split == "columns"
    if asked.rows is not None and asked.features is not None:
        rows = evenly(asked.rows, owners)
        widths = evenly(asked.features, owners)
        held = tuple(
            Holding(
                name,
                asked.rows,
                (widths[name],),
                "classes" if name == job.data.labels else "none",
            )
            if is_columns
            else Holding(name, rows[name], job.data.shape or (asked.features,), "classes")
            for name in owners
        )
        return held, dict.fromkeys(owners, asked.rows) if is_columns else {}
    try:
        found = {name: load_rows(job, name, asked.search) for name in owners}
    except InputError as error:
        raise unread(error, "--rows and --features, of all owners together") from error
    counts = {}
    if is_columns:
        counts = {name: len(one.ids) for name, one in found.items()}
        found = align_in_the_clear(found)
    return tuple(holding_of(name, one, split=job.data.split) for name, one in found.items()), counts


def _state_folder(session: Session, job: TrainJob, place: Place, mine: Rows | None) -> StateFolder:
    """Return where checkpoints are; the bound of weights may change on the way, too."""
    rows = () if mine is None else (mine.digest(),)
    binding = binding_of(job.with_bound(1.0), session.me, *rows)
    return StateFolder(folder.state_of(place.out, session.me), binding)


def _files(
    session: Session, plan: TrainPlan, trained: Trained, mine: Rows | None, *, name: str
) -> dict[str, bytes]:
    files = {}
    if trained.shares:
        facts = {
            "frac_bits": torch.tensor(plan.frac_bits),
            "bound": torch.tensor(plan.spec.weight_bound, dtype=torch.float64),
        }
        arrays = {name: value.cpu().numpy() for name, value in {**trained.shares, **facts}.items()}
        files[folder.share_name(session.me)] = to_npz(arrays)
    if trained.weights:
        about: dict[str, object] = {"tacit": __version__, "job": name}
        if mine is not None and plan.spec.data.split == "rows":
            about |= {"scale": mine.scale, "prepare": state_prepare(plan.spec.data.prepare)}
        files[folder.MODEL] = to_safetensors(_state(plan, trained), about)
    return files


def _state(plan: TrainPlan, trained: Trained) -> dict[str, Tensor]:
    """Return the trained network as `load_state_dict` takes it, for those it was given to."""
    if not trained.weights:
        return {}
    state = plan.model.state(trained.weights)
    found = whole_state(plan.spec.model, plan.model.inputs, state)
    # The precision of torch modules holds all bits of a ring's.
    return {name: v.float() if v.is_floating_point() else v for name, v in found.items()}


KIND = Kind(
    record=TrainJob,
    check_inputs=check_inputs,
    take_part=take_part,
    complete=complete,
    forecast=forecast_training,
    resumes=True,
    keeps=lambda job: job.training.keep,
)
