"""The functions, operators and methods of torch that can be imported, as functions of ops.

A handler has the parameters of what it stands for, after the run; what it does not name is
refused when the module is imported.
"""

import operator
from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import torch
from torch import Tensor

from tacit.errors import InputError
from tacit.nn import layers, layout, windows
from tacit.nn.encoders import mask_of
from tacit.nn.models import attention, mixing
from tacit.nn.running import Constant, Running, is_tensor

Call = Callable[..., Any]


def _add(run: Running, x: Any, other: Any, alpha: float = 1) -> Any:
    y = other if alpha == 1 else _mul(run, other, alpha)
    if not is_tensor(x):
        x, y = y, x
    if isinstance(y, Constant) or is_tensor(y):
        return run.add(x, y)
    return run.ops.shift(x, y)


def _sub(run: Running, x: Any, other: Any, alpha: float = 1) -> Any:
    return _add(run, x, _neg(run, other), alpha)


def _neg(run: Running, x: Any) -> Any:
    if isinstance(x, Constant):
        return Constant(-x.values)
    return run.follows(run.ops.scale(x, -1), x) if is_tensor(x) else -x


def _mul(run: Running, x: Any, other: Any) -> Any:
    y = other
    if not is_tensor(x):
        x, y = y, x
    if isinstance(y, Constant):
        return run.ops.weigh(x, y.values)
    if not is_tensor(y):
        return run.follows(run.ops.scale(x, y), x, factor=abs(y))
    return run.ops.mul(run.capped(x), run.capped(y))


def _div(run: Running, x: Any, other: Any, rounding_mode: None = None) -> Any:
    y = other
    if isinstance(y, Constant):
        return run.ops.weigh(x, 1 / y.values)
    if not is_tensor(y):
        return run.follows(run.ops.scale(x, 1 / y), x, factor=abs(1 / y))
    if is_tensor(x):
        return run.ops.div(run.capped(x), run.capped(y))
    return _mul(run, run.ops.reciprocal(run.capped(y)), x)


def _pow(run: Running, x: Any, exponent: Any) -> Any:
    verbs = {2: "square", 0.5: "sqrt", -0.5: "rsqrt", -1: "reciprocal"}
    if exponent not in verbs:
        raise InputError(f"a power must be one of {sorted(verbs)}, got {exponent}")
    return getattr(run.ops, verbs[exponent])(run.capped(x))


def _matmul(run: Running, x: Any, other: Any) -> Any:
    x, other = (y if isinstance(y, Constant) else run.capped(y) for y in (x, other))
    return run.matmul(x, other)


def _linear(run: Running, x: Any, weight: Any, bias: Any = None) -> Any:
    out = run.matmul(run.capped(x), run.turned(weight))
    return out if bias is None else run.add(out, bias)


def _function(verb: str) -> Call:
    return lambda run, x: layers.shrunk(run, verb, x)


def _softmax(verb: str) -> Call:
    def apply(
        run: Running, x: Any, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None
    ) -> Any:
        return getattr(run.ops, verb)(run.capped(x), dim=layers.softmax_dim(run, x, dim))

    return apply


def _layer_norm(
    run: Running,
    x: Any,
    normalized_shape: Any,
    weight: Any = None,
    bias: Any = None,
    eps: float = 1e-5,
) -> Any:
    layers.check_normalised(normalized_shape)
    return layers.adjusted(run, run.normed(x, eps=eps, centred=True), weight, bias)


def _rms_norm(
    run: Running, x: Any, normalized_shape: Any, weight: Any = None, eps: float | None = None
) -> Any:
    layers.check_normalised(normalized_shape)
    out = run.normed(x, eps=layers.EPS if eps is None else eps, centred=False)
    return layers.adjusted(run, out, weight)


def _group_norm(
    run: Running, x: Any, num_groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5
) -> Any:
    out = run.ops.group_norm(run.capped(x), groups=num_groups, eps=eps)
    return layers.adjusted(run, out, weight, bias, is_channels=True)


