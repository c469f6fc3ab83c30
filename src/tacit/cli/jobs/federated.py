"""Jobs of kind "federated": what is promised, the run, and what it says about itself."""

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

import torch
from rich.console import Console

from tacit import __version__
from tacit.cli.jobs.federated_data import (
    Shards,
    load_shards,
    make_learner,
    make_model,
)
from tacit.cli.jobs.federated_job import FederatedJob
from tacit.cli.jobs.federated_records import ledger_sheets, own_ledgers, warn, warnings_about
from tacit.cli.jobs.kind import Part
from tacit.cli.screen import say
from tacit.dp import Event, Repeated, confirm, ledger_to_record, sharpen
from tacit.errors import ConfigError, DataError
from tacit.learn.federated import (
    LocalEngine,
    Outcome,
    RoundReport,
    find_aggregator,
    round_config,
    run_rounds,
)
from tacit.learn.federated.rounds import Judge, OnRound
from tacit.learn.metrics import measure_odds
from tacit.learn.weights import to_safetensors, unflatten
from tacit.party import Progress, Usage
from tacit.report.words import state_detection
from tacit.result import Claim, Cost, Curve, Leak, Metric, PartyReport, Result, Sheet, Traffic
from tacit.ring import Prg

LEDGER = "ledger.json"
ROUNDS = "rounds.json"
WEIGHTS = "weights.safetensors"
_USUAL_PARAMETERS = 10_000
_FEWEST_PARAMETERS = 10
_MOST_NOTES = 20
_SERVERS = {
    "curious": "the server follows the protocol and invents no clients",
    "malicious": (
        "the server may do anything but try out about 2^40 choices of whom to invite or drop; the "
        "job names the clients' keys, and they are theirs; nodes choose the code that they run"
    ),
}


def check_inputs(job: FederatedJob, parties: Sequence[str]) -> None:
    """Make sure that the files of the job are there."""
    for file in (job.data.file, *job.data.files):
        if file is not None and not file.is_file():
            raise DataError(f"data.file: no such file: {file} (from {Path.cwd()})")


def run(job: FederatedJob, console: Console, search: Sequence[Path]) -> Part:
    """Train with simulated clients, on the engine that the job names."""
    usage, progress = Usage(), Progress()
    _promise(job, console)
    with progress.stage("load"):
        shards = load_shards(job.data, job.federated.clients, tuple(search))
    learner = make_learner(job, shards)
    clients_cpu_s = None
    with progress.stage("compute"):
        if job.federated.engine == "flower":
            outcome = _run_flower(job, shards, tuple(search), console)
        else:
            outcome, clients_cpu_s = _run_light(job, shards, console)
    report = usage.report(name="server", role="adds the updates up", progress=progress)
    result = Result(
        kind="federated",
        name=job.job.name,
        protocol=f"{job.federated.aggregator}, privacy {job.privacy.kind}",
        launched=job.federated.engine,
        parties=_parties(report, job.federated.clients, clients_cpu_s),
        forecast=None,
        metered=_cost(job, outcome),
        leakage=leaks_of(job, learner.dimension),
        claims=_claims(job, outcome),
        utility=(*_quality(job, shards, outcome), *_utility(outcome), *_second(outcome)),
        curves=_curves(outcome),
        sheets=(*_sheets(outcome), *ledger_sheets(job, outcome)),
        notes=_notes(outcome),
    )
    return Part(result=result, files=files_of(job, shards, outcome))


def describe(claim: Claim) -> str:
    """Write a claim about privacy in one line."""
    if claim.epsilon is None or claim.delta is None:
        return f"{claim.guarantee}: {claim.assumptions[0]}"
    return (
        f"ε = {claim.epsilon:.3f} at δ = {claim.delta:g} for {claim.relation} "
        f"({claim.accountant}), {claim.subject}"
    )


def _promise(job: FederatedJob, console: Console) -> None:
    """Say what the job will end with, before any data is read, or refuse.

    How many parameters the model has follows from the data and moves the noise a little, not the
    target that it is calibrated to. Noise that suits small models only is refused here if it suits
    none, and otherwise when the model is known.
    """
    spec = job.spec()
    try:
        mechanism = round_config(spec, _USUAL_PARAMETERS).mechanism
    except ConfigError:
        if job.privacy.mechanism not in ("binomial", "laplace"):
            raise
        mechanism = round_config(spec, _FEWEST_PARAMETERS).mechanism
    say(console, f"After {job.federated.rounds} rounds: {describe(mechanism.claim)}")
    if mechanism.event is not None and mechanism.claim.detection is not None:
        whole: list[Event] = [Repeated(event=mechanism.event, count=spec.rounds)]
        whole += [mechanism.first] if mechanism.first is not None else []
        say(console, state_detection(sharpen(mechanism.claim, whole)))
    warn(mechanism.claim, console)
    for warning in (text for text in mechanism.claim.assumptions if "near 1/n" in text):
        say(console, f"Warning: {warning}.", "yellow")
    say(console, f"The server sees {find_aggregator(job.federated.aggregator).server_sees}.")


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


