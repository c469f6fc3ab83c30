"""How rows are packed into ciphertexts: what both sides know of it, and what will be sent."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from tacit.errors import ConfigError
from tacit.inference.he.batch import InSlots
from tacit.inference.he.circuit import Circuit, trace
from tacit.inference.he.integers import WholeCircuit, make_whole
from tacit.inference.he.parameters import Layout, Parameters, choose
from tacit.inference.he.row import InRow
from tacit.inference.he.ways import ROOM, CoefficientWay, SlotWay
from tacit.mpc.plan import NETWORKS
from tacit.party.cost import CostedMessage, CostTally, forecast_seconds
from tacit.result import Forecast

LAYOUTS: tuple[Layout, ...] = ("slots", "row", "coefficients")
DEFAULT_BITS = {0: 16, 1: 8, 2: 5}
"""Bits of weights and inputs by the depth of a circuit; deeper ones have four.

A scale is squared by every product, so that numbers double their bits with each; CryptoNets has
five to ten bits and depth 2.
"""
TAG_BYTES = 16
"""Before every message: it names the run, so that no key or row of another one is taken."""
_COEFFICIENT_S = 1e-4  # one product of polynomials, measured


@dataclass(frozen=True)
class Packing:
    """What is done, told by the owner of the model in a few whole numbers.

    Attributes:
        layout: how rows lie in ciphertexts.
        parameters: of the rings; of coefficients only the scales count.
        way: what both sides do.
        shape: of all rows.
        seconds: of one core at the owner of the model, estimated; 0 where it is not known.
    """

    layout: Layout
    parameters: Parameters
    way: SlotWay | CoefficientWay
    shape: tuple[int, ...]
    seconds: float = 0.0

    def to_numbers(self) -> tuple[int, ...]:
        """Return what the other side has to be told."""
        return (LAYOUTS.index(self.layout), *self.parameters.to_numbers())

    def flights(self) -> int:
        """Return how often rows and answers go back and forth: memory holds one batch in slots."""
        return -(-self.shape[0] // self.way.sizes().batch) if self.layout == "slots" else 1

    def digest(self) -> bytes:
        """Hash it."""
        return hashlib.sha256(repr((self.to_numbers(), self.shape)).encode()).digest()

    def forecast(self, client: str, server: str) -> Forecast:
        """Return every message: keys offline; rows and answers online."""
        tally, sizes = CostTally(), self.way.sizes()
        keys = tuple(CostedMessage(client, server, TAG_BYTES + one) for one in sizes.keys)
        tally.add([keys], "offline")
        batches = -(-self.shape[0] // sizes.batch)
        for _ in range(self.flights()):
            here = batches // self.flights()
            up = tuple(CostedMessage(client, server, TAG_BYTES + one) for one in sizes.rows * here)
            down = tuple(
                CostedMessage(server, client, TAG_BYTES + one) for one in sizes.answers * here
            )
            tally.add([up, down], "online")
        cost = tally.cost()
        timings = tuple(forecast_seconds(cost, rtt_ms=rtt, mbit_per_s=m) for rtt, m in NETWORKS)
        return Forecast(
            cost=cost,
            timings=timings,
            plan_hash=self.digest().hex(),
            computing_seconds=self.seconds or None,
        )


def structure_of(model: Any, weights: Mapping[str, Tensor], shape: tuple[int, ...]) -> Circuit:
    """Trace a model with weights that say nothing: what reads what is then all that is left.

    Both sides do so and get the same layout. No two of these weights are equal and none is 0, so
    that nothing cancels and no read is lost.
    """
    told = {
        name: 2 + torch.cos(torch.arange(one.numel(), dtype=torch.float64) + at).reshape(one.shape)
        for at, (name, one) in enumerate(weights.items())
    }
    return trace(model, told, shape)


def choose_packing(
    model: Any,
    weights: Mapping[str, Tensor],
    shape: tuple[int, ...],
    *,
    bits: int | None,
    bound: float,
) -> tuple[Packing, WholeCircuit]:
    """Choose the layout and the rings that take the owner of the model least time.

    Raises:
        ConfigError: the model has no circuit, or one that is too deep.
    """
    structure = structure_of(model, weights, shape)
    circuit = trace(model, weights, shape)
    bits = bits or DEFAULT_BITS.get(circuit.depth, 4)
    whole = make_whole(circuit, bits=bits, bound=bound)
    found: list[tuple[float, Packing]] = []
    if not circuit.products and 1 << whole.range_bits < ROOM and _is_light(whole):
        packing = read_packing((2, *_scales_alone(whole).to_numbers()), structure, shape, bits)
        terms = (whole.inputs / 256 + 1) * (whole.out.size / 32 + 1)  # measured, as the rest
        found.append(((5e-3 + terms * _COEFFICIENT_S) * shape[0], packing))
    reasons = []
    for number, name in enumerate(LAYOUTS[:1] if found else LAYOUTS[:2]):
        arrangement = _arranged(name, structure)
        try:
            cost = partial(arrangement.work, circuit=whole)
            parameters, seconds = choose(whole, cost, depth=circuit.depth)
        except ConfigError as error:
            reasons.append(error)
            continue
        packing = read_packing((number, *parameters.to_numbers()), structure, shape, bits)
        found.append((seconds * -(-shape[0] // packing.way.sizes().batch), packing))
    if not found:
        raise reasons[0]
    seconds, packing = min(found, key=lambda one: one[0])
    return replace(packing, seconds=seconds), whole


def read_packing(
    numbers: tuple[int, ...], structure: Circuit, shape: tuple[int, ...], bits: int
) -> Packing:
    """Make the packing of what the owner of the model told, or refuse it."""
    if not 0 <= numbers[0] < len(LAYOUTS):
        raise ConfigError(f"wanted a layout from 0 to {len(LAYOUTS) - 1}, got {numbers[0]}")
    layout, parameters = LAYOUTS[numbers[0]], Parameters.from_numbers(numbers[1:])
    way: SlotWay | CoefficientWay
    if layout == "coefficients":
        way = CoefficientWay(structure.inputs, structure.out.size, 1 << (bits + 1))
    else:
        way = SlotWay(parameters, _arranged(layout, structure))
    return Packing(layout, parameters, way, shape)


def _arranged(layout: Layout, structure: Circuit) -> InSlots | InRow:
    return InSlots(structure.inputs, structure.out.size) if layout == "slots" else InRow(structure)


def _is_light(whole: WholeCircuit) -> bool:
    """Tell whether the weights fit what coefficients can grow to, by the largest sum of a row."""
    part = whole.out.parts.get(0)
    heaviest = 0 if part is None else abs(part).sum(axis=1).max()
    most = whole.bound * 2.0**whole.input_scale + 1
    return bool(heaviest * 2 * most + max(map(abs, whole.out.offset), default=0) < ROOM)


def _scales_alone(whole: WholeCircuit) -> Parameters:
    """Return parameters whose rings are not used: those of coefficients are fixed."""
    return Parameters(
        degree=8192,
        plain_bits=20,
        moduli=1,
        primes=1,
        prime_bits=60,
        special_bits=60,
        input_scale=whole.input_scale,
        output_scale=whole.out.scale,
    )
