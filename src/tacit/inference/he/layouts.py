"""How the rows of a circuit lie in the slots of ciphertexts: many rows at once, or one row.

Many rows as CryptoNets has them (Gilad-Bachrach et al. 2016, `InSlots`): slot i of every ciphertext
belongs to row i, so no slot is ever turned, a weight is one number for all slots, and thousands of
rows cost what one does.

One row in a few ciphertexts (`InRow`): products slot by slot, matrices by turning slots. The owner
of the rows lays its numbers out as the first matrix reads them (the windows of a
convolution, say, which are public), so that this one needs no turns but to add up copies. Later
matrices go by their diagonals in baby and giant steps (Halevi and Shoup 2014, 2018):
M·v = Σ diag_i(M) · turn(v, i), with i = giant · b + baby. Turns by less than b are made once for
all giants; those by multiples of b are shared by Horner's rule, so that about 2√n turns stand for
n. Sums of the last one are left to the receiver: its terms are masked by numbers
that add up to zero.

Only one of the two rows of slots that SEAL has is used: a turn stays inside a row. Sizes are filled
up to powers of two, so that values lie in the row with a period and a turn by it is the identity.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import inf
from typing import Any

import numpy as np

from tacit.crypto.cipher.slots import Noise, Numbers, OwnSlotKeys, SlotKeys, SlotRing
from tacit.crypto.field import Randomness
from tacit.errors import DataError
from tacit.inference.he.circuit import Affine, Circuit
from tacit.inference.he.parameters import (
    LayoutCost,
    NextCiphertext,
    WholeAffine,
    WholeCircuit,
    residues,
)

_OUT = -1


@dataclass(frozen=True, eq=False)
class _Use:
    """What is public of an affine value: its size, which inputs it reads, which products."""

    size: int
    taps: Numbers | None
    products: tuple[int, ...]


class InRow:
    """The layout of one row, by the structure of a circuit alone."""

    def __init__(self, structure: Circuit) -> None:
        self._uses = tuple(_use_of(one) for one in structure.values)
        self._sizes = (0, *(left.size for left, _ in structure.products))
        self._inputs = structure.inputs

    def batch(self, ring: SlotRing) -> int:
        """Return one."""
        return 1

    @cached_property
    def _last_period(self) -> int:
        out = self._uses[-1]
        taps = 1 if out.taps is None else out.taps.shape[1]
        return max([_power(self._sizes[at]) for at in out.products] or [_power(taps)])

    def _copies(self, ring: SlotRing, use: _Use) -> int:
        """Return how many reads of the input lie beside each other."""
        reads = 1 if use.taps is None else use.taps.shape[1]
        return min(ring.degree // 2 // _power(use.size), _power(reads))

    def _last(self, ring: SlotRing) -> tuple[int, int, int]:
        """Return the period of an output's terms, and how it packs.

        That is how many outputs go into one ciphertext, and how many ciphertexts of inputs each of
        those reads.
        """
        period = min(self._last_period, ring.degree // 2)
        out = self._uses[-1]
        taps = 0 if out.taps is None else out.taps.shape[1]
        return period, ring.degree // 2 // period, -(-taps // period)

    def steps(self, ring: SlotRing) -> tuple[int, ...]:
        """Return the turns of the sums over copies and of the diagonals."""
        found: set[int] = set()
        for use in self._uses[:-1]:
            period = _power(use.size)
            if use.taps is not None:
                found.update(_doublings(period, period * self._copies(ring, use)))
            for at in use.products:
                count, baby = _diagonals(_power(self._sizes[at]), period)
                found.update({1} if baby > 1 else ())
                found.update({baby} if count > baby else ())
                found.update(_doublings(period, _power(self._sizes[at])))
        return tuple(sorted(found))

    def sent(self, ring: SlotRing) -> int:
        """Return the ciphertexts of all reads of the input."""
        total = 0
        for use in self._uses[:-1]:
            if use.taps is not None:
                total += -(-use.taps.shape[1] // self._copies(ring, use))
        return total + self._last(ring)[2] * self.answered(ring)

    def answered(self, ring: SlotRing) -> int:
        """Return the ciphertexts of the output."""
        return -(-self._uses[-1].size // self._last(ring)[1])

    def encrypt(self, keys: OwnSlotKeys, rows: Numbers) -> Iterator[bytes]:
        """Encrypt one row as it is read."""
        padded = np.append(rows[0], 0)
        for places in self._read(keys.ring):
            slots = np.zeros(keys.ring.degree, np.int64)
            slots[: keys.ring.degree // 2] = padded[places]
            yield keys.encrypt(slots)

    def _read(self, ring: SlotRing) -> Iterator[Numbers]:
        """Yield which input every slot of a ciphertext of inputs has; -1 for none."""
        half = ring.degree // 2
        for use in self._uses[:-1]:
            if use.taps is not None:
                yield from _copied(use.taps, _power(use.size), self._copies(ring, use), half)
        period, copies, reads = self._last(ring)
        taps = self._uses[-1].taps
        if taps is not None:
            wide = _padded(taps, copies * self.answered(ring), reads * period)
            for read in np.moveaxis(wide.reshape(-1, copies, reads, period), 2, 1):
                yield from (one.reshape(-1) for one in read)

    def decrypt(self, keys: OwnSlotKeys, answers: Sequence[bytes], rows: int) -> Numbers:
        """Add up the masked terms of every output."""
        period, copies, _ = self._last(keys.ring)
        half, plain = keys.ring.degree // 2, keys.ring.plain_modulus
        found = [keys.decrypt(one)[:half].reshape(copies, period) for one in answers]
        sums = np.concatenate([one.astype(object).sum(axis=1) % plain for one in found])
        return sums[None, : self._uses[-1].size].astype(np.int64)

    def prepare(self, keys: SlotKeys, circuit: WholeCircuit) -> None:
        """Lay weights out as the ciphertexts that they meet, and transform them."""
        half, kept, plain = keys.ring.degree // 2, keys.kept, keys.ring.plain_modulus
        values = circuit.values
        for number, (use, value) in enumerate(zip(self._uses[:-1], values[:-1], strict=True)):
            period = _power(use.size)
            if use.taps is not None:
                weights, copies = _read_weights(value, use, plain), self._copies(keys.ring, use)
                for at, one in enumerate(_copied(weights, period, copies, half, 0)):
                    _keep(keys, kept, (number, 0, at), one)
            for name in use.products:
                wide = _power(self._sizes[name])
                matrix = _dense(value, name, period, wide, plain)
                for at, one in enumerate(_diagonals_of(matrix, half)):
                    _keep(keys, kept, (number, name, at), one)
        period, copies, reads = self._last(keys.ring)
        out, value, answered = self._uses[-1], values[-1], self.answered(keys.ring)
        if out.taps is not None:
            weights = _padded(
                _read_weights(value, out, plain), copies * answered, reads * period, 0
            )
            parts = np.moveaxis(weights.reshape(answered, copies, reads, period), 2, 1)
            for at, one in enumerate(parts.reshape(answered * reads, -1)):
                _keep(keys, kept, (_OUT, 0, at), one)
        for name in out.products:
            matrix = _dense(value, name, copies * answered, period, plain)
            for at, one in enumerate(matrix.reshape(answered, -1)):
                _keep(keys, kept, (_OUT, name, at), one)

    def evaluate(
        self,
        keys: SlotKeys,
        circuit: WholeCircuit,
        take: NextCiphertext,
        rows: int,
        randomness: Randomness,
    ) -> Iterator[bytes]:
        """Evaluate one row; every slot that is no term of an output is random."""
        ring, vectors = keys.ring, list[Any]([None])
        number = 0
        for left, right in circuit.products:
            first = self._value(keys, number, left, vectors, take)
            number += 1
            second = first
            if left is not right:
                second = self._value(keys, number, right, vectors, take)
                number += 1
            vectors.append(keys.multiply(first, second))
        ready = [None if one is None else keys.to_ntt(one) for one in vectors]
        period, copies, reads = self._last(ring)
        out = self._uses[-1]
        for at in range(self.answered(ring)):
            total: Any = None
            for read in range(reads):
                found = keys.to_ntt(take())
                total = _plus_product(keys, total, found, (_OUT, 0, at * reads + read))
            for name in out.products:
                total = _plus_product(keys, total, ready[name], (_OUT, name, at))
            # Single terms would tell the receiver weights; under this mask only sums are told.
            mask = keys.draw(randomness, ring.degree)
            terms = mask[: ring.degree // 2].reshape(copies, period)
            terms[:, 0] = -(terms[:, 1:].astype(object).sum(axis=1)) % ring.plain_modulus
            here = circuit.out.offset[at * copies : (at + 1) * copies]
            plus = np.array([one % ring.plain_modulus for one in here], np.int64)
            terms[: len(plus), 0] += plus
            terms[len(plus) :] = keys.draw(randomness, terms[len(plus) :].size).reshape(-1, period)
            part = None if total is None else keys.from_ntt(total)
            yield keys.sent(keys.released(part, mask, randomness))

    def _value(
        self,
        keys: SlotKeys,
        number: int,
        value: WholeAffine,
        vectors: list[Any],
        take: NextCiphertext,
    ) -> Any:
        """Return one affine value in all its copies."""
        ring, use = keys.ring, self._uses[number]
        half, period = ring.degree // 2, _power(use.size)
        total: Any = None
        if use.taps is not None:
            for at in range(-(-use.taps.shape[1] // self._copies(ring, use))):
                total = _plus_product(keys, total, keys.to_ntt(take()), (number, 0, at))
            if total is not None:
                steps = _doublings(period, period * self._copies(ring, use))
                total = _folded(keys, keys.from_ntt(total), steps)
        for name in use.products:
            found = self._by_diagonals(keys, number, name, vectors[name])
            if found is not None:
                found = _folded(keys, found, _doublings(period, _power(self._sizes[name])))
                total = found if total is None else keys.add(total, found)
        offset = np.zeros(period, np.int64)
        offset[: use.size] = [one % ring.plain_modulus for one in value.offset]
        slots = np.zeros(ring.degree, np.int64)
        slots[:half] = np.tile(offset, half // period)
        return keys.plus(total, slots)

    def _by_diagonals(self, keys: SlotKeys, number: int, name: int, vector: Any) -> Any:
        """Multiply by a matrix: babies are turned one by one, giants by Horner's rule.

        Weights of giant g were turned back by g·b (`_diagonals_of`), as they are turned along here.
        """
        count, baby = _diagonals(_power(self._sizes[name]), _power(self._uses[number].size))
        turned = [vector]
        for _ in range(1, baby):
            turned.append(keys.turned(turned[-1], 1))
        babies = [keys.to_ntt(one) for one in turned]
        total: Any = None
        for giant in range(count // baby - 1, -1, -1):
            inner: Any = None
            for at, one in enumerate(babies):
                inner = _plus_product(keys, inner, one, (number, name, giant * baby + at))
            if total is not None:
                total = keys.turned(total, baby)
            if inner is not None:
                inner = keys.from_ntt(inner)
                total = inner if total is None else keys.add(total, inner)
        return total

    def work(self, ring: SlotRing, circuit: WholeCircuit) -> LayoutCost:
        """Add up noise; a value that does not fit half the slots fits no such ring."""
        model, half = Noise(ring), ring.degree // 2
        most = max((_power(use.size) for use in self._uses[:-1]), default=1)
        if max(most, self._last_period) > half:
            return LayoutCost(inf, 0, 0, 0)
        noises, sums, turns, number = [0.0], 0, 0, 0
        for left, right in circuit.products:
            pair = []
            for _ in range(1 if left is right else 2):
                noise, more, turned = self._value_noise(model, number, noises)
                pair.append(noise)
                sums, turns, number = sums + more, turns + turned, number + 1
            noises.append(model.product(pair[0], pair[-1]))
        out = self._uses[-1]
        last = sum(model.scaled(noises[at]) for at in out.products)
        last += self._last(ring)[2] * model.scaled(model.fresh)
        return LayoutCost(last, sums + 4 * self.answered(ring), len(circuit.products), turns)

    def _value_noise(
        self, model: Noise, number: int, noises: Sequence[float]
    ) -> tuple[float, int, int]:
        """Return a value's noise, its products with plain weights, and its turns."""
        use, ring = self._uses[number], model.ring
        period, total, sums, turns = _power(use.size), 8.0, 0, 0
        if use.taps is not None:
            reads = -(-use.taps.shape[1] // self._copies(ring, use))
            noise, sums = model.scaled(model.fresh) * reads**0.5, 4 * reads
            for _ in _doublings(period, period * self._copies(ring, use)):
                noise, turns = 2 * noise + model.switched, turns + 1
            total += noise
        for name in use.products:
            wide = _power(self._sizes[name])
            count, baby = _diagonals(wide, period)
            noise = model.scaled(noises[name] + baby * model.switched) * count**0.5
            noise += count / baby * model.switched
            for _ in _doublings(period, wide):
                noise, turns = 2 * noise + model.switched, turns + 1
            total, sums = total + noise, sums + 4 * count
            turns += baby + count // baby
        return total, sums, turns


def _use_of(value: Affine) -> _Use:
    part = value.parts.get(0)
    products = tuple(sorted(name for name in value.parts if name))
    if part is None or not part.nnz:
        return _Use(value.size, None, products)
    counts = np.diff(part.indptr)
    taps = np.full((value.size, int(counts.max())), -1, np.int64)
    places = np.arange(part.nnz) - np.repeat(part.indptr[:-1], counts)
    taps[np.repeat(np.arange(value.size), counts), places] = part.indices
    return _Use(value.size, taps, products)


def _read_weights(value: WholeAffine, use: _Use, modulus: int) -> Numbers:
    """Return the weight of every read of the input."""
    part, taps = value.parts[0], use.taps
    if taps is None:
        raise DataError("a value that reads no input has no weights for it")
    dense = np.zeros((use.size, part.shape[1] + 1))
    dense[:, :-1] = part.toarray()
    found = np.take_along_axis(dense, taps, axis=1)
    if np.count_nonzero(found) != part.count_nonzero():
        raise DataError("a model reads other inputs than its layers say; give it as a module")
    return residues(found, modulus)


def _dense(value: WholeAffine, name: int, rows: int, columns: int, modulus: int) -> Numbers:
    found = np.zeros((rows, columns), np.int64)
    part = value.parts[name]
    found[: part.shape[0], : part.shape[1]] = residues(part.toarray(), modulus)
    return found


def _copied(
    taps: Numbers, period: int, copies: int, half: int, empty: int = -1
) -> Iterator[Numbers]:
    """Lay the reads of a value out: one copy of all its slots for every read, over and over."""
    reads = -(-taps.shape[1] // copies)
    wide = _padded(taps, period, reads * copies, empty)
    for read in np.moveaxis(wide.reshape(period, reads, copies), 1, 0):
        yield np.tile(read.T.reshape(-1), half // (period * copies))


def _padded(values: Numbers, rows: int, columns: int, empty: int = -1) -> Numbers:
    found = np.full((rows, columns), empty, np.int64)
    found[: values.shape[0], : values.shape[1]] = values
    return found


def _diagonals(wide: int, period: int) -> tuple[int, int]:
    """Return how many diagonals a matrix has, and how many of them are baby steps."""
    count = min(wide, period)
    return count, 1 << (count.bit_length() // 2)


def _diagonals_of(matrix: Numbers, half: int) -> Iterator[Numbers]:
    """Yield the diagonals, each turned back by its giant step, over half of the slots."""
    rows, columns = matrix.shape
    count, baby = _diagonals(columns, rows)
    at = np.arange(max(rows, columns))
    for number in range(count):
        found = matrix[at % rows, (at + number) % columns]
        yield np.tile(np.roll(found, number // baby * baby), half // len(found))


def _keep(keys: SlotKeys, kept: dict[tuple[int, ...], Any], at: tuple[int, ...], one: Any) -> None:
    """Prepare weights of half of the slots; those that are all zero are left out."""
    if (one % keys.ring.plain_modulus).any():
        kept[at] = keys.prepared(np.concatenate([one, np.zeros_like(one)]))


def _plus_product(keys: SlotKeys, total: Any, part: Any, at: tuple[int, ...]) -> Any:
    factor = keys.kept.get(at)
    return total if factor is None else keys.multiply_add(total, part, factor)


def _folded(keys: SlotKeys, part: Any, steps: Sequence[int]) -> Any:
    """Add up what lies so many slots apart."""
    for step in steps:
        part = keys.add(part, keys.turned(part, step))
    return part


def _doublings(first: int, end: int) -> tuple[int, ...]:
    """Return first, 2·first, … below an end that is a power of two times the first."""
    found = []
    while first < end:
        found.append(first)
        first *= 2
    return tuple(found)


def _power(size: int) -> int:
    """Return the power of two that is at least as large."""
    return 1 << max(size - 1, 0).bit_length()


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