def _run_light(job: FederatedJob, shards: Shards, console: Console) -> tuple[Outcome, float]:
    """Run in this process; return also the processor seconds of the clients."""
    learner, spec = make_learner(job, shards), job.spec()
    engine = LocalEngine(
        learner,
        find_aggregator(spec.aggregator),
        drop_rate=job.federated.simulated_drops,
        prg=Prg.from_os(),
    )
    if spec.keys is not None:
        spec = replace(spec, keys=engine.identities)
    outcome = run_rounds(
        engine,
        learner.first_weights(),
        spec,
        judge=judge_of(job, shards),
        on_round=_live(job, console),
    )
    return outcome, engine.clients_cpu_s


def _run_flower(
    job: FederatedJob, shards: Shards, search: tuple[Path, ...], console: Console
) -> Outcome:
    # Neither Flower nor Ray shall report to its makers unless the user says so; they look when
    # they are loaded, which is here, by the job that asks for them: they are heavy and optional.
    os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    from tacit.cli.jobs.federated_apps import simulate

    return simulate(job, search, judge=judge_of(job, shards), on_round=_live(job, console))


def judge_of(job: FederatedJob, shards: Shards) -> Judge:
    """Return what measures accuracy on the rows that were kept to test on."""
    learner = make_learner(job, shards)
    features = shards.test_features.to(job.train.device)
    labels = shards.test_labels.to(job.train.device)
    return lambda weights: learner.accuracy(weights.to(job.train.device), features, labels)


def _live(job: FederatedJob, console: Console) -> OnRound:
    """Show accuracy against ε as rounds end."""

    def show(report: RoundReport) -> None:
        spent = "no ε" if report.claim.epsilon is None else f"ε {report.claim.epsilon:7.3f}"
        score = "void" if report.accuracy is None else f"accuracy {report.accuracy:6.1%}"
        bar = "" if report.accuracy is None else "█" * round(24 * report.accuracy)
        lost = f"  {len(report.dropped)} dropped" if report.dropped else ""
        why = f"  void: {report.void}" if report.void else ""
        head = f"round {report.number:4}/{job.federated.rounds}  {spent}  {score}"
        say(console, f"{head}  {bar:24}{lost}{why}")

    return show


def _cost(job: FederatedJob, outcome: Outcome) -> Cost:
    up, down = (
        sum(getattr(report, side) for report in outcome.rounds) * job.federated.clients
        for side in ("bytes_up", "bytes_down")
    )
    stages = {"plain": 1, "masked": 5, "shuffled": 3}[job.federated.aggregator]
    count = stages * len(outcome.rounds) * job.federated.clients
    traffic = (
        Traffic(
            sender="clients",
            receiver="server",
            phase="online",
            messages=count,
            payload_bytes=int(up),
        ),
        Traffic(
            sender="server",
            receiver="clients",
            phase="online",
            messages=count,
            payload_bytes=int(down),
        ),
    )
    return Cost(traffic=traffic, offline_rounds=0, online_rounds=2 * stages * len(outcome.rounds))


def leaks_of(job: FederatedJob, dimension: int) -> tuple[Leak, ...]:
    """Return who is shown what in every round."""
    seen = find_aggregator(job.federated.aggregator).server_sees
    return (
        Leak(
            to="server",
            what=seen,
            why=f"aggregator {job.federated.aggregator!r}",
            kind="protocol",
            elements=dimension,
        ),
        Leak(
            to="clients",
            what="the model after every round",
            why="the result",
            kind="output",
            elements=dimension,
        ),
        Leak(
            to="server",
            what="who takes part in a round and who drops out",
            why="needed to add up",
            kind="size",
            elements=job.federated.clients,
        ),
    )


def _claims(job: FederatedJob, outcome: Outcome) -> tuple[Claim, ...]:
    claims = [sharpen(outcome.rounds[-1].claim, outcome.ledger)]
    if job.federated.aggregator == "masked":
        claims.append(
            Claim(
                subject="each client's update in a round, towards the server",
                guarantee="hidden in the sum of those who stayed",
                assumptions=(
                    _SERVERS[job.federated.server],
                    f"at most {job.federated.colluding_share:.0%} of the clients work with it; "
                    "whoever knows all other updates of a sum knows the last",
                    f"at most {job.federated.drop_rate:.0%} of the clients fall silent in a round; "
                    "if more do, the round may be void",
                    "X25519, AES-128, SHA-256 and Ed25519 hold; the random graph fails with "
                    "probability 2^-40",
                    "no proof of range: a client that lies can spoil the sum",
                ),
            )
        )
    return tuple(claims)


