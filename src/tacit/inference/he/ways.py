"""The two sides of an encrypted run: keys and ciphertexts as the bytes that are sent."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tacit.crypto.cipher import CipherLayout as CipherLayout
from tacit.crypto.cipher import load_public, make_key, wire_bytes
from tacit.crypto.cipher.bfv import BfvSecretKey, public_bytes
from tacit.crypto.cipher.saved import SEED_BYTES
from tacit.crypto.cipher.slots import Numbers, OwnSlotKeys, SlotKeys, join
from tacit.crypto.field import Randomness
from tacit.errors import DataError
from tacit.inference.he.batch import InSlots
from tacit.inference.he.integers import WholeCircuit
from tacit.inference.he.parameters import Parameters
from tacit.inference.he.row import InRow

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
