"""The functions, operators and methods of torch that can be imported, as functions of ops.

A handler has the parameters of what it stands for, after the run; what it does not name is
refused when the module is imported.
"""

import operator
from collections.abc import Callable, Sequence
from math import prod
from typing import Any

from tacit.errors import InputError
from tacit.nn.attention import attention
from tacit.nn.encoders import mask_of
from tacit.nn.layers import adaptive, flatten, pool, relu
from tacit.nn.running import Constant, Running, is_tensor

Call = Callable[..., Any]


def _add(run: Running, x: Any, y: Any) -> Any:
    if not is_tensor(x):
        x, y = y, x
    if isinstance(y, Constant):
        return run.ops.offset(x, y.values)
    return run.ops.add(x, y) if is_tensor(y) else run.ops.shift(x, y)


def _sub(run: Running, x: Any, y: Any) -> Any:
    return _add(run, x, _neg(run, y))


def _neg(run: Running, x: Any) -> Any:
    if isinstance(x, Constant):
        return Constant(-x.values)
    return run.ops.scale(x, -1) if is_tensor(x) else -x


def _mul(run: Running, x: Any, y: Any) -> Any:
    if not is_tensor(x):
        x, y = y, x
    if isinstance(y, Constant):
        return run.ops.weigh(x, y.values)
    if not is_tensor(y):
        return run.ops.scale(x, y)
    return run.ops.mul(run.capped(x), run.capped(y))


def _div(run: Running, x: Any, y: Any) -> Any:
    if isinstance(y, Constant):
        return run.ops.weigh(x, 1 / y.values)
    if not is_tensor(y):
        return run.ops.scale(x, 1 / y)
    if is_tensor(x):
        return run.ops.div(run.capped(x), run.capped(y))
    return _mul(run, run.ops.reciprocal(run.capped(y)), x)


def _pow(run: Running, x: Any, exponent: Any) -> Any:
    verbs = {2: "square", 0.5: "sqrt", -0.5: "rsqrt", -1: "reciprocal"}
    if exponent not in verbs:
        raise InputError(f"a power must be one of {sorted(verbs)}, got {exponent}")
    return getattr(run.ops, verbs[exponent])(run.capped(x))


def _matmul(run: Running, x: Any, y: Any) -> Any:
    return run.ops.matmul(run.capped(x), run.capped(y))


def _linear(run: Running, x: Any, weight: Any, bias: Any = None) -> Any:
    out = run.ops.matmul(run.capped(x), run.ops.transpose(weight, 0, 1))
    return out if bias is None else run.ops.add(out, bias)


def _function(verb: str) -> Call:
    return lambda run, x: getattr(run.ops, verb)(run.capped(x))


def _gelu(run: Running, x: Any, approximate: str = "none") -> Any:
    return run.ops.gelu(run.capped(x))  # torch's two forms differ by less than 5e-4


def _relu(run: Running, x: Any, inplace: bool = False) -> Any:
    return relu(run, x)


def _silu(run: Running, x: Any, inplace: bool = False) -> Any:
    return run.ops.silu(run.capped(x))


def _softmax(run: Running, x: Any, dim: int = -1, _stacklevel: int = 3, dtype: Any = None) -> Any:
    return run.ops.softmax(run.capped(x), dim=dim)


def _log_softmax(
    run: Running, x: Any, dim: int = -1, _stacklevel: int = 3, dtype: Any = None
) -> Any:
    return run.ops.log_softmax(run.capped(x), dim=dim)


def _clamp(run: Running, x: Any, min: float, max: float) -> Any:
    return run.ops.clamp(x, min, max)


def _same(run: Running, x: Any, *_: Any, **__: Any) -> Any:
    return x


def _dims(run: Running, x: Any, dim: Any) -> list[int]:
    """Return dimensions as a falling list, so that removing one does not move the others."""
    rank = len(run.ops.shape(x))
    chosen = range(rank) if dim is None else [dim] if isinstance(dim, int) else dim
    return sorted((one % rank for one in chosen), reverse=True)


def _sum(run: Running, x: Any, dim: Any = None, keepdim: bool = False) -> Any:
    shape, dims = run.ops.shape(x), _dims(run, x, dim)
    for one in dims:
        x = run.ops.sum(x, dim=one)
    if not keepdim:
        return x
    return run.ops.reshape(x, tuple(1 if at in dims else side for at, side in enumerate(shape)))


def _mean(run: Running, x: Any, dim: Any = None, keepdim: bool = False) -> Any:
    count = prod(run.ops.shape(x)[one] for one in _dims(run, x, dim))
    return run.ops.scale(_sum(run, x, dim, keepdim), 1 / count)


def _extreme(verb: str) -> Call:
    def apply(run: Running, x: Any, dim: int, keepdim: bool = False) -> Any:
        out = getattr(run.ops, verb)(run.capped(x), dim=dim)
        return _unsqueeze(run, out, dim % len(run.ops.shape(x))) if keepdim else out

    return apply


def _reshape(run: Running, x: Any, *shape: Any) -> Any:
    wanted = shape[0] if len(shape) == 1 and not isinstance(shape[0], int) else shape
    return run.ops.reshape(x, tuple(wanted))


def _transpose(run: Running, x: Any, dim0: int, dim1: int) -> Any:
    return run.ops.transpose(x, dim0, dim1)


def _permute(run: Running, x: Any, *dims: Any) -> Any:
    wanted = list(dims[0] if len(dims) == 1 and not isinstance(dims[0], int) else dims)
    here = list(range(len(run.ops.shape(x))))
    wanted = [one % len(here) for one in wanted]
    for at, one in enumerate(wanted):
        other = here.index(one)
        if other != at:
            x = run.ops.transpose(x, at, other)
            here[at], here[other] = here[other], here[at]
    return x


