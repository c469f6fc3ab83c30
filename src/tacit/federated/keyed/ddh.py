"""Inner products of many clients by discrete logarithms: the published form, for reference.

Chotard, Dufour Sans, Gay, Phan and Pointcheval (2018): client i has s_i in Z_q², a label is hashed
to two group elements u, and x is encrypted as u^s_i · g^x. Whoever has Σ y_i s_i learns g^Σ y_i x_i
of every label, and Σ y_i x_i by a search. Labels are hashed into the group, not to exponents:
there, three ciphertexts without a key would give a relation of their plaintexts.

`keyed` has pads instead: they cost a small part of this, and a sum of them is good for one round,
while a key of this scheme is good for all labels at once.
"""

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from tacit.crypto.cipher.numbers import draw_below, library
from tacit.errors import DataError, InputError
from tacit.ring import Prg

PRIME = int(  # RFC 3526, group 15: 3072 bits, and (p - 1) / 2 is prime
    "ffffffffffffffffc90fdaa22168c234c4c6628b80dc1cd129024e088a67cc74020bbea63b139b22514a0879"
    "8e3404ddef9519b3cd3a431b302b0a6df25f14374fe1356d6d51c245e485b576625e7ec6f44c42e9a637ed6b"
    "0bff5cb6f406b7edee386bfb5a899fa5ae9f24117c4b1fe649286651ece45b3dc2007cb8a163bf0598da4836"
    "1c55d39a69163fa8fd24cf5f83655d23dca3ad961c62f356208552bb9ed529077096966d670c354e4abc9804"
    "f1746c08ca18217c32905e462e36ce3be39e772c180e86039b2783a2ec07a28fb5c55df06f4c52c9de2bcbf6"
    "955817183995497cea956ae515d2261898fa051015728e5a8aaac42dad33170d04507a33a85521abdf1cba64"
    "ecfb850458dbef0a8aea71575d060c7db3970f85a6e1e4c7abf5ae8cdb0933d71e8c94e04a25619dcee3d226"
    "1ad2ee6bf12ffa06d98a0864d87602733ec86a64521f2b18177b200cbbe117577a615d6c770988c0bad946e2"
    "08e24fa074e5ab3143db5bfce0fd108e4b82d120a93ad2caffffffffffffffff",
    16,
)
ORDER = (PRIME - 1) // 2
_GENERATOR = 4  # a square: of that order
_HASH_BYTES = 400  # 128 bits more than the modulus has: its remainder is uniform up to 2^-128
LARGEST_SUM = 1 << 40  # baby steps for it: a table of 1.5 million group elements


@dataclass(frozen=True)
class Secret:
    """What one client encrypts with, and the authority knows of it."""

    first: int = field(repr=False)
    second: int = field(repr=False)


def make_secret(prg: Prg) -> Secret:
    """Draw a client's secret."""
    return Secret(draw_below(ORDER, prg.bytes), draw_below(ORDER, prg.bytes))


def encrypt(secret: Secret, label: bytes, numbers: Sequence[int]) -> list[int]:
    """Encrypt whole numbers under a label, which a client must use once.

    Guarantee: whoever has keys for some weights learns the weighted sums of a label and nothing
    else, if deciding Diffie-Hellman is hard in the group and the hash is a random function.
    Cost: 3 exponentiations and 384 bytes for every number; 0 rounds.
    """
    lib = library()
    found = []
    for place, number in enumerate(numbers):
        one, two = _hashed(label, place)
        hidden = lib.powmod(one, secret.first, PRIME) * lib.powmod(two, secret.second, PRIME)
        found.append(int(hidden * lib.powmod(_GENERATOR, number % ORDER, PRIME) % PRIME))
    return found


def make_function_key(secrets: Mapping[int, Secret], weights: Mapping[int, int]) -> Secret:
    """Make the key for one choice of weights; an authority gives it to who may learn that sum.

    Guarantee: it says nothing else of the secrets. Cost: 0 rounds.
    """
    if not weights or not set(weights) <= set(secrets):
        raise InputError("wanted weights of clients whose secrets are known")
    firsts = sum(weight * secrets[index].first for index, weight in weights.items())
    seconds = sum(weight * secrets[index].second for index, weight in weights.items())
    return Secret(firsts % ORDER, seconds % ORDER)


def decrypt_sum(
    key: Secret,
    label: bytes,
    sealed: Mapping[int, Sequence[int]],
    weights: Mapping[int, int],
    *,
    bound: int,
) -> list[int]:
    """Decrypt a weighted sum of which no number is larger than ``bound`` in absolute value.

    Guarantee: the sum, if all ciphertexts are of this label and the key is of these weights.
    Cost: 2 exponentiations for every number and a search of about √bound steps.

    Raises:
        DataError: something is of another label, key or range.
    """
    if not 0 < bound <= LARGEST_SUM:
        raise InputError(f"wanted a bound of at most 2^40 on the sum, got {bound}")
    sizes = {len(sealed[index]) for index in weights if index in sealed}
    if len(sizes) != 1 or not set(weights) <= set(sealed):
        raise DataError("wanted as many ciphertexts of every client that has a weight")
    lib, found = library(), []
    for place in range(sizes.pop()):
        total = lib.mpz(1)
        for index, weight in weights.items():
            part = sealed[index][place]
            if not 0 < part < PRIME:
                raise DataError(f"client {index} has sent no element of the group")
            total = total * lib.powmod(part, weight % ORDER, PRIME) % PRIME
        one, two = _hashed(label, place)
        hidden = lib.powmod(one, key.first, PRIME) * lib.powmod(two, key.second, PRIME)
        found.append(_logarithm(total * lib.invert(hidden, PRIME) % PRIME, bound))
    return found


def _hashed(label: bytes, place: int) -> tuple[Any, Any]:
    """Hash a label to two squares whose logarithms nobody knows."""
    lib = library()
    text = b"tacit inner product" + len(label).to_bytes(4, "big") + label
    seeds = (text + place.to_bytes(8, "big") + bytes([half]) for half in range(2))
    drawn = (hashlib.shake_256(seed).digest(_HASH_BYTES) for seed in seeds)
    one, two = (lib.powmod(int.from_bytes(digest, "big") % PRIME, 2, PRIME) for digest in drawn)
    return one, two


def _logarithm(power: Any, bound: int) -> int:
    """Find the exponent between -bound and bound: Shanks' baby steps and giant steps."""
    lib, size = library(), math.isqrt(2 * bound + 1) + 1
    small, step = _baby_steps(size)
    at = power * lib.powmod(_GENERATOR, bound, PRIME) % PRIME
    for giant in range(size + 1):
        if int(at) in small:
            return giant * size + small[int(at)] - bound
        at = at * step % PRIME
    raise DataError(f"the sum is beyond {bound}, or something is of another label or key")


@cache
def _baby_steps(size: int) -> tuple[dict[int, int], Any]:
    lib, found, at = library(), {}, library().mpz(1)
    for step in range(size):
        found[int(at)] = step
        at = at * _GENERATOR % PRIME
    return found, lib.invert(at, PRIME)
