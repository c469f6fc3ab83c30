"""The plan: a program run on shapes, before anything is sent; dealer's list and forecast."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from math import prod

from torch import Tensor

from tacit.errors import InputError
from tacit.mpc.boundary import WORD_BYTES, Input, Open
from tacit.mpc.contract import Declaration, Kernel, MpcProtocol, Roles
from tacit.mpc.cost import Message, Tally, forecast_seconds
from tacit.mpc.ops import ProtocolOps
from tacit.mpc.randomness import Need
from tacit.mpc.share import AnySpec, Spec
from tacit.party import LARGEST_MESSAGE_BYTES, merge
from tacit.result import Cost, Forecast, Leak

NETWORKS = ((0.2, 10_000.0), (10.0, 1_000.0), (40.0, 80.0))
"""Round-trip milliseconds and Mbit/s of a data centre, a city and a slow line."""


@dataclass(frozen=True)
class Step:
    """One use of a kernel: public facts only."""

    kernel: Kernel | Input | Open
    operands: tuple[AnySpec, ...]
    needs: tuple[Need, ...]


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Everything that will happen, in order, with what it costs."""

    protocol: str
    roles: Roles
    frac_bits: int
    steps: tuple[Step, ...]
    cost: Cost
    leaks: tuple[Leak, ...]

    def digest(self) -> bytes:
        """Return a hash that two parties share only if they will do the same things."""
        # Every part is a frozen dataclass of public numbers and names, so repr is canonical.
        lines = [self.protocol, repr(self.roles), str(self.frac_bits), *map(repr, self.steps)]
        return hashlib.sha256("\n".join(lines).encode()).digest()

    def forecast(self, networks: tuple[tuple[float, float], ...] = NETWORKS) -> Forecast:
        """Return rounds, bytes and network seconds for a few networks."""
        timings = tuple(
            forecast_seconds(self.cost, rtt_ms=rtt, mbit_per_s=mbit) for rtt, mbit in networks
        )
        return Forecast(cost=self.cost, timings=timings, plan_hash=self.digest().hex())


class PlanOps(ProtocolOps[AnySpec]):
    """Interpret a program on specs, and write down every step and its messages."""

    def __init__(self, protocol: MpcProtocol, roles: Roles, *, frac_bits: int) -> None:
        self._protocol = protocol
        self._roles = roles
        self._frac_bits = frac_bits
        self._steps: list[Step] = []
        self._tally = Tally()
        self._leaks: list[Leak] = []

    @property
    def protocol(self) -> MpcProtocol:
        """Return the protocol in use."""
        return self._protocol

    @property
    def frac_bits(self) -> int:
        """Return the fraction bits of inputs, factors and outputs."""
        return self._frac_bits

    def spec(self, value: AnySpec) -> AnySpec:
        """Return the value itself: it is a spec."""
        return value

    def apply(self, kernel: Kernel, *operands: AnySpec) -> AnySpec:
        """Write down a kernel and return the spec of its result."""
        out = self._write(kernel, operands)
        assert out is not None  # noqa: S101 - only Open has no result
        return out

    def input(self, name: str, *, owner: str, shape: tuple[int, ...], bound: float) -> AnySpec:
        """Write down an input."""
        spec = Spec.of(shape=shape, frac_bits=self._frac_bits, bound=bound)
        self._write(Input(owner, name, spec), ())
        return spec

    def open(self, value: AnySpec, *, to: tuple[str, ...], what: str, why: str) -> Tensor | None:
        """Write down that a value is revealed."""
        self._write(Open(to, what, why), (self.rescaled(value),))
        return None

    def _write(
        self, kernel: Kernel | Input | Open, operands: tuple[AnySpec, ...]
    ) -> AnySpec | None:
        declared = kernel.declare(self._roles, *operands)
        _check_sizes(kernel, declared)
        self._steps.append(Step(kernel, operands, declared.needs))
        size = correction_bytes(declared.needs)
        if declared.needs:
            dealt = Message(self._roles.dealer, self._roles.second, size)
            self._tally.add(((dealt,),), "offline")
        self._tally.add(declared.rounds, "online")
        self._leaks.extend(declared.leaks)
        return declared.out

    def plan(self) -> Plan:
        """Return what was written down."""
        return Plan(
            protocol=self._protocol.name,
            roles=self._roles,
            frac_bits=self._frac_bits,
            steps=tuple(self._steps),
            cost=self._tally.cost(),
            leaks=merge(tuple(self._leaks)),
        )


def _check_sizes(kernel: Kernel | Input | Open, declared: Declaration) -> None:
    """Refuse now what no link would carry later."""
    sizes = [message.payload_bytes for round_ in declared.rounds for message in round_]
    largest = max([*sizes, correction_bytes(declared.needs)])
    if largest > LARGEST_MESSAGE_BYTES:
        raise InputError(
            f"{type(kernel).__name__} would send a message of {largest} bytes, more than the "
            f"{LARGEST_MESSAGE_BYTES} that a link carries; work on fewer rows at a time"
        )


def correction_bytes(needs: tuple[Need, ...]) -> int:
    """Return the size of the dealer's message for one step."""
    return WORD_BYTES * sum(prod(shape) for need in needs for shape in need.correction_shapes())


def make_plan(
    program: Callable[[PlanOps], object], protocol: MpcProtocol, roles: Roles, *, frac_bits: int
) -> Plan:
    """Run a program on shapes."""
    ops = PlanOps(protocol, roles, frac_bits=frac_bits)
    program(ops)
    return ops.plan()
