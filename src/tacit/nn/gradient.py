"""GradientOps and its tape: run a model over any interpreter and keep the way back to its weights.

The way back is written in the verbs of the inner interpreter, so a model that runs under a
protocol trains under it, too.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from math import pi, prod, sqrt
from typing import Generic, TypeVar

import torch
from torch import Tensor

from tacit.errors import InputError
from tacit.nn.ops import Pair, TrainableOps
from tacit.nn.spreading import Sweep, fitted, laid_out, scattered, turned, widened

T = TypeVar("T")
Pull = Callable[[T], T]
"""Turns the gradient of a result into that of one thing it was made of."""


@dataclass(frozen=True, eq=False)
class Node(Generic[T]):
    """A value on the tape.

    Attributes:
        value: what the inner interpreter works with.
        number: nodes are numbered as they are made, so a node comes after its parents.
        parents: what it was made of.
        pulls: the way back to each parent; a parent that needs no gradient is not computed.
        is_view: whether it holds the elements of its only parent in another shape.
    """

    value: T
    number: int
    parents: tuple["Node[T]", ...] = ()
    pulls: tuple[Pull[T], ...] = ()
    is_view: bool = False


class Tape(Generic[T]):
    """Makes nodes. One tape belongs to one pass through a model."""

    def __init__(self) -> None:
        self._numbers = count()

    def leaf(self, value: T) -> Node[T]:
        """Put an input or a weight on the tape."""
        return Node(value, next(self._numbers))

    def node(self, value: T, *ways: tuple[Node[T], Pull[T]], is_view: bool = False) -> Node[T]:
        """Put a result on the tape, with what it was made of and the ways back."""
        parents, pulls = zip(*ways, strict=True)
        return Node(value, next(self._numbers), parents, pulls, is_view)


def pull_back(
    ops: TrainableOps[T], output: Node[T], gradient: T, wanted: Sequence[Node[T]]
) -> list[T]:
    """Return the gradients of what is wanted, given that of the output.

    Args:
        ops: the interpreter of the values; gradients are computed with it.
        output: where to start.
        gradient: of the loss by the output, in the output's shape.
        wanted: the leaves to differentiate by.

    Raises:
        InputError: the output does not depend on something wanted.
    """
    needed = _dependent(output, wanted)
    gradients: dict[int, T] = {output.number: gradient}
    for node in sorted(needed.values(), key=lambda one: -one.number):
        for parent, pull in zip(node.parents, node.pulls, strict=True):
            if parent.number not in needed:
                continue
            part = pull(gradients[node.number])
            known = gradients.get(parent.number)
            gradients[parent.number] = part if known is None else ops.add(known, part)
    missing = [at for at, leaf in enumerate(wanted) if leaf.number not in gradients]
    if missing:
        raise InputError(f"the output does not depend on wanted value {missing[0]}")
    return [gradients[leaf.number] for leaf in wanted]


def reachable(output: Node[T]) -> list[Node[T]]:
    """List the nodes that an output was made of, itself included."""
    found: dict[int, Node[T]] = {}
    stack = [output]
    while stack:
        node = stack.pop()
        if node.number not in found:
            found[node.number] = node
            stack.extend(node.parents)
    return list(found.values())


def _dependent(output: Node[T], wanted: Sequence[Node[T]]) -> dict[int, Node[T]]:
    """List the nodes between the output and what is wanted: no others need a gradient."""
    above = {node.number: node for node in reachable(output)}
    marked = {leaf.number for leaf in wanted}
    for number in sorted(above):
        if any(parent.number in marked for parent in above[number].parents):
            marked.add(number)
    return {number: node for number, node in above.items() if number in marked}


FINER = 256.0
"""How much finer the means are with which a norm is differentiated."""
SLACK = 8.0
"""What cannot be so many times larger than a cap is left as it is: a comparison costs more."""


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
            (x, lambda g: self._capped(self._fit(ops.matmul(g, turned(ops, y.value)), x))),
            (y, lambda g: self._fit(ops.matmul(turned(ops, x.value), g), y)),
        )

    def scale(self, x: Node[T], factor: float) -> Node[T]:
        """Multiply by a public number."""
        return self._map(x, self._ops.scale(x.value, factor), lambda g: self._ops.scale(g, factor))

    def shift(self, x: Node[T], amount: float) -> Node[T]:
        """Add a public number."""
        return self._map(x, self._ops.shift(x.value, amount), lambda g: g)

    def weigh(self, x: Node[T], factors: Tensor) -> Node[T]:
        """Multiply by a public tensor, broadcasting."""
        weigh = self._ops.weigh
        return self._map(x, weigh(x.value, factors), lambda g: self._fit(weigh(g, factors), x))

    def project(self, x: Node[T], matrix: Tensor) -> Node[T]:
        """Multiply by a public matrix, forth and back at the cost of rounding alone."""
        project, back = self._ops.project, matrix.transpose(0, 1)
        return self._map(x, project(x.value, matrix), lambda g: self._capped(project(g, back)))

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
        reshape, before = self._ops.reshape, self.shape(x)
        return self._tape.node(
            reshape(x.value, shape), (x, lambda g: reshape(g, before)), is_view=True
        )

    def transpose(self, x: Node[T], first: int, second: int) -> Node[T]:
        """Swap two dimensions."""
        swap = self._ops.transpose
        return self._map(x, swap(x.value, first, second), lambda g: swap(g, first, second))

    def take(self, x: Node[T], positions: Sequence[int], *, dim: int) -> Node[T]:
        """Pick public positions of a dimension, in any order and as often as wanted."""
        axis, chosen = dim % len(self.shape(x)), tuple(positions)
        size = self.shape(x)[axis]
        return self._map(
            x,
            self._ops.take(x.value, chosen, dim=axis),
            lambda g: scattered(self._ops, g, chosen, size, axis),
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

    def conv2d(
        self,
        x: Node[T],
        weight: Node[T],
        *,
        stride: Pair,
        padding: Pair,
        dilation: Pair = (1, 1),
        groups: int = 1,
    ) -> Node[T]:
        """Convolve images with weights."""
        ops, how = self._ops, Sweep(stride, padding, dilation, groups)
        return self._tape.node(
            how.convolve(ops, x.value, weight.value),
            (x, lambda g: self._capped(how.by_images(ops, g, weight.value, self.shape(x)))),
            (weight, lambda g: how.by_weights(ops, x.value, g, self.shape(weight))),
        )

    def relu(self, x: Node[T]) -> Node[T]:
        """Give the positive part of every element."""
        # One comparison serves both ways.
        sign = self._ops.indicate(x.value)
        return self._map(x, self._ops.gate(sign, x.value), lambda g: self._ops.gate(sign, g))

    def sigmoid(self, x: Node[T]) -> Node[T]:
        """Apply the logistic function to every element."""
        ops, y = self._ops, self._ops.sigmoid(x.value)
        return self._map(x, y, lambda g: ops.mul(g, ops.sub(y, ops.square(y))))

    def tanh(self, x: Node[T]) -> Node[T]:
        """Apply the hyperbolic tangent to every element."""
        ops, y = self._ops, self._ops.tanh(x.value)
        return self._map(x, y, lambda g: ops.sub(g, ops.mul(g, ops.square(y))))

    def silu(self, x: Node[T]) -> Node[T]:
        """Apply x·sigmoid(x) to every element."""
        return self.mul(x, self.sigmoid(x))

    def erf(self, x: Node[T]) -> Node[T]:
        """Apply the error function to every element."""
        ops = self._ops

        def bell() -> T:
            return ops.scale(ops.exp(ops.scale(ops.square(x.value), -1.0)), 2 / sqrt(pi))

        return self._map(x, ops.erf(x.value), lambda g: ops.mul(g, bell()))

    def gelu(self, x: Node[T]) -> Node[T]:
        """Apply the Gaussian error linear unit to every element."""
        ops = self._ops
        return self._map(x, ops.gelu(x.value), lambda g: ops.mul(g, ops.gelu_slope(x.value)))

    def abs(self, x: Node[T]) -> Node[T]:
        """Give the absolute value of every element."""
        return self.sub(self.scale(self.relu(x), 2.0), x)

    def softplus(self, x: Node[T]) -> Node[T]:
        """Apply log(1 + exp(x)) to every element."""
        ops = self._ops
        return self._map(x, ops.softplus(x.value), lambda g: ops.mul(g, ops.sigmoid(x.value)))

    def piecewise(
        self, x: Node[T], breaks: Sequence[float], polynomials: Sequence[Sequence[float]]
    ) -> Node[T]:
        """Evaluate polynomials (lowest coefficient first) between public breakpoints."""
        ops = self._ops
        slopes = [[k * a for k, a in enumerate(one)][1:] or [0.0] for one in polynomials]
        return self._map(
            x,
            ops.piecewise(x.value, breaks, polynomials),
            lambda g: ops.mul(g, ops.piecewise(x.value, breaks, slopes)),
        )

    def log(self, x: Node[T]) -> Node[T]:
        """Give the natural logarithm of every element."""
        ops = self._ops
        return self._map(x, ops.log(x.value), lambda g: ops.mul(g, ops.reciprocal(x.value)))

    def reciprocal(self, x: Node[T]) -> Node[T]:
        """Give 1 / x for every element."""
        ops, y = self._ops, self._ops.reciprocal(x.value)
        return self._map(x, y, lambda g: ops.scale(ops.mul(g, ops.square(y)), -1.0))

    def div(self, x: Node[T], y: Node[T]) -> Node[T]:
        """Divide element-wise, broadcasting."""
        return self.mul(x, self.reciprocal(y))

    def sqrt(self, x: Node[T]) -> Node[T]:
        """Give √x for every element."""
        ops = self._ops
        inverse = ops.rsqrt(x.value)
        return self._map(x, ops.sqrt(x.value), lambda g: ops.scale(ops.mul(g, inverse), 0.5))

    def log_softmax(self, x: Node[T], *, dim: int) -> Node[T]:
        """Give x - log Σ exp(x) along a dimension."""
        ops, axis = self._ops, dim % len(self.shape(x))
        y = ops.log_softmax(x.value, dim=axis)

        def pull(g: T) -> T:
            total = widened(ops, ops.sum(g, dim=axis), axis)
            return ops.sub(g, ops.mul(ops.exp(y), total))

        return self._map(x, y, pull)

    def softmax(self, x: Node[T], *, dim: int) -> Node[T]:
        """Give exp(x) / Σ exp(x) along a dimension."""
        ops = self._ops
        y = ops.softmax(x.value, dim=dim)
        axis = dim % len(self.shape(x))

        def pull(g: T) -> T:
            total = ops.sum(ops.mul(g, y), dim=axis)
            return ops.mul(y, ops.sub(g, widened(ops, total, axis)))

        return self._map(x, y, pull)

    def rsqrt(self, x: Node[T]) -> Node[T]:
        """Give 1 / √x for every element."""
        ops, y = self._ops, self._ops.rsqrt(x.value)
        return self._map(x, y, lambda g: ops.scale(ops.mul(g, ops.mul(y, ops.square(y))), -0.5))

    def layer_norm(self, x: Node[T], *, eps: float) -> Node[T]:
        """Bring the last dimension to mean 0 and variance 1."""
        shape = self.shape(x)
        kept = (*shape[:-1], 1)
        mean = self.reshape(self.scale(self.sum(x, dim=-1), 1 / shape[-1]), kept)
        return self.rms_norm(self.sub(x, mean), eps=eps)

    def rms_norm(self, x: Node[T], *, eps: float) -> Node[T]:
        """Bring the last dimension to a mean square of 1."""
        ops, shape = self._ops, self.shape(x)
        kept, count = (*shape[:-1], 1), shape[-1]

        def mean(rows: T, times: float = 1.0) -> T:
            return ops.reshape(ops.scale(ops.sum(rows, dim=-1), times / count), kept)

        inverse = ops.rsqrt(ops.shift(mean(ops.square(x.value)), eps))
        y = ops.mul(x.value, inverse)
        # No element of a normal row is larger than √n; the inverse root is up to 2^-12 off.
        if not ops.reaches(x.value, bound=2.0**12):
            y = ops.restate(y, bound=1.02 * sqrt(count) + 1.0)

        def pull(g: T) -> T:
            # A rounding of the mean goes into every element of its row, and adds up in the
            # gradients of weights before the norm: it is kept finer than other numbers.
            common = ops.scale(ops.mul(y, mean(ops.mul(g, y), FINER)), 1 / FINER)
            return ops.mul(inverse, ops.sub(g, common))

        return self._map(x, y, lambda g: self._capped(pull(g)))

    def group_norm(self, x: Node[T], *, groups: int, eps: float) -> Node[T]:
        """Bring groups of channels of (n, channels, …) to mean 0 and variance 1."""
        shape = self.shape(x)
        rows = self.reshape(x, (shape[0], groups, -1))
        return self.reshape(self.layer_norm(rows, eps=eps), shape)

    def max(self, x: Node[T], *, dim: int) -> Node[T]:
        """Give the largest element along a dimension, which disappears."""
        axis = dim % len(self.shape(x))
        while (size := self.shape(x)[axis]) > 1:
            # If odd, both halves hold the middle; of equal elements the first half's is taken.
            first = self.take(x, range((size + 1) // 2), dim=axis)
            last = self.take(x, range(size // 2, size), dim=axis)
            x = self.add(last, self.relu(self.sub(first, last)))
        return self.sum(x, dim=axis)

    def min(self, x: Node[T], *, dim: int) -> Node[T]:
        """Give the smallest element along a dimension, which disappears."""
        return self.scale(self.max(self.scale(x, -1.0), dim=dim), -1.0)

    def max_pool2d(self, x: Node[T], *, size: Pair, stride: Pair, padding: Pair) -> Node[T]:
        """Give the largest element of every window of images."""
        return self.max(laid_out(self, x, size, stride, padding, counts_edge=False), dim=-1)

    def avg_pool2d(self, x: Node[T], *, size: Pair, stride: Pair, padding: Pair) -> Node[T]:
        """Give the mean of every window of images, zeros beyond the edge counted in."""
        laid = laid_out(self, x, size, stride, padding, counts_edge=True)
        return self.scale(self.sum(laid, dim=-1), 1 / prod(size))

    def conv1d(self, x: Node[T], weight: Node[T], *, stride: int, padding: int) -> Node[T]:
        """Convolve series with weights, as images of one line."""
        flat = [self.reshape(one, (*self.shape(one)[:2], 1, -1)) for one in (x, weight)]
        out = self.conv2d(flat[0], flat[1], stride=(1, stride), padding=(0, padding))
        return self.reshape(out, (*self.shape(out)[:2], -1))

    def mix(self, weights: Node[T], values: Node[T]) -> Node[T]:
        """Multiply matrices, where every row of the first adds up to one."""
        ops = self._ops
        return self._tape.node(
            ops.mix(weights.value, values.value),
            (weights, lambda g: self._capped(ops.matmul(g, turned(ops, values.value)))),
            (values, lambda g: ops.matmul(turned(ops, weights.value), g)),
        )

    def hide(self, x: Node[T], kept: Tensor) -> Node[T]:
        """Put a number that a softmax makes zero wherever a public mask is false."""
        wide = kept.to(torch.float64).expand(self.shape(x))
        return self._map(x, self._ops.hide(x.value, kept), lambda g: self._ops.weigh(g, wide))

    def embedding(self, table: Node[T], ids: Node[T], *, padding: int | None = None) -> Node[T]:
        """Read the rows of a table that whole numbers name; that of ``padding`` never learns."""
        rows = self.shape(table)[0]
        if padding is not None:
            learns = torch.arange(rows)[:, None] != padding % rows
            table = self._map(table, table.value, lambda g: self._ops.weigh(g, learns.double()))
        return self.lookup(table, self._tape.leaf(self._ops.one_hot(ids.value, classes=rows)))

    def lookup(self, table: Node[T], hot: Node[T]) -> Node[T]:
        """Read the rows of a table that one-hot vectors name."""
        ops = self._ops
        classes, width = self.shape(table)

        def pull(g: T) -> T:
            rows = ops.reshape(hot.value, (-1, classes))
            return ops.matmul(turned(ops, rows), ops.reshape(g, (-1, width)))

        return self._map(table, ops.lookup(table.value, hot.value), pull)

    def within(self, y: Node[T], x: Node[T], *, gain: float) -> Node[T]:
        """State that y is at most ``gain`` times as large as x can be; changes no value."""
        return self._map(y, self._ops.within(y.value, x.value, gain=gain), lambda g: g)

    def cap(self, x: Node[T], *, bound: float) -> Node[T]:
        """Saturate at ±bound; the gradient goes on as if nothing had been cut off."""
        return self._map(x, self._ops.cap(x.value, bound=bound), lambda g: g)

    def reaches(self, x: Node[T], *, bound: float) -> bool:
        """Tell whether an element could be larger than ±bound."""
        return self._ops.reaches(x.value, bound=bound)

    def clamp(self, x: Node[T], low: float, high: float) -> Node[T]:
        """Keep every element between two public numbers."""
        ops = self._ops
        above = ops.indicate(ops.shift(x.value, -low))
        below = ops.indicate(ops.shift(ops.scale(x.value, -1.0), high))
        # Two comparisons serve both ways: what is not above is below.
        between = ops.restate(ops.shift(ops.add(above, below), -1.0), bound=1.0)
        beyond = ops.shift(ops.scale(below, low - high), high)
        value = ops.add(ops.gate(between, ops.shift(x.value, -low)), beyond)
        value = ops.restate(value, bound=max(abs(low), abs(high)))
        return self._map(x, value, lambda g: ops.gate(between, g))

    def _capped(self, gradient: T) -> T:
        cap = self._cap
        if cap is None or not self._ops.reaches(gradient, bound=SLACK * cap):
            return gradient
        return self._ops.cap(gradient, bound=cap)

    def _map(self, x: Node[T], value: T, pull: Pull[T]) -> Node[T]:
        return self._tape.node(value, (x, pull))

    def _fit(self, gradient: T, x: Node[T]) -> T:
        return fitted(self._ops, gradient, self.shape(x))
