"""What an imported model runs with: an interpreter, weights, and public facts about sizes."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import ceil, isfinite, log2, sqrt
from typing import Any, TypeVar

from torch import Tensor

from tacit.errors import RangeError
from tacit.nn.ops import BoundedOps

QUARTERS = 4
"""Public sizes are rounded up to quarters of an octave, so that they say little about a model."""
SLACK = 1.01
"""Lengths are stated with so much room for the errors of functions and of rounding."""
NEARLY = 1.05
"""What cannot be so many times larger than a cap is left as it is: a GELU of a capped value is."""


@dataclass(frozen=True)
class Constant:
    """A tensor that is part of the model's public code, such as a mask."""

    values: Tensor


@dataclass(frozen=True)
class NotComputed:
    """A result that torch would have, and that nothing here computes.

    Attributes:
        what: it is, and how the module is called without it.
    """

    what: str


@dataclass(frozen=True)
class Running:
    """One run of an imported model.

    Attributes:
        ops: any interpreter of the Ops contract.
        weights: its tensors, by the names of the module's parameters; constants where they are
            public.
        gains: by weight, how much larger than its input the product with it can be; by the names
            that `ROWS` and `NORM` make of it, how long its rows are and how much it stretches one.
        cap: where hidden values saturate; None for nowhere.
        hot: the input, where it is one-hot vectors instead of the whole numbers that the model
            reads rows of a table by.

    Behind a norm a row has length √n, whatever the input. From there on the lengths of rows are
    followed: they bound values far better than the sizes of elements do.
    """

    # Ops of any interpreter and any of its tensors: the interpreters have different types.
    ops: Any
    weights: Mapping[str, Any]
    gains: Mapping[str, float]
    cap: float | None
    hot: Any = None
    _capped: dict[int, tuple[Any, Any]] = field(default_factory=dict)
    _lengths: dict[int, tuple[Any, float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Note how long the rows of weights are."""
        for name, value in self.weights.items():
            known = self.gains.get(ROWS.format(name))
            if known is not None and not isinstance(value, Constant):
                self.measured(value, known)

    @property
    def has_bounds(self) -> bool:
        """Tell whether the interpreter knows how large numbers can be."""
        return isinstance(self.ops, BoundedOps)

    def shape(self, x: Any) -> tuple[int, ...]:
        """Return the shape that the model knows a value by."""
        shape: tuple[int, ...] = self.ops.shape(x)
        return shape if self.hot is None or x is not self.hot else shape[:-1]

    def length(self, x: Any) -> float:
        """Return how long a row of the last dimension can be."""
        if id(x) in self._lengths:
            return self._lengths[id(x)][1]
        return sqrt((self.ops.shape(x) or (1,))[-1]) * float(self.ops.bound(x))

    def measured(self, x: Any, length: float) -> Any:
        """Note how long the rows of a value can be, where elements do not say as much."""
        if self.has_bounds and is_tensor(x) and length < self.length(x):
            self._lengths[id(x)] = (x, length)  # it is kept, so that its id stays its
        return x

    def follows(self, out: Any, *given: Any, factor: float = 1.0, off: float = 0.0) -> Any:
        """Note that rows are at most a factor times as long as those of others together.

        Every element may be ``off`` by so much besides.
        """
        if not any(id(x) in self._lengths for x in given):
            return out
        room = off * sqrt(self.ops.shape(out)[-1])
        return self.measured(out, factor * sum(map(self.length, given)) + room)

    def _spread(self, out: Any, *given: Any) -> float:
        """Return by how much rows of one element get longer where they go with longer ones."""
        if not any(id(x) in self._lengths for x in given):
            return 1.0
        sides = [(self.ops.shape(x) or (1,))[-1] for x in given]
        return sqrt(max(self.ops.shape(out)[-1] / side for side in sides))

    def weight(self, layer: str, name: str) -> Any:
        """Return a weight of a layer, or None if the layer has none of that name."""
        return self.weights.get(key_of(layer, name))

    def capped(self, x: Any) -> Any:
        """Saturate a hidden value, if the run has a cap and the value could be beyond it."""
        if self.cap is None or not self.ops.reaches(x, bound=NEARLY * self.cap):
            return x
        # A value that several layers read is compared once. It is kept, so that its id stays its.
        if id(x) not in self._capped:
            self._capped[id(x)] = (x, self.follows(self.ops.cap(x, bound=self.cap), x))
        return self._capped[id(x)][1]

    def product(self, layer: str, name: str, x: Any, out: Any) -> Any:
        """State how large a product with a weight can be, if that is known."""
        gain = self.gains.get(key_of(layer, name))
        return out if gain is None else self.ops.within(out, x, gain=gain)

    def add(self, x: Any, y: Any) -> Any:
        """Add two tensors of which one may be public."""
        if isinstance(x, Constant):
            x, y = y, x
        if isinstance(y, Constant):
            return self.ops.offset(x, y.values)
        out = self.ops.add(x, y)
        return self.follows(out, x, y, factor=self._spread(out, x, y))

    def mul(self, x: Any, y: Any) -> Any:
        """Multiply two tensors of which one may be public."""
        if isinstance(x, Constant):
            x, y = y, x
        if isinstance(y, Constant):
            return self.ops.weigh(x, y.values)
        out = self.ops.mul(x, y)
        if not self.has_bounds:
            return out
        return self.follows(out, x, factor=self._spread(out, x) * self.ops.bound(y))

    def matmul(self, x: Any, y: Any) -> Any:
        """Multiply matrices of which one may be public, which costs no opening."""
        if isinstance(y, Constant):
            if y.values.dim() == 2:
                return self.ops.project(x, y.values)
            y = self.lifted(y, x)
        elif isinstance(x, Constant):
            x = self.lifted(x, y)
        return self.ops.matmul(x, y)

    def turned(self, matrix: Any) -> Any:
        """Swap the dimensions of a matrix that may be public."""
        if isinstance(matrix, Constant):
            return Constant(matrix.values.transpose(0, 1))
        return self.ops.transpose(matrix, 0, 1)

    def lifted(self, value: Any, beside: Any) -> Any:
        """Make a tensor of the interpreter of a public one; others are returned as they are.

        It is zero times an element of ``beside``, plus the public numbers: nothing is sent.
        """
        if not isinstance(value, Constant):
            return value
        shape = self.ops.shape(beside)
        for dim, side in enumerate(shape):
            if side > 1:
                beside = self.ops.take(beside, (0,), dim=dim)
        if value.values.dim() < len(shape):
            beside = self.ops.reshape(beside, (1,) * value.values.dim())
        return self.ops.offset(self.ops.scale(beside, 0.0), value.values)

    def affine(
        self, layer: str, x: Any, *, weight: str = "weight", bias: str | None = "bias"
    ) -> Any:
        """Apply a weight (outputs, inputs) and perhaps a bias, as torch's linear layers do."""
        x = self.capped(x)
        matrix = self.weight(layer, weight)
        offset = None if bias is None else self.weight(layer, bias)
        if self.has_bounds and ROWS.format(key_of(layer, weight)) in self.gains:
            out = self._stretched(key_of(layer, weight), x, matrix)
        else:
            out = self.product(layer, weight, x, self.matmul(x, self.turned(matrix)))
        return out if offset is None else self.add(out, offset)

    def _stretched(self, key: str, x: Any, matrix: Any) -> Any:
        """Multiply by a weight of which it is known how long its rows are."""
        length, gains = self.length(x), self.gains
        most = min(gains[key] * self.ops.bound(x), gains[ROWS.format(key)] * length)
        out = self.ops.product_within(x, self.turned(matrix), bound=SLACK * most + 2.0**-8)
        return self.measured(out, SLACK * gains[NORM.format(key)] * length)

    def normed(self, x: Any, *, eps: float, centred: bool) -> Any:
        """Normalise rows."""
        x = self.capped(x)
        if not self.has_bounds:
            return (self.ops.layer_norm if centred else self.ops.rms_norm)(x, eps=eps)
        out = self.ops.norm_rows(x, eps=eps, length=self.length(x), centred=centred)
        return self.measured(out, SLACK * sqrt(self.ops.shape(x)[-1]))


ROWS = "{}: its longest row"
NORM = "{}: its spectral norm"
"""The names of what is public about the weights of a model with norms, beside their gains."""


def key_of(layer: str, name: str) -> str:
    """Return the name of a weight in a run: slashes instead of dots."""
    return "/".join(part for part in (*layer.split("."), name) if part)


def is_tensor(value: object) -> bool:
    """Tell a tensor of the interpreter from a number, a shape or another public thing."""
    plain = (bool, int, float, str, tuple, list, dict, slice, type(None), type(...))
    ours = (Constant, NotComputed)
    return not isinstance(value, plain + ours) and not type(value).__module__.startswith(
        "torch.types"
    )


def row_gain(weight: Tensor) -> float:
    """Return how much larger than its input a product can be: the largest sum of |row|.

    Rounding to fixed point may add half a unit of 2^-10 (or finer) to every weight.
    """
    rows = weight.detach().abs().flatten(1)
    return float(rows.sum(dim=1).max()) + rows.shape[1] * 2.0**-11


def quarters_of(size: float) -> int:
    """Round a size up to quarters of an octave, as a whole number of them.

    Raises:
        RangeError: it is no number, as sums of huge weights are.
    """
    if not isfinite(size):
        raise RangeError("sums of weights or inputs are too large to be numbers; scale them")
    return ceil(QUARTERS * log2(max(size, 2.0**-16)))


def size_of(quarters: int) -> float:
    """Return the size that a number of quarter octaves stands for."""
    return float(2.0 ** (quarters / QUARTERS))


R = TypeVar("R")
CAPS = (4096.0, 1024.0, 256.0, 64.0)
"""Where hidden values saturate if nobody chose a cap and their bounds do not fit without one."""


def with_room(attempt: Callable[[float | None], R], *, cap: float | None, keyword: str) -> R:
    """Plan with the cap that was chosen; if none was, without one or with the largest that fits.

    Bounds are those of the worst case and grow with every layer, though the values themselves do
    not. The plan follows from public facts, so that all parties find the same cap.

    Args:
        attempt: plans with a cap, or without one.
        cap: what the user chose.
        keyword: where the user can choose one, in the words of what was called.

    Raises:
        RangeError: no cap helps; says what would.
    """
    first: RangeError | None = None
    for one in (None, *CAPS) if cap is None else (cap,):
        try:
            return attempt(one)
        except RangeError as error:
            first = first or error
    tried = f"a cap of {CAPS[-1] if cap is None else cap:g} on hidden values is not enough"
    raise RangeError(f"{first}; {tried}: choose a smaller one with {keyword}") from first


def note_of(cap: float, keyword: str) -> str:
    """Say in a report that hidden values saturate, and where that can be changed."""
    return (
        f"Hidden values saturate at ±{cap:g}: in the worst case they would not fit the ring. "
        f"If yours can be larger, choose fewer fraction bits and a larger cap with {keyword}."
    )
