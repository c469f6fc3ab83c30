"""How rows are packed into ciphertexts: what will be sent, and what both sides of a run do."""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tacit.crypto.cipher import CipherLayout as CipherLayout
from tacit.crypto.cipher import load_public, make_key, wire_bytes
from tacit.crypto.cipher.bfv import BfvSecretKey, public_bytes
from tacit.crypto.cipher.saved import SEED_BYTES
from tacit.crypto.cipher.slots import Numbers, OwnSlotKeys, SlotKeys, join
from tacit.crypto.field import Randomness
from tacit.errors import ConfigError, DataError
from tacit.inference.he.circuit import Circuit, trace
from tacit.inference.he.layouts import InRow, InSlots
from tacit.inference.he.parameters import Layout, Parameters, WholeCircuit, choose, make_whole
from tacit.mpc.plan import NETWORKS
from tacit.party.cost import CostedMessage, CostTally, forecast_seconds
from tacit.result import Forecast

ROOM = (1 << 47) - 1
"""What a number in a coefficient may grow to: of 48 plain bits one is the sign."""
Recv = Callable[[int], bytes]
"""Gives the next message, of a size that is known."""
Arrangement = InSlots | InRow
"""How the rows of one circuit lie in ciphertexts; both sides make the same from what is public."""


@dataclass(frozen=True)
class MessageSizes:
    """How long every message is: of the keys, of a batch of rows and of its answers."""

    keys: tuple[int, ...]
    rows: tuple[int, ...]
    answers: tuple[int, ...]
    batch: int


@dataclass(frozen=True)
class SlotWay:
    """A run in slots, modulo several primes."""

    parameters: Parameters
    arrangement: Arrangement

    def sizes(self) -> MessageSizes:
        """Return the length of every message, ring after ring."""
        keys: list[int] = []
        rows: list[int] = []
        answers: list[int] = []
        for ring in self.parameters.rings():
            keys += [ring.public_bytes, ring.key_bytes(self.arrangement.steps(ring))]
            rows += [ring.wire_bytes(0, is_seeded=True)] * self.arrangement.sent(ring)
            size = ring.wire_bytes(ring.primes - 1, is_seeded=False)
            answers += [size] * self.arrangement.answered(ring)
        batch = self.arrangement.batch(self.parameters.rings()[0])
        return MessageSizes(tuple(keys), tuple(rows), tuple(answers), batch)

    def client(self) -> "SlotKeyHolder":
        """Make fresh keys for every ring."""
        made = [OwnSlotKeys(one, self.arrangement.steps(one)) for one in self.parameters.rings()]
        return SlotKeyHolder(self, made)

    def server(self, keys: Sequence[bytes], circuit: WholeCircuit) -> "SlotEvaluator":
        """Read keys for every ring, and prepare the weights."""
        found = []
        for at, ring in enumerate(self.parameters.rings()):
            steps = self.arrangement.steps(ring)
            found.append(SlotKeys(ring, keys[2 * at], keys[2 * at + 1], steps))
            self.arrangement.prepare(found[-1], circuit)
        return SlotEvaluator(self, found, circuit)


@dataclass(frozen=True)
class SlotKeyHolder:
    """The owner of the rows."""

    way: SlotWay
    own: Sequence[OwnSlotKeys]

    def keys(self) -> list[bytes]:
        """Return the public keys of every ring, and those for products and turns."""
        return [data for one in self.own for data in (one.public, one.switching)]

    def encrypt(self, rows: Numbers) -> Iterator[bytes]:
        """Encrypt a batch, ring after ring."""
        for one in self.own:
            yield from self.way.arrangement.encrypt(one, rows)

    def decrypt(self, answers: Sequence[bytes], rows: int) -> Any:
        """Join the residues of all rings."""
        count = len(answers) // len(self.own)
        residues = [
            self.way.arrangement.decrypt(one, answers[at * count : (at + 1) * count], rows)
            for at, one in enumerate(self.own)
        ]
        return join(residues, [one.ring.plain_modulus for one in self.own])


