"""BFV with numbers in slots: one prime of the plain modulus, thousands of numbers side by side.

Sums and products act on every slot by itself; slots turn round in two rows of half the degree.
Numbers larger than one prime are carried modulo several, each with a ring and keys of its own.
"""

import struct
from collections.abc import Container, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from tacit.crypto.cipher.saved import Form, framed, library, loaded, pack, saved, unpack
from tacit.crypto.cipher.seal import Ring, SealKeys, flood, primes_of
from tacit.crypto.field import Randomness
from tacit.errors import DataError

MOST_MODULUS_BITS = {4096: 109, 8192: 218, 16384: 438, 32768: 881}
"""The Homomorphic Encryption Standard's 128 bits for ternary secrets; SEAL checks them itself."""
_ERROR = 20.0  # SEAL cuts its errors at six deviations of 3.2
_SHORT = 0.05
Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class SlotRing(Ring):
    """A ring whose plain modulus is a prime that splits it into slots.

    Attributes:
        prime_bits: of every prime of the ciphertext modulus.
        number: which of the primes of ``plain_bits`` bits this ring counts modulo.
    """

    prime_bits: int
    number: int

    @cached_property
    def plain_modulus(self) -> int:
        """Return the prime that numbers are taken modulo."""
        return primes_of(self.plain_bits, 2 * self.degree, self.number + 1)[self.number]

    @cached_property
    def moduli(self) -> tuple[int, ...]:
        """Return the primes of the ciphertext modulus; the last is for keys."""
        step, special = 2 * self.degree, self.special_bits
        found = primes_of(self.prime_bits, step, self.primes)
        same = self.primes if special == self.prime_bits else 0
        return (*found, primes_of(special, step, same + 1)[same])

    @cached_property
    def encoder(self) -> Any:
        """Return what puts numbers into slots."""
        return library().BatchEncoder(self.context)

    def encoded(self, numbers: Numbers) -> Any:
        """Make a plaintext of one number below the plain modulus for every slot."""
        found = library().Plaintext()
        self.encoder.encode(numbers.tolist(), found)
        return found

    def element(self, step: int) -> int:
        """Return the automorphism that turns both rows by so many slots; 0 swaps the rows."""
        return pow(3, step, 2 * self.degree) if step else 2 * self.degree - 1

    def key_bytes(self, steps: Sequence[int]) -> int:
        """Return the one length of the keys for products and for these turns."""
        return self._switch_bytes(1) + self._switch_bytes(len(self._turns(steps)))

    def _switch_bytes(self, count: int) -> int:
        return count * self.primes * self.wire_bytes(-1, is_seeded=True)

    def _turns(self, steps: Sequence[int]) -> set[int]:
        """Return at which places SEAL keeps the keys of these turns."""
        return {(self.element(step) - 1) // 2 for step in steps}

    def switch_forms(self, steps: Sequence[int]) -> tuple[Form, Form]:
        """Return how SEAL saves the keys for products, and those for these turns."""
        turns = self._turns(steps)
        return self._switch_form(1, {0}), self._switch_form(self.degree, turns)

    def _switch_form(self, count: int, places: Container[int]) -> Form:
        """Return how SEAL saves keys at some of so many places."""
        one = struct.pack("<Q", self.primes), *self.form(-1, is_seeded=True) * self.primes
        every = (one if at in places else (bytes(8),) for at in range(count))
        return framed(self.parms_id(-1) + struct.pack("<Q", count), *chain.from_iterable(every))

    @property
    def public_bytes(self) -> int:
        """Return the one length of a public key."""
        return self.wire_bytes(-1, is_seeded=False)


@dataclass(frozen=True)
class Noise:
    """How large noise can be: in units of the last place, as a power of two.

    Bounds that hold but with a probability far below 2^-40 for honest keys: sums of independent
    terms are taken at six deviations. Ciphertexts decrypt right while ``ring``'s modulus is more
    than twice the plain one times the noise.
    """

    ring: SlotRing

    @property
    def fresh(self) -> float:
        """Return that of a fresh ciphertext of the key owner."""
        return _ERROR

    @property
    def switched(self) -> float:
        """Return what a turn or the end of a product adds."""
        ring = self.ring
        ratio = 2.0 ** (ring.prime_bits - ring.special_bits)
        return float(ring.degree**0.5 * (ring.primes * _ERROR * max(ratio, 1.0) + 8))

    def scaled(self, noise: float) -> float:
        """Return that of a product with a whole plaintext of numbers in slots."""
        return float(noise * 2 * self.ring.plain_modulus * self.ring.degree**0.5)

    def product(self, first: float, second: float) -> float:
        """Return that of a product of two ciphertexts."""
        grown = 2 * self.ring.plain_modulus * self.ring.degree * (first + second)
        return grown + self.switched

    def flood_bits(self, noise: float) -> int:
        """Return how many bits of uniform noise hide this to 2^-40 for a whole polynomial."""
        return int(np.ceil(np.log2(noise))) + 40 + self.ring.degree.bit_length() - 1

    @property
    def most_flood_bits(self) -> int:
        """Return how many bits of noise an answer can take: a public number.

        All answers are flooded with as many, because how many a circuit needs depends on the sizes
        of its weights.
        """
        ring = self.ring
        whole = ring.primes * (ring.prime_bits - _SHORT)  # the primes lie just below a power of two
        return int(whole) - ring.plain_bits - 2

    def hides(self, noise: float) -> bool:
        """Tell whether a flood of so many bits hides noise of this size."""
        return bool(np.isfinite(noise)) and self.flood_bits(noise) <= self.most_flood_bits


class SlotKeys(SealKeys):
    """What the evaluator does with one ring: it has the public keys of another party.

    Guarantee: it learns nothing but how many ciphertexts there are, if ring-LWE is hard at 128
        bits with SEAL's errors and stays so beside encryptions of functions of the secret key
        (circular security). What it releases tells the key owner the unmasked slots and nothing
        of how they came, to 2^-40 for each ciphertext, if its keys are honest.
    Cost: see `SlotRing.wire_bytes`, `key_bytes`; 0 rounds.
    """

    ring: SlotRing

    def __init__(self, ring: SlotRing, public: bytes, switching: bytes, steps: Sequence[int]):
        super().__init__(ring, public)
        self.kept: dict[tuple[int, ...], Any] = {}  # weights that were prepared, by their place
        lib, (products, turns), cut = library(), ring.switch_forms(steps), ring._switch_bytes(1)
        self._relin = loaded(lib.RelinKeys(), ring.context, unpack(products, switching[:cut]))
        file = unpack(turns, switching[cut:])
        self._turning = loaded(lib.GaloisKeys(), ring.context, file) if steps else None

    def multiply(self, first: Any, second: Any) -> Any:
        """Multiply two ciphertexts slot by slot."""
        out = library().Ciphertext()
        if first is second:
            self._evaluator.square(first, out)
        else:
            self._evaluator.multiply(first, second, out)
        self._evaluator.relinearize_inplace(out, self._relin)
        return out

    def turned(self, part: Any, step: int) -> Any:
        """Turn both rows of slots; step 0 swaps them."""
        out = library().Ciphertext()
        if step:
            self._evaluator.rotate_rows(part, step, self._turning, out)
        else:
            self._evaluator.rotate_columns(part, self._turning, out)
        return out

    def weighed(self, parts: Sequence[Any], factors: Numbers) -> Any:
        """Return the sum of ciphertexts times whole numbers, None where all are zero.

        Ciphertexts of one factor are added first: one product for each factor.
        """
        ev, lib, plain = self._evaluator, library(), self.ring.plain_modulus
        total: Any = None
        sizes = np.abs(factors)
        for size in np.unique(sizes[sizes > 0]).tolist():
            group: Any = None
            for at in np.flatnonzero(sizes == size).tolist():
                is_minus = factors[at] < 0
                if group is None:
                    group = lib.Ciphertext()
                    if is_minus:
                        ev.negate(parts[at], group)
                    else:
                        ev.add(parts[at], self._nothing, group)
                else:
                    group = self._summed(group, parts[at], is_minus=is_minus)
            if size % plain == 0 or group is None:
                continue
            if size > 1:
                ev.multiply_plain_inplace(group, lib.Plaintext(f"{size % plain:x}"))
            total = group if total is None else self._summed(total, group)
        return total

    def _summed(self, total: Any, part: Any, *, is_minus: bool = False) -> Any:
        """Add in place; None if nothing is left, as of two equal values of a model."""
        try:
            if is_minus:
                self._evaluator.sub_inplace(total, part)
            else:
                self._evaluator.add_inplace(total, part)
        except RuntimeError as error:  # SEAL stops at sums without a second polynomial
            if any(self.dump(total, 0)):
                raise DataError("got ciphertexts of bfv of which one undoes another") from error
            return None
        return total

    @cached_property
    def _nothing(self) -> Any:
        """Return a ciphertext that adds nothing, not even noise: a copy is a sum with it."""
        zeros = np.zeros((self.ring.primes, self.ring.degree), np.uint64)
        return self.ring.noise(self.zero(), zeros)

    def plus(self, part: Any, numbers: Numbers) -> Any:
        """Add plain numbers to the slots; ``part`` may be None, for zero."""
        plain = self.ring.encoded(numbers % self.ring.plain_modulus)
        found = self.zero() if part is None else part
        self._evaluator.add_plain_inplace(found, plain)
        return found

    def plus_constant(self, part: Any, number: int) -> Any:
        """Add one number to all slots."""
        number %= self.ring.plain_modulus
        found = self.zero() if part is None else part
        if number:
            self._evaluator.add_plain_inplace(found, library().Plaintext(f"{number:x}"))
        return found

    def prepared(self, numbers: Numbers) -> Any:
        """Bring plain numbers of all slots to the form in which products are cheap."""
        out, plain = library().Plaintext(), self.ring.encoded(numbers % self.ring.plain_modulus)
        self._evaluator.transform_to_ntt(plain, self.ring.context.first_parms_id(), out)
        return out

    def draw(self, randomness: Randomness, count: int) -> Numbers:
        """Draw numbers that are uniform below the plain modulus, but for 2^-64 of them each."""
        words = np.frombuffer(randomness(16 * count), "<u8").reshape(2, count)
        plain = self.ring.plain_modulus
        # 128 bits modulo a prime below 2^60; in Python's integers, as words overflow
        joined = words[0].astype(object) * (1 << 64) + words[1].astype(object)
        return np.asarray(joined % plain, np.int64)

    def released(self, part: Any, mask: Numbers, randomness: Randomness) -> Any:
        """Return the same numbers plus a mask, with noise that says nothing of how they came.

        A fresh encryption of 0 makes both polynomials new, as much uniform noise as the ring takes
        drowns what the circuit left; then all primes but one are left behind, for the length.
        """
        ev, ring, bits = self._evaluator, self.ring, Noise(self.ring).most_flood_bits
        out = self.zero()
        if part is not None:
            ev.add_inplace(out, part)
        ev.add_inplace(out, ring.noise(out, flood(ring, bits, ring.primes, randomness)))
        ev.add_plain_inplace(out, ring.encoded(mask % ring.plain_modulus))
        while out.coeff_modulus_size() > 1:
            ev.mod_switch_to_next_inplace(out)
        return out

    def sent(self, part: Any) -> bytes:
        """Lay out a released ciphertext."""
        return self.dump(part, self.ring.primes - 1)

    def received(self, data: bytes) -> Any:
        """Read a fresh ciphertext of the key owner, or refuse it."""
        return self.load(data, 0, is_seeded=True)


class OwnSlotKeys:
    """What the key owner does with one ring."""

    def __init__(self, ring: SlotRing, steps: Sequence[int]) -> None:
        lib = library()
        self.ring = ring
        maker, public = lib.KeyGenerator(ring.context), lib.PublicKey()
        maker.create_public_key(public)
        self.public = pack(ring.form(-1, is_seeded=False), saved(public))
        secret = maker.secret_key()
        self._encryptor = lib.Encryptor(ring.context, secret)
        self._decryptor = lib.Decryptor(ring.context, secret)
        products, turns = ring.switch_forms(steps)
        self.switching = pack(products, saved(maker.create_relin_keys()))
        if steps:
            elements = [ring.element(one) for one in steps]
            self.switching += pack(turns, saved(maker.create_galois_keys(elements)))
        self._sizes = SealKeys(ring, self.public)

    def encrypt(self, numbers: Numbers) -> bytes:
        """Encrypt one number for every slot, as it is sent."""
        plain = self.ring.encoded(numbers % self.ring.plain_modulus)
        sealed = saved(self._encryptor.encrypt_symmetric(plain))
        return pack(self.ring.form(0, is_seeded=True), sealed)

    def decrypt(self, data: bytes) -> Numbers:
        """Decrypt a released ciphertext, or refuse it."""
        level = self.ring.primes - 1
        found = library().Plaintext()
        self._decryptor.decrypt(self._sizes.load(data, level, is_seeded=False), found)
        return np.array(self.ring.encoder.decode_uint64(found), np.int64)

    def budget(self, part: Any) -> int:
        """Return how many bits of noise a ciphertext could still take: for tests."""
        return int(self._decryptor.invariant_noise_budget(part))


def join(residues: Sequence[Numbers], moduli: Sequence[int]) -> npt.NDArray[Any]:
    """Return whole numbers around zero by their residues modulo different primes."""
    whole = 1
    found = np.zeros(residues[0].shape, object)
    for one, modulus in zip(residues, moduli, strict=True):
        more = (one.astype(object) - found) * pow(whole, -1, modulus) % modulus
        found, whole = found + whole * more, whole * modulus
    return np.where(found > whole // 2, found - whole, found)
