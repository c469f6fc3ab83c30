"""One question to a shared model, without a service: the owner of the rows gets the answers."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from tacit.errors import DataError, DisagreementError
from tacit.inference import Answer
from tacit.inference.facts import share_input_facts
from tacit.inference.service.bounds import check_plan, check_weights
from tacit.inference.service.task import ServiceTask
from tacit.mpc import Plan, compute, find_protocol, make_plan, serve, sum_forecasts
from tacit.party import Session, Usage
from tacit.result import Claim, Forecast, Result


def answer_once(
    session: Session,
    task: ServiceTask,
    *,
    client: str,
    share: Mapping[str, Tensor] | None = None,
    x: Tensor | None = None,
) -> Answer:
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
        x = _checked(task, x)
    shape, _ = share_input_facts(session, client, x, bound=task.feature_bound)
    if shape[1:] != task.model.inputs:
        raise DisagreementError(client, f"announced rows of shape {shape[1:]}")
    program = _program(task, client, shape)
    mine = {} if x is None or session.me != client else {"x": x}
    values, checked, plan = answer_one(session, task, program, inputs=mine, share=share)
    forecast = sum_forecasts(((checked, 1), (plan, 1)))
    result = report_answers(session, task, client, forecast, usage)
    return Answer(values=values, plan=plan, result=result)


def plan_once(
    task: ServiceTask, *, client: str, shape: tuple[int, ...], parties: tuple[str, ...]
) -> tuple[Plan, Plan]:
    """Return what `answer_once` will run for rows of a shape: the check of weights, the answer."""
    return check_plan(task, parties), plan_one(task, _program(task, client, shape))


def answer_one(
    session: Session,
    task: ServiceTask,
    program: Callable[[Any], Tensor | None],
    *,
    inputs: Mapping[str, Tensor],
    share: Mapping[str, Tensor] | None,
) -> tuple[Tensor | None, Plan, Plan]:
    """Do my part of one question; returns what was opened to me, and both plans that were run.

    Raises:
        DataError: I compute, and have no share of the weights.
    """
    plan = plan_one(task, program)
    is_computing = session.me in task.roles.computing
    if is_computing and share is None:
        raise DataError(f"{session.me!r} computes and must give its share of the model")
    checked = check_weights(session, task, share if is_computing else None)
    if is_computing and share is not None:
        kept = task.share_of(share)
        return compute(session, plan, program, inputs=inputs, kept=kept), checked, plan
    opened = serve(session, plan, inputs=inputs)
    return opened[0] if opened else None, checked, plan


def plan_one(task: ServiceTask, program: Callable[[Any], Tensor | None]) -> Plan:
    """Plan one question."""
    protocol = find_protocol(task.protocol)
    return make_plan(program, protocol, task.roles, frac_bits=task.frac_bits)


def _checked(task: ServiceTask, x: Tensor | None) -> Tensor:
    inputs = task.model.inputs
    if x is None or x.dim() != 1 + len(inputs) or tuple(x.shape[1:]) != inputs or not len(x):
        came = "none" if x is None else tuple(x.shape)
        raise DataError(f"wanted rows of shape {inputs}, got {came}")
    if not bool(torch.isfinite(x).all()):
        raise DataError("the rows hold NaN or infinite values; clean the data first")
    return x.double()


def _program(
    task: ServiceTask, client: str, shape: tuple[int, ...]
) -> Callable[[Any], Tensor | None]:
    def program(ops: Any) -> Tensor | None:  # PlanOps and SecretOps have different tensors
        x = ops.input("x", owner=client, shape=shape, bound=task.feature_bound)
        opened: Tensor | None = ops.open(
            task.reply(ops, x),
            to=(client,),
            what=f"the {task.reveal} of every row",
            why="the declared result",
        )
        return opened

    return program


def report_answers(
    session: Session, task: ServiceTask, client: str, forecast: Forecast, usage: Usage
) -> Result:
    """Write down one party's view of answers from a shared model."""
    roles = dict.fromkeys(task.roles.computing, "holds a share of the model")
    role = roles.get(session.me, "dealer" if session.me == task.roles.dealer else "data owner")
    model = Claim(
        subject=f"what the answers tell {client} about the model",
        guarantee="no guarantee",
        assumptions=("whoever may ask about many inputs of its choice can imitate the model",),
    )
    return Result(
        kind="infer",
        name=task.name,
        protocol=task.protocol,
        launched="session",
        parties=(usage.report(name=session.me, role=role, progress=session.progress),),
        forecast=forecast,
        metered=session.cost(),
        leakage=session.ledger.entries(),
        claims=(*find_protocol(task.protocol).claims, model),
        utility=(),
    )
