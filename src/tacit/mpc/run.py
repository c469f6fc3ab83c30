"""Running a plan: `compute` for the computing parties, `serve` for everyone else."""

import hashlib
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import copy_context
from typing import TypeVar

import torch
from torch import Tensor

from tacit.errors import ConfigError, PartyError
from tacit.mpc.boundary import Input
from tacit.mpc.cache import OpeningCache
from tacit.mpc.contract import Attended, Channel, takes_role
from tacit.mpc.material.dealer import DealingPace, deal
from tacit.mpc.material.offline import Material
from tacit.mpc.material.randomness import correction_bytes, has_corrections
from tacit.mpc.material.supply import Ahead, FromDealer, Supply
from tacit.mpc.narrow import WORD_BYTES
from tacit.mpc.plan import (
    Plan,
    Step,
)
from tacit.mpc.registry import find_protocol
from tacit.mpc.secret_ops import Given, SecretOps, made
from tacit.mpc.share import AnyShare, Share
from tacit.party import Session

R = TypeVar("R")


def compute(
    session: Session,
    plan: Plan,
    program: Callable[[SecretOps], R],
    *,
    inputs: Mapping[str, Given],
    device: torch.device | str = "cpu",
    material: Material | None = None,
    kept: Mapping[str, AnyShare] | None = None,
    cache: OpeningCache | None = None,
    is_agreed: bool = False,
    run: int | None = None,
    told: Mapping[str, Tensor] | None = None,
) -> R:
    """Run a program as P0 or P1, after making sure that everyone has the same plan.

    Args:
        session: my end of the job.
        plan: what everyone agreed to do.
        program: a function of ops, the one that was planned.
        inputs: my inputs, by name; or what makes one of all that was opened to me in this run.
        device: where my shares live and are computed on; the result does not depend on it.
        material: my file of what was dealt before, instead of a dealer in the session.
        kept: my shares of what earlier runs left, by name.
        cache: what earlier runs have opened under masks, as it was given to `make_plan`.
        is_agreed: whether everyone has compared this plan before, so that it need not be again.
        run: its number, if everyone has agreed on that and on the plan before.
        told: the words of every `PublicInput` of the plan: public, and the same everywhere.
    """
    cache = cache or OpeningCache()
    cache.bind(session)
    if run is None:
        run = _begin(session, plan, is_agreed=is_agreed)
    device = torch.device(device)
    with supplied(session, plan, run=run, material=material, device=device) as supply:
        ahead = Ahead(supply, session, plan, run=run, device=device)
        try:
            with session.progress.stage("compute", len(plan.steps)) as advance:
                ops = SecretOps(
                    session,
                    plan,
                    run=run,
                    inputs=inputs,
                    advance=advance,
                    supply=ahead,
                    device=device,
                    kept=kept or {},
                    cache=cache,
                    told=told or {},
                )
                result = program(ops)
                ops.check()
        except PartyError as error:
            raise session.as_heard(error) from error
        finally:
            ahead.close()
        shares = {
            name: share.words for name, share in (kept or {}).items() if isinstance(share, Share)
        }
        cache.keep(run, plan.kept_openings, ops.kept_openings, shares)
        cache.grow(plan.grown, ops.grown)
        return result


@contextmanager
def supplied(
    session: Session, plan: Plan, *, run: int, material: Material | None, device: torch.device
) -> Iterator[Supply]:
    """Take randomness from the dealer in the session, from a file, or make it together."""
    is_first, protocol = session.me == plan.roles.first, find_protocol(plan.protocol)
    if material is not None and (protocol.helper_is_online or protocol.is_checked):
        raise ConfigError(
            f"{plan.protocol} needs its dealer in the session: leave {material.path} out"
        )
    if protocol.preprocessing is not None:
        if material is not None:
            raise ConfigError(
                f"protocol {plan.protocol!r} has no dealer who could have made {material.path}; "
                "leave the file out"
            )
        yield protocol.preprocessing.supply(session, plan, run=run, device=device)
    elif material is None:
        source = FromDealer(session, plan.roles.dealer, run)
        yield Supply(source, plan, is_first=is_first, device=device)
    else:
        yield Supply(material.run(run), plan, is_first=is_first, device=device)


