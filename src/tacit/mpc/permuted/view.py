"""The view of a party that sees permuted values, their order, and what it computes on them."""

from collections.abc import Callable
from dataclasses import dataclass
from math import log, sqrt

import torch
from torch import Tensor

from tacit import ring
from tacit.mpc import shapes
from tacit.mpc.functions.curves import ELEMENTWISE, Elementwise
from tacit.mpc.functions.pieces import Pieces
from tacit.mpc.share import Spec
from tacit.ring import Prg


@dataclass(frozen=True)
class RowLayout:
    """Rows of values; a function of single values has rows of one."""

    rows: int
    columns: int

    @property
    def elements(self) -> int:
        """Return the number of values."""
        return self.rows * self.columns

    def draw(self, prg: Prg) -> Tensor:
        """Draw an order: rows are shuffled, and the values within every row.

        Guarantee: uniform over all such orders if the generator is: element i of the result is
        the index of the value that comes to place i.
        Cost: a sort of the rows; if they hold more than one value, two sorts of the values.
        """
        rows = prg.permutation(self.rows)
        if self.columns == 1:
            return rows.to(torch.int32)
        places = prg.permutation(self.elements)
        # A stable sort by row keeps the random order in which the values of a row come.
        by_row = torch.sort((places // self.columns).to(torch.int32), stable=True).indices
        within = places[by_row].view(self.rows, self.columns)
        return within[rows].view(-1).to(torch.int32)

    def way_back(self, order: Tensor, *, columns: int, follows: bool) -> Tensor:
        """Return the order that brings results back to where they belong.

        Args:
            order: the one that the values were put into.
            columns: how many values of the result belong to one row.
            follows: each of them belongs to the value in its place; otherwise to its row alone.
        """
        if follows:
            return invert(order)
        rows = invert(order.view(self.rows, self.columns)[:, 0] // self.columns)
        within = torch.arange(columns, dtype=order.dtype)
        return (rows[:, None] * columns + within).view(-1)


def invert(order: Tensor) -> Tensor:
    """Return the inverse of a permutation."""
    back = torch.empty_like(order)
    back[order.long()] = torch.arange(len(order), dtype=order.dtype, device=order.device)
    return back


def take(words: Tensor, order: Tensor) -> Tensor:
    """Put words into an order."""
    return torch.index_select(words, 0, order)


@dataclass(frozen=True)
class EachValue:
    """Apply a function of the table `ELEMENTWISE`, or a piecewise polynomial, to every value."""

    function: str | Pieces
    frac_bits: int

    @property
    def label(self) -> str:
        """Say what is seen."""
        name = self.function if isinstance(self.function, str) else "a piecewise polynomial"
        return f"the inputs of {name}, in random order"

    def layout(self, x: Spec) -> RowLayout:
        """Say which values belong together: every one is alone."""
        return RowLayout(x.elements, 1)

    def columns(self, x: Spec) -> int:
        """Return how many values of the result belong to one row: one."""
        return 1

    @property
    def follows(self) -> bool:
        """Tell whether a value of the result belongs to a value of the row: it does."""
        return True

    def spread(self, words: Tensor) -> Tensor:
        """Lay words of the input's shape out flat, row after row."""
        return words.reshape(-1)

    def gather(self, words: Tensor, x: Spec) -> Tensor:
        """Undo `spread` for flat words of the result."""
        return words.view(x.shape)

    def out(self, x: Spec) -> Spec:
        """Return the same shape, with the bound of the function."""
        bound = self._plainly().largest(x.bound)
        return Spec.of(shape=x.shape, frac_bits=self.frac_bits, bound=bound)

    def evaluate(self, words: Tensor, x: Spec) -> Tensor:
        """Apply the function to clear words, flat, which may be spent; signs become no floats."""
        exact = _ON_WORDS.get(str(self.function))
        if exact is not None and x.frac_bits >= self.frac_bits:
            return exact(words, x.frac_bits - self.frac_bits, self.frac_bits)
        values = ring.decode(words, frac_bits=x.frac_bits)
        return ring.encode(self._plainly().plain(values), frac_bits=self.frac_bits)

    def _plainly(self) -> Elementwise | Pieces:
        return ELEMENTWISE[self.function] if isinstance(self.function, str) else self.function


def _round(words: Tensor, bits: int) -> Tensor:
    """Drop fraction bits in place, rounding halves up."""
    return words.add_(1 << (bits - 1)).bitwise_right_shift_(bits) if bits else words


_ON_WORDS: dict[str, Callable[[Tensor, int, int], Tensor]] = {
    "abs": lambda words, drop, frac_bits: _round(words.abs_(), drop),
    "relu": lambda words, drop, frac_bits: _round(words.clamp_(min=0), drop),
    "step": lambda words, drop, frac_bits: (words >= 0).to(torch.int64) << frac_bits,
}


@dataclass(frozen=True)
class EachRow:
    """Apply a function of the table `ROWWISE` along one dimension.

    Attributes:
        function: a name of the table.
        dim: the dimension that the rows lie along.
        frac_bits: of the result.
        parameter: the public number that the function takes besides, such as an eps.
    """

    function: str
    dim: int
    frac_bits: int
    parameter: float

    @property
    def label(self) -> str:
        """Say what is seen."""
        return (
            f"the inputs of {self.function}: which values share a row; rows, and the values in "
            "each, in random order"
        )

    def layout(self, x: Spec) -> RowLayout:
        """Say which values belong together: what lies along the dimension."""
        columns = x.shape[shapes.axis(x.shape, self.dim)]
        return RowLayout(x.elements // max(columns, 1), columns)

    def columns(self, x: Spec) -> int:
        """Return how many values of the result belong to one row: its length, or one."""
        return 1 if ROWWISE[self.function].is_reduced else x.shape[self.dim]

    @property
    def follows(self) -> bool:
        """Tell whether a value of the result belongs to a value of the row, or to the row alone."""
        return not (ROWWISE[self.function].is_reduced or ROWWISE[self.function].is_ranked)

    def spread(self, words: Tensor) -> Tensor:
        """Lay the rows out one after another."""
        return words.movedim(self.dim, -1).reshape(-1)

    def gather(self, words: Tensor, x: Spec) -> Tensor:
        """Undo `spread` for flat words of the result: put rows back along their dimension."""
        axis = shapes.axis(x.shape, self.dim)
        others = x.shape[:axis] + x.shape[axis + 1 :]
        if ROWWISE[self.function].is_reduced:
            return words.view(others)
        return words.view(*others, x.shape[axis]).movedim(-1, axis)

    def out(self, x: Spec) -> Spec:
        """Return the shape of the result, with the bound of the function."""
        row = ROWWISE[self.function]
        axis = shapes.axis(x.shape, self.dim)
        shape = x.shape[:axis] + x.shape[axis + 1 :] if row.is_reduced else x.shape
        bound = row.largest(x.bound, x.shape[axis], self.parameter)
        return Spec.of(shape=shape, frac_bits=self.frac_bits, bound=bound)

    def evaluate(self, words: Tensor, x: Spec) -> Tensor:
        """Apply the function to every row, in double precision."""
        values = ring.decode(words, frac_bits=x.frac_bits).view(-1, x.shape[self.dim])
        results = ROWWISE[self.function].plain(values, self.parameter)
        return ring.encode(results, frac_bits=self.frac_bits).view(-1)


PermutedView = EachValue | EachRow
"""What is seen of permuted rows, and a function of it that no order changes."""


@dataclass(frozen=True)
class Rowwise:
    """A function of a row that does not depend on the order of its values.

    Attributes:
        plain: the function along the last dimension of clear rows, with a public number.
        largest: a bound on its values, given that of the arguments, their number and the
            public number.
        is_reduced: the result is one number per row.
        is_ranked: the places of the result have nothing to do with those of the row.
    """

    plain: Callable[[Tensor, float], Tensor]
    largest: Callable[[float, int, float], float]
    is_reduced: bool = False
    is_ranked: bool = False


def _layer_norm(x: Tensor, eps: float) -> Tensor:
    return torch.nn.functional.layer_norm(x, (x.shape[-1],), eps=eps)


def _rms_norm(x: Tensor, eps: float) -> Tensor:
    return x * (x.square().mean(-1, keepdim=True) + eps).rsqrt()


def _first_of_largest(x: Tensor, _: float) -> Tensor:
    """Mark one of the largest values; among equal ones the order, which is random, decides."""
    return torch.zeros_like(x).scatter_(-1, x.argmax(-1, keepdim=True), 1.0)


def _sort(x: Tensor, _: float) -> Tensor:
    return x.sort(-1, descending=True).values


def _norm_bound(bound: float, count: int, _: float) -> float:
    return sqrt(count)


ROWWISE: dict[str, Rowwise] = {
    "argmax": Rowwise(_first_of_largest, lambda bound, count, _: 1.0),
    "layer_norm": Rowwise(_layer_norm, _norm_bound),
    "log_softmax": Rowwise(
        lambda x, _: torch.log_softmax(x, -1), lambda bound, count, _: 2 * bound + log(count)
    ),
    "maximum": Rowwise(lambda x, _: x.amax(-1), lambda bound, count, _: bound, is_reduced=True),
    "rms_norm": Rowwise(_rms_norm, _norm_bound),
    "sort": Rowwise(_sort, lambda bound, count, _: bound, is_ranked=True),
    "softmax": Rowwise(lambda x, _: torch.softmax(x, -1), lambda bound, count, _: 1.0),
}
"""``argmax`` gives a row with a one in the place of its largest value and zeros elsewhere;
``sort`` begins with the largest value."""