@dataclass(frozen=True)
class SlotEvaluator:
    """The owner of the model."""

    way: SlotWay
    keys: Sequence[SlotKeys]
    circuit: WholeCircuit

    def evaluate(self, recv: Recv, rows: int, randomness: Randomness) -> Iterator[bytes]:
        """Evaluate a batch, ring after ring."""
        for one in self.keys:
            size, seen = one.ring.wire_bytes(0, is_seeded=True), set[bytes]()

            def take(keys: SlotKeys = one, size: int = size, seen: set[bytes] = seen) -> Any:
                data = recv(size)
                if data[-SEED_BYTES:] in seen:  # weights could undo it, and SEAL would stop there
                    raise DataError("got two ciphertexts of bfv with one seed")
                seen.add(data[-SEED_BYTES:])
                return keys.received(data)

            yield from self.way.arrangement.evaluate(one, self.circuit, take, rows, randomness)


@dataclass(frozen=True)
class CoefficientWay:
    """A run of one linear map, with numbers in coefficients: no turns, no keys for products.

    Attributes:
        inputs: numbers of a row.
        outputs: numbers of an answer.
        bound: no number of a row is larger.
    """

    inputs: int
    outputs: int
    bound: int

    @property
    def sent(self) -> CipherLayout:
        """Return the layout of a row."""
        return CipherLayout(rows=self.inputs, bound=self.bound, room=ROOM, by_owner=True)

    @property
    def answered(self) -> CipherLayout:
        """Return the layout of an answer."""
        return CipherLayout(rows=self.outputs, bound=ROOM, room=ROOM, form="released")

    def sizes(self) -> MessageSizes:
        """Return the length of the key, of a row and of an answer."""
        rows, answers = wire_bytes("bfv", self.sent), wire_bytes("bfv", self.answered)
        return MessageSizes((public_bytes(),), (rows,), (answers,), 1)

    def client(self) -> "CoefficientKeyHolder":
        """Make a fresh key."""
        made = make_key("bfv", _no_randomness)
        assert isinstance(made, BfvSecretKey)  # noqa: S101 - as was asked for
        return CoefficientKeyHolder(self, made)

    def server(self, keys: Sequence[bytes], circuit: WholeCircuit) -> "CoefficientEvaluator":
        """Read the key of the client."""
        return CoefficientEvaluator(self, keys[0], circuit)


@dataclass(frozen=True)
class CoefficientKeyHolder:
    """The owner of the rows."""

    way: CoefficientWay
    own: BfvSecretKey

    def keys(self) -> list[bytes]:
        """Return the public key."""
        return [self.own.public.to_bytes()]

    def encrypt(self, rows: Numbers) -> Iterator[bytes]:
        """Encrypt one row."""
        sealed = self.own.encrypt(rows.reshape(-1, 1), self.way.sent, _no_randomness)
        yield self.own.public.dump(sealed)

    def decrypt(self, answers: Sequence[bytes], rows: int) -> Any:
        """Read the coefficients of the outputs."""
        found = self.own.decrypt(self.own.public.load(answers[0], self.way.answered))
        return found.T.astype(object)


class CoefficientEvaluator:
    """The owner of the model."""

    def __init__(self, way: CoefficientWay, data: bytes, circuit: WholeCircuit) -> None:
        self._key = load_public("bfv", data)
        self._way = way
        matrix = np.zeros((way.outputs, way.inputs), np.int64)
        if 0 in circuit.out.parts:
            matrix[:] = circuit.out.parts[0].toarray()
        self._matrix = matrix
        self._offset = np.array(circuit.out.offset, np.int64).reshape(-1, 1)

    def evaluate(self, recv: Recv, rows: int, randomness: Randomness) -> Iterator[bytes]:
        """Multiply, add and release one row."""
        size = wire_bytes("bfv", self._way.sent)
        sealed = self._key.load(recv(size), self._way.sent)
        found = self._key.weigh(self._matrix, sealed)
        bound = max(1, int(np.abs(self._offset).max()))
        found = self._key.add_plain(found, self._offset, bound=bound)
        yield self._key.dump(self._key.release(found, randomness))


def _no_randomness(count: int) -> bytes:
    """Refuse: SEAL draws its own."""
    raise AssertionError(f"{count} bytes of randomness were asked for")


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