def serve(
    session: Session,
    plan: Plan,
    *,
    inputs: Mapping[str, Given],
    device: torch.device | str = "cpu",
    cache: OpeningCache | None = None,
    is_agreed: bool = False,
) -> tuple[Tensor, ...]:
    """Take part as everyone but P0 and P1: dealer or helper, outside owner, outside receiver.

    ``device`` is where a dealer multiplies and a helper computes; ``cache`` as in `compute`.

    Returns:
        What was opened to me, in order.
    """
    cache = cache or OpeningCache()
    cache.bind(session)
    run, pace = _begin(session, plan, is_agreed=is_agreed), DealingPace()
    cache.keep(run, plan.kept_openings, {}, {})
    if session.me != plan.roles.dealer:
        cache.grow(plan.grown)
        try:
            return _attend(session, plan, run=run, inputs=inputs, pace=pace, device=device)
        except PartyError as error:
            raise session.as_heard(error) from error
    pool = ThreadPoolExecutor(1, thread_name_prefix="tacit-deal")
    # In my context, so that a dealer's worker multiplies masks as well.
    inside = copy_context().run
    dealing = pool.submit(
        inside, deal, session, plan, run=run, pace=pace, cache=cache, device=device
    )
    try:
        opened = _attend(session, plan, run=run, inputs=inputs, pace=pace, device=device)
        pace.reach(len(plan.steps))
        dealing.result()
    except PartyError as error:
        raise session.as_heard(error) from error
    finally:
        # Not waited for: a send that waits for a dead peer ends when the links are closed.
        pace.stop()
        pool.shutdown(wait=False)
    return opened


def deal_ahead(
    session: Session,
    plan: Plan,
    *,
    run: int,
    cache: OpeningCache,
    device: torch.device | str = "cpu",
) -> None:
    """Deal for a run on which all have agreed, before anyone has begun it; as its dealer.

    Guarantee: that of `deal`. If the run is never made, nobody has used its masks.
    """
    cache.bind(session)
    cache.keep(run, plan.kept_openings, {}, {})
    pace = DealingPace()
    pace.reach(len(plan.steps))
    deal(session, plan, run=run, pace=pace, cache=cache, device=device)


def attend(
    session: Session,
    plan: Plan,
    *,
    run: int,
    inputs: Mapping[str, Given],
    device: torch.device | str = "cpu",
) -> tuple[Tensor, ...]:
    """Take part in a run that was dealt for ahead; returns what was opened to me, in order."""
    return _attend(session, plan, run=run, inputs=inputs, pace=DealingPace(), device=device)


def discard(session: Session, plan: Plan, *, run: int) -> None:
    """Receive, as P1, what was dealt ahead for a run that will not be made, and drop it."""
    for number, step in enumerate(plan.steps):
        if has_corrections(step.needs):
            source = FromDealer(session, plan.roles.dealer, run)
            source.correction(number, correction_bytes(step.needs) // WORD_BYTES)


def _begin(session: Session, plan: Plan, *, is_agreed: bool) -> int:
    """Number a run, and compare its plan with everyone."""
    run = session.begin_run()
    if find_protocol(plan.protocol).is_checked:
        session.suspect(*plan.roles.computing)
    if is_agreed:
        return run
    session.agree("plan", hashlib.sha256(plan.digest() + run.to_bytes(8, "big")).digest())
    return run


def _attend(
    session: Session,
    plan: Plan,
    *,
    run: int,
    inputs: Mapping[str, Given],
    pace: DealingPace,
    device: torch.device | str,
) -> tuple[Tensor, ...]:
    opened: list[Tensor] = []
    with session.progress.stage("attend", len(plan.steps)) as advance:
        for number, step in enumerate(plan.steps):
            pace.reach(number)
            channel = Channel(session, plan.roles, run=run, step=number, device=device)
            value = _attend_step(channel, step, inputs, opened)
            if value is not None:
                opened.append(value)
            advance(number + 1)
    return tuple(opened)


def _attend_step(
    channel: Channel, step: Step, inputs: Mapping[str, Given], opened: list[Tensor]
) -> Tensor | None:
    kernel = step.kernel
    if isinstance(kernel, Input):
        mine = inputs.get(kernel.name) if kernel.owner == channel.me else None
        kernel.attend(channel, made(mine, opened))
    elif takes_role(kernel, Attended):
        assert isinstance(kernel, Attended)  # noqa: S101 - its type says so
        return kernel.attend(channel, *step.operands)
    return None
