"""What a federated job adds about privacy: a warning, and each client's own ledger."""

import json
import math

from rich.console import Console

from tacit.cli.jobs.federated_job import FederatedJob
from tacit.cli.screen import say
from tacit.dp import epsilon, ledger_to_record, unroll
from tacit.learn.federated import Outcome
from tacit.result import Claim, Sheet

_LARGE_EPSILON = 10.0


def warn(claim: Claim, console: Console) -> None:
    """Warn on the screen of an ε that means little."""
    for text in warnings_about(claim):
        say(console, f"Warning: {text}.", "yellow")


def warnings_about(claim: Claim) -> tuple[str, ...]:
    """Warn of an ε that means little."""
    if claim.epsilon is None or claim.epsilon <= _LARGE_EPSILON:
        return ()
    return (
        f"an ε above {_LARGE_EPSILON:g} promises little: plan fewer rounds or steps, or more noise",
    )


def ledger_sheets(job: FederatedJob, outcome: Outcome) -> tuple[Sheet, ...]:
    """List what each client's own ledger comes to, where there is one of each."""
    last = outcome.rounds[-1].claim
    if job.privacy.kind != "record" or last.delta is None or last.accountant is None:
        return ()
    rows = []
    for index in range(job.federated.clients):
        name = f"client {index}"
        rows.append(
            (
                name,
                str(job.data.files[index]) if job.data.files else "",
                str(sum(unroll(outcome.ledger.events_of(name)).values())),
                f"{_spent(outcome, name, last):.3f}",
            )
        )
    heads = ("client", "file", "#steps", f"#ε at δ = {last.delta:g}")
    return (Sheet(title="What each client's own ledger comes to", heads=heads, rows=tuple(rows)),)


def _spent(outcome: Outcome, name: str, claim: Claim) -> float:
    if not outcome.ledger.events_of(name) or claim.delta is None or claim.accountant is None:
        return 0.0
    found = epsilon(
        outcome.ledger, delta=claim.delta, accountant=claim.accountant, client=name
    ).epsilon
    return math.inf if found is None else found


def own_ledgers(job: FederatedJob, outcome: Outcome) -> dict[str, str | bytes]:
    """Write the ledger of each client into a file of its own, where there is one of each."""
    if job.privacy.kind != "record":
        return {}
    entries = ledger_to_record(outcome.ledger)
    return {
        f"ledger-{name.replace(' ', '-')}.json": json.dumps(
            [one for one in entries if name in one["clients"]], indent=1
        )
        for name in outcome.ledger.clients
    }
