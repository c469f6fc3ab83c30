"""What one record adds to the gradient of every weight, bounded without forming it.

A weight meets values in a product: the gradient of record i is a sum of products of what went in,
a_i, and of the gradient of what came out, g_i, so that its norm is at most ‖a_i‖·‖g_i‖ (Cauchy and
Schwarz). For a dense layer over flat rows that is the norm itself. The sum of all records'
gradients, each scaled by a factor of its own, is the usual product with scaled g.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil, prod
from typing import Generic, TypeVar

from tacit.errors import InputError
from tacit.nn.gradient import GradientOps, Node, reachable
from tacit.nn.ops import Pair, TrainableOps
from tacit.nn.spreading import turned

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Use(Generic[T]):
    """Where a weight meets the values of every record.

    Attributes:
        weight: its name.
        inputs: what it is multiplied by, records first; None for a bias.
        outputs: what comes out, records first.
        times: norm² of a record's gradient is at most ``times``·‖inputs‖²·‖outputs'‖², where a bias
            has inputs of norm 1.
        add_up: gives the sum over records of their gradients, given that of the outputs.
    """

    weight: str
    inputs: Node[T] | None
    outputs: Node[T]
    times: int
    add_up: Callable[[T], T]


class RecordOps(GradientOps[T]):
    """Differentiate as `GradientOps` does, and note where weights meet records.

    Supported are products of a weight with values (dense layers, over tokens too, hence attention),
    convolutions, gains and biases; whatever else is done with a weight is refused by its name.
    """

    def __init__(self, ops: TrainableOps[T], *, cap: float | None = None) -> None:
        super().__init__(ops, cap=cap)
        self._names: dict[int, str] = {}
        self._uses: list[Use[T]] = []

    def weight(self, name: str, value: T) -> Node[T]:
        """Bring a weight in."""
        leaf = self.leaf(value)
        self._names[leaf.number] = name
        return leaf

    def uses(self, output: Node[T], weights: Sequence[str]) -> list[Use[T]]:
        """Return where the weights were used on the way to an output, each of them once.

        Raises:
            InputError: a weight is used in another way, or more than once.
        """
        noted = {use.outputs.number for use in self._uses}
        for node in reachable(output):
            for parent in node.parents:
                name = self._names.get(parent.number)
                if name and node.number not in noted and node.number not in self._names:
                    raise InputError(
                        f"{name.replace('/', '.')!r} is used in a way for which gradients of "
                        "single records are not bounded; supported are dense layers, convolutions, "
                        "attention, gains and biases"
                    )
        counts = {name: sum(use.weight == name for use in self._uses) for name in weights}
        for name, count in counts.items():
            if count != 1:
                raise InputError(
                    f"{name.replace('/', '.')!r} is used {count} times; gradients of single "
                    "records are bounded for weights that are used once"
                )
        return self._uses

    def transpose(self, x: Node[T], first: int, second: int) -> Node[T]:
        """Swap two dimensions; a weight that is turned is still a weight."""
        return self._still(x, super().transpose(x, first, second))

    def reshape(self, x: Node[T], shape: Sequence[int]) -> Node[T]:
        """Give the same elements another shape."""
        return self._still(x, super().reshape(x, shape))

    def matmul(self, x: Node[T], y: Node[T]) -> Node[T]:
        """Multiply matrices."""
        out = super().matmul(x, y)
        if len(self.shape(y)) == 2:
            self._note(y, x, out, 1, lambda g: self._product(x.value, g))
        return out

    def mul(self, x: Node[T], y: Node[T]) -> Node[T]:
        """Multiply element-wise; one of both may be a gain."""
        out = super().mul(x, y)
        for at, (one, other) in enumerate(((x, y), (y, x))):
            self._note(one, other, out, 1, out.pulls[at])
        return out

    def add(self, x: Node[T], y: Node[T]) -> Node[T]:
        """Add element-wise; one of both may be a bias."""
        out = super().add(x, y)
        for at, one in enumerate((x, y)):
            repeats = prod(self.shape(out)[1:]) // max(1, prod(self.shape(one)))
            self._note(one, None, out, repeats, out.pulls[at])
        return out

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
        """Convolve images with weights: a pixel is in so many windows at most."""
        out = super().conv2d(
            x, weight, stride=stride, padding=padding, dilation=dilation, groups=groups
        )
        sizes = self.shape(weight)[2:]
        windows = prod(ceil(size / step) for size, step in zip(sizes, stride, strict=True))
        if dilation != (1, 1):
            windows = prod(sizes)
        self._note(weight, x, out, windows, out.pulls[1])
        return out

    def _product(self, x: T, g: T) -> T:
        """Give xᵀ·g over all rows and tokens: one product, rescaled once."""
        ops = self._ops
        flat = [ops.reshape(one, (-1, ops.shape(one)[-1])) for one in (x, g)]
        return ops.matmul(turned(ops, flat[0]), flat[1])

    def _note(
        self,
        weight: Node[T],
        inputs: Node[T] | None,
        out: Node[T],
        times: int,
        add_up: Callable[[T], T],
    ) -> None:
        name = self._names.get(weight.number)
        if name is None:
            return
        # The way back from a weight that was turned or reshaped to the weight itself.
        back = self._way(weight)
        self._uses.append(Use(name, inputs, out, times, lambda g: back(add_up(g))))

    def _way(self, node: Node[T]) -> Callable[[T], T]:
        if not node.parents:
            return lambda g: g
        inner, pull = self._way(node.parents[0]), node.pulls[0]
        return lambda g: inner(pull(g))

    def _still(self, x: Node[T], out: Node[T]) -> Node[T]:
        if x.number in self._names:
            self._names[out.number] = self._names[x.number]
        return out
