"""Rows in slots, as CryptoNets has them: a ciphertext for every number of a row, for all rows.

Gilad-Bachrach et al. 2016: slot i of every ciphertext belongs to row i, so no slot is
ever turned, a weight is one number for all slots, and thousands of rows cost what one does.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tacit.crypto.cipher.slots import Noise, Numbers, OwnSlotKeys, SlotKeys, SlotRing
from tacit.crypto.field import Randomness
from tacit.inference.he.integers import WholeAffine, WholeCircuit, residues
from tacit.inference.he.parameters import LayoutCost, NextCiphertext


@dataclass(frozen=True)
class InSlots:
    """A batch layout: as many rows as there are slots.

    Attributes:
        inputs: numbers of a row.
        outputs: numbers of an answer.
    """

    inputs: int
    outputs: int

    def steps(self, ring: SlotRing) -> tuple[int, ...]:
        """Return none: slots do not meet."""
        return ()

    def batch(self, ring: SlotRing) -> int:
        """Return the number of slots."""
        return ring.degree

    def sent(self, ring: SlotRing) -> int:
        """Return one for every number of a row."""
        return self.inputs

    def answered(self, ring: SlotRing) -> int:
        """Return one for every number of an answer."""
        return self.outputs

    def encrypt(self, keys: OwnSlotKeys, rows: Numbers) -> Iterator[bytes]:
        """Encrypt column after column."""
        wide = np.zeros((self.inputs, keys.ring.degree), np.int64)
        wide[:, : len(rows)] = rows.T
        return map(keys.encrypt, wide)

    def decrypt(self, keys: OwnSlotKeys, answers: Sequence[bytes], rows: int) -> Numbers:
        """Read the slots of the rows."""
        return np.stack([keys.decrypt(one)[:rows] for one in answers], axis=1)

    def prepare(self, keys: SlotKeys, circuit: WholeCircuit) -> None:
        """Prepare nothing: weights are single numbers."""

    def evaluate(
        self,
        keys: SlotKeys,
        circuit: WholeCircuit,
        take: NextCiphertext,
        rows: int,
        randomness: Randomness,
    ) -> Iterator[bytes]:
        """Evaluate all rows at once; slots without a row answer with random numbers."""
        vectors: list[list[Any]] = [[take() for _ in range(self.inputs)]]
        for left, right in circuit.products:
            first = _affine(keys, left, vectors)
            second = first if left is right else _affine(keys, right, vectors)
            vectors.append([keys.multiply(a, b) for a, b in zip(first, second, strict=True)])
        for one in _affine(keys, circuit.out, vectors):
            # Slots without a row hold what the weights make of zeros: the offsets of the model.
            mask = keys.draw(randomness, keys.ring.degree)
            mask[:rows] = 0
            yield keys.sent(keys.released(one, mask, randomness))

    def work(self, ring: SlotRing, circuit: WholeCircuit) -> LayoutCost:
        """Add up noise by the sums of the sizes of weights."""
        model = Noise(ring)
        noises = [model.fresh]
        sums = products = 0
        for left, right in circuit.products:
            first, second = _noise(left, noises, ring), _noise(right, noises, ring)
            noises.append(model.product(first, second))
            products += left.size
        for value in circuit.values:
            sums += sum(part.nnz for part in value.parts.values())
        return LayoutCost(_noise(circuit.out, noises, ring), sums, products, 0)


def _noise(value: WholeAffine, noises: Sequence[float], ring: SlotRing) -> float:
    """Return the noise of a sum of products with whole numbers, each at most half the modulus."""
    total = np.full(value.size, 8.0 * ring.degree**0.5)  # of a fresh zero, where there is no term
    for name, part in value.parts.items():
        sizes = part.copy()
        sizes.data = np.minimum(np.abs(part.data), ring.plain_modulus / 2)
        total = total + noises[name] * np.asarray(sizes.sum(axis=1)).ravel()
    return float(total.max())


def _affine(keys: SlotKeys, value: WholeAffine, vectors: Sequence[Sequence[Any]]) -> list[Any]:
    """Return a ciphertext for every value of an affine map."""
    found: list[Any] = [None] * value.size
    for name, part in value.parts.items():
        factors = residues(part.data, keys.ring.plain_modulus)
        for row in range(value.size):
            here = slice(part.indptr[row], part.indptr[row + 1])
            parts = [vectors[name][at] for at in part.indices[here].tolist()]
            more = keys.weighed(parts, factors[here])
            if found[row] is not None and more is not None:
                more = keys.add(found[row], more)
            found[row] = found[row] if more is None else more
    return [keys.plus_constant(one, by) for one, by in zip(found, value.offset, strict=True)]
