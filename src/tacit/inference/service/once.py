"""Questions to a shared model, without a service: one owner of the rows gets the answers.

`answer_once` is for rows of one owner, `answer_columns` for rows whose columns lie with several.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from tacit.errors import DataError, DisagreementError
from tacit.inference.answers import PrivateAnswer, claim_of_answers, result_of
from tacit.inference.secured import share_input_facts
from tacit.inference.service.task import ServiceTask, SharedWalk
from tacit.matching import claims_of_matching, declare_matching
from tacit.mpc import find_protocol, sum_forecasts
from tacit.party import Fact, Session, Usage
from tacit.result import Claim, Forecast, Result

COLUMNS = Fact(
    tag="columns", count=2, what="the number of common rows and of the columns of {owner}"
)


def answer_once(
    session: Session,
    task: ServiceTask,
    *,
    client: str,
    share: Mapping[str, Tensor] | None = None,
    x: Tensor | None = None,
) -> PrivateAnswer:
    """Answer one party's rows from a model of which two parties hold a share each.

    Args:
        session: my end of the job.
        task: what is answered; all parties have the same.
        client: who owns the rows and gets the answers: a party that computes, or another one.
        share: of the weights, if I compute.
        x: the rows, if I am the client.

    Guarantee: that of the protocol. Nobody learns a weight; the answers are opened to the client
        alone. The number of rows is public.
    Cost: that of the plan; weights are opened under masks once, for all rows.

    Raises:
        DataError: rows or weights are missing or of another shape, or not finite.
        DisagreementError: the client announced rows that the model does not take.
        RangeError: a weight is beyond the bound of the task.
        ConfigError: somebody else than the client would see what follows from its rows.
    """
    usage = Usage()
    task.refuse_view(client)
    if session.me == client:
        inputs = task.model.inputs
        if x is None or x.dim() != 1 + len(inputs) or tuple(x.shape[1:]) != inputs or not len(x):
            came = "none" if x is None else tuple(x.shape)
            raise DataError(f"wanted rows of shape {inputs}, got {came}")
        if not bool(torch.isfinite(x).all()):
            raise DataError("the rows hold NaN or infinite values; clean the data first")
        x = x.double()
    shape, _ = share_input_facts(session, client, x, bound=task.spec.bound)
    if shape[1:] != task.model.inputs:
        raise DisagreementError(client, f"announced rows of shape {shape[1:]}")
    program = rows_program(task, client, shape)
    mine = {} if x is None or session.me != client else {"x": x}
    walk, values = _run(session, task, program, inputs=mine, share=share)
    result = _report(session, task, client, sum_forecasts(walk.runs), usage)
    return PrivateAnswer(values=values, plan=walk.runs[-1][0], result=result)


def answer_columns(
    session: Session,
    task: ServiceTask,
    *,
    counts: Mapping[str, int],
    receiver: str,
    share: Mapping[str, Tensor] | None = None,
    x: Tensor | None = None,
) -> PrivateAnswer:
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
    program = columns_program(task, receiver, widths, rows)
    mine = {} if x is None or not x.numel() else {f"columns of {session.me}": x.double()}
    walk, values = _run(session, task, program, inputs=mine, share=share)
    forecast = sum_forecasts(walk.runs, before=declare_matching(counts))
    result = _report(session, task, receiver, forecast, usage)
    claims = (*result.claims, *claims_of_matching(counts), claim_of_columns(task, receiver))
    plan = walk.runs[-1][0]
    return PrivateAnswer(values=values, plan=plan, result=replace(result, claims=claims))


def plan_question(
    task: ServiceTask, program: Callable[[Any], Tensor | None], *, parties: tuple[str, ...]
) -> SharedWalk:
    """Return what a question will run, the check of weights and, last, the answer."""
    walk = SharedWalk(task)
    walk.ask(program, {}, parties=parties)
    return walk


def claim_of_columns(task: ServiceTask, receiver: str) -> Claim:
    """Say what follows from the answers themselves."""
    reason = (
        f"an answer is a function of the whole row; {receiver} knows its own columns of it, and "
        "every answer narrows down the others"
    )
    if task.spec.reveal == "score":
        reason += "; a score does so with all its digits: reveal classes to give away less"
    return Claim(
        subject=f"what the answers tell {receiver} about the columns of the other owners",
        guarantee="no guarantee",
        assumptions=(reason,),
    )


def _run(
    session: Session,
    task: ServiceTask,
    program: Callable[[Any], Tensor | None],
    *,
    inputs: Mapping[str, Tensor],
    share: Mapping[str, Tensor] | None,
) -> tuple[SharedWalk, Tensor | None]:
    """Do my part of one question; returns what was run, and what was opened to me."""
    is_computing = session.me in task.spec.roles.computing
    if is_computing and share is None:
        raise DataError(f"{session.me!r} computes and must give its share of the model")
    weights = task.share_of(share) if is_computing and share is not None else {}
    walk = SharedWalk(task, session=session)
    return walk, walk.ask(program, weights, parties=session.parties, inputs=inputs)


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


# Programs run on PlanOps and on SecretOps, which have different tensors: hence `Any`.


def rows_program(
    task: ServiceTask, client: str, shape: tuple[int, ...]
) -> Callable[[Any], Tensor | None]:
    """Return the program of `answer_once` for rows of a shape."""

    def program(ops: Any) -> Tensor | None:
        x = ops.input("x", owner=client, shape=shape, bound=task.spec.bound)
        return _opened(ops, task, x, to=client, rows="every row")

    return program


def columns_program(
    task: ServiceTask, receiver: str, widths: Mapping[str, int], rows: int
) -> Callable[[Any], Tensor | None]:
    """Return the program of `answer_columns` for common rows of columns of such widths."""

    def program(ops: Any) -> Tensor | None:
        columns = [
            ops.input(
                f"columns of {owner}", owner=owner, shape=(rows, width), bound=task.spec.bound
            )
            for owner, width in widths.items()
            if width  # who brings labels or ids alone has none
        ]
        x = ops.concatenate(columns, dim=1)
        return _opened(ops, task, x, to=receiver, rows="every common row")

    return program


def _opened(ops: Any, task: ServiceTask, x: Any, *, to: str, rows: str) -> Tensor | None:
    what = f"the {task.spec.reveal} of {rows}"
    answers = task.reply(ops, x)
    opened: Tensor | None = ops.open(answers, to=(to,), what=what, why="the declared result")
    return opened


def _report(
    session: Session, task: ServiceTask, client: str, forecast: Forecast, usage: Usage
) -> Result:
    """Write down one party's view of answers from a shared model."""
    roles = dict.fromkeys(task.spec.roles.computing, "holds a share of the model")
    role = roles.get(session.me, "dealer" if session.me == task.spec.roles.dealer else "data owner")
    reason = "whoever may ask about many inputs of its choice can imitate the model"
    return result_of(
        session,
        usage,
        name=task.name,
        protocol=task.spec.protocol.kind,
        role=role,
        forecast=forecast,
        claims=(*find_protocol(task.spec.protocol.kind).claims, claim_of_answers(client, reason)),
    )
