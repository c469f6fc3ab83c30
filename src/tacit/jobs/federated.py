"""Jobs of kind "federated": the file, what is promised, the run, and the files that it leaves.

`[privacy]` and `[federated]` can weaken privacy; `[train]` only decides how well it is learned.
"""

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import ClassVar

import torch

from tacit import __version__
from tacit.data.prepare import state_prepare
from tacit.dp import ledger_to_record
from tacit.errors import ConfigError, DataError
from tacit.extras import check_extra
from tacit.federated import (
    FederatedData,
    FederatedSpec,
    Outcome,
    RoundReport,
    Task,
    find_aggregator,
    provision,
    round_config,
    summary,
)
from tacit.federated.front import rehearse, task_of, train_federated
from tacit.federated.rounds import OnRound
from tacit.federated.spec import HELPERS
from tacit.jobs.config import LoneJob
from tacit.jobs.kind import Asked, Kind, Outlook, Part, Screen
from tacit.jobs.toml import read_toml
from tacit.nn.weights import to_safetensors, unflatten
from tacit.party import Progress, Usage
from tacit.report.words import state_detection
from tacit.result import PartyReport, Result
from tacit.ring import Prg
from tacit.spec import RefusedError, read_record, refuse

LEDGER = "ledger.json"
ROUNDS = "rounds.json"
WEIGHTS = "weights.safetensors"
LARGEST_WEIGHT = 2**20
"""The most examples that a client is given weight for; public, as nobody's count may be."""
_USUAL_PARAMETERS = 10_000
_FEWEST_PARAMETERS = 10


@dataclass(frozen=True, kw_only=True)
class FederatedJob(FederatedSpec, LoneJob):
    """A job of kind "federated"."""

    data: FederatedData
    alone: ClassVar[str] = "a federated job names no parties: clients are simulated, or join"
    does: ClassVar[str] = "trains together with others"

    def __post_init__(self) -> None:
        self.check_parties()
        if self.federated.largest_weight == 0:
            weighs = self.privacy.kind == "none" and self.federated.aggregator != "bounded"
            fed = replace(self.federated, largest_weight=LARGEST_WEIGHT if weighs else 1)
            object.__setattr__(self, "federated", fed)
        try:
            super().__post_init__()
        except RefusedError:
            raise
        except ConfigError as error:
            refuse("federated", str(error))


def check_inputs(job: FederatedJob, parties: Sequence[str]) -> None:
    """Make sure that the files of the job are there, and the engine that it names."""
    if job.federated.engine == "flower":
        check_extra("fl", "federated.engine: 'flower'", "flwr", "ray")
    for file in (job.data.file, *job.data.files):
        if file is not None and not file.is_file():
            raise DataError(f"data.file: no such file: {file} (from {Path.cwd()})")


def forecast(job: FederatedJob, asked: Asked) -> Outlook:
    """Rehearse one round, in which every client trains one step and nobody drops out."""
    asked.refuse("rows", "features")
    task, fed = task_of(job, asked.search), job.federated
    config, up, down, (sent, received) = rehearse(task)
    far = task.load().state_far()
    name = HELPERS.get(fed.aggregator)
    helper = f"The {name} sends {sent:,} B and receives {received:,} B in a round."
    whole = fed.clients * fed.rounds * (up + down)
    return Outlook(
        about=f"{fed.aggregator}, privacy {job.privacy.kind}",
        lines=(
            f"{fed.clients} clients, {fed.rounds} rounds, {config.parameters:,} parameters",
            f"A client sends {up:,.0f} B and receives {down:,.0f} B in a round, as a rehearsed "
            f"round did; all clients {whole:,.0f} B in all rounds.",
            *([helper] if name else []),
            *([f"Warning: {far}."] if far else []),
            f"After {fed.rounds} rounds: {summary.describe(config.mechanism.claim)}",
        ),
        leaks=summary.leaks_of(job, config.parameters),
        claims=(config.mechanism.claim, *summary.claims_about_updates(job)),
    )


def run(job: FederatedJob, screen: Screen, search: Sequence[Path]) -> Part:
    """Train with simulated clients, on the engine that the job names."""
    usage, progress = Usage(), Progress()
    _state(job, screen)
    task = task_of(job, search)
    with progress.stage("load"):
        far = task.load().state_far()
    if far:  # all clients are this process's own
        screen.say(f"Warning: {far}.", "yellow")
    with progress.stage("compute"):
        outcome = train_federated(task, on_round=_live(job, screen))
    report = usage.report(name="server", role="adds the updates up", progress=progress)
    result = Result(
        kind="federated",
        name=job.job.name,
        protocol=f"{job.federated.aggregator}, privacy {job.privacy.kind}",
        launched=job.federated.engine,
        parties=_parties(report, job.federated.clients, outcome.clients_cpu_s),
        forecast=None,
        metered=summary.cost_of(job, outcome),
        leakage=summary.leaks_of(job, len(outcome.weights)),
        claims=summary.claims_of(job, outcome),
        utility=summary.measures_of(outcome),
        curves=summary.curves_of(outcome),
        sheets=summary.sheets_of(job, outcome, [*map(str, job.data.files)]),
        notes=summary.notes_of(outcome),
    )
    return Part(result=result, files=files_of(job.job.name, task, outcome))


