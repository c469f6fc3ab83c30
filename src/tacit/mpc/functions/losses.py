"""Losses, and tables that are read at secret positions."""

from typing import TypeVar

from tacit.errors import InputError
from tacit.mpc.functions.ordering import one_hot
from tacit.mpc.functions.softmax import log_softmax
from tacit.mpc.primitives import Primitives

V = TypeVar("V")


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