def _quality(job: FederatedJob, shards: Shards, outcome: Outcome) -> tuple[Metric, ...]:
    """Measure the model that came out on the rows that were kept to test on."""
    device = job.train.device
    weights, features = torch.from_numpy(outcome.weights), shards.test_features
    odds = make_learner(job, shards).odds(weights.to(device), features.to(device))
    return measure_odds(odds.cpu().numpy(), shards.test_labels.cpu().numpy())


def _utility(outcome: Outcome) -> tuple[Metric, ...]:
    mean_up = sum(report.bytes_up for report in outcome.rounds) / len(outcome.rounds)
    dropped = sum(len(report.dropped) for report in outcome.rounds) / len(outcome.rounds)
    void = sum(report.void is not None for report in outcome.rounds)
    return (
        Metric(name="bytes sent by a client in a round", value=mean_up, unit="B"),
        Metric(name="clients dropped in a round", value=dropped, unit="clients"),
        Metric(name="void rounds", value=float(void), unit="rounds", samples=len(outcome.rounds)),
    )


def _second(outcome: Outcome) -> tuple[Metric, ...]:
    """Compute ε again from the ledger, by other code; ClaimError if it contradicts the claim."""
    claim = outcome.rounds[-1].claim
    found = confirm(outcome.ledger, claim)
    if found is None:
        return ()
    note = f"by {found.accountant}, for {claim.relation}; claimed by {claim.accountant}"
    name = f"ε at δ = {claim.delta:g}, computed again"
    return (Metric(name=name, value=found.epsilon, unit="", note=note),)


def _curves(outcome: Outcome) -> tuple[Curve, ...]:
    rounds = outcome.rounds
    scored = [(report, report.accuracy) for report in rounds if report.accuracy is not None]
    curves = [
        _curve("Accuracy", "round", "accuracy", [(one.number, score) for one, score in scored]),
        _curve("Upload of a client", "round", "bytes", [(r.number, r.bytes_up) for r in rounds]),
        _curve("Clients dropped", "round", "clients", [(r.number, len(r.dropped)) for r in rounds]),
    ]
    spent = [(one.claim.epsilon, score) for one, score in scored if one.claim.epsilon is not None]
    if spent:
        delta = rounds[-1].claim.delta
        curves.insert(1, _curve("Accuracy against ε", f"ε at δ = {delta:g}", "accuracy", spent))
    return tuple(curves)


def _sheets(outcome: Outcome) -> tuple[Sheet, ...]:
    """List who was not in the sum of a round."""
    rows = tuple(
        (str(one.number), ", ".join(map(str, one.dropped)) or "nobody", one.void or "")
        for one in outcome.rounds
    )
    heads = ("#round", "clients not in the sum", "why it is void")
    return (Sheet(title="Who was dropped", heads=heads, rows=rows),)


def _curve(title: str, x_label: str, y_label: str, points: Sequence[tuple[float, float]]) -> Curve:
    pairs = tuple((float(x), float(y)) for x, y in points)
    return Curve(title=title, x_label=x_label, y_label=y_label, name=y_label, points=pairs)


def _notes(outcome: Outcome) -> tuple[str, ...]:
    refused = [f"round {one.number}: {why}" for one in outcome.rounds for why in one.refused]
    void = [f"round {one.number} is void: {one.void}" for one in outcome.rounds if one.void]
    shown = [*warnings_about(outcome.rounds[-1].claim), *void, *refused]
    rest = len(shown) - _MOST_NOTES
    return (*shown[:_MOST_NOTES], *([f"and {rest} more like these"] if rest > 0 else []))


def files_of(job: FederatedJob, shards: Shards, outcome: Outcome) -> dict[str, str | bytes]:
    """Return the files of a run: ledger, rounds, and weights that load back into the model."""
    weights = unflatten(make_model(job, shards), torch.from_numpy(outcome.weights).float())
    about = {"tacit": __version__, "job": job.job.name, "scale": shards.scale}
    return {
        **own_ledgers(job, outcome),
        ROUNDS: json.dumps([asdict(report) for report in outcome.rounds], indent=1),
        LEDGER: json.dumps(ledger_to_record(outcome.ledger), indent=1),
        WEIGHTS: to_safetensors(weights, about),
    }