def _unsqueeze(run: Running, x: Any, dim: int) -> Any:
    shape = run.ops.shape(x)
    at = dim % (len(shape) + 1)
    return run.ops.reshape(x, (*shape[:at], 1, *shape[at:]))


def _squeeze(run: Running, x: Any, dim: int) -> Any:
    shape = run.ops.shape(x)
    at = dim % len(shape)
    return run.ops.reshape(x, shape[:at] + shape[at + 1 :]) if shape[at] == 1 else x


def _cat(run: Running, tensors: Sequence[Any], dim: int = 0) -> Any:
    return run.ops.concatenate(tuple(tensors), dim=dim)


def _stack(run: Running, tensors: Sequence[Any], dim: int = 0) -> Any:
    return run.ops.concatenate([_unsqueeze(run, one, dim) for one in tensors], dim=dim)


def _chunk(run: Running, x: Any, chunks: int, dim: int = 0) -> Any:
    return _split(run, x, -(-run.ops.shape(x)[dim] // chunks), dim)


def _split(run: Running, x: Any, size: Any, dim: int = 0) -> Any:
    length = run.ops.shape(x)[dim]
    starts = range(0, length, size) if isinstance(size, int) else _starts(size)
    ends = [*list(starts)[1:], length]
    return tuple(
        run.ops.take(x, range(start, end), dim=dim) for start, end in zip(starts, ends, strict=True)
    )


def _starts(sizes: Sequence[int]) -> list[int]:
    return [sum(sizes[:at]) for at in range(len(sizes))]


def _getitem(run: Running, x: Any, index: Any) -> Any:
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
        return _unsqueeze(run, x, at), at + 1
    length = run.ops.shape(x)[at]
    if isinstance(one, slice):
        chosen = range(*one.indices(length))
        return (x if len(chosen) == length else run.ops.take(x, chosen, dim=at)), at + 1
    if isinstance(one, int):
        if not -length <= one < length:
            raise InputError(f"index {one} is beyond a dimension of {length}")
        return _squeeze(run, run.ops.take(x, (one % length,), dim=at), at), at
    raise InputError(f"an index must be a number or a slice, got {type(one).__name__}")


def _getattr(run: Running, x: Any, name: str) -> Any:
    if name == "shape" and is_tensor(x):
        return run.ops.shape(x)
    raise InputError(f"attribute {name!r} of a tensor is not supported; .shape is")


def _size(run: Running, x: Any, dim: int | None = None) -> Any:
    shape = run.ops.shape(x)
    return shape if dim is None else shape[dim]


def _sdpa(
    run: Running,
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    queries, keys = run.ops.shape(query)[2], run.ops.shape(key)[2]
    kept = mask_of(attn_mask, is_causal, queries, keys)
    q, k = run.capped(query), run.capped(key)
    return attention(run.ops, q, k, run.capped(value), kept=kept, scale=scale)


def _pool(verb: str) -> Call:
    def apply(run: Running, x: Any, kernel_size: Any, stride: Any = None, padding: Any = 0) -> Any:
        return pool(run, verb, x, kernel_size, stride, padding)

    return apply


CALLS: dict[str, Call] = {
    "abs": _function("abs"),
    "adaptive_avg_pool1d": adaptive,
    "adaptive_avg_pool2d": adaptive,
    "add": _add,
    "amax": _extreme("max"),
    "amin": _extreme("min"),
    "argmax": _extreme("argmax"),
    "avg_pool1d": _pool("avg_pool2d"),
    "avg_pool2d": _pool("avg_pool2d"),
    "bmm": _matmul,
    "cat": _cat,
    "chunk": _chunk,
    "clamp": _clamp,
    "contiguous": _same,
    "detach": _same,
    "div": _div,
    "dropout": _same,
    "erf": _function("erf"),
    "flatten": flatten,
    "float": _same,
    "gelu": _gelu,
    "getattr": _getattr,
    "getitem": _getitem,
    "iadd": _add,
    "imul": _mul,
    "linear": _linear,
    "log": _function("log"),
    "log_softmax": _log_softmax,
    "matmul": _matmul,
    "max_pool1d": _pool("max_pool2d"),
    "max_pool2d": _pool("max_pool2d"),
    "mean": _mean,
    "mul": _mul,
    "neg": _neg,
    "permute": _permute,
    "pow": _pow,
    "reciprocal": _function("reciprocal"),
    "relu": _relu,
    "reshape": _reshape,
    "rsqrt": _function("rsqrt"),
    "scaled_dot_product_attention": _sdpa,
    "sigmoid": _function("sigmoid"),
    "silu": _silu,
    "size": _size,
    "softmax": _softmax,
    "softplus": _function("softplus"),
    "split": _split,
    "sqrt": _function("sqrt"),
    "square": _function("square"),
    "squeeze": _squeeze,
    "stack": _stack,
    "sub": _sub,
    "sum": _sum,
    "tanh": _function("tanh"),
    "transpose": _transpose,
    "truediv": _div,
    "unsqueeze": _unsqueeze,
    "view": _reshape,
}
"""Functions and methods that can be imported; operators have the names of the operator module."""

SHAPES: dict[str, Call] = {
    name: getattr(operator, name)
    for name in ("add", "floordiv", "getitem", "mod", "mul", "neg", "sub", "truediv")
}
"""Operators that are computed at once where they meet only numbers, as in ``x.shape[0] * 2``."""
