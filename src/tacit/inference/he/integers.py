"""A circuit in whole numbers: scales of every vector, rounded matrices, and ranges that hold."""

from dataclasses import dataclass
from math import ceil, log2
from typing import Any

import numpy as np
import numpy.typing as npt

from tacit.errors import RangeError
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


@dataclass(frozen=True)
class _Range:
    """Where the real values of a vector lie."""

    low: Floats
    high: Floats


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
    ranges = [_Range(-edge, edge)]
    products = []
    for one in circuit.products:
        left, left_range = _whole(one.left, scales, ranges, bits)
        right, right_range = left, left_range
        if not one.is_square:
            right, right_range = _whole(one.right, scales, ranges, bits)
        products.append((left, right))
        scales.append(left.scale + right.scale)
        ranges.append(_multiplied(left_range, right_range, is_square=one.is_square))
    out, found = _whole(circuit.out, scales, ranges, bits)
    largest = float(np.maximum(np.abs(found.low), np.abs(found.high)).max())
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
        low = low + plus @ ranges[name].low + minus @ ranges[name].high
        high = high + plus @ ranges[name].high + minus @ ranges[name].low
    offset = tuple(_shifted(one, scale) for one in value.offset.tolist())
    # The offset is rounded to one unit; 1e-9 is more than these sums lose in double precision.
    slack = 2.0**-scale + 1e-9 * np.maximum(np.abs(low), np.abs(high))
    return WholeAffine(value.size, parts, offset, scale), _Range(low - slack, high + slack)


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
        most = np.maximum(first.low**2, first.high**2)
        return _Range(np.zeros_like(most), most)
    ends = [a * b for a in (first.low, first.high) for b in (second.low, second.high)]
    return _Range(np.minimum.reduce(ends), np.maximum.reduce(ends))
