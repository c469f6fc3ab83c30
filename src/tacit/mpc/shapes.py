"""Shapes of results, without tensors: torch's own shape inference takes seconds to load."""

from math import prod

from tacit.errors import InputError

Shape = tuple[int, ...]


def broadcast(x: Shape, y: Shape) -> Shape:
    """Return the shape of an element-wise operation."""
    wide = max(len(x), len(y))
    left, right = ((1,) * (wide - len(shape)) + shape for shape in (x, y))
    if any(a != b and 1 not in (a, b) for a, b in zip(left, right, strict=True)):
        raise InputError(f"cannot combine {x} and {y} element by element: the shapes do not fit")
    return tuple(b if a == 1 else a for a, b in zip(left, right, strict=True))


def matmul(x: Shape, y: Shape) -> Shape:
    """Return the shape of a matrix product, batched like torch.matmul."""
    if min(len(x), len(y)) < 2 or x[-1] != y[-2]:
        raise InputError(f"cannot multiply matrices {x} and {y}: wanted (…, n, k) and (…, k, m)")
    return (*broadcast(x[:-2], y[:-2]), x[-2], y[-1])


def reduce(x: Shape, dim: int) -> Shape:
    """Return the shape without one dimension."""
    dim = axis(x, dim)
    return x[:dim] + x[dim + 1 :]


def transpose(x: Shape, first: int, second: int) -> Shape:
    """Return the shape with two dimensions swapped."""
    swapped = list(x)
    first, second = axis(x, first), axis(x, second)
    swapped[first], swapped[second] = x[second], x[first]
    return tuple(swapped)


def reshape(x: Shape, wanted: Shape) -> Shape:
    """Return the wanted shape with a single −1 filled in."""
    if min(wanted, default=0) >= 0 and prod(wanted) == prod(x):  # as a rule, and with every use
        return wanted
    known = prod(length for length in wanted if length != -1)
    filled = tuple(prod(x) // max(known, 1) if length == -1 else length for length in wanted)
    if wanted.count(-1) > 1 or prod(filled) != prod(x) or min(filled, default=1) < 0:
        raise InputError(f"cannot reshape {x} to {wanted}: the numbers of elements differ")
    return filled


def axis(x: Shape, dim: int) -> int:
    """Return a dimension counted from the front, or refuse one that is not there."""
    if not -len(x) <= dim < len(x):
        raise InputError(f"{x} has no dimension {dim}")
    return dim % len(x)
