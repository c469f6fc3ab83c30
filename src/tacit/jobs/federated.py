"""Jobs of kind "federated": what is promised, the run, and the files that it leaves."""

import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

import torch

from tacit import __version__
from tacit.dp import ledger_to_record
from tacit.errors import ConfigError, DataError
from tacit.extras import check_extra
from tacit.federated import Outcome, RoundReport, Task, find_aggregator, round_config, summary
from tacit.federated.front import train_federated
from tacit.federated.rounds import OnRound
from tacit.jobs.federated_data import task_of
from tacit.jobs.federated_job import FederatedJob
from tacit.jobs.kind import Part, Screen
from tacit.nn.weights import to_safetensors, unflatten
from tacit.party import Progress, Usage
from tacit.report.words import state_detection
from tacit.result import PartyReport, Result

LEDGER = "ledger.json"
ROUNDS = "rounds.json"
WEIGHTS = "weights.safetensors"
_USUAL_PARAMETERS = 10_000
_FEWEST_PARAMETERS = 10


def check_inputs(job: FederatedJob, parties: Sequence[str]) -> None:
    """Make sure that the files of the job are there, and the engine that it names."""
    if job.federated.engine == "flower":
        check_extra("fl", "federated.engine: 'flower'", "flwr", "ray")
    for file in (job.data.file, *job.data.files):
        if file is not None and not file.is_file():
            raise DataError(f"data.file: no such file: {file} (from {Path.cwd()})")


def run(job: FederatedJob, screen: Screen, search: Sequence[Path]) -> Part:
    """Train with simulated clients, on the engine that the job names."""
    usage, progress = Usage(), Progress()
    if job.federated.public_key is not None:
        raise ConfigError(
            "federated.public_key: that of clients on nodes of their own; leave it out here, "
            "simulated clients make keys themselves"
        )
    _state(job, screen)
    task = task_of(job, search)
    with progress.stage("load"):
        far = task.load().state_far()
    if far:  # all clients are this process's own
        screen.say(f"Warning: {far}.", "yellow")
    with progress.stage("compute"):
        outcome = train_federated(task, engine=job.federated.engine, on_round=_live(job, screen))
    report = usage.report(name="server", role="adds the updates up", progress=progress)
    spec = task.spec
    result = Result(
        kind="federated",
        name=job.job.name,
        protocol=f"{spec.aggregator}, privacy {spec.privacy.kind}",
        launched=job.federated.engine,
        parties=_parties(report, spec.clients, outcome.clients_cpu_s),
        forecast=None,
        metered=summary.cost_of(spec, outcome),
        leakage=summary.leaks_of(spec, len(outcome.weights)),
        claims=summary.claims_of(spec, outcome),
        utility=summary.measures_of(outcome),
        curves=summary.curves_of(outcome),
        sheets=summary.sheets_of(spec, outcome, [*map(str, job.data.files)]),
        notes=summary.notes_of(outcome),
    )
    return Part(result=result, files=files_of(job.job.name, task, outcome))


def _state(job: FederatedJob, screen: Screen) -> None:
    """Say what the job will end with, before any data is read, or refuse.

    How many parameters the model has follows from the data and moves the noise a little, not the
    target that it is calibrated to. Noise that suits small models only is refused here if it suits
    none, and otherwise when the model is known.
    """
    spec = job.spec()
    try:
        mechanism = round_config(spec, _USUAL_PARAMETERS).mechanism
    except ConfigError:
        if spec.privacy.mechanism not in ("binomial", "laplace"):
            raise
        mechanism = round_config(spec, _FEWEST_PARAMETERS).mechanism
    screen.say(f"After {spec.rounds} rounds: {summary.describe(mechanism.claim)}")
    if mechanism.claim.detection is not None:
        screen.say(state_detection(summary.sharp_claim(mechanism, spec.rounds)))
    near = [text for text in mechanism.claim.assumptions if "near 1/n" in text]
    for warning in (*summary.warnings_about(mechanism.claim), *near):
        screen.say(f"Warning: {warning}.", "yellow")
    screen.say(f"The server sees {find_aggregator(spec.aggregator).server_sees}.")


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
    about = {"tacit": __version__, "job": name, "scale": shards.scale}
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
