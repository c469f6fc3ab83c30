"""What a party says after a prediction, and how the parties' words become one result."""

from collections.abc import Iterable
from dataclasses import replace
from typing import TypeVar

from tacit.errors import DisagreementError
from tacit.learn.private.predict import Prediction, PredictTask
from tacit.mpc import find_protocol, merge_costs
from tacit.mpc.pace import add_computing
from tacit.party import Session
from tacit.result import Claim, Leak, Metric, PartyReport, Result

R = TypeVar("R")


def summarise(
    session: Session,
    task: PredictTask,
    prediction: Prediction,
    *,
    name: str,
    launched: str,
    report: PartyReport,
    utility: tuple[Metric, ...],
) -> Result:
    """Write down one party's view: what it sent, what it knows to have leaked, what it used."""
    return Result(
        kind="infer",
        name=name,
        protocol=task.protocol,
        launched=launched,
        parties=(report,),
        forecast=add_computing(prediction.plan.forecast(), [(prediction.plan, 1)]),
        metered=session.cost(),
        leakage=session.ledger.entries(),
        claims=claims_of(task),
        utility=utility,
    )


def merge_results(results: tuple[Result, ...]) -> Result:
    """Join the views of all parties of one run into one result."""
    first = results[0]
    for other in results[1:]:
        if other.forecast != first.forecast:
            raise DisagreementError(other.parties[0].name, "reports another plan than the others")
    metered = merge_costs({one.parties[0].name: one.metered for one in results})
    return replace(
        first,
        parties=tuple(party for one in results for party in one.parties),
        metered=metered,
        leakage=_union([one.leakage for one in results]),
        claims=_once(one.claims for one in results),
        utility=_once(one.utility for one in results),
        curves=_once(one.curves for one in results),
        pictures=_once(one.pictures for one in results),
        sheets=_once(one.sheets for one in results),
        notes=_once(one.notes for one in results),
    )


def _once(views: Iterable[tuple[R, ...]]) -> tuple[R, ...]:
    """Join what the parties say, and keep what several of them say once."""
    return tuple(dict.fromkeys(item for view in views for item in view))


def _union(ledgers: list[tuple[Leak, ...]]) -> tuple[Leak, ...]:
    """Keep each entry once: the parties to a revelation all write it into their own ledger."""
    seen: dict[tuple[str, str, str, str], Leak] = {}
    for leak in (leak for ledger in ledgers for leak in ledger):
        key = (leak.to, leak.what, leak.why, leak.kind)
        if key not in seen or seen[key].elements < leak.elements:
            seen[key] = leak
    return tuple(seen.values())


def claims_of(task: PredictTask) -> tuple[Claim, ...]:
    """Return what a prediction promises: what its protocol does, and what nothing can."""
    return (*find_protocol(task.protocol).claims, _claim_of_answers(task))


def _claim_of_answers(task: PredictTask) -> Claim:
    """Say what no protocol can hide: what follows from the declared result itself."""
    if task.reveal == "score":
        reason = (
            f"a score is a linear function of a row, so {task.data_owner} can solve for the whole "
            "model once it has more scores than features; reveal classes to give away less"
        )
    else:
        reason = (
            "whoever may ask about many rows of its choice can imitate the model; "
            f"{task.model_owner} should limit the number of questions"
        )
    return Claim(
        subject=f"what the answers tell {task.data_owner} about the model",
        guarantee="no guarantee",
        assumptions=(reason,),
    )