def _batch_norm(
    run: Running,
    x: Any,
    running_mean: Any,
    running_var: Any,
    weight: Any = None,
    bias: Any = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Any:
    mean = layers.channels(run, running_mean, x)
    inverse = run.ops.rsqrt(run.ops.shift(running_var, eps))
    out = run.ops.mul(run.capped(run.ops.sub(x, mean)), layers.channels(run, inverse, x))
    return layers.adjusted(run, out, weight, bias, is_channels=True)


def _embedding(
    run: Running,
    x: Any,
    weight: Any,
    padding_idx: int | None = None,
    max_norm: None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Any:
    return layers.rows_of(run, weight, x, padding_idx)


def _clamp(run: Running, x: Any, min: float | None = None, max: float | None = None) -> Any:
    if not all(isinstance(one, int | float | None) for one in (min, max)):
        raise InputError("wanted bounds that are numbers, got a tensor")
    if min is None:
        return x if max is None else _neg(run, _clamp(run, _neg(run, x), min=-max))
    if max is None:
        return run.ops.shift(layers.relu(run, run.ops.shift(x, -min)), min)
    if min > max:
        raise InputError(f"wanted a lower bound below the upper one, got {min} and {max}")
    return run.ops.clamp(x, min, max)


def _same(run: Running, x: Any, *_: Any, **__: Any) -> Any:
    return x


def _to(run: Running, x: Any, *given: Any, dtype: Any = None, **_: Any) -> Any:
    kinds = [one for one in (dtype, *given) if isinstance(one, torch.dtype)]
    if any(not one.is_floating_point for one in kinds):
        raise InputError(f"wanted a type of floating-point numbers, got {kinds[0]}, which rounds")
    return x


def _dims(run: Running, x: Any, dim: Any) -> list[int]:
    """Return dimensions as a falling list, so that removing one does not move the others."""
    rank = len(run.ops.shape(x))
    chosen = [dim] if isinstance(dim, int) else dim or range(rank)
    beyond = [one for one in chosen if not -max(rank, 1) <= one < max(rank, 1)]
    if beyond:
        raise InputError(f"{run.ops.shape(x)} has no dimension {beyond[0]}")
    return sorted({one % rank for one in chosen}, reverse=True) if rank else []


def _reduced(run: Running, verb: str, x: Any, dim: Any, keepdim: bool) -> Any:
    shape, dims = run.ops.shape(x), _dims(run, x, dim)
    for one in dims:
        x = getattr(run.ops, verb)(x, dim=one)
    if not keepdim:
        return x
    return run.ops.reshape(x, tuple(1 if at in dims else side for at, side in enumerate(shape)))


def _sum(run: Running, x: Any, dim: Any = None, keepdim: bool = False) -> Any:
    return _reduced(run, "sum", x, dim, keepdim)


def _mean(run: Running, x: Any, dim: Any = None, keepdim: bool = False) -> Any:
    count = prod(run.ops.shape(x)[one] for one in _dims(run, x, dim))
    if not count:
        raise InputError(f"wanted numbers to take the mean of, got the shape {run.ops.shape(x)}")
    return run.ops.scale(_sum(run, x, dim, keepdim), 1 / count)


def _extreme(verb: str) -> Call:
    def apply(run: Running, x: Any, dim: Any = None, keepdim: bool = False) -> Any:
        return _reduced(run, verb, run.capped(x), dim, keepdim)

    return apply


def _argmax(run: Running, x: Any, dim: int, keepdim: bool = False) -> Any:
    if not run.ops.shape(x):
        raise InputError("wanted rows, of which one element is the largest, got a number")
    return _reduced(run, "argmax", run.capped(x), dim, keepdim)


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
    *lead, queries, _ = run.ops.shape(query)  # (…, heads, tokens, width), or fewer
    kept = _kept(attn_mask, is_causal, (*lead, queries, run.ops.shape(key)[-2]))
    q, k, v = (run.capped(_of_four(run, one)) for one in (query, key, value))
    most = run.length(q) * run.length(k) if run.has_bounds else None
    out = attention(run.ops, q, k, v, kept=kept, scale=scale, longest=most)
    out = run.follows(out, v, factor=mixing(run.ops.shape(k)[2]))
    return out if len(lead) == 2 else layout.reshape(run, out, *lead, queries, -1)


def _of_four(run: Running, x: Any) -> Any:
    *lead, tokens, width = run.ops.shape(x)
    return x if len(lead) == 2 else layout.reshape(run, x, *_batch(lead), tokens, width)


def _batch(lead: Sequence[int]) -> tuple[int, int]:
    """Return batch and heads: the last dimension before the tokens, if it is not the only one."""
    return (prod(lead[:-1]), lead[-1]) if len(lead) > 1 else (prod(lead), 1)


def _kept(mask: Any, is_causal: bool, shape: tuple[int, ...]) -> Tensor | None:
    """Return which keys a query may see: (queries, keys), or with batch and heads before them.

    True keeps, other than in `torch.nn.MultiheadAttention`, and causal counts from the beginning.
    """
    *lead, queries, keys = shape
    if mask is None:
        return torch.ones(queries, keys, dtype=torch.bool).tril() if is_causal else None
    if isinstance(mask, Constant) and mask.values.dtype == torch.bool:
        mask = Constant(~mask.values)
    kept = mask_of(mask)
    if kept.dim() <= 2 or prod(kept.shape[:-2]) == 1:
        return kept.reshape(kept.shape[-2:]).expand(queries, keys)
    return kept.expand(shape).reshape(*_batch(lead), queries, keys)


CALLS: dict[str, Call] = {
    "abs": _function("abs"),
    "adaptive_avg_pool1d": windows.adaptive_avg_pool(1),
    "adaptive_avg_pool2d": windows.adaptive_avg_pool(2),
    "adaptive_max_pool1d": windows.adaptive_max_pool(1),
    "adaptive_max_pool2d": windows.adaptive_max_pool(2),
    "add": _add,
    "amax": _extreme("max"),
    "amin": _extreme("min"),
    "argmax": _argmax,
    "avg_pool1d": windows.avg_pool(1),
    "avg_pool2d": windows.avg_pool(2),
    "batch_norm": _batch_norm,
    "bmm": _matmul,
    "cat": layout.cat,
    "chunk": layout.chunk,
    "clamp": _clamp,
    "clone": _same,
    "contiguous": _same,
    "conv1d": windows.convolution(1),
    "conv2d": windows.convolution(2),
    "conv_transpose1d": windows.transposed(1),
    "conv_transpose2d": windows.transposed(2),
    "detach": _same,
    "div": _div,
    "dropout": _same,
    "dropout1d": _same,
    "dropout2d": _same,
    "embedding": _embedding,
    "erf": _function("erf"),
    "expand": layout.expand,
    "flatten": layers.flatten,
    "float": _same,
    # torch's two forms differ by less than 5e-4
    "gelu": lambda run, x, approximate="none": layers.shrunk(run, "gelu", x),
    "getattr": layout.attribute,
    "getitem": layout.getitem,
    "group_norm": _group_norm,
    "hardsigmoid": layers.hardsigmoid,
    "hardswish": layers.hardswish,
    "hardtanh": lambda run, x, min_val=-1.0, max_val=1.0, inplace=False: run.ops.clamp(
        x, min_val, max_val
    ),
    "iadd": _add,
    "imul": _mul,
    "isub": _sub,
    "itruediv": _div,
    "layer_norm": _layer_norm,
    "leaky_relu": layers.leaky_relu,
    "linear": _linear,
    "log": _function("log"),
    "log_softmax": _softmax("log_softmax"),
    "matmul": _matmul,
    "max_pool1d": windows.max_pool(1),
    "max_pool2d": windows.max_pool(2),
    "mean": _mean,
    "mm": _matmul,
    "mul": _mul,
    "neg": _neg,
    "permute": layout.permute,
    "pow": _pow,
    "reciprocal": _function("reciprocal"),
    "relu": layers.relu,
    "relu6": lambda run, x, inplace=False: run.ops.clamp(x, 0.0, 6.0),
    "repeat_interleave": layout.repeat_interleave,
    "reshape": layout.reshape,
    "rms_norm": _rms_norm,
    "rsqrt": _function("rsqrt"),
    "scaled_dot_product_attention": _sdpa,
    "sigmoid": _function("sigmoid"),
    "silu": lambda run, x, inplace=False: layers.shrunk(run, "silu", x),
    "size": layout.size,
    "softmax": _softmax("softmax"),
    "softplus": lambda run, x, beta=1.0, threshold=20.0: run.ops.softplus(run.capped(x)),
    "split": layout.split,
    "sqrt": _function("sqrt"),
    "square": _function("square"),
    "squeeze": layout.squeeze,
    "stack": layout.stack,
    "sub": _sub,
    "sum": _sum,
    "tanh": _function("tanh"),
    "to": _to,
    "transpose": layout.transpose,
    "truediv": _div,
    "unflatten": layers.unflatten,
    "unsqueeze": layout.unsqueeze,
    "view": layout.reshape,
    "zeros": layout.zeros,
}
"""Functions and methods that can be imported; operators have the names of the operator module."""

SHAPES: dict[str, Call] = {
    name: getattr(operator, name)
    for name in (
        "add",
        "floordiv",
        "getitem",
        "iadd",
        "ifloordiv",
        "imul",
        "ipow",
        "isub",
        "itruediv",
        "mod",
        "mul",
        "neg",
        "pow",
        "sub",
        "truediv",
    )
}
"""Operators that are computed at once where they meet only numbers, as in ``x.shape[0] * 2``."""

TAKES_CONSTANTS = frozenset(
    {
        "add",
        "div",
        "embedding",
        "group_norm",
        "iadd",
        "imul",
        "isub",
        "itruediv",
        "layer_norm",
        "linear",
        "matmul",
        "mm",
        "mul",
        "rms_norm",
        "scaled_dot_product_attention",
        "sub",
        "truediv",
    }
)
"""Calls that know what to do with a public tensor beside one that is not."""
