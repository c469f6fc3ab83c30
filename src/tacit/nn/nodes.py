"""What a node of a traced graph is: its name, what it is given, where it stands."""

from typing import Any

from torch import fx


def call_name(node: fx.Node) -> str:
    """Return the name of a function or method; one that works in place has that of the other."""
    if node.op == "call_function":
        return str(getattr(node.target, "__name__", node.target)).strip("_")
    return str(node.target).strip("_")


def arguments(node: fx.Node) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return what a node is given, with the input, whatever torch calls it, in the first place."""
    named = dict(node.kwargs)
    for word in ("input", "tensors", "self"):
        if word in named and not node.args:
            return (named.pop(word),), named
    return node.args, named


def place(node: fx.Node) -> str:
    """Say what a node is and in which module it stands."""
    if node.op == "call_module":
        return f"layer {node.target!s}" if str(node.target) else "the module"
    stack = list(node.meta.get("nn_module_stack", {}))
    where = f"in module {stack[-1]!r}" if stack else "in the module itself"
    return f"operation {call_name(node)!r} ({where}, as {node.name!r})"
