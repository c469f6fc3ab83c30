"""Which rings a circuit runs in: for 128 bits of security, room for its output and its noise."""

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any, Literal

import numpy as np

from tacit.crypto.cipher.slots import MOST_MODULUS_BITS, Noise, SlotRing
from tacit.errors import ConfigError
from tacit.inference.he.integers import WholeCircuit

Layout = Literal["slots", "row", "coefficients"]
NextCiphertext = Callable[[], Any]
"""Gives the next ciphertext that has come."""
# What a peer may announce: 15 primes of 58 bits fill the largest modulus of the standard.
_MOST_MODULI, _MOST_PRIMES = 8, 15
_LEAST_SPECIAL_BITS, _MOST_PRIME_BITS = 30, 60  # SEAL's primes have at most 60 bits
# Slots need a plain prime that is 1 modulo twice the degree (Smart and Vercauteren 2014). With six
# bits more than the degree there are enough of them for every modulus to get one of its own.
_MORE_PLAIN_BITS = 6
# Seconds of one core, measured at degree 8192 with three primes: addition, product, turn.
_SUM_S, _PRODUCT_S, _TURN_S = 3.4e-5, 5.7e-3, 1.4e-3


@dataclass(frozen=True, kw_only=True)
class Parameters:
    """What both sides must know of the rings, and nothing else: eight whole numbers.

    Attributes:
        degree: of the polynomials; as many slots.
        plain_bits: of every prime that numbers are taken modulo.
        moduli: how many such primes.
        primes: how many the ciphertext modulus has.
        prime_bits: of each of them.
        special_bits: of the one for keys.
        input_scale: bits after the point of inputs.
        output_scale: and of outputs.
    """

    degree: int
    plain_bits: int
    moduli: int
    primes: int
    prime_bits: int
    special_bits: int
    input_scale: int
    output_scale: int

    def __post_init__(self) -> None:
        most = MOST_MODULUS_BITS.get(self.degree, 0)
        whole = self.primes * self.prime_bits + self.special_bits
        is_sane = (
            1 <= self.moduli <= _MOST_MODULI
            and 1 <= self.primes <= _MOST_PRIMES
            and self.degree.bit_length() + 1 < self.plain_bits < self.prime_bits - 2
            and _LEAST_SPECIAL_BITS <= self.special_bits <= _MOST_PRIME_BITS
            and self.prime_bits <= _MOST_PRIME_BITS
            and abs(self.input_scale) < 100
            and abs(self.output_scale) < 1000
        )
        if not is_sane or whole > most:
            raise ConfigError(f"wanted parameters of bfv with 128 bits of security, got {self}")

    def rings(self) -> tuple[SlotRing, ...]:
        """Return a ring for every prime."""
        return tuple(
            SlotRing(
                degree=self.degree,
                plain_bits=self.plain_bits,
                primes=self.primes,
                prime_bits=self.prime_bits,
                special_bits=self.special_bits,
                number=number,
            )
            for number in range(self.moduli)
        )

    def to_numbers(self) -> tuple[int, ...]:
        """Return them to be told."""
        return tuple(vars(self).values())

    @classmethod
    def from_numbers(cls, numbers: tuple[int, ...]) -> "Parameters":
        """Read what `to_numbers` gave, or refuse it."""
        return cls(**dict(zip(cls.__dataclass_fields__, numbers, strict=True)))


@dataclass(frozen=True)
class LayoutCost:
    """What a layout needs in a ring: noise of its worst answer, and how much there is to do."""

    noise: float
    sums: int
    products: int
    turns: int

    def seconds(self, parameters: Parameters) -> float:
        """Estimate the evaluator's time on one core."""
        size = parameters.degree * parameters.primes / (8192 * 3)
        keyed = size * (parameters.primes + 1) / 4  # a key is switched prime by prime
        heavy = self.products * _PRODUCT_S + self.turns * _TURN_S
        return parameters.moduli * (self.sums * _SUM_S * size + heavy * keyed)


def choose(
    circuit: WholeCircuit, cost_in: Callable[[SlotRing], LayoutCost], *, depth: int
) -> tuple[Parameters, float]:
    """Choose the cheapest rings that hold a circuit, and estimate its seconds.

    Raises:
        ConfigError: there are none: the circuit is too deep, or its numbers too large.
    """
    found: list[tuple[float, Parameters]] = []
    for degree, most in MOST_MODULUS_BITS.items():
        for moduli in range(1, _MOST_MODULI + 1):
            plain_bits = -(-(circuit.range_bits + 2) // moduli)  # 2: primes lie below 2^bits
            plain_bits = max(plain_bits, degree.bit_length() + _MORE_PLAIN_BITS)
            if plain_bits > _MOST_PRIME_BITS - 3:
                continue
            best = _smallest(circuit, cost_in, degree, moduli, plain_bits, most)
            if best is None:
                continue
            # Residues modulo all plain primes together name the output (Chinese remainders).
            if prod(ring.plain_modulus for ring in best.rings()) > 1 << circuit.range_bits:
                found.append((cost_in(best.rings()[0]).seconds(best), best))
        if found:  # larger degrees are slower
            break
    if not found:
        raise ConfigError(
            f"the circuit is too deep for protocol 'he': {depth} products after each other and "
            f"outputs of {circuit.range_bits} bits fit no ring of 128-bit security up to degree "
            f"{max(MOST_MODULUS_BITS)}; take fewer squares, smaller weights or fewer bits "
            "(frac_bits), or protocol 'sealed'"
        )
    seconds, parameters = min(found, key=lambda one: one[0])
    return parameters, seconds


def _smallest(
    circuit: WholeCircuit,
    cost_in: Callable[[SlotRing], LayoutCost],
    degree: int,
    moduli: int,
    plain_bits: int,
    most: int,
) -> Parameters | None:
    """Return the smallest ciphertext modulus whose flood hides the noise, if one does."""
    for primes in range(1, _MOST_PRIMES + 1):
        for special in (_MOST_PRIME_BITS, 50, 42, 38, 34, _LEAST_SPECIAL_BITS):
            bits = min((most - special) // primes, _MOST_PRIME_BITS)
            if bits < max(plain_bits + 3, _LEAST_SPECIAL_BITS) or special > bits:
                continue
            parameters = Parameters(
                degree=degree,
                plain_bits=plain_bits,
                moduli=moduli,
                primes=primes,
                prime_bits=bits,
                special_bits=special,
                input_scale=circuit.input_scale,
                output_scale=circuit.out.scale,
            )
            ring = parameters.rings()[0]
            # Answers are sent modulo one prime alone: it must hold the plain number and what
            # rounding the others away leaves, at most the degree for a ternary secret.
            if bits < plain_bits + degree.bit_length() + 1:
                continue
            with np.errstate(over="ignore"):
                if Noise(ring).hides(cost_in(ring).noise):
                    return parameters
    return None
