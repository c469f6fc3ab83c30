"""The tape of reverse-mode differentiation: values, what they were made of, and the way back."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Generic, TypeVar

from tacit.errors import InputError
from tacit.nn.ops import TrainableOps

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
