"""Import a torch module: trace it, and turn what it does into a function of ops.

The user's module is not rewritten. Its parameters become named weights, which a private run
shares; its layers become calls of the Ops contract. What we cannot do is refused by name and
place, before anything is run.
"""

import inspect
import operator
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch
from torch import Tensor, fx, nn

from tacit.errors import InputError, RangeError
from tacit.nn.calls import CALLS, SHAPES
from tacit.nn.folding import fold_weights, gains_of, unfold_weights
from tacit.nn.ops import Ops
from tacit.nn.running import Constant, Running, is_tensor
from tacit.nn.table import LAYERS, check_call, check_options

T = TypeVar("T")
_SILENT = frozenset({"getattr", "getitem", "size"})
_STEPS = frozenset({"argmax"})

TRACING = threading.RLock()
"""Held while a module is traced: torch changes what it is to call a module, in all threads.

Whoever calls modules in a thread, while others may trace theirs, holds it, too.
"""


@dataclass(frozen=True, eq=False)
class Imported:
    """A traced module: its graph, its layers by name, and its parameters by name.

    Attributes:
        graph: what the module does, in order.
        layers: its layers, whose options are public.
        weights: its parameters, which a private run shares.
        constants: masks and counters, which are public.
        gains: by weight, how much larger than its input a product with it can be; public.
        cap: where hidden values saturate, so that their bounds do not grow with every layer.
    """

    graph: fx.Graph
    layers: Mapping[str, nn.Module]
    weights: Mapping[str, Tensor]
    constants: Mapping[str, Tensor] = field(default_factory=dict)
    gains: Mapping[str, float] = field(default_factory=dict)
    cap: float | None = None

    def __call__(self, ops: Ops[T], weights: Mapping[str, T], x: T) -> T:
        """Run the module on the tensors of an interpreter."""
        run = Running(ops, weights, self.gains, self.cap)
        values: dict[fx.Node, Any] = {}
        for node in self.graph.nodes:
            if node.op == "output":
                answer: T = self._answer(node, values)
                return answer
            values[node] = x if node.op == "placeholder" else self._step(run, node, values)
        raise InputError("the module returns nothing")

    def state(self, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return weights of a run as the ``state_dict`` of the module, which loads them."""
        state = unfold_weights(self.layers, dict(weights))
        return {name.replace("/", "."): value for name, value in state.items()} | dict(
            self.constants
        )

    def check_gradients(self) -> None:
        """Refuse what can be computed but not differentiated.

        Raises:
            InputError: names it and its place.
        """
        for node in self.graph.nodes:
            if node.op.startswith("call") and _call_name(node) in _STEPS:
                raise InputError(f"{_place(node)} has no gradient, so nothing can be trained by it")

    def steps(self) -> list[tuple[str, ...]]:
        """List what is done, in order: the place, the layer or function; no value is shown."""
        found: list[tuple[str, ...]] = []
        for node in self.graph.nodes:
            if node.op == "call_module":
                found.append((str(node.target) or "the module", str(self.layers[str(node.target)])))
            elif node.op.startswith("call") and _call_name(node) not in _SILENT:
                found.append((node.name, _call_name(node)))
        return found

    def _answer(self, node: fx.Node, values: dict[fx.Node, Any]) -> Any:
        if not isinstance(node.args[0], fx.Node) or not is_tensor(values[node.args[0]]):
            raise InputError("wanted a module that returns one tensor")
        return values[node.args[0]]

    def _step(self, run: Running, node: fx.Node, values: dict[fx.Node, Any]) -> Any:
        if node.op == "get_attr":
            return self._attribute(run, str(node.target))
        args, named = fx.map_arg(_arguments(node), lambda one: values[one])
        try:
            return self._apply(run, node, args, named)
        except InputError as error:
            raise type(error)(f"{_place(node)}: {error}") from error

    def _apply(self, run: Running, node: fx.Node, args: Any, named: Any) -> Any:
        if node.op == "call_module":
            name = str(node.target)
            layer = self.layers[name]
            return LAYERS[type(layer)](run, name, layer, *args, **named)
        name = _call_name(node)
        if name in SHAPES and not any(map(is_tensor, args)):
            return _computed(SHAPES[name], args)
        if name not in CALLS:
            raise InputError("supported for shapes alone, not for tensors")
        return CALLS[name](run, *args, **named)

    def _attribute(self, run: Running, name: str) -> Any:
        if name in self.constants:
            return Constant(self.constants[name])
        return run.weights[name.replace(".", "/")]


def import_module(module: nn.Module) -> Imported:
    """Trace a module of one input and one output, as it is in use (`module.eval()`).

    Raises:
        InputError: the module branches on values, or uses an operation that is not supported;
            the message names it and its place.
    """
    layers = dict(module.named_modules())
    _refuse_script(layers)
    graph = _single(module) if type(module) in LAYERS else _traced(module)
    _check_inputs(graph)
    for node in graph.nodes:
        _check(node, layers)
    weights, constants = _parameters(module, graph)
    gains = gains_of(layers, fold_weights(layers, weights))
    return Imported(graph, layers, weights, constants, gains)


def _refuse_script(layers: Mapping[str, nn.Module]) -> None:
    """Refuse what torch has compiled: nothing can be traced in it."""
    for name, layer in layers.items():
        if isinstance(layer, torch.jit.ScriptModule):
            what = f"layer {name!r}" if name else "the module"
            raise InputError(
                f"{what} is made by torch.jit.script or torch.jit.trace, which is not supported: "
                "TorchScript cannot be traced again; give the Python module that it was made of, "
                "with weights from module.load_state_dict(scripted.state_dict())"
            )


def _single(module: nn.Module) -> fx.Graph:
    """Write the graph of a module that is one supported layer; tracing would open it."""
    graph = fx.Graph()
    graph.output(graph.create_node("call_module", "", (graph.placeholder("x"),)))
    return graph


def _traced(module: nn.Module) -> fx.Graph:
    try:
        with TRACING:
            return fx.Tracer().trace(module)
    except (fx.proxy.TraceError, TypeError, ValueError, RuntimeError, AttributeError) as error:
        raise InputError(
            f"cannot trace {type(module).__name__}: {error}; a private model must do the same "
            "operations whatever its input is"
        ) from error


def _check_inputs(graph: fx.Graph) -> None:
    inputs = [node.name for node in graph.nodes if node.op == "placeholder"]
    if len(inputs) != 1:
        raise InputError(f"wanted a module of one input, got {len(inputs)}: {', '.join(inputs)}")


def _parameters(module: nn.Module, graph: fx.Graph) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Part the state of a module into secret weights and public constants.

    Numbers are weights, also those of tensors that a module has or makes without registering
    them. Whole numbers, truth values and masks of -inf are part of the code.
    """
    weights, constants = {}, {}
    state = dict((*module.named_parameters(), *module.named_buffers()))
    for node in graph.nodes:
        if node.op == "get_attr" and str(node.target) not in state:
            state[str(node.target)] = operator.attrgetter(str(node.target))(module)
    for name, value in state.items():
        held = value.detach()
        if held.is_floating_point() and not bool(torch.isneginf(held).any()):
            if not bool(torch.isfinite(held).all()):
                raise RangeError(f"parameter {name!r} holds NaN or infinite values")
            weights[name.replace(".", "/")] = held.to("cpu", torch.float64)
        else:
            constants[name] = held.cpu()
    return weights, constants


def _check(node: fx.Node, layers: Mapping[str, nn.Module]) -> None:
    if node.op in ("placeholder", "output", "get_attr"):
        return
    if node.op == "call_module":
        name = str(node.target)
        layer = layers[name]
        if type(layer) not in LAYERS:
            known = ", ".join(sorted(one.__name__ for one in LAYERS))
            raise InputError(
                f"layer {name!r} is a {type(layer).__name__}, which is not supported; "
                f"supported are {known}"
            )
        check_options(name, layer)
        _check_call(node, LAYERS[type(layer)], 3)
    elif _call_name(node) in CALLS:
        given = _check_call(node, CALLS[_call_name(node)], 1)
        check_call(_place(node), _call_name(node), given)
    elif _call_name(node) not in SHAPES:
        raise InputError(
            f"{_place(node)} is not supported; supported are {', '.join(sorted(CALLS))}"
        )


def _check_call(node: fx.Node, handler: Callable[..., Any], before: int) -> dict[str, Any]:
    """Refuse options that a handler does not have, and return what it is given."""
    args, named = _arguments(node)
    try:
        return inspect.signature(handler).bind(*(None,) * before, *args, **named).arguments
    except TypeError as error:
        raise InputError(f"{_place(node)} is used in a way not supported: {error}") from error


def _arguments(node: fx.Node) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return what a node is given, with the input, whatever torch calls it, in the first place."""
    named = dict(node.kwargs)
    for word in ("input", "tensors", "self"):
        if word in named and not node.args:
            return (named.pop(word),), named
    return node.args, named


def _computed(operation: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    """Compute with what is public: numbers of shapes, or constants of the model."""
    if not any(isinstance(one, Constant) for one in args):
        return operation(*args)
    values = (one.values if isinstance(one, Constant) else one for one in args)
    return Constant(operation(*values))


def _call_name(node: fx.Node) -> str:
    if node.op == "call_function":
        return str(getattr(node.target, "__name__", node.target)).strip("_")
    return str(node.target).strip("_")


def _place(node: fx.Node) -> str:
    """Say what a node is and in which module it stands."""
    if node.op == "call_module":
        return f"layer {node.target!s}"
    stack = list(node.meta.get("nn_module_stack", {}))
    where = f"in module {stack[-1]!r}" if stack else "in the module itself"
    return f"operation {_call_name(node)!r} ({where}, as {node.name!r})"
