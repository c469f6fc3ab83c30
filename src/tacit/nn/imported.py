"""Import a torch module: trace it, and turn what it does into a function of ops.

The user's module is not rewritten. Its parameters become named weights, which a private run
shares; its layers become calls of the Ops contract. What we cannot do is refused by name and
place, before anything is run.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor, fx, nn

from tacit.errors import InputError
from tacit.nn.ops import Ops

T = TypeVar("T")
# Ops of any interpreter, and any of its tensors: the interpreters have different tensor types.
Layer = Callable[[Any, Mapping[str, Any], str, Any], Any]


@dataclass(frozen=True, eq=False)
class Imported:
    """A traced module: its graph, its layers by name, and its parameters by name."""

    graph: fx.Graph
    layers: Mapping[str, nn.Module]
    weights: Mapping[str, Tensor]

    def __call__(self, ops: Ops[T], weights: Mapping[str, T], x: T) -> T:
        """Run the module on the tensors of an interpreter."""
        values: dict[fx.Node, Any] = {}
        for node in self.graph.nodes:
            if node.op == "placeholder":
                values[node] = x
            elif node.op == "output":
                answer: T = values[node.args[0]]
                return answer
            else:
                values[node] = self._step(ops, weights, node, values)
        raise InputError("the module returns nothing")

    def _step(
        self, ops: Ops[T], weights: Mapping[str, T], node: fx.Node, values: dict[fx.Node, Any]
    ) -> Any:
        arguments = [values.get(a, a) if isinstance(a, fx.Node) else a for a in node.args]
        if node.op == "call_module":
            layer = self.layers[str(node.target)]
            return LAYERS[type(layer)](ops, weights, str(node.target), (layer, *arguments))
        return CALLS[_call_name(node)](ops, arguments, node.kwargs)


def import_module(module: nn.Module) -> Imported:
    """Trace a module of one input and one output.

    Raises:
        InputError: the module branches on values, or uses an operation that is not supported;
            the message names it and its place.
    """
    try:
        traced = fx.symbolic_trace(module)
    except (fx.proxy.TraceError, TypeError, ValueError, RuntimeError, AttributeError) as error:
        raise InputError(
            f"cannot trace {type(module).__name__}: {error}; a private model must do the same "
            "operations whatever its input is"
        ) from error
    layers = dict(traced.named_modules())
    for node in traced.graph.nodes:
        _check(node, layers)
    weights = {
        name.replace(".", "/"): value.detach().to(torch.float64)
        for name, value in module.state_dict().items()
        if value.is_floating_point()
    }
    return Imported(traced.graph, layers, _folded(layers, weights))


def _check(node: fx.Node, layers: Mapping[str, nn.Module]) -> None:
    if node.op in ("placeholder", "output"):
        return
    if node.op == "call_module":
        layer = layers[str(node.target)]
        if type(layer) not in LAYERS:
            known = ", ".join(sorted(one.__name__ for one in LAYERS))
            raise InputError(
                f"layer {node.target!r} is a {type(layer).__name__}, which is not supported; "
                f"supported are {known}"
            )
        _check_options(str(node.target), layer)
    elif _call_name(node) not in CALLS:
        raise InputError(
            f"operation {_call_name(node)!r} (at {node.name!r}) is not supported; supported are "
            f"{', '.join(sorted(CALLS))}"
        )


def _check_options(name: str, layer: nn.Module) -> None:
    """Refuse the options of supported layers that we do not have."""
    if isinstance(layer, nn.Conv2d) and (
        layer.groups != 1 or layer.dilation != (1, 1) or layer.padding_mode != "zeros"
    ):
        raise InputError(f"layer {name!r}: wanted a plain convolution, got {layer}")
    if isinstance(layer, nn.LayerNorm) and len(layer.normalized_shape) != 1:
        raise InputError(f"layer {name!r}: wanted the last dimension alone, got {layer}")
    if isinstance(layer, nn.BatchNorm1d | nn.BatchNorm2d) and layer.running_mean is None:
        raise InputError(f"layer {name!r}: wanted running statistics, got {layer}")


def _call_name(node: fx.Node) -> str:
    if node.op == "call_function":
        return str(getattr(node.target, "__name__", node.target))
    return str(node.target)


def _folded(layers: Mapping[str, nn.Module], weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """Replace the statistics of batch norms by one factor and one offset per channel."""
    for name, layer in layers.items():
        if not isinstance(layer, nn.BatchNorm1d | nn.BatchNorm2d):
            continue
        key = name.replace(".", "/")
        mean, variance = (weights.pop(f"{key}/running_{what}") for what in ("mean", "var"))
        gain = weights.pop(f"{key}/weight", torch.ones_like(mean))
        offset = weights.pop(f"{key}/bias", torch.zeros_like(mean))
        factor = gain / torch.sqrt(variance + layer.eps)
        extra = (1,) * (2 if isinstance(layer, nn.BatchNorm2d) else 0)
        weights[f"{key}/factor"] = factor.view(-1, *extra)
        weights[f"{key}/offset"] = (offset - mean * factor).view(-1, *extra)
    return weights


def _weight(weights: Mapping[str, Any], layer: str, name: str) -> Any:
    return weights.get(f"{layer.replace('.', '/')}/{name}")


def _linear(ops: Any, weights: Mapping[str, Any], name: str, given: Any) -> Any:
    _, x = given
    out = ops.matmul(x, ops.transpose(_weight(weights, name, "weight"), 0, 1))
    bias = _weight(weights, name, "bias")
    return out if bias is None else ops.add(out, bias)


def _conv2d(ops: Any, weights: Mapping[str, Any], name: str, given: Any) -> Any:
    layer, x = given
    out = ops.conv2d(
        x, _weight(weights, name, "weight"), stride=layer.stride, padding=layer.padding
    )
    bias = _weight(weights, name, "bias")
    return out if bias is None else ops.add(out, ops.reshape(bias, (-1, 1, 1)))


def _batch_norm(ops: Any, weights: Mapping[str, Any], name: str, given: Any) -> Any:
    _, x = given
    scaled = ops.mul(x, _weight(weights, name, "factor"))
    return ops.add(scaled, _weight(weights, name, "offset"))


def _layer_norm(ops: Any, weights: Mapping[str, Any], name: str, given: Any) -> Any:
    layer, x = given
    out = ops.layer_norm(x, eps=layer.eps)
    gain, offset = (_weight(weights, name, key) for key in ("weight", "bias"))
    out = out if gain is None else ops.mul(out, gain)
    return out if offset is None else ops.add(out, offset)


def _function(verb: str) -> Layer:
    return lambda ops, weights, name, given: getattr(ops, verb)(given[1])


def _softmax(ops: Any, weights: Mapping[str, Any], name: str, given: Any) -> Any:
    layer, x = given
    return ops.softmax(x, dim=-1 if layer.dim is None else layer.dim)


def _flatten(ops: Any, weights: Mapping[str, Any], name: str, given: Any) -> Any:
    layer, x = given
    return _flattened(ops, [x, layer.start_dim, layer.end_dim], {})


def _flattened(ops: Any, arguments: list[Any], named: Mapping[str, Any]) -> Any:
    x = arguments[0]
    start = arguments[1] if len(arguments) > 1 else named.get("start_dim", 0)
    if start != 1:
        raise InputError(f"flatten: wanted to keep the first dimension alone, got {start}")
    return ops.reshape(x, (ops.shape(x)[0], -1))


def _same(ops: Any, weights: Mapping[str, Any], name: str, given: Any) -> Any:
    return given[1]


LAYERS: dict[type[nn.Module], Layer] = {
    nn.BatchNorm1d: _batch_norm,
    nn.BatchNorm2d: _batch_norm,
    nn.Conv2d: _conv2d,
    nn.Dropout: _same,
    nn.Flatten: _flatten,
    nn.GELU: _function("gelu"),
    nn.Identity: _same,
    nn.LayerNorm: _layer_norm,
    nn.Linear: _linear,
    nn.ReLU: _function("relu"),
    nn.SiLU: _function("silu"),
    nn.Sigmoid: _function("sigmoid"),
    nn.Softmax: _softmax,
    nn.Tanh: _function("tanh"),
}
"""Layers that can be imported. Dropout and batch norm are those of a model in use."""

CALLS: dict[str, Callable[[Any, list[Any], Mapping[str, Any]], Any]] = {
    "add": lambda ops, a, named: ops.add(*a[:2]),
    "sub": lambda ops, a, named: ops.sub(*a[:2]),
    "mul": lambda ops, a, named: ops.mul(*a[:2]),
    "matmul": lambda ops, a, named: ops.matmul(*a[:2]),
    "relu": lambda ops, a, named: ops.relu(a[0]),
    "gelu": lambda ops, a, named: ops.gelu(a[0]),
    "silu": lambda ops, a, named: ops.silu(a[0]),
    "sigmoid": lambda ops, a, named: ops.sigmoid(a[0]),
    "tanh": lambda ops, a, named: ops.tanh(a[0]),
    "flatten": _flattened,
}
"""Functions and methods that can be imported; operators have the names of the operator module."""
