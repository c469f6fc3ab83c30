"""One question to a shared model by owners of columns: one of them gets the answers."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from tacit.errors import DataError, DisagreementError
from tacit.inference import Answer
from tacit.inference.service.bounds import check_plan
from tacit.inference.service.once import answer_one, plan_one, report_answers
from tacit.inference.service.task import ServiceTask
from tacit.matching import claims_of_matching, declare_matching
from tacit.mpc import Plan, sum_forecasts
from tacit.party import Fact, Session, Usage
from tacit.result import Claim

COLUMNS = Fact(
    tag="columns", count=2, what="the number of common rows and of the columns of {owner}"
)


def answer_columns(
    session: Session,
    task: ServiceTask,
    *,
    counts: Mapping[str, int],
    receiver: str,
    share: Mapping[str, Tensor] | None = None,
    x: Tensor | None = None,
) -> Answer:
    """Answer rows whose columns lie with several owners, from a model that two parties share.

    Args:
        session: my end of the job.
        task: what is answered; all parties have the same.
        counts: the owners in the order of their columns, and how many ids each had before rows were
            matched.
        receiver: who gets the answers.
        share: of the weights, if I compute.
        x: my columns of the common rows, in the order of the matching, if I own any.

    Guarantee: that of the protocol. Nobody learns a weight or another's column; the answers are
        opened to the receiver alone. The number of common rows and of everyone's columns is public.
    Cost: that of the plan; weights are opened under masks once, for all rows.

    Raises:
        DataError: columns or weights are missing, or not finite.
        DisagreementError: owners announced columns that the model does not take.
        ConfigError: a party that computes would see what follows from the rows.
    """
    usage = Usage()
    task.refuse_view()
    widths, rows = _announce(session, task, tuple(counts), x)
    program = _program(task, receiver, widths, rows)
    mine = {} if x is None or not x.numel() else {f"columns of {session.me}": x.double()}
    values, checked, plan = answer_one(session, task, program, inputs=mine, share=share)
    forecast = sum_forecasts(((checked, 1), (plan, 1)), before=declare_matching(counts))
    result = report_answers(session, task, receiver, forecast, usage)
    claims = (*result.claims, *claims_of_matching(counts), claim_of_columns(task, receiver))
    return Answer(values=values, plan=plan, result=replace(result, claims=claims))


def plan_columns(
    task: ServiceTask,
    *,
    receiver: str,
    widths: Mapping[str, int],
    rows: int,
    parties: tuple[str, ...],
) -> tuple[Plan, Plan]:
    """Return what `answer_columns` will run after the matching: the check of weights, the answer.

    Args:
        task: what is answered.
        receiver: who gets the answers.
        widths: how many columns every owner has, in their order.
        rows: how many rows they have in common.
        parties: of the session.
    """
    return check_plan(task, parties), plan_one(task, _program(task, receiver, widths, rows))


def claim_of_columns(task: ServiceTask, receiver: str) -> Claim:
    """Say what follows from the answers themselves."""
    reason = (
        f"an answer is a function of the whole row; {receiver} knows its own columns of it, and "
        "every answer narrows down the others"
    )
    if task.reveal == "score":
        reason += "; a score does so with all its digits: reveal classes to give away less"
    return Claim(
        subject=f"what the answers tell {receiver} about the columns of the other owners",
        guarantee="no guarantee",
        assumptions=(reason,),
    )


def _announce(
    session: Session, task: ServiceTask, owners: tuple[str, ...], x: Tensor | None
) -> tuple[dict[str, int], int]:
    """Tell and learn how many columns everyone has, and of how many common rows."""
    if session.me in owners:
        if x is None or x.dim() != 2 or not bool(torch.isfinite(x).all()):
            raise DataError(f"{session.me!r} must give its columns, as finite numbers")
        session.publish(COLUMNS, tuple(x.shape))
    said = {
        owner: tuple(x.shape)
        if x is not None and owner == session.me
        else session.learn(owner, COLUMNS)
        for owner in owners
    }
    rows = said[owners[0]][0]
    for owner, (count, width) in said.items():
        if count != rows or rows < 1 or width < 0:
            raise DisagreementError(owner, f"announced {width} columns of {count} common rows")
    wanted, width = task.model.inputs[0], sum(width for _, width in said.values())
    if width != wanted:
        raise DisagreementError(
            owners[-1], f"and the others have {width} columns in all, the model wants {wanted}"
        )
    return {owner: width for owner, (_, width) in said.items()}, rows


def _program(
    task: ServiceTask, receiver: str, widths: Mapping[str, int], rows: int
) -> Callable[[Any], Tensor | None]:
    def program(ops: Any) -> Tensor | None:  # PlanOps and SecretOps have different tensors
        columns = [
            ops.input(
                f"columns of {owner}", owner=owner, shape=(rows, width), bound=task.feature_bound
            )
            for owner, width in widths.items()
            if width  # who brings labels or ids alone has none
        ]
        opened: Tensor | None = ops.open(
            task.reply(ops, ops.concatenate(columns, dim=1)),
            to=(receiver,),
            what=f"the {task.reveal} of every common row",
            why="the declared result",
        )
        return opened

    return program
