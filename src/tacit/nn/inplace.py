"""What a module changes in place, followed: whoever reads a tensor later reads what became of it.

A traced graph says in which order its nodes run. Where one changes a tensor, all later readers of
that tensor are handed the node's result instead. A tensor of which another value may be a view is
changed for that one, too; how, the graph does not say, and it is refused where the other is read
later. So after this no two values of a graph have memory in common.
"""

import inspect
from collections.abc import Hashable, Mapping

from torch import fx, nn

from tacit.errors import InputError
from tacit.nn.calls import CALLS, SHAPES
from tacit.nn.tracing import arguments, call_name, place

_AUGMENTED = frozenset({"iadd", "ifloordiv", "imul", "ipow", "isub", "itruediv"})
_VIEWS = frozenset(
    {
        "chunk",
        "contiguous",
        "detach",
        "dropout",
        "dropout1d",
        "dropout2d",
        "expand",
        "flatten",
        "float",
        "getitem",
        "permute",
        "reshape",
        "split",
        "squeeze",
        "to",
        "transpose",
        "unflatten",
        "unsqueeze",
        "view",
    }
)
"""Calls whose result may be the memory of what they are given."""
_MADE = "_tensor_constant"  # so torch.fx calls a tensor that a call makes, and that is no attribute
_DROPOUT = (nn.Dropout, nn.Dropout1d, nn.Dropout2d)  # in use they change nothing
_VIEW_LAYERS = (nn.Identity, nn.Flatten, nn.Unflatten, *_DROPOUT)


def follow(graph: fx.Graph, layers: Mapping[str, nn.Module]) -> None:
    """Make every change in place a value of its own.

    Args:
        graph: as it was traced; it is changed.
        layers: by name.

    Raises:
        InputError: a tensor of the module's own is changed, or what may share memory is read later.
    """
    order = {node: at for at, node in enumerate(graph.nodes)}
    numbers = _numbers(graph)
    memory: dict[fx.Node, Hashable] = {}
    for node in graph.nodes:
        # The same constant may be read by several nodes.
        memory[node] = str(node.target) if node.op == "get_attr" else node
        first = next(iter(arguments(node)[0]), None)
        if not isinstance(first, fx.Node) or first in numbers:
            continue
        is_changing = _is_changing(node, layers)
        if is_changing or _is_view(node, layers):
            memory[node] = memory[first]
        if not is_changing:
            continue
        own = memory[first]
        if isinstance(own, str) and not own.startswith(_MADE):
            raise InputError(
                f"{place(node)} changes {own!r} in place, which is the model's own: its next "
                "answer would be another; compute a new tensor"
            )
        for other in order:
            shared = memory.get(other, str(other.target) if other.op == "get_attr" else None)
            if other not in (node, first) and shared == memory[first]:
                _check_unread(other, node, order)
        for user in tuple(first.users):
            if order[user] > order[node]:
                user.replace_input_with(first, node)


def _check_unread(other: fx.Node, node: fx.Node, order: Mapping[fx.Node, int]) -> None:
    if any(order[user] > order[node] for user in other.users):
        raise InputError(
            f"{place(node)} changes a tensor in place, of which {place(other)} may be a part or a "
            "view that is read later: this is not followed; compute a new tensor (inplace=False, "
            "x = x + 1 for x += 1)"
        )


def _numbers(graph: fx.Graph) -> set[fx.Node]:
    """Return the nodes that are shapes, or numbers computed of them: nothing changes those."""
    found: set[fx.Node] = set()
    for node in graph.nodes:
        name = call_name(node) if node.op.startswith("call_") else ""
        is_computed = name in SHAPES and {*node.all_input_nodes} <= found
        if name == "size" or (name == "getattr" and node.args[1] == "shape") or is_computed:
            found.add(node)
    return found


def _is_changing(node: fx.Node, layers: Mapping[str, nn.Module]) -> bool:
    """Tell whether a node changes its first argument."""
    if node.op == "call_module":
        layer = layers[str(node.target)]
        return bool(getattr(layer, "inplace", False)) and not isinstance(layer, _DROPOUT)
    name = str(getattr(node.target, "__name__", node.target))
    if name in _AUGMENTED or (name.endswith("_") and not name.endswith("__")):
        return True
    handler = CALLS.get(name)
    if handler is None:
        return False
    args, named = arguments(node)
    return bool(inspect.signature(handler).bind(None, *args, **named).arguments.get("inplace"))


def _is_view(node: fx.Node, layers: Mapping[str, nn.Module]) -> bool:
    if node.op == "call_module":
        return isinstance(layers[str(node.target)], _VIEW_LAYERS)
    return call_name(node) in _VIEWS
