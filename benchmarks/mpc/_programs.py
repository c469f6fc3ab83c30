"""What our side computes in the mpc benchmarks: a program per row, its plan and what it sends."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeVar

import torch
from bench import NotMeasured
from mpc._bert import encoder
from mpc._rows import LAYER_NORM_EPS, Row, make_operands

from tacit.errors import TacitError
from tacit.mpc import Plan, PlanOps, Roles, find_protocol, make_plan
from tacit.mpc.ops import ProtocolOps
from tacit.result import Phase

V = TypeVar("V")
ROLES = Roles("first", "second", "dealer")
FRAC_BITS = 20


def _perceptron(ops: ProtocolOps[V], x: V, *weights: V) -> V:
    for layer in range(0, len(weights), 2):
        x = ops.matmul(ops.relu(x) if layer else x, weights[layer])
        x = ops.add(x, weights[layer + 1])
    return x


@dataclass(frozen=True)
class Operation:
    """How a row's operation is written, and the verb of ops that it stands and falls with."""

    verb: str
    write: Callable[..., Any]  # takes and gives the values of whatever ops it is called with
    has_weights: bool = False  # all operands but the first are known before the query
    frac_bits: int = FRAC_BITS


OPERATIONS = {
    "linear": Operation("matmul", lambda ops, x, w: ops.matmul(x, w), has_weights=True),
    "matmul": Operation("matmul", lambda ops, x, y: ops.matmul(x, y)),
    "mul": Operation("mul", lambda ops, x, y: ops.mul(x, y)),
    "relu": Operation("relu", lambda ops, x: ops.relu(x)),
    "is_positive": Operation("is_positive", lambda ops, x: ops.is_positive(x)),
    "gelu": Operation("gelu", lambda ops, x: ops.gelu(x)),
    "softmax": Operation("softmax", lambda ops, x: ops.softmax(x, dim=-1)),
    "layer_norm": Operation("layer_norm", lambda ops, x: ops.layer_norm(x, eps=LAYER_NORM_EPS)),
    "rsqrt": Operation("rsqrt", lambda ops, x: ops.rsqrt(x)),
    "mlp": Operation("relu", _perceptron, has_weights=True),
    "bert": Operation("attention", encoder, has_weights=True, frac_bits=16),
}


def _normalised_scale(ops: ProtocolOps[V], value: V) -> V:
    """Bring a product back to the usual fraction bits, as the peers do within the operation."""
    extra = getattr(ops.spec(value), "frac_bits", 0) - ops.frac_bits
    return ops.apply(ops.protocol.kernels["truncate"](extra), value) if extra > 0 else value


@dataclass(frozen=True)
class Hooks:
    """What a party does besides computing: nothing while the program is planned."""

    before_inputs: Callable[[], None]
    after_inputs: Callable[[], None]
    before_work: Callable[[], None]
    after_work: Callable[[], None]


def work_on(row: Row, hooks: Hooks) -> Callable[[ProtocolOps[V]], V]:
    def program(ops: ProtocolOps[V]) -> V:
        hooks.before_inputs()
        values = [
            ops.input(
                operand.name,
                owner=owner_of(number),
                shape=operand.values.shape,
                bound=operand.bound,
            )
            for number, operand in enumerate(make_operands(row))
        ]
        hooks.after_inputs()
        operation = OPERATIONS[row.operation]
        if operation.has_weights:
            ops.cache_openings(*(value for value in values[1:] if len(ops.shape(value)) > 1))
        if row.is_shared:
            values = [ops.scale(value, 1.0) for value in values]  # a result, nobody's input
        hooks.before_work()
        result: V = _normalised_scale(ops, operation.write(ops, *values))
        ops.check()  # of a protocol with tags: part of the work
        hooks.after_work()
        return result

    return program


def opened(
    work: Callable[[ProtocolOps[V]], V],
) -> Callable[[ProtocolOps[V]], torch.Tensor | None]:
    """Let a program reveal its result to P0, to check it."""
    return lambda ops: ops.open(
        work(ops), to=(ROLES.first,), what="the result", why="the benchmark checks it"
    )


def owner_of(number: int) -> str:
    return ROLES.second if number else ROLES.first


def _nothing() -> None:
    """Do nothing."""


NO_HOOKS = Hooks(_nothing, _nothing, _nothing, _nothing)


@lru_cache(maxsize=8)
def plan_row(row: Row, protocol: str) -> Plan:
    """Plan a row with the opening that follows it.

    Raises:
        NotMeasured: the operation is missing, or the protocol refuses it.
    """
    return _plan(row, protocol, opened(work_on(row, NO_HOOKS)))


def _plan(row: Row, protocol: str, program: Callable[[PlanOps], object]) -> Plan:
    operation = OPERATIONS[row.operation]
    if not hasattr(PlanOps, operation.verb):
        raise NotMeasured(f"there is no ops.{operation.verb} yet")
    try:
        found = find_protocol(protocol)
        roles = ROLES if found.has_dealer else Roles(*ROLES.computing)
        return make_plan(program, found, roles, frac_bits=operation.frac_bits)
    except KeyError as error:
        raise NotMeasured(f"{protocol} has no kernel {error}") from error
    except TacitError as error:
        raise NotMeasured(f"{protocol} refuses the row: {error}") from error


@dataclass(frozen=True, kw_only=True)
class Counts:
    """What is sent between shared inputs and a shared result, by all parties together."""

    offline_megabytes: float
    online_megabytes: float
    online_rounds: int


def count(row: Row, protocol: str) -> Counts:
    """Count what a row sends, from its plan, which the links' meters are tested to agree with.

    Raises:
        NotMeasured: as `plan_row`.
    """
    cost = _plan(row, protocol, work_on(row, NO_HOOKS)).cost

    def megabytes(phase: Phase) -> float:
        return sum(entry.payload_bytes for entry in cost.traffic if entry.phase == phase) / 1e6

    return Counts(
        offline_megabytes=megabytes("offline"),
        online_megabytes=megabytes("online"),
        online_rounds=cost.online_rounds,
    )
