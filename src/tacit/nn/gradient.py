"""GradientOps: run a model over any interpreter and keep the way back to its weights.

The way back is written in the verbs of the inner interpreter, so a model that runs under a
protocol trains under it, too.
"""

from collections.abc import Sequence
from math import prod, sqrt
from typing import Generic, TypeVar

from torch import Tensor

from tacit.errors import InputError
from tacit.nn.convolving import input_gradient, weight_gradient
from tacit.nn.ops import Pair, TrainableOps
from tacit.nn.tape import Node, Pull, Tape

T = TypeVar("T")


class GradientOps(Generic[T]):
    """Interpret the verbs that can be differentiated on nodes of a tape.

    Args:
        ops: the interpreter to run and to differentiate with.
        cap: where gradients of hidden values saturate, so that their bounds do not grow with
            every layer; None for nowhere.
    """

    def __init__(self, ops: TrainableOps[T], *, cap: float | None = None) -> None:
        self._ops = ops
        self._cap = cap
        self._tape: Tape[T] = Tape()

    def leaf(self, value: T) -> Node[T]:
        """Bring a value of the inner interpreter in."""
        return self._tape.leaf(value)

    def shape(self, x: Node[T]) -> tuple[int, ...]:
        """Return the shape of a value, which is public."""
        return self._ops.shape(x.value)

    def add(self, x: Node[T], y: Node[T]) -> Node[T]:
        """Add element-wise, broadcasting."""
        total = self._ops.add(x.value, y.value)
        return self._tape.node(
            total, (x, lambda g: self._fit(g, x)), (y, lambda g: self._fit(g, y))
        )

    def sub(self, x: Node[T], y: Node[T]) -> Node[T]:
        """Subtract element-wise, broadcasting."""
        return self._tape.node(
            self._ops.sub(x.value, y.value),
            (x, lambda g: self._fit(g, x)),
            (y, lambda g: self._ops.scale(self._fit(g, y), -1.0)),
        )

    def mul(self, x: Node[T], y: Node[T]) -> Node[T]:
        """Multiply element-wise, broadcasting."""
        ops = self._ops
        return self._tape.node(
            ops.mul(x.value, y.value),
            (x, lambda g: self._fit(ops.mul(g, y.value), x)),
            (y, lambda g: self._fit(ops.mul(g, x.value), y)),
        )

    def square(self, x: Node[T]) -> Node[T]:
        """Multiply every element by itself."""
        ops = self._ops
        return self._map(x, ops.square(x.value), lambda g: ops.scale(ops.mul(g, x.value), 2.0))

    def matmul(self, x: Node[T], y: Node[T]) -> Node[T]:
        """Multiply matrices."""
        ops = self._ops
        return self._tape.node(
            ops.matmul(x.value, y.value),
            (x, lambda g: self._capped(self._fit(ops.matmul(g, _turned(ops, y.value)), x))),
            (y, lambda g: self._fit(ops.matmul(_turned(ops, x.value), g), y)),
        )

    def scale(self, x: Node[T], factor: float) -> Node[T]:
        """Multiply by a public number."""
        return self._map(x, self._ops.scale(x.value, factor), lambda g: self._ops.scale(g, factor))

    def shift(self, x: Node[T], amount: float) -> Node[T]:
        """Add a public number."""
        return self._map(x, self._ops.shift(x.value, amount), lambda g: g)

    def weigh(self, x: Node[T], factors: Tensor) -> Node[T]:
        """Multiply by a public tensor, broadcasting."""
        return self._map(
            x,
            self._ops.weigh(x.value, factors),
            lambda g: self._fit(self._ops.weigh(g, factors), x),
        )

    def offset(self, x: Node[T], amounts: Tensor) -> Node[T]:
        """Add a public tensor, broadcasting."""
        return self._map(x, self._ops.offset(x.value, amounts), lambda g: self._fit(g, x))

    def sum(self, x: Node[T], *, dim: int) -> Node[T]:
        """Add up along one dimension, which disappears."""
        shape = self.shape(x)
        axis = dim % len(shape)
        kept = (*shape[:axis], 1, *shape[axis + 1 :])

        def pull(g: T) -> T:
            return self._ops.take(self._ops.reshape(g, kept), (0,) * shape[axis], dim=axis)

        return self._map(x, self._ops.sum(x.value, dim=axis), pull)

    def reshape(self, x: Node[T], shape: Sequence[int]) -> Node[T]:
        """Give the same elements another shape."""
        before = self.shape(x)
        return self._map(
            x, self._ops.reshape(x.value, shape), lambda g: self._ops.reshape(g, before)
        )

    def transpose(self, x: Node[T], first: int, second: int) -> Node[T]:
        """Swap two dimensions."""
        return self._map(
            x,
            self._ops.transpose(x.value, first, second),
            lambda g: self._ops.transpose(g, first, second),
        )

    def take(self, x: Node[T], positions: Sequence[int], *, dim: int) -> Node[T]:
        """Pick public positions of a dimension, in any order and as often as wanted."""
        axis, chosen = dim % len(self.shape(x)), tuple(positions)
        size = self.shape(x)[axis]
        return self._map(
            x,
            self._ops.take(x.value, chosen, dim=axis),
            lambda g: _scatter(self._ops, g, chosen, size, axis),
        )

    def concatenate(self, parts: Sequence[Node[T]], *, dim: int) -> Node[T]:
        """Join tensors along a dimension."""
        axis = dim % len(self.shape(parts[0]))
        sizes = [self.shape(part)[axis] for part in parts]
        starts = [sum(sizes[:at]) for at in range(len(sizes))]

        def pull(start: int, size: int) -> Pull[T]:
            return lambda g: self._ops.take(g, range(start, start + size), dim=axis)

        joined = self._ops.concatenate([part.value for part in parts], dim=axis)
        pulls = [pull(start, size) for start, size in zip(starts, sizes, strict=True)]
        return self._tape.node(joined, *zip(parts, pulls, strict=True))

    def conv2d(self, x: Node[T], weight: Node[T], *, stride: Pair, padding: Pair) -> Node[T]:
        """Convolve images with weights."""
        ops, how = self._ops, (stride, padding)
        return self._tape.node(
            ops.conv2d(x.value, weight.value, stride=stride, padding=padding),
            (x, lambda g: self._capped(input_gradient(ops, g, weight.value, self.shape(x), *how))),
            (weight, lambda g: weight_gradient(ops, x.value, g, self.shape(weight), *how)),
        )

    def relu(self, x: Node[T]) -> Node[T]:
        """Give the positive part of every element."""
        # One comparison serves both ways.
        sign = self._ops.indicate(x.value)
        return self._map(x, self._ops.gate(sign, x.value), lambda g: self._ops.gate(sign, g))

    def sigmoid(self, x: Node[T]) -> Node[T]:
        """Apply the logistic function to every element."""
        ops = self._ops
        y = ops.sigmoid(x.value)
        return self._map(x, y, lambda g: ops.mul(g, ops.sub(y, ops.square(y))))

    def tanh(self, x: Node[T]) -> Node[T]:
        """Apply the hyperbolic tangent to every element."""
        ops = self._ops
        y = ops.tanh(x.value)
        return self._map(x, y, lambda g: ops.sub(g, ops.mul(g, ops.square(y))))

    def silu(self, x: Node[T]) -> Node[T]:
        """Apply x·sigmoid(x) to every element."""
        return self.mul(x, self.sigmoid(x))

    def erf(self, x: Node[T]) -> Node[T]:
        """Apply the error function to every element."""
        ops = self._ops

        def pull(g: T) -> T:
            bell = ops.exp(ops.scale(ops.square(x.value), -1.0))
            return ops.mul(g, ops.scale(bell, 2 / sqrt(3.141592653589793)))

        return self._map(x, ops.erf(x.value), pull)

    def gelu(self, x: Node[T]) -> Node[T]:
        """Apply the Gaussian error linear unit to every element."""
        half = self.scale(x, 0.5)
        return self.add(half, self.mul(half, self.erf(self.scale(x, sqrt(0.5)))))

    def softmax(self, x: Node[T], *, dim: int) -> Node[T]:
        """Give exp(x) / Σ exp(x) along a dimension."""
        ops = self._ops
        y = ops.softmax(x.value, dim=dim)
        axis = dim % len(self.shape(x))

        def pull(g: T) -> T:
            total = ops.sum(ops.mul(g, y), dim=axis)
            return ops.mul(y, ops.sub(g, _widened(ops, total, axis)))

        return self._map(x, y, pull)

    def rsqrt(self, x: Node[T]) -> Node[T]:
        """Give 1 / √x for every element."""
        ops = self._ops
        y = ops.rsqrt(x.value)
        return self._map(x, y, lambda g: ops.scale(ops.mul(g, ops.mul(y, ops.square(y))), -0.5))

    def layer_norm(self, x: Node[T], *, eps: float) -> Node[T]:
        """Bring the last dimension to mean 0 and variance 1."""
        shape = self.shape(x)
        kept = (*shape[:-1], 1)
        mean = self.reshape(self.scale(self.sum(x, dim=-1), 1 / shape[-1]), kept)
        return self.rms_norm(self.sub(x, mean), eps=eps)

    def rms_norm(self, x: Node[T], *, eps: float) -> Node[T]:
        """Bring the last dimension to a mean square of 1."""
        shape = self.shape(x)
        mean = self.scale(self.sum(self.square(x), dim=-1), 1 / shape[-1])
        inverse = self.rsqrt(self.shift(mean, eps))
        return self.mul(x, self.reshape(inverse, (*shape[:-1], 1)))

    def max(self, x: Node[T], *, dim: int) -> Node[T]:
        """Give the largest element along a dimension, which disappears."""
        axis = dim % len(self.shape(x))
        while (size := self.shape(x)[axis]) > 1:
            # If odd, both halves hold the middle; of equal elements the first half's is taken.
            first = self.take(x, range((size + 1) // 2), dim=axis)
            last = self.take(x, range(size // 2, size), dim=axis)
            x = self.add(last, self.relu(self.sub(first, last)))
        return self.sum(x, dim=axis)

    def max_pool2d(self, x: Node[T], *, size: Pair, stride: Pair, padding: Pair) -> Node[T]:
        """Give the largest element of every window of images; windows must not overlap."""
        return self.max(self._windows(x, size, stride, padding, "max_pool2d"), dim=-1)

    def avg_pool2d(self, x: Node[T], *, size: Pair, stride: Pair, padding: Pair) -> Node[T]:
        """Give the mean of every window of images; windows must not overlap."""
        laid = self._windows(x, size, stride, padding, "avg_pool2d")
        return self.scale(self.sum(laid, dim=-1), 1 / prod(size))

    def within(self, y: Node[T], x: Node[T], *, gain: float) -> Node[T]:
        """State that y is at most ``gain`` times as large as x can be; changes no value."""
        return self._map(y, self._ops.within(y.value, x.value, gain=gain), lambda g: g)

    def cap(self, x: Node[T], *, bound: float) -> Node[T]:
        """Saturate at ±bound; the gradient goes on as if nothing had been cut off."""
        return self._map(x, self._ops.cap(x.value, bound=bound), lambda g: g)

    def clamp(self, x: Node[T], low: float, high: float) -> Node[T]:
        """Keep every element between two public numbers."""
        ops = self._ops
        above = ops.indicate(ops.shift(x.value, -low))
        below = ops.indicate(ops.shift(ops.scale(x.value, -1.0), high))
        return self._map(
            x, ops.clamp(x.value, low, high), lambda g: ops.gate(above, ops.gate(below, g))
        )

    def _capped(self, gradient: T) -> T:
        return gradient if self._cap is None else self._ops.cap(gradient, bound=self._cap)

    def _windows(self, x: Node[T], size: Pair, stride: Pair, padding: Pair, name: str) -> Node[T]:
        """Lay windows that do not overlap out along a last dimension."""
        n, channels, height, width = self.shape(x)
        if stride != size or padding != (0, 0) or height % size[0] or width % size[1]:
            raise InputError(
                f"{name} can be trained only if its windows tile the image: wanted stride = size "
                f"and no padding for {height} × {width}, got size {size}, stride {stride}, "
                f"padding {padding}"
            )
        rows, columns = height // size[0], width // size[1]
        tiles = self.reshape(x, (n * channels, rows, size[0], columns, size[1]))
        swapped = self.transpose(tiles, 2, 3)
        return self.reshape(swapped, (n, channels, rows, columns, prod(size)))

    def _map(self, x: Node[T], value: T, pull: Pull[T]) -> Node[T]:
        return self._tape.node(value, (x, pull))

    def _fit(self, gradient: T, x: Node[T]) -> T:
        """Add up what broadcasting has spread."""
        ops, wanted = self._ops, self.shape(x)
        while len(ops.shape(gradient)) > len(wanted):
            gradient = ops.sum(gradient, dim=0)
        for axis, size in enumerate(wanted):
            if size == 1 and ops.shape(gradient)[axis] != 1:
                gradient = _widened(ops, ops.sum(gradient, dim=axis), axis)
        return gradient


def _turned(ops: TrainableOps[T], x: T) -> T:
    return ops.transpose(x, -1, -2)


def _widened(ops: TrainableOps[T], x: T, axis: int) -> T:
    """Put a dimension of one element in."""
    shape = ops.shape(x)
    return ops.reshape(x, (*shape[:axis], 1, *shape[axis:]))


def _scatter(
    ops: TrainableOps[T], gradient: T, positions: tuple[int, ...], size: int, axis: int
) -> T:
    """Send every element back to where it was taken from, adding up those from one place."""
    places: list[list[int]] = [[] for _ in range(size)]
    for at, position in enumerate(positions):
        places[position % size].append(at)
    if size == 1:
        return _widened(ops, ops.sum(gradient, dim=axis), axis)
    nothing = ops.scale(ops.take(gradient, (0,), dim=axis), 0.0)
    padded = ops.concatenate([gradient, nothing], dim=axis)
    total: T | None = None
    for turn in range(max(map(len, places))):
        picks = [place[turn] if turn < len(place) else len(positions) for place in places]
        part = ops.take(padded, picks, dim=axis)
        total = part if total is None else ops.add(total, part)
    if total is None:
        raise InputError("nothing was taken, so there is nothing to differentiate")
    return total
