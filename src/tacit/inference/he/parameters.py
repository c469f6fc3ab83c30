"""A circuit in whole numbers, with ranges that hold, and which rings it runs in.

Those have 128 bits of security, room for its output and its noise.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil, log2, prod
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from tacit.crypto.cipher.slots import MOST_MODULUS_BITS, Noise, SlotRing
from tacit.errors import ConfigError, RangeError
from tacit.inference.he.circuit import Affine, Circuit, Floats


@dataclass(frozen=True, eq=False)
class WholeAffine:
    """An affine value in whole numbers: 2^scale times the real ones.

    Attributes:
        parts: by vector, a sparse matrix of whole numbers, as floats, which are exact: those above
            2^53 are a float times a power of two.
        offset: whole numbers of any size.
        scale: how many bits stand after the point.
    """

    size: int
    parts: dict[int, Any]
    offset: tuple[int, ...]
    scale: int


@dataclass(frozen=True, eq=False)
class WholeCircuit:
    """A circuit in whole numbers.

    Attributes:
        inputs: how many numbers a row has.
        input_scale: bits after the point of the input.
        bound: how large an input may be.
        products: pairs of affine values; a square has one value twice.
        out: the output.
        range_bits: the output lies below 2^range_bits, whatever the input within its bound.
    """

    inputs: int
    input_scale: int
    bound: float
    products: tuple[tuple[WholeAffine, WholeAffine], ...]
    out: WholeAffine
    range_bits: int

    @property
    def values(self) -> tuple[WholeAffine, ...]:
        """Return every affine value, in order, the output last."""
        found: list[WholeAffine] = []
        for left, right in self.products:
            found += [left] if left is right else [left, right]
        return (*found, self.out)

    def encode(self, x: Floats) -> Any:
        """Round inputs to whole numbers.

        Raises:
            RangeError: one is larger than was agreed.
        """
        if float(np.abs(x).max(initial=0.0)) > self.bound:
            raise RangeError(f"an input is larger than the agreed bound {self.bound:g}")
        return np.rint(x * 2.0**self.input_scale).astype(np.int64)


_Range = tuple[Floats, Floats]
"""Where the real values of a vector lie: their least and their largest."""


def residues(numbers: Floats, modulus: int) -> npt.NDArray[np.int64]:
    """Return whole numbers of any size modulo a prime, around zero."""
    found = np.fmod(numbers, modulus).astype(np.int64)
    found -= modulus * (found > modulus // 2)
    found += modulus * (found < -(modulus // 2))
    return found


def input_scale(bits: int, bound: float) -> int:
    """Return how many bits stand after the point of inputs."""
    return bits - _exponent(bound)


def make_whole(circuit: Circuit, *, bits: int, bound: float) -> WholeCircuit:
    """Round a circuit to so many bits of its largest weights and inputs, and bound its output.

    Bounds are intervals: they hold for every input within its bound, so that no output wraps.
    """
    whole_bound = 2.0 ** _exponent(bound)
    scales = [input_scale(bits, bound)]
    edge = np.full(circuit.inputs, bound) + 2.0 ** -scales[0]  # rounding moves an input
    ranges: list[_Range] = [(-edge, edge)]
    products = []
    for first, second in circuit.products:
        left, left_range = _whole(first, scales, ranges, bits)
        right, right_range = left, left_range
        if first is not second:
            right, right_range = _whole(second, scales, ranges, bits)
        products.append((left, right))
        scales.append(left.scale + right.scale)
        ranges.append(_multiplied(left_range, right_range, is_square=first is second))
    out, found = _whole(circuit.out, scales, ranges, bits)
    largest = float(np.abs(np.stack(found)).max())
    # One bit for the sign; 1e-6 for what log2 of a power of two may lose.
    range_bits = ceil(log2(max(largest, 2.0**-out.scale)) + out.scale + 1e-6) + 1
    return WholeCircuit(circuit.inputs, scales[0], whole_bound, tuple(products), out, range_bits)


def _whole(
    value: Affine, scales: list[int], ranges: list[_Range], bits: int
) -> tuple[WholeAffine, _Range]:
    """Round one value; every matrix has at least ``bits`` bits, or is exact with fewer."""
    wanted = {name: _fraction_bits(part, bits) for name, part in value.parts.items()}
    scale = max((scales[name] + more for name, more in wanted.items()), default=bits)
    parts, low, high = {}, value.offset.copy(), value.offset.copy()
    for name, part in value.parts.items():
        more = scale - scales[name]
        matrix = part.copy()
        matrix.data = np.rint(matrix.data * 2.0**more)
        matrix.eliminate_zeros()
        parts[name] = matrix
        real = matrix * 2.0**-more
        plus, minus = real.maximum(0), real.minimum(0)
        least, most = ranges[name]
        low = low + plus @ least + minus @ most
        high = high + plus @ most + minus @ least
    offset = tuple(_shifted(one, scale) for one in value.offset.tolist())
    # The offset is rounded to one unit; 1e-9 is more than these sums lose in double precision.
    slack = 2.0**-scale + 1e-9 * np.maximum(np.abs(low), np.abs(high))
    return WholeAffine(value.size, parts, offset, scale), (low - slack, high + slack)


def _fraction_bits(matrix: Any, bits: int) -> int:
    """Return how many bits after the point a matrix needs: as asked, or fewer if it is exact."""
    if not matrix.nnz or not np.abs(matrix.data).max():
        return 0
    most = bits - _exponent(float(np.abs(matrix.data).max()))
    for fewer in range(min(0, most), most):
        scaled = matrix.data * 2.0**fewer
        if np.array_equal(scaled, np.rint(scaled)):
            return fewer
    return most


def _shifted(value: float, scale: int) -> int:
    """Round value · 2^scale, exactly also where that is no float."""
    top, below = value.as_integer_ratio()
    return (2 * (top << max(scale, 0)) + (below << max(-scale, 0))) // (2 * below << max(-scale, 0))


def _exponent(size: float) -> int:
    """Return the power of two that is at least as large."""
    return ceil(log2(size)) if size > 0 else 0


def _multiplied(first: _Range, second: _Range, *, is_square: bool) -> _Range:
    if is_square:
        most = np.square(np.stack(first)).max(axis=0)
        return np.zeros_like(most), most
    ends = [a * b for a in first for b in second]
    return np.minimum.reduce(ends), np.maximum.reduce(ends)


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
