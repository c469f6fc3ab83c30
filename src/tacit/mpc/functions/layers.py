"""What layers of networks are made of: pooling, convolutions of series, losses, tables."""

from typing import TypeVar

from tacit.errors import InputError
from tacit.mpc.functions.attention import log_softmax
from tacit.mpc.functions.norms import layer_norm
from tacit.mpc.functions.ordering import maximum, one_hot
from tacit.mpc.primitives import Pair, Primitives

V = TypeVar("V")


def max_pool2d(ops: Primitives[V], x: V, *, size: Pair, stride: Pair, padding: Pair) -> V:
    """Give the largest element of every window of images (n, channels, height, width).

    Range: all. Error: that of the inputs. Cost: that of `maximum` of rows as long as a window.
    """
    normalised = ops.normalise_scale(x)
    windows = ops.windows(normalised, size=size, stride=stride, padding=padding, edge_is_least=True)
    return maximum(ops, windows, dim=2)


def avg_pool2d(ops: Primitives[V], x: V, *, size: Pair, stride: Pair, padding: Pair) -> V:
    """Give the mean of every window, counting what is beyond the edge as zeros.

    Range: all. Error: one unit in the last place. Cost: nothing is sent.
    """
    windows = ops.windows(x, size=size, stride=stride, padding=padding)
    return ops.scale(ops.sum(windows, dim=2), 1 / (size[0] * size[1]))


def conv1d(ops: Primitives[V], x: V, weight: V, *, stride: int, padding: int) -> V:
    """Convolve series (n, channels, length) with weights (out, channels, length): as conv2d."""
    if len(ops.shape(x)) != 3 or len(ops.shape(weight)) != 3:
        raise InputError(
            f"cannot convolve {ops.shape(x)} with {ops.shape(weight)}: wanted (n, channels, "
            "length) and (out, channels, length)"
        )
    flat = [ops.reshape(one, (*ops.shape(one)[:2], 1, -1)) for one in (x, weight)]
    out = ops.conv2d(flat[0], flat[1], stride=(1, stride), padding=(0, padding))
    shape = ops.shape(out)
    return ops.reshape(out, (*shape[:2], shape[3]))


def group_norm(ops: Primitives[V], x: V, *, groups: int, eps: float = 1e-5) -> V:
    """Bring groups of channels of (n, channels, …) to mean 0 and variance 1.

    Range, error and cost: as `layer_norm`.
    """
    shape = ops.shape(x)
    if len(shape) < 2 or groups < 1 or shape[1] % groups:
        raise InputError(f"cannot cut the channels of {shape} into {groups} equal groups")
    rows = ops.reshape(x, (shape[0], groups, -1))
    return ops.reshape(layer_norm(ops, rows, eps=eps), shape)


def cross_entropy(ops: Primitives[V], logits: V, labels: V) -> V:
    """Give the mean of -Σ labels·log softmax(logits) over rows; labels are (rows, classes).

    Range: all logits; labels that are one-hot or probabilities. Error: that of `log_softmax`.
    Cost: that of `log_softmax` and of a product.
    """
    _check_same(ops, logits, labels)
    shape = ops.shape(logits)
    rows = ops.reshape(ops.mul(labels, log_softmax(ops, logits, dim=-1)), (-1,))
    return ops.scale(ops.total(rows, dim=0), -shape[-1] / ops.shape(rows)[0])


def binary_cross_entropy(ops: Primitives[V], logits: V, labels: V) -> V:
    """Give the mean of log(1 + exp(x)) - x·y over all elements, for labels y from 0 to 1.

    Range: all. Error: below 7e-4 (log(1 + exp(x)) is a curve of its own, so nothing overflows).
    Cost: that of one function and of a product.
    """
    _check_same(ops, logits, labels)
    logits = ops.normalise_scale(logits)
    losses = ops.sub(ops.elementwise("softplus", logits), ops.mul(logits, labels))
    flat = ops.reshape(losses, (-1,))
    return ops.scale(ops.total(flat, dim=0), 1 / ops.shape(flat)[0])


def embedding(ops: Primitives[V], table: V, ids: V, *, padding: int | None = None) -> V:
    """Read the rows of a table (entries, width) that secret whole numbers name.

    Nobody learns which rows were read: every entry is compared with every id.

    Range: ids from 0 to entries - 1; others read the nearest row. Error: none. Cost: entries - 1
    comparisons per id at once, and a matrix product.
    """
    hot = one_hot(ops, ids, classes=ops.shape(table)[0])
    return lookup(ops, table, hot)


def lookup(ops: Primitives[V], table: V, hot: V) -> V:
    """Read the rows that one-hot vectors name. Error: none. Cost: a matrix product."""
    shape = ops.shape(hot)
    table = ops.normalise_scale(table)
    bound = ops.number(table, "a table").bound
    rows = ops.reshape(hot, (-1, shape[-1]))
    read = ops.restate(ops.truncated(ops.pick(rows, table)), bound=bound + 2.0**-ops.frac_bits)
    return ops.reshape(read, (*shape[:-1], ops.shape(table)[-1]))


def _check_same(ops: Primitives[V], logits: V, labels: V) -> None:
    if ops.shape(logits) != ops.shape(labels):
        raise InputError(
            f"logits and labels must have one shape, got {ops.shape(logits)} and "
            f"{ops.shape(labels)}; give labels one-hot"
        )
