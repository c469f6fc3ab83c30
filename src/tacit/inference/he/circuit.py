"""A model as a circuit of one row: affine maps, and products of pairs of values between them.

Tracing a model with `CircuitOps` folds everything linear between two products into one sparse
matrix, as CryptoNets does by hand. Weights are plain here: who evaluates owns them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from tacit.errors import ConfigError, InputError
from tacit.inference.he.affine import Affine, Circuit, Floats, Places, Product, sparse
from tacit.nn import TorchOps
from tacit.nn.ops import Pair

REFUSED = (
    "cannot be computed under protocol 'he', which has sums and products alone: take a square or "
    "a polynomial (ops.square, ops.piecewise without breaks) in its place, or protocol 'sealed'"
)


@dataclass
class CircuitOps:
    """The verbs of `Ops` that a circuit has; tensors of torch are weights and public numbers.

    The first dimension is the rows: every row is computed alike, and none with another.
    """

    products: list[Product] = field(default_factory=list)
    _plain: TorchOps = field(default_factory=TorchOps)

    def __getattr__(self, verb: str) -> Any:
        """Let torch compute with weights alone, and refuse what else has no circuit, by name."""
        if verb.startswith("_") or not hasattr(TorchOps, verb):
            raise AttributeError(verb)

        def call(*args: Any, **named: Any) -> Any:
            if any(isinstance(one, Affine) for one in (*args, *named.values())):
                raise ConfigError(f"{verb} {REFUSED}")
            return getattr(self._plain, verb)(*args, **named)

        return call

    def shape(self, x: Any) -> tuple[int, ...]:
        """Return the shape."""
        return tuple(x.shape)

    def add(self, x: Any, y: Any) -> Any:
        """Add, broadcasting."""
        if isinstance(x, Tensor) and isinstance(y, Tensor):
            return x + y
        shape = np.broadcast_shapes(tuple(x.shape), tuple(y.shape))
        return _spread(x, shape).plus(_spread(y, shape))

    def sub(self, x: Any, y: Any) -> Any:
        """Subtract, broadcasting."""
        return self.add(x, self.scale(y, -1.0))

    def mul(self, x: Any, y: Any) -> Any:
        """Multiply, broadcasting."""
        if isinstance(x, Tensor) and isinstance(y, Tensor):
            return x * y
        shape = np.broadcast_shapes(tuple(x.shape), tuple(y.shape))
        if isinstance(x, Affine) and isinstance(y, Affine):
            wide = _spread(x, shape)
            return self._product(wide, wide if x is y else _spread(y, shape))
        secret, known = (x, y) if isinstance(x, Affine) else (y, x)
        factors = np.broadcast_to(_floats(known), shape).reshape(-1)
        return _spread(secret, shape).mapped(sparse().diags(factors, format="csr"), shape)

    def square(self, x: Any) -> Any:
        """Multiply by itself."""
        return self.mul(x, x)

    def matmul(self, x: Any, y: Any) -> Any:
        """Multiply matrices; a weight has two dimensions."""
        if isinstance(x, Tensor) and isinstance(y, Tensor):
            return torch.matmul(x, y)
        if isinstance(x, Affine) and isinstance(y, Tensor):
            if y.dim() != 2:
                raise ConfigError(f"matmul with {y.dim()} dimensions of weights {REFUSED}")
            if x.shape[-1] != y.shape[0]:
                raise InputError(f"cannot multiply {x.shape} by weights of {tuple(y.shape)}")
            matrix = sparse().kron(
                sparse().identity(prod(x.shape[:-1])), _floats(y.t()), format="csr"
            )
            return x.mapped(matrix, (*x.shape[:-1], int(y.shape[1])))
        if isinstance(x, Tensor):
            last = len(y.shape) - 1
            turned = self.matmul(self.transpose(y, last - 1, last), x.transpose(-1, -2))
            return self.transpose(turned, last - 1, last)
        return self._multiplied(x, y)

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
        summed: Affine = self.sum(pairs, dim=-1)
        return summed

    def _product(self, left: Affine, right: Affine) -> Affine:
        self.products.append(Product(left, right))
        whole = sparse().identity(left.size, format="csr")
        return Affine(left.shape, {len(self.products): whole}, np.zeros(left.size))

    def scale(self, x: Any, factor: float) -> Any:
        """Multiply by a public number."""
        if isinstance(x, Tensor):
            return x * factor
        return x.mapped(sparse().identity(x.size, format="csr") * factor, x.shape)

    def shift(self, x: Any, amount: float) -> Any:
        """Add a public number."""
        if isinstance(x, Tensor):
            return x + amount
        return Affine(x.shape, x.parts, x.offset + amount)

    def sum(self, x: Any, *, dim: int) -> Any:
        """Add up along a dimension."""
        if isinstance(x, Tensor):
            return x.sum(dim=dim)
        axis = _beyond_rows(dim, x.shape, "sum")
        places = np.moveaxis(_places(x), axis, -1)
        shape = places.shape[:-1]
        return _gathered(x, places.reshape(-1, places.shape[-1]), 1.0, shape)

    def reshape(self, x: Any, shape: Sequence[int]) -> Any:
        """Give another shape, whose first dimension stays the rows."""
        if isinstance(x, Tensor):
            return x.reshape(tuple(shape))
        found = _places(x).reshape(tuple(shape)).shape
        if found[0] != 1:
            raise ConfigError(f"reshape to {tuple(shape)} mixes rows, which protocol 'he' does not")
        return Affine(found, x.parts, x.offset)

    def transpose(self, x: Any, first: int, second: int) -> Any:
        """Swap two dimensions."""
        if isinstance(x, Tensor):
            return x.transpose(first, second)
        for dim in (first, second):
            _beyond_rows(dim, x.shape, "transpose")
        return x.picked(np.swapaxes(_places(x), first, second))

    def take(self, x: Any, positions: Sequence[int], *, dim: int) -> Any:
        """Pick positions of a dimension."""
        if isinstance(x, Tensor):
            return self._plain.take(x, positions, dim=dim)
        axis = _beyond_rows(dim, x.shape, "take")
        return x.picked(np.take(_places(x), list(positions), axis=axis))

    def concatenate(self, parts: Sequence[Any], *, dim: int) -> Any:
        """Join along a dimension."""
        if all(isinstance(one, Tensor) for one in parts):
            return torch.cat(list(parts), dim=dim)
        _beyond_rows(dim, tuple(parts[0].shape), "concatenate")
        wide, at, total = [], 0, sum(one.shape[dim] for one in parts)
        for one in parts:
            held = _spread(one, tuple(one.shape))
            places, size = _places(held), one.shape[dim]
            rims = [(0, 0)] * places.ndim
            rims[dim] = (at, total - at - size)
            wide.append(held.picked(np.pad(places, rims, constant_values=-1)))
            at += size
        found = wide[0]
        for one in wide[1:]:
            found = found.plus(one)
        return found

    def conv2d(
        self,
        x: Any,
        weight: Any,
        *,
        stride: Pair,
        padding: Pair,
        dilation: Pair = (1, 1),
        groups: int = 1,
    ) -> Any:
        """Convolve images with weights."""
        if not isinstance(weight, Tensor):
            raise ConfigError(f"conv2d with secret weights {REFUSED}")
        if isinstance(x, Tensor):
            return functional.conv2d(x, weight, None, stride, padding, dilation, groups)
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

    def conv1d(self, x: Any, weight: Any, *, stride: int, padding: int) -> Any:
        """Convolve series with weights."""
        if isinstance(x, Tensor):
            return functional.conv1d(x, weight, stride=stride, padding=padding)
        images = self.reshape(x, (*x.shape[:2], 1, x.shape[2]))
        found = self.conv2d(images, weight[:, :, None], stride=(1, stride), padding=(0, padding))
        return self.reshape(found, (*found.shape[:2], found.shape[3]))

    def avg_pool2d(self, x: Any, *, size: Pair, stride: Pair, padding: Pair) -> Any:
        """Give the mean of every window, zeros beyond the edge counted in."""
        if isinstance(x, Tensor):
            return functional.avg_pool2d(x, size, stride, padding)
        windows, sides = _windows(x, size, stride, padding, (1, 1))
        taps = np.moveaxis(windows, 1, -1).reshape(-1, windows.shape[1])
        return _gathered(x, taps, 1 / prod(size), (1, x.shape[1], *sides))

    def weigh(self, x: Any, factors: Tensor) -> Any:
        """Multiply by a public tensor."""
        return self.mul(x, factors.double())

    def project(self, x: Any, matrix: Tensor) -> Any:
        """Multiply by a public matrix."""
        return self.matmul(x, matrix.double())

    def offset(self, x: Any, amounts: Tensor) -> Any:
        """Add a public tensor."""
        return self.add(x, amounts.double())

    def mix(self, weights: Any, values: Any) -> Any:
        """Multiply matrices."""
        return self.matmul(weights, values)

    def lookup(self, table: Any, hot: Any) -> Any:
        """Read rows of a table by one-hot vectors."""
        return self.matmul(hot, table)

    def piecewise(
        self, x: Any, breaks: Sequence[float], polynomials: Sequence[Sequence[float]]
    ) -> Any:
        """Evaluate a polynomial; one with breakpoints is refused."""
        if isinstance(x, Tensor):
            return self._plain.piecewise(x, breaks, polynomials)
        if breaks:
            raise ConfigError(f"piecewise with breakpoints {REFUSED}")
        constant, *rest = polynomials[0]
        powers: dict[int, Any] = {1: x}
        found = self.scale(x, rest[0] if rest else 0.0)
        for degree, factor in enumerate(rest[1:], start=2):
            half = degree // 2
            powers[degree] = self.mul(powers[half], powers[degree - half])
            found = self.add(found, self.scale(powers[degree], factor))
        return self.shift(found, constant)

    def within(self, y: Any, x: Any, *, gain: float) -> Any:
        """Give y: a circuit knows its own ranges."""
        return y

    def restate(self, value: Any, *, bound: float) -> Any:
        """Give the value."""
        return value

    def reaches(self, x: Any, *, bound: float) -> bool:
        """Say no: nothing saturates here."""
        return False


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


def _places(x: Affine) -> Places:
    return np.arange(x.size).reshape(x.shape)


def _spread(x: Any, shape: tuple[int, ...]) -> Affine:
    """Broadcast; what is known becomes an offset."""
    if isinstance(x, Tensor):
        return Affine(shape, {}, np.broadcast_to(_floats(x), shape).reshape(-1).copy())
    found: Affine = x
    if found.shape == shape:
        return found
    return found.picked(np.broadcast_to(_places(found), shape))


def _gathered(x: Affine, taps: Places, factor: float, shape: tuple[int, ...]) -> Affine:
    return x.mapped(_matrix_of(taps, np.full(taps.shape[1], factor), x.size), shape)


def _matrix_of(taps: Places, factors: Floats, size: int) -> Any:
    """Make the matrix whose row i has ``factors`` at ``taps[i]``; -1 is nowhere."""
    rows = np.repeat(np.arange(len(taps)), taps.shape[1])
    columns, data = taps.reshape(-1), np.tile(factors, len(taps))
    kept = columns >= 0
    return sparse().csr_matrix((data[kept], (rows[kept], columns[kept])), (len(taps), size))


def _windows(
    x: Affine, size: tuple[int, ...], stride: Pair, padding: Pair, dilation: Pair
) -> tuple[Places, Pair]:
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
