"""What a party says after a prediction."""

from tacit.inference.predict import Prediction, PredictTask
from tacit.mpc import find_protocol
from tacit.mpc.pace import add_computing
from tacit.party import Session
from tacit.result import Claim, Metric, PartyReport, Result


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
