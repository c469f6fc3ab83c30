"""Read changed keys, rows and answers of an encrypted run; print how many were refused, taken."""

import random
import sys

import numpy as np

from tacit.crypto.cipher.slots import OwnSlotKeys, SlotKeys, SlotRing
from tacit.errors import DataError
from tacit.ring import Prg

RING = SlotRing(degree=4096, plain_bits=20, primes=1, prime_bits=58, special_bits=50, number=0)
STEPS = (1,)


def changed(data, chance):
    """Change bytes, cut, swap or repeat stretches, or lie about a length."""
    found, size = bytearray(data), len(data)
    way = chance.randrange(5)
    if way == 0:
        for _ in range(chance.randrange(1, 4)):
            near = min(size, 400)  # the first numbers, or the last ones and the seed
            found[chance.randrange(-near, near)] ^= 1 << chance.randrange(8)
    elif way == 1:
        found[chance.randrange(size)] = chance.randrange(256)
    elif way == 2:
        return bytes(found[: chance.randrange(size)])
    elif way == 3:
        first, second = chance.randrange(size), chance.randrange(size)
        found[first : first + 64] = found[second : second + 64]
        return bytes(found[:size]).ljust(size, b"\0")
    else:
        at = chance.randrange(min(size, 200))
        found[at : at + 8] = chance.randrange(1 << 64).to_bytes(8, "little")
    return bytes(found[:size])


def used(keys, row):
    """Square the numbers of a row and turn them."""
    return keys.turned(keys.multiply(*[keys.received(row)] * 2), 1)


def main(count):
    """Send every kind of message, changed, to whoever reads it."""
    chance = random.Random(7)  # noqa: S311 - what is changed is no secret
    own = OwnSlotKeys(RING, STEPS)
    keys = SlotKeys(RING, own.public, own.switching, STEPS)
    row = own.encrypt(np.arange(4096))
    answer = keys.sent(
        keys.released(keys.received(row), np.zeros(4096, np.int64), Prg.from_os().bytes)
    )
    reads = (
        (own.public, lambda data: SlotKeys(RING, data, own.switching, STEPS)),
        (own.switching, lambda data: used(SlotKeys(RING, own.public, data, STEPS), row)),
        (row, lambda data: used(keys, data)),
        (answer, own.decrypt),
    )
    refused = 0
    for number in range(count):
        data, read = reads[number % len(reads)]
        try:
            read(changed(data, chance))
        except DataError:
            refused += 1
    print(refused, count - refused)


main(int(sys.argv[1]))
