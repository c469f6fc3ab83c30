"""The two sides of a layout: what the owner of the rows and the owner of the model do with a ring.

A layout says how rows lie in ciphertexts; everything else, keys and messages, is common to all.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

from tacit.crypto.cipher.slots import Numbers, OwnSlotKeys, SlotKeys, SlotRing
from tacit.crypto.field import Randomness
from tacit.inference.he.integers import WholeCircuit
from tacit.inference.he.parameters import Work

Take = Callable[[], Any]
"""Gives the next ciphertext that has come."""


class Arrangement(Protocol):
    """A layout of one circuit, from what is public of it: both sides make the same.

    ``steps`` are the turns of slots that it needs keys for; a batch is as many rows as go into
    one set of ciphertexts.
    """

    def steps(self, ring: SlotRing) -> tuple[int, ...]:
        """Return the turns of slots that are used, each once."""
        ...

    def batch(self, ring: SlotRing) -> int:
        """Return how many rows are evaluated at once."""
        ...

    def sent(self, ring: SlotRing) -> int:
        """Return how many ciphertexts the owner of the rows sends for a batch."""
        ...

    def answered(self, ring: SlotRing) -> int:
        """Return how many ciphertexts come back."""
        ...

    def encrypt(self, keys: OwnSlotKeys, rows: Numbers) -> Iterator[bytes]:
        """Encrypt one batch of whole numbers."""
        ...

    def decrypt(self, keys: OwnSlotKeys, answers: Sequence[bytes], rows: int) -> Numbers:
        """Return the residues of a batch of outputs."""
        ...

    def prepare(self, keys: SlotKeys, circuit: WholeCircuit) -> None:
        """Bring weights to the form of products, before any row has come."""
        ...

    def evaluate(
        self, keys: SlotKeys, circuit: WholeCircuit, take: Take, rows: int, randomness: Randomness
    ) -> Iterator[bytes]:
        """Evaluate a circuit on a batch of ``rows`` rows, and yield the released answers."""
        ...

    def work(self, ring: SlotRing, circuit: WholeCircuit) -> Work:
        """Return the noise of the worst answer, and what a batch takes."""
        ...