def _state(job: FederatedJob, screen: Screen) -> None:
    """Say what the job will end with, before any data is read, or refuse.

    How many parameters the model has follows from the data and moves the noise a little, not the
    target that it is calibrated to. Noise that suits small models only is refused here if it suits
    none, and otherwise when the model is known.
    """
    rounds = job.federated.rounds
    try:
        mechanism = round_config(job, _USUAL_PARAMETERS).mechanism
    except ConfigError:
        if job.privacy.mechanism not in ("binomial", "laplace"):
            raise
        mechanism = round_config(job, _FEWEST_PARAMETERS).mechanism
    screen.say(f"After {rounds} rounds: {summary.describe(mechanism.claim)}")
    if mechanism.claim.detection is not None:
        screen.say(state_detection(summary.sharp_claim(mechanism, rounds)))
    near = [text for text in mechanism.claim.assumptions if "near 1/n" in text]
    for warning in (*summary.warnings_about(mechanism.claim), *near):
        screen.say(f"Warning: {warning}.", "yellow")
    screen.say(f"The server sees {find_aggregator(job.federated.aggregator).server_sees}.")


def _parties(
    report: PartyReport, clients: int, clients_cpu_s: float | None
) -> tuple[PartyReport, ...]:
    """Tell apart what the server and simulated clients took, where they share one process."""
    if clients_cpu_s is None:
        return (report,)
    return (
        replace(report, cpu_seconds=report.cpu_seconds - clients_cpu_s),
        replace(
            report,
            name="clients",
            role=f"{clients} simulated, in the server's process",
            cpu_seconds=clients_cpu_s,
            spans=(),
        ),
    )


def _live(job: FederatedJob, screen: Screen) -> OnRound:
    """Show accuracy against ε as rounds end."""

    def show(report: RoundReport) -> None:
        spent = "no ε" if report.claim.epsilon is None else f"ε {report.claim.epsilon:7.3f}"
        score = "void" if report.accuracy is None else f"accuracy {report.accuracy:6.1%}"
        bar = "" if report.accuracy is None else "█" * round(24 * report.accuracy)
        lost = f"  {len(report.dropped)} dropped" if report.dropped else ""
        why = f"  void: {report.void}" if report.void else ""
        screen.record(
            "round",
            number=report.number,
            of=job.federated.rounds,
            epsilon=report.claim.epsilon,
            delta=report.claim.delta,
            relation=report.claim.relation,
            accountant=report.claim.accountant,
            accuracy=report.accuracy,
            dropped=[str(one) for one in report.dropped],
        )
        head = f"round {report.number:4}/{job.federated.rounds}  {spent}  {score}"
        screen.say(f"{head}  {bar:24}{lost}{why}")

    return show


def files_of(name: str, task: Task, outcome: Outcome) -> dict[str, str | bytes]:
    """Return the files of a run: ledgers, rounds, and weights that load back into the model."""
    shards = task.load()
    weights = unflatten(task.build(shards), torch.from_numpy(outcome.weights).float())
    prepared = {} if task.spec.data is None else state_prepare(task.spec.data.prepare)
    about = {"tacit": __version__, "job": name, "scale": shards.scale, "prepare": prepared}
    entries = ledger_to_record(outcome.ledger)
    own = outcome.ledger.clients if task.spec.privacy.kind == "record" else ()
    return {
        **{
            f"ledger-{client.replace(' ', '-')}.json": json.dumps(
                [one for one in entries if client in one["clients"]], indent=1
            )
            for client in own
        },
        ROUNDS: json.dumps([asdict(report) for report in outcome.rounds], indent=1),
        LEDGER: json.dumps(entries, indent=1),
        WEIGHTS: to_safetensors(weights, about),
    }


def make_secrets(path: Path, name: str, folder: Path) -> list[str]:
    """Make the files and return what is to be done with them; nothing is overwritten.

    Raises:
        ConfigError: the job needs none, or a file is there.
    """
    raw = read_toml(path)
    head = raw.get("job")
    kind = head.get("kind") if isinstance(head, dict) else None
    if kind != "federated":
        raise ConfigError(
            f"{path}: --job wants a job of kind 'federated', got {str(kind)[:60]!r}; for the "
            "key of a party leave --job out"
        )
    job = read_record(raw, FederatedJob, source=str(path))
    if not job.federated.needs_secrets:
        raise ConfigError(
            f"aggregator {job.federated.aggregator!r} needs no secrets beforehand; encrypted and "
            "verified sums do"
        )
    public_key, secrets = provision(job, Prg.from_os())
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for index, secret in enumerate(secrets):
        _write(folder / f"{name}-{index}.secret", secret, 0o600)
    lines = [
        f"{folder}/{name}-0.secret to {name}-{len(secrets) - 1}.secret: one for each client, as "
        "`secret` in its node config; then delete them here."
    ]
    if public_key is not None:
        _write(folder / f"{name}.public", public_key, 0o644)
        lines.append(f'[federated]\npublic_key = "{folder}/{name}.public"')
    return lines


def _write(file: Path, data: bytes, mode: int) -> None:
    try:
        with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as out:
            out.write(data)
    except FileExistsError as error:
        raise ConfigError(
            f"{file} is there already, and is not overwritten; take another NAME or --dir"
        ) from error


KIND = Kind(record=FederatedJob, check_inputs=check_inputs, forecast=forecast, run=run)
