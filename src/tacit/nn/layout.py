"""How torch's functions lay tensors out and pick parts of them, as functions of ops."""

from collections.abc import Sequence
from math import sqrt
from typing import Any

import torch

from tacit.errors import InputError
from tacit.nn.running import Constant, Running, is_tensor


def reshape(run: Running, x: Any, *shape: Any) -> Any:
    """Give the same elements another shape."""
    wanted = shape[0] if len(shape) == 1 and not isinstance(shape[0], int) else shape
    out = run.ops.reshape(x, tuple(wanted))
    # Parts of a row are not longer than the row; n of them together √n times at most.
    was, now = ((run.ops.shape(one) or (1,))[-1] or 1 for one in (x, out))  # also of a number
    whole = was % now == 0 or now % was == 0
    return run.follows(out, x, factor=sqrt(max(now / was, 1.0))) if whole else out


def transpose(run: Running, x: Any, dim0: int, dim1: int) -> Any:
    """Swap two dimensions."""
    if not run.ops.shape(x):
        return x
    last, out = len(run.ops.shape(x)) - 1, run.ops.transpose(x, dim0, dim1)
    is_last = last in (dim0 % (last + 1), dim1 % (last + 1))
    return out if is_last else run.follows(out, x)


def permute(run: Running, x: Any, *dims: Any) -> Any:
    """Put all dimensions into another order."""
    wanted = list(dims[0] if len(dims) == 1 and not isinstance(dims[0], int) else dims)
    here = list(range(len(run.ops.shape(x))))
    wanted = [one % len(here) for one in wanted]
    for at, one in enumerate(wanted):
        other = here.index(one)
        if other != at:
            x = run.ops.transpose(x, at, other)
            here[at], here[other] = here[other], here[at]
    return x


def unsqueeze(run: Running, x: Any, dim: int) -> Any:
    """Put a dimension of one element in."""
    shape = run.ops.shape(x)
    at = dim % (len(shape) + 1)
    return run.ops.reshape(x, (*shape[:at], 1, *shape[at:]))


def squeeze(run: Running, x: Any, dim: int | Sequence[int] | None = None) -> Any:
    """Leave dimensions of one element out: those named, or all of them."""
    shape = run.ops.shape(x)
    named = range(len(shape)) if dim is None else (dim,) if isinstance(dim, int) else dim
    gone = {
        at for at in (one % max(len(shape), 1) for one in named) if shape[at:] and shape[at] == 1
    }
    return run.ops.reshape(x, [side for at, side in enumerate(shape) if at not in gone])


def expand(run: Running, x: Any, *sizes: Any) -> Any:
    """Repeat dimensions of one element; -1 leaves a dimension as it is."""
    wanted = sizes[0] if len(sizes) == 1 and not isinstance(sizes[0], int) else sizes
    shape = run.ops.shape(x)
    shape = (*(1,) * (len(wanted) - len(shape)), *shape)
    x = run.ops.reshape(x, shape)
    for dim, (side, size) in enumerate(zip(shape, wanted, strict=True)):
        if size not in (-1, side):
            if side != 1:
                raise InputError(f"cannot expand a dimension of {side} to {size}")
            x = run.ops.take(x, (0,) * size, dim=dim)
    return x


def repeat_interleave(run: Running, x: Any, repeats: int, dim: int | None = None) -> Any:
    """Repeat every element of a dimension so often, side by side."""
    if not isinstance(repeats, int):
        raise InputError("wanted one number of repeats for all elements, got several")
    x, dim = (run.ops.reshape(x, (-1,)), 0) if dim is None else (x, dim)
    side = run.ops.shape(x)[dim]
    return run.ops.take(x, [at for at in range(side) for _ in range(repeats)], dim=dim)


def cat(run: Running, tensors: Sequence[Any], dim: int = 0) -> Any:
    """Join tensors along a dimension."""
    return run.ops.concatenate(tuple(tensors), dim=dim)


def stack(run: Running, tensors: Sequence[Any], dim: int = 0) -> Any:
    """Join tensors along a new dimension."""
    return run.ops.concatenate([unsqueeze(run, one, dim) for one in tensors], dim=dim)


def chunk(run: Running, x: Any, chunks: int, dim: int = 0) -> Any:
    """Cut a dimension into so many parts."""
    return split(run, x, -(-run.ops.shape(x)[dim] // chunks), dim)


def split(run: Running, x: Any, split_size_or_sections: Any, dim: int = 0) -> Any:
    """Cut a dimension into parts of public sizes."""
    length, size = run.ops.shape(x)[dim], split_size_or_sections
    starts = range(0, length, size) if isinstance(size, int) else _starts(size)
    ends = [*list(starts)[1:], length]
    return tuple(
        run.ops.take(x, range(start, end), dim=dim) for start, end in zip(starts, ends, strict=True)
    )


def _starts(sizes: Sequence[int]) -> list[int]:
    return [sum(sizes[:at]) for at in range(len(sizes))]


def getitem(run: Running, x: Any, index: Any) -> Any:
    """Pick by numbers, slices, None and an ellipsis."""
    if not is_tensor(x):
        return x[index]
    parts = list(index) if isinstance(index, tuple) else [index]
    if ... in parts:
        at, named = parts.index(...), sum(one is not None and one is not ... for one in parts)
        parts[at : at + 1] = [slice(None)] * (len(run.ops.shape(x)) - named)
    at = 0
    for one in parts:
        x, at = _pick(run, x, at, one)
    return x


def _pick(run: Running, x: Any, at: int, one: Any) -> tuple[Any, int]:
    """Apply one part of an index to a dimension, and say where the next part applies."""
    if one is None:
        return unsqueeze(run, x, at), at + 1
    length = run.ops.shape(x)[at]
    if isinstance(one, slice):
        chosen = range(*one.indices(length))
        return (x if len(chosen) == length else run.ops.take(x, chosen, dim=at)), at + 1
    if isinstance(one, int):
        if not -length <= one < length:
            raise InputError(f"index {one} is beyond a dimension of {length}")
        return squeeze(run, run.ops.take(x, (one % length,), dim=at), at), at
    raise InputError(f"an index must be a number or a slice, got {type(one).__name__}")


def attribute(run: Running, x: Any, name: str) -> Any:
    """Read what is public about a tensor."""
    if name == "shape" and is_tensor(x):
        return run.shape(x)
    if name in ("device", "dtype"):
        return None  # where and how exactly is the interpreter's choice
    raise InputError(f"attribute {name!r} of a tensor is not supported; .shape is")


def zeros(run: Running, *size: Any, **_: Any) -> Constant:
    """Make zeros of a public shape, as for the initial state of a recurrent layer."""
    return Constant(torch.zeros(*size))


def size(run: Running, x: Any, dim: int | None = None) -> Any:
    """Return the shape, or one side."""
    shape = run.shape(x)
    return shape if dim is None else shape[dim]
