"""Running a plan: `compute` for the computing parties, `serve` for everyone else."""

import hashlib
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from torch import Tensor

from tacit.errors import DisagreementError
from tacit.mpc.boundary import Input, Open
from tacit.mpc.contract import Attended, Channel, Kernel, MpcProtocol
from tacit.mpc.dealer import Pace, Supply, deal
from tacit.mpc.ops import ProtocolOps
from tacit.mpc.plan import Plan, Step
from tacit.mpc.protocols import find_protocol
from tacit.mpc.share import AnyShare, AnySpec, Spec
from tacit.party import Session

R = TypeVar("R")


class SecretOps(ProtocolOps[AnyShare]):
    """Interpret a program on this party's halves, exactly along the agreed plan."""

    def __init__(
        self,
        session: Session,
        plan: Plan,
        *,
        run: int,
        inputs: Mapping[str, Tensor],
        advance: Callable[[int], None],
    ) -> None:
        self._session = session
        self._plan = plan
        self._run = run
        self._protocol = find_protocol(plan.protocol)
        self._inputs = inputs
        self._advance = advance
        self._supply = Supply(session, plan, run=run)
        self._step = 0

    @property
    def protocol(self) -> MpcProtocol:
        """Return the protocol in use."""
        return self._protocol

    @property
    def frac_bits(self) -> int:
        """Return the fraction bits of inputs, factors and outputs."""
        return self._plan.frac_bits

    def spec(self, value: AnyShare) -> AnySpec:
        """Return the public facts about a half."""
        return value.spec

    def apply(self, kernel: Kernel, *operands: AnyShare) -> AnyShare:
        """Run one kernel."""
        channel = self._next(kernel, operands)
        material = self._supply.take(channel.step)
        return kernel.run(channel, material, *operands)

    def input(self, name: str, *, owner: str, shape: tuple[int, ...], bound: float) -> AnyShare:
        """Take my half of an input."""
        step = Input(owner, name, Spec.of(shape=shape, frac_bits=self.frac_bits, bound=bound))
        return step.run(self._next(step, ()), self._inputs.get(name))

    def open(self, value: AnyShare, *, to: tuple[str, ...], what: str, why: str) -> Tensor | None:
        """Reveal a value to the named parties and write it into the ledger."""
        value = self.rescaled(value)
        step = Open(to, what, why)
        return step.run(self._next(step, (value,)), value)

    def _next(self, kernel: Kernel | Input | Open, operands: tuple[AnyShare, ...]) -> Channel:
        """Move to the next step of the plan, and make sure that it is this one."""
        number = self._step
        specs = tuple(operand.spec for operand in operands)
        steps = self._plan.steps
        if number >= len(steps) or (steps[number].kernel, steps[number].operands) != (
            kernel,
            specs,
        ):
            planned = steps[number].kernel if number < len(steps) else "the end"
            raise DisagreementError(
                self._session.me, f"step {number} is {kernel}, but the plan says {planned}"
            )
        self._step += 1
        self._advance(self._step)
        return Channel(self._session, self._plan.roles, run=self._run, step=number)


def compute(
    session: Session,
    plan: Plan,
    program: Callable[[SecretOps], R],
    *,
    inputs: Mapping[str, Tensor],
) -> R:
    """Run a program as P0 or P1, after making sure that everyone has the same plan."""
    run = _begin(session, plan)
    with session.progress.stage("compute", len(plan.steps)) as advance:
        return program(SecretOps(session, plan, run=run, inputs=inputs, advance=advance))


def serve(session: Session, plan: Plan, *, inputs: Mapping[str, Tensor]) -> tuple[Tensor, ...]:
    """Take part as everyone but P0 and P1: dealer or helper, outside owner, outside receiver.

    Returns:
        What was opened to me, in order.
    """
    run, pace = _begin(session, plan), Pace()
    if session.me != plan.roles.dealer:
        return _attend(session, plan, run=run, inputs=inputs, pace=pace)
    pool = ThreadPoolExecutor(1, thread_name_prefix="tacit-deal")
    dealing = pool.submit(deal, session, plan, run=run, pace=pace)
    try:
        opened = _attend(session, plan, run=run, inputs=inputs, pace=pace)
        pace.reach(len(plan.steps))
        dealing.result()
    finally:
        # Not waited for: a send that waits for a dead peer ends when the links are closed.
        pace.stop()
        pool.shutdown(wait=False)
    return opened


def _begin(session: Session, plan: Plan) -> int:
    """Number a run, and compare its plan with everyone."""
    run = session.begin_run()
    session.agree("plan", hashlib.sha256(plan.digest() + run.to_bytes(8, "big")).digest())
    return run


def _attend(
    session: Session, plan: Plan, *, run: int, inputs: Mapping[str, Tensor], pace: Pace
) -> tuple[Tensor, ...]:
    opened = []
    with session.progress.stage("attend", len(plan.steps)) as advance:
        for number, step in enumerate(plan.steps):
            pace.reach(number)
            channel = Channel(session, plan.roles, run=run, step=number)
            value = _attend_step(channel, step, inputs)
            if value is not None:
                opened.append(value)
            advance(number + 1)
    return tuple(opened)


def _attend_step(channel: Channel, step: Step, inputs: Mapping[str, Tensor]) -> Tensor | None:
    kernel = step.kernel
    if isinstance(kernel, Input):
        kernel.attend(channel, inputs.get(kernel.name))
    elif isinstance(kernel, Open):
        return kernel.attend(channel, *step.operands)
    elif isinstance(kernel, Attended):
        kernel.attend(channel, *step.operands)
    return None
