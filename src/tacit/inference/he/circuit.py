"""A model as a circuit of one row: affine maps, and products of pairs of values between them.

Tracing a model with `CircuitOps` folds everything linear between two products into one sparse
matrix, as CryptoNets does by hand (Gilad-Bachrach et al. 2016). Weights are plain here: who
evaluates owns them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional

from tacit.errors import ConfigError, InputError
from tacit.nn import TorchOps
from tacit.nn.ops import Pair

Floats = npt.NDArray[np.float64]
Positions = npt.NDArray[np.int64]
REFUSED = (
    "cannot be computed under protocol 'he', which has sums and products alone: take a square or "
    "a polynomial (ops.square, ops.piecewise without breaks) in its place, or protocol 'sealed'"
)


@dataclass(frozen=True, eq=False)
class Affine:
    """Values that are affine in vectors: by vector, a matrix with a row for every value.

    Vector 0 is the input; the others are the products of a circuit, in order.
    """

    shape: tuple[int, ...]
    parts: Mapping[int, Any]  # scipy's sparse matrices have no types
    offset: Floats

    @property
    def size(self) -> int:
        """Return how many values there are."""
        return prod(self.shape)

    def picked(self, places: Positions) -> "Affine":
        """Return the values at some places, in their shape; -1 is for zero."""
        at = places.reshape(-1)
        keeps = sparse().csr_matrix(
            (np.ones((at >= 0).sum()), (np.flatnonzero(at >= 0), at[at >= 0])),
            shape=(at.size, self.size),
        )
        return self.mapped(keeps, places.shape)

    def mapped(self, matrix: Any, shape: tuple[int, ...]) -> "Affine":
        """Apply a matrix to the values."""
        parts = {name: sparse().csr_matrix(matrix @ part) for name, part in self.parts.items()}
        return Affine(shape, parts, np.asarray(matrix @ self.offset))

    def plus(self, other: "Affine") -> "Affine":
        """Add values of one shape."""
        parts = dict(self.parts)
        for name, part in other.parts.items():
            parts[name] = parts[name] + part if name in parts else part
        return Affine(self.shape, parts, self.offset + other.offset)


Factors = tuple[Affine, Affine]
"""Of a vector that a circuit makes, multiplied one by one; of a square one value, twice."""


@dataclass(frozen=True, eq=False)
class Circuit:
    """A traced model of one row."""

    inputs: int
    products: tuple[Factors, ...]
    out: Affine

    @property
    def depth(self) -> int:
        """Return how many products follow each other."""
        depths = [0]
        for left, right in self.products:
            below = (*left.parts, *right.parts)
            depths.append(1 + max((depths[at] for at in below), default=0))
        return max((depths[at] for at in self.out.parts), default=0)

    @property
    def values(self) -> tuple[Affine, ...]:
        """Return every affine value that is computed, in order, the output last."""
        found: list[Affine] = []
        for left, right in self.products:
            found += [left] if left is right else [left, right]
        return (*found, self.out)


class CircuitOps:
    """The verbs of `Ops` that a circuit has; tensors of torch are weights and public numbers.

    The first dimension is the rows: every row is computed alike, and none with another.
    """

    def __init__(self) -> None:
        self.products: list[Factors] = []

    def __getattr__(self, verb: str) -> Any:
        """Let torch compute with weights alone, and refuse what has no circuit, by name."""
        if verb.startswith("_") or not hasattr(TorchOps, verb):
            raise AttributeError(verb)

        def call(*args: Any, **named: Any) -> Any:
            given = (*args, *named.values())
            if not any(isinstance(x, Affine) for one in given for x in _listed(one)):
                return getattr(TorchOps(), verb)(*args, **named)
            if not hasattr(_AffineOps, verb):
                raise ConfigError(f"{verb} {REFUSED}")
            return getattr(_AffineOps(self.products), verb)(*args, **named)

        return call

    def reaches(self, x: Any, *, bound: float) -> bool:
        """Say no: nothing saturates here."""
        return False


@dataclass
class _AffineOps:
    """The same verbs where an operand, at least, is secret."""

    products: list[Factors]

    def shape(self, x: Affine) -> tuple[int, ...]:
        return x.shape

    def add(self, x: Affine | Tensor, y: Affine | Tensor) -> Affine:
        shape = np.broadcast_shapes(tuple(x.shape), tuple(y.shape))
        return _spread(x, shape).plus(_spread(y, shape))

    def sub(self, x: Affine | Tensor, y: Affine | Tensor) -> Affine:
        return self.add(x, -y if isinstance(y, Tensor) else self.scale(y, -1.0))

    def mul(self, x: Affine | Tensor, y: Affine | Tensor) -> Affine:
        shape = np.broadcast_shapes(tuple(x.shape), tuple(y.shape))
        if isinstance(x, Tensor):
            x, y = y, x
        wide = _spread(x, shape)
        if isinstance(y, Affine):
            return self._product(wide, wide if x is y else _spread(y, shape))
        factors = np.broadcast_to(_floats(y), shape).reshape(-1)
        return wide.mapped(sparse().diags(factors, format="csr"), shape)

    def square(self, x: Affine) -> Affine:
        return self.mul(x, x)

    def matmul(self, x: Any, y: Any) -> Affine:
        """Multiply matrices, of which one at least is secret."""
        if isinstance(x, Tensor):  # x y = (yᵀ xᵀ)ᵀ
            last = len(y.shape) - 1
            turned = self.transpose(y, last - 1, last)
            return self.transpose(self._weighed(turned, x.transpose(-1, -2)), last - 1, last)
        return self._weighed(x, y) if isinstance(y, Tensor) else self._multiplied(x, y)

    def _weighed(self, x: Affine, weight: Tensor) -> Affine:
        if weight.dim() != 2:
            raise ConfigError(f"matmul with {weight.dim()} dimensions of weights {REFUSED}")
        if x.shape[-1] != weight.shape[0]:
            raise InputError(f"cannot multiply {x.shape} by weights of {tuple(weight.shape)}")
        every_row = sparse().identity(prod(x.shape[:-1]))
        matrix = sparse().kron(every_row, _floats(weight.t()), format="csr")
        return x.mapped(matrix, (*x.shape[:-1], int(weight.shape[1])))

    def _multiplied(self, x: Affine, y: Affine) -> Affine:
        """Multiply two secret matrices: all pairs, then their sums."""
        batch = np.broadcast_shapes(x.shape[:-2], y.shape[:-2])
        (rows, inner), outer = x.shape[-2:], y.shape[-1]
        left = np.broadcast_to(_places(x), (*batch, rows, inner))[..., :, None, :]
        right = np.swapaxes(np.broadcast_to(_places(y), (*batch, inner, outer)), -1, -2)
        shape = (*batch, rows, outer, inner)
        pairs = self._product(
            x.picked(np.broadcast_to(left, shape)),
            y.picked(np.broadcast_to(right[..., None, :, :], shape)),
        )
        return self.sum(pairs, dim=-1)

    def _product(self, left: Affine, right: Affine) -> Affine:
        self.products.append((left, right))
        whole = sparse().identity(left.size, format="csr")
        return Affine(left.shape, {len(self.products): whole}, np.zeros(left.size))

    def scale(self, x: Affine, factor: float) -> Affine:
        return x.mapped(sparse().identity(x.size, format="csr") * factor, x.shape)

    def shift(self, x: Affine, amount: float) -> Affine:
        return Affine(x.shape, x.parts, x.offset + amount)

    def sum(self, x: Affine, *, dim: int) -> Affine:
        places = np.moveaxis(_places(x), _beyond_rows(dim, x.shape, "sum"), -1)
        return _gathered(x, places.reshape(-1, places.shape[-1]), 1.0, places.shape[:-1])

    def reshape(self, x: Affine, shape: Sequence[int]) -> Affine:
        """Give another shape, whose first dimension stays the rows."""
        found = _places(x).reshape(tuple(shape)).shape
        if found[0] != 1:
            raise ConfigError(f"reshape to {tuple(shape)} mixes rows, which protocol 'he' does not")
        return Affine(found, x.parts, x.offset)

    def transpose(self, x: Affine, first: int, second: int) -> Affine:
        for dim in (first, second):
            _beyond_rows(dim, x.shape, "transpose")
        return x.picked(np.swapaxes(_places(x), first, second))

    def take(self, x: Affine, positions: Sequence[int], *, dim: int) -> Affine:
        axis = _beyond_rows(dim, x.shape, "take")
        return x.picked(np.take(_places(x), list(positions), axis=axis))

    def concatenate(self, parts: Sequence[Affine | Tensor], *, dim: int) -> Affine:
        """Join along a dimension: every part is put among zeros, and all are added up."""
        _beyond_rows(dim, tuple(parts[0].shape), "concatenate")
        wide, at, total = [], 0, sum(one.shape[dim] for one in parts)
        for one in parts:
            held = _spread(one, tuple(one.shape))
            places, size = _places(held), one.shape[dim]
            rims = [(0, 0)] * places.ndim
            rims[dim] = (at, total - at - size)
            wide.append(held.picked(np.pad(places, rims, constant_values=-1)))
            at += size
        return reduce(Affine.plus, wide)

    def conv2d(
        self,
        x: Affine,
        weight: Tensor | Affine,
        *,
        stride: Pair,
        padding: Pair,
        dilation: Pair = (1, 1),
        groups: int = 1,
    ) -> Affine:
        if not isinstance(weight, Tensor):
            raise ConfigError(f"conv2d with secret weights {REFUSED}")
        windows, sides = _windows(x, tuple(weight.shape[2:]), stride, padding, dilation)
        # (channels, taps, places) of one image; every output reads the channels of its group.
        outputs, channels = int(weight.shape[0]), int(weight.shape[1])
        kernel = _floats(weight).reshape(outputs, -1)
        rows = []
        for output in range(outputs):
            first = output // (outputs // groups) * channels
            taps = windows[first : first + channels].reshape(-1, windows.shape[-1]).T
            rows.append(_matrix_of(taps, kernel[output], x.size))
        return x.mapped(sparse().vstack(rows, format="csr"), (1, outputs, *sides))

    def conv1d(self, x: Affine, weight: Tensor, *, stride: int, padding: int) -> Affine:
        images = self.reshape(x, (*x.shape[:2], 1, x.shape[2]))
        found = self.conv2d(images, weight[:, :, None], stride=(1, stride), padding=(0, padding))
        return self.reshape(found, (*found.shape[:2], found.shape[3]))

    def avg_pool2d(self, x: Affine, *, size: Pair, stride: Pair, padding: Pair) -> Affine:
        """Give the mean of every window, zeros beyond the edge counted in."""
        windows, sides = _windows(x, size, stride, padding, (1, 1))
        taps = np.moveaxis(windows, 1, -1).reshape(-1, windows.shape[1])
        return _gathered(x, taps, 1 / prod(size), (1, x.shape[1], *sides))

    def weigh(self, x: Affine, factors: Tensor) -> Affine:
        return self.mul(x, factors.double())

    def project(self, x: Affine, matrix: Tensor) -> Affine:
        return self.matmul(x, matrix.double())

    def offset(self, x: Affine, amounts: Tensor) -> Affine:
        return self.add(x, amounts.double())

    def mix(self, weights: Affine | Tensor, values: Affine | Tensor) -> Affine:
        return self.matmul(weights, values)

    def lookup(self, table: Affine | Tensor, hot: Affine | Tensor) -> Affine:
        return self.matmul(hot, table)

    def piecewise(
        self, x: Affine, breaks: Sequence[float], polynomials: Sequence[Sequence[float]]
    ) -> Affine:
        """Evaluate a polynomial; one with breakpoints is refused."""
        if breaks:
            raise ConfigError(f"piecewise with breakpoints {REFUSED}")
        constant, *rest = polynomials[0]
        powers = {1: x}
        found = self.scale(x, rest[0] if rest else 0.0)
        for degree, factor in enumerate(rest[1:], start=2):
            half = degree // 2  # halving keeps the depth at log2 of the degree
            powers[degree] = self.mul(powers[half], powers[degree - half])
            found = self.add(found, self.scale(powers[degree], factor))
        return self.shift(found, constant)

    def within(self, y: Affine, x: Affine, *, gain: float) -> Affine:
        return y  # a circuit knows its own ranges: `integers` follows them

    def restate(self, value: Affine, *, bound: float) -> Affine:
        return value


def _listed(value: object) -> Sequence[object]:
    """Return what a verb was given one of, or several."""
    return value if isinstance(value, list | tuple) else (value,)


def trace(model: Any, weights: Mapping[str, Tensor], shape: tuple[int, ...]) -> Circuit:
    """Trace a model with the row of a batch of this shape.

    Raises:
        ConfigError: it does something that has no circuit; says what, and what to do.
    """
    ops = CircuitOps()
    inputs = prod(shape[1:])
    x = Affine((1, *shape[1:]), {0: sparse().identity(inputs, format="csr")}, np.zeros(inputs))
    out = model(ops, {name: one.double() for name, one in weights.items()}, x)
    if not isinstance(out, Affine) or not out.parts:
        raise ConfigError("under protocol 'he' the output must depend on the input")
    return Circuit(inputs, tuple(ops.products), out)


def _floats(values: Tensor) -> Floats:
    return np.asarray(values.detach().double().numpy())


def _places(x: Affine) -> Positions:
    return np.arange(x.size).reshape(x.shape)


def _spread(x: Any, shape: tuple[int, ...]) -> Affine:
    """Broadcast; what is known becomes an offset."""
    if isinstance(x, Tensor):
        return Affine(shape, {}, np.broadcast_to(_floats(x), shape).reshape(-1).copy())
    found: Affine = x
    if found.shape == shape:
        return found
    return found.picked(np.broadcast_to(_places(found), shape))


def _gathered(x: Affine, taps: Positions, factor: float, shape: tuple[int, ...]) -> Affine:
    return x.mapped(_matrix_of(taps, np.full(taps.shape[1], factor), x.size), shape)


def _matrix_of(taps: Positions, factors: Floats, size: int) -> Any:
    """Make the matrix whose row i has ``factors`` at ``taps[i]``; -1 is nowhere."""
    rows = np.repeat(np.arange(len(taps)), taps.shape[1])
    columns, data = taps.reshape(-1), np.tile(factors, len(taps))
    kept = columns >= 0
    return sparse().csr_matrix((data[kept], (rows[kept], columns[kept])), (len(taps), size))


def _windows(
    x: Affine, size: tuple[int, ...], stride: Pair, padding: Pair, dilation: Pair
) -> tuple[Positions, Pair]:
    """Return the places (channels, taps, windows) that windows of an image read, -1 beyond it."""
    _, channels, high, wide = x.shape
    numbered = torch.arange(1, x.size + 1, dtype=torch.float64).reshape(1, channels, high, wide)
    found = functional.unfold(numbered, size, dilation=dilation, padding=padding, stride=stride)
    sides = tuple(
        (side + 2 * pad - apart * (one - 1) - 1) // step + 1
        for side, pad, apart, one, step in zip(
            (high, wide), padding, dilation, size, stride, strict=True
        )
    )
    return found.long().numpy().reshape(channels, prod(size), -1) - 1, (sides[0], sides[1])


def _beyond_rows(dim: int, shape: tuple[int, ...], verb: str) -> int:
    axis = dim % len(shape)
    if axis == 0:
        raise ConfigError(f"{verb} over rows (dimension 0) mixes rows, which 'he' does not")
    return axis


def sparse() -> Any:  # it has no types
    """Return scipy's sparse matrices; they take a while to import."""
    from scipy import sparse as found

    return found
