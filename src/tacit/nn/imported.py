"""Import a torch module: trace it, and turn what it does into a function of ops.

The user's module is not rewritten. Its parameters become named weights, which a private run
shares; its layers become calls of the Ops contract. What we cannot do is refused by name and
place, before anything is run.
"""

import inspect
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

import torch
from torch import Tensor, fx, nn

from tacit.errors import InputError, RangeError
from tacit.exclusive import TORCH_LOCK
from tacit.nn.calls import CALLS, SHAPES, TAKES_CONSTANTS
from tacit.nn.folding import fold_weights, gains_of, lengths_of, unfold_weights
from tacit.nn.inplace import follow
from tacit.nn.ops import Ops
from tacit.nn.running import Constant, NotComputed, Running, is_tensor
from tacit.nn.table import LAYERS, check_call, check_options
from tacit.nn.tracing import Tracer, arguments, call_name, place

T = TypeVar("T")
_SILENT = frozenset({"getattr", "getitem", "size"})
_STEPS = frozenset({"argmax"})
_UNTRACEABLE = (fx.proxy.TraceError, TypeError, ValueError, RuntimeError, AttributeError, NameError)


@dataclass(frozen=True, eq=False)
class Imported:
    """A traced module: its graph, its layers by name, and its parameters by name.

    Attributes:
        graph: what the module does, in order.
        layers: its layers, whose options are public.
        weights: its parameters and buffers of numbers, which a private run shares.
        constants: masks and counters, which are public.
        gains: by weight, how much larger than its input a product with it can be; public.
        cap: where hidden values saturate, so that their bounds do not grow with every layer.
        trained: which weights a training changes: parameters that need a gradient, no buffer.
        public: numbers that everyone knows, by the names of weights; see `frozen`.
        tied: other names of weights that a module has twice.
        saved: what a ``state_dict`` of the module holds: not what it has without registering it.
        is_hot: whether it is called with one-hot vectors instead of the numbers that `entries`
            are named by.
    """

    graph: fx.Graph
    layers: Mapping[str, nn.Module]
    weights: Mapping[str, Tensor]
    constants: Mapping[str, Tensor] = field(default_factory=dict)
    gains: Mapping[str, float] = field(default_factory=dict)
    cap: float | None = None
    trained: frozenset[str] = frozenset()
    public: Mapping[str, Tensor] = field(default_factory=dict)
    tied: Mapping[str, str] = field(default_factory=dict)
    saved: frozenset[str] = frozenset()
    is_hot: bool = False

    def __call__(self, ops: Ops[T], weights: Mapping[str, T], x: T) -> T:
        """Run the module on the tensors of an interpreter."""
        known: dict[str, Any] = {name: Constant(value) for name, value in self.public.items()}
        known.update(weights)
        known |= {name: known[first] for name, first in self.tied.items()}
        run = Running(ops, known, self.gains, self.cap, x if self.is_hot else None)
        values: dict[fx.Node, Any] = {}
        for node in self.graph.nodes:
            if node.op == "output":
                answer: T = self._answer(node, values)
                return answer
            values[node] = x if node.op == "placeholder" else self._step(run, node, values)
        raise InputError("the module returns nothing")

    def state(self, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return weights of a run as the ``state_dict`` of the module, which loads them."""
        stays = {name: value for name, value in self.weights.items() if name not in self.trained}
        state = unfold_weights(self.layers, {**stays, **self.public, **weights})
        state |= {name: state[first] for name, first in self.tied.items()}
        found = {name.replace("/", "."): value for name, value in state.items()}
        found |= dict(self.constants)
        return {name: value for name, value in found.items() if name in self.saved}

    def frozen(self) -> "Imported":
        """Make public what no training changes: buffers, and parameters that need no gradient.

        Guarantee: none for them; whoever trains knows them. Products with them cost no opening.
        """
        public = {name: value for name, value in self.weights.items() if name not in self.trained}
        weights = {name: self.weights[name] for name in self.weights if name in self.trained}
        return replace(self, weights=weights, public={**self.public, **public})

    def entries(self) -> int | None:
        """Return how many rows there are that the input names, if it is read for nothing else.

        Whoever has the input can then hand in one-hot vectors, and nothing has to be compared.
        """
        given = next(node for node in self.graph.nodes if node.op == "placeholder")
        found = set()
        for user in given.users:
            if user.args[:1] != (given,) or (size := self._entries(user)) is None:
                return None
            found.add(size)
        found.discard(0)
        return found.pop() if len(found) == 1 else None

    def _entries(self, node: fx.Node) -> int | None:
        """Return the entries of the table that a node reads; 0 for a shape, None for all else."""
        if node.op == "call_module":
            layer = self.layers[str(node.target)]
            return layer.num_embeddings if isinstance(layer, nn.Embedding) else None
        if call_name(node) in ("getattr", "size"):
            return 0
        table = node.args[1] if call_name(node) == "embedding" and len(node.args) > 1 else None
        if not isinstance(table, fx.Node) or table.op != "get_attr":
            return None
        return len(self.weights[str(table.target).replace(".", "/")])

    def check_gradients(self) -> None:
        """Refuse what can be computed but not differentiated.

        Raises:
            InputError: names it and its place.
        """
        for node in self.graph.nodes:
            if node.op.startswith("call") and call_name(node) in _STEPS:
                raise InputError(f"{place(node)} has no gradient, so nothing can be trained by it")

    def steps(self) -> list[tuple[str, ...]]:
        """List what is done, in order: the place, the layer or function; no value is shown."""
        found: list[tuple[str, ...]] = []
        for node in self.graph.nodes:
            if node.op == "call_module":
                found.append((str(node.target) or "the module", str(self.layers[str(node.target)])))
            elif node.op.startswith("call") and call_name(node) not in _SILENT:
                found.append((node.name, call_name(node)))
        return found

    def _answer(self, node: fx.Node, values: dict[fx.Node, Any]) -> Any:
        if not isinstance(node.args[0], fx.Node) or not is_tensor(values[node.args[0]]):
            raise InputError("wanted a module that returns one tensor")
        return values[node.args[0]]

    def _step(self, run: Running, node: fx.Node, values: dict[fx.Node, Any]) -> Any:
        if node.op == "get_attr":
            return self._attribute(run, str(node.target))
        args, named = fx.map_arg(arguments(node), lambda one: values[one])
        try:
            return self._apply(run, node, args, named)
        except InputError as error:
            raise type(error)(f"{place(node)}: {error}") from error

    def _apply(self, run: Running, node: fx.Node, args: Any, named: Any) -> Any:
        parts: list[Any] = []
        fx.node.map_aggregate((args, named), parts.append)
        is_pick = call_name(node) == "getitem" and isinstance(args[0], tuple)
        missing = next((one for one in parts if isinstance(one, NotComputed)), None)
        if missing is not None and not is_pick:
            raise InputError(f"wanted a tensor, got what is not computed: {missing.what}")
        if node.op == "call_module":
            name = str(node.target)
            layer = self.layers[name]
            return LAYERS[type(layer)](run, name, layer, *args, **named)
        name = call_name(node)
        secret = next((one for one in parts if is_tensor(one)), None)
        if secret is None and any(isinstance(one, Constant) for one in parts):
            return _computed(node, args, named)
        if name in SHAPES and secret is None:
            return SHAPES[name](*args)
        if name not in CALLS:
            raise InputError("supported for shapes alone, not for tensors")
        if secret is not None and name not in TAKES_CONSTANTS:
            lift = partial(run.lifted, beside=secret)
            args, named = fx.node.map_aggregate((args, named), lift)
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
    follow(graph, layers)
    weights, constants = _parameters(module, graph)
    trained = _trained(module, layers, weights)
    gains = gains_of(layers, fold_weights(layers, weights))
    tied = _tied(module, weights)
    gains |= {name: gains[first] for name, first in tied.items() if first in gains}
    if _has_norm(graph, layers):
        gains |= lengths_of({name: one for name, one in weights.items() if name not in tied})
    saved = frozenset(module.state_dict())
    return Imported(
        graph, layers, weights, constants, gains, trained=trained, tied=tied, saved=saved
    )


def _has_norm(graph: fx.Graph, layers: Mapping[str, nn.Module]) -> bool:
    """Tell whether rows are normalised somewhere: their lengths are known from there on."""
    calls = {call_name(node) for node in graph.nodes if node.op == "call_function"}
    is_layer = any(isinstance(one, nn.LayerNorm | nn.RMSNorm) for one in layers.values())
    return is_layer or bool(calls & {"layer_norm", "rms_norm"})


def _trained(
    module: nn.Module, layers: Mapping[str, nn.Module], weights: Mapping[str, Tensor]
) -> frozenset[str]:
    """Name the weights that come of parameters which need a gradient, as they are after folding."""
    learned = {
        name.replace(".", "/") for name, value in module.named_parameters() if value.requires_grad
    }
    for name, layer in layers.items():
        own = [value.requires_grad for value in layer.parameters(recurse=False)]
        if isinstance(layer, nn.BatchNorm1d | nn.BatchNorm2d) and len(set(own)) > 1:
            raise InputError(f"layer {name!r}: train the gain and the offset of a norm, or neither")
    # What is not a number stays so through every folding, and shows what it went into.
    marks = {
        name: torch.full_like(value, torch.nan if name in learned else 0.0)
        for name, value in weights.items()
    }
    folded = fold_weights(layers, marks)
    return frozenset(name for name, mark in folded.items() if bool(mark.isnan().any()))


def _tied(module: nn.Module, weights: Mapping[str, Tensor]) -> dict[str, str]:
    """Return the other names of parameters that a module has twice, with the first name."""
    first: dict[int, str] = {}
    tied = {}
    for dotted, value in module.named_parameters(remove_duplicate=False):
        name = dotted.replace(".", "/")
        kept = first.setdefault(id(value), name)
        if kept != name and kept in weights:
            tied[name] = kept
    return tied


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
    state = _state(module)
    before = {name: one._version for name, one in state.items() if not one.is_inference()}
    graph = _try_to_trace(module)
    for name, version in before.items():
        if state[name]._version != version:
            raise InputError(
                f"the module changes {name!r}, its own, when it is called: its next answer would "
                "be another; compute a new tensor"
            )
    return graph


def _try_to_trace(module: nn.Module) -> fx.Graph:
    with TORCH_LOCK:
        for is_last in (False, True):
            tracer = Tracer()
            # Buffers are looked at as they are, unless a shape is needed to cut them.
            tracer.proxy_buffer_attributes = is_last
            try:
                return tracer.trace(module)
            except _UNTRACEABLE as error:
                if is_last:
                    raise InputError(
                        f"cannot trace {type(module).__name__}: {error}; a private model must do "
                        "the same operations whatever its input is"
                    ) from error
    raise AssertionError("one of two attempts returns or raises")


def _check_inputs(graph: fx.Graph) -> None:
    inputs = [node.name for node in graph.nodes if node.op == "placeholder"]
    if len(inputs) != 1:
        raise InputError(f"wanted a module of one input, got {len(inputs)}: {', '.join(inputs)}")


def _state(module: nn.Module) -> dict[str, Tensor]:
    return dict((*module.named_parameters(), *module.named_buffers()))


def _parameters(module: nn.Module, graph: fx.Graph) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Part the state of a module into secret weights and public constants.

    Numbers are weights, also those of tensors that a module has or makes without registering
    them. Whole numbers, truth values and masks of -inf are part of the code.
    """
    weights, constants = {}, {}
    state = _state(module)
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
    elif call_name(node) in CALLS:
        given = _check_call(node, CALLS[call_name(node)], 1)
        check_call(place(node), call_name(node), given)
    elif call_name(node) not in SHAPES:
        raise InputError(
            f"{place(node)} is not supported; supported are {', '.join(sorted(CALLS))}"
        )


def _check_call(node: fx.Node, handler: Callable[..., Any], before: int) -> dict[str, Any]:
    """Refuse options that a handler does not have, and return what it is given."""
    args, named = arguments(node)
    try:
        return inspect.signature(handler).bind(*(None,) * before, *args, **named).arguments
    except TypeError as error:
        raise InputError(f"{place(node)} is used in a way not supported: {error}") from error


def _computed(node: fx.Node, args: Any, named: Any) -> Any:
    """Let torch compute with the constants of a model alone."""
    if call_name(node) in ("contiguous", "detach", "dropout", "float", "to"):
        # Where a tensor is and how exact it is does not matter, but whole numbers do.
        kinds = [one for one in (*args[1:], *named.values()) if isinstance(one, torch.dtype)]
        kinds += [torch.float] if call_name(node) == "float" else []
        value = args[0].values
        for kind in kinds:
            value = value.to(torch.float64 if kind.is_floating_point else kind)
        return Constant(value)
    # Copies, so that what changes a tensor in place does not change the model.
    args, named = fx.node.map_aggregate(
        (args, named), lambda one: one.values.clone() if isinstance(one, Constant) else one
    )
    if node.op == "call_method":
        out = getattr(args[0], str(node.target))(*args[1:], **named)
    else:
        out = node.target(*args, **named)  # type: ignore[operator]  # it is a function
    if isinstance(out, tuple | list):
        return type(out)(Constant(one) if isinstance(one, Tensor) else one for one in out)
    return Constant(out) if isinstance(out, Tensor) else out
