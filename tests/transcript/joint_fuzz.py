"""Read changed keys, ciphertexts, points and tables of two parties; print: refused, taken."""

import random
import sys

import numpy as np

from tacit.crypto.joint import lattice, transfer
from tacit.crypto.joint.garbling import Evaluator, Garbler, Thresholds
from tacit.errors import DataError

PLACES = np.arange(0, lattice.DEGREE, 64)


def changed(data, chance):
    """Change bits, bytes, stretches or words of an array."""
    found = data.copy()
    octets = found.reshape(-1).view(np.uint8)
    way, size = chance.randrange(4), octets.size
    if way == 0:
        octets[chance.randrange(size)] ^= 1 << chance.randrange(8)
    elif way == 1:
        octets[chance.randrange(size)] = chance.randrange(256)
    elif way == 2:
        first, second = chance.randrange(size - 64), chance.randrange(size - 64)
        octets[first : first + 64] = octets[second : second + 64].copy()
    else:
        at = chance.randrange(size - 8)
        octets[at : at + 8] = 0xFF
    return found


def main(count):
    """Give every kind of message, changed, to whoever reads it."""
    chance = random.Random(11)  # noqa: S311 - nothing here is a secret
    key = lattice.LatticeKey(chance.randbytes)
    zeros = np.zeros((1, lattice.DEGREE), np.uint64)
    fresh, seed = key.encrypt(zeros, chance.randbytes)
    products = lattice.Products(key.public, key.public_seed)
    masks = np.zeros((1, len(PLACES)), np.uint64)
    second, first = products.released(products.empty(1), PLACES, masks, chance.randbytes)
    base = transfer.BaseSender()
    point = np.frombuffer(base.offer(), np.uint8)
    circuit, hashing, delta = Thresholds(8, (3,)), transfer.Hash(b"h" * 16), np.ones(2, np.uint64)
    labels = np.frombuffer(chance.randbytes(8 * 512), np.uint64).reshape(2, 8, 16, 2)
    tables, _ = Garbler(delta, hashing).garble(circuit, *labels)

    def read_point(data):
        left, right = data[:33].tobytes(), data[33:66].tobytes()
        transfer._minus(transfer._load(left), transfer._load(right))

    def read_answer(data):
        half = data[: second.size].reshape(second.shape)
        seen = data[second.size :].reshape(first.shape)
        lattice.check_residues(half, lattice.KEPT)
        lattice.check_residues(seen, lattice.KEPT)
        key.decrypt(half, seen, PLACES)

    kinds = [
        (key.public, lambda data: lattice.Products(data, key.public_seed)),
        (fresh, lambda data: lattice.Sealed.load(data, seed)),
        (np.concatenate((second.reshape(-1), first.reshape(-1))), read_answer),
        (point, read_point),
        (np.frombuffer(base.offer(), np.uint8), read_point),
        (tables, lambda data: Evaluator(hashing).evaluate(circuit, *labels, data, 0)),
    ]
    refused = 0
    for at in range(count):
        data, read = kinds[at % len(kinds)]
        try:
            read(changed(data, chance))
        except DataError:
            refused += 1
    print(refused, count - refused)


if __name__ == "__main__":
    main(int(sys.argv[1]))
