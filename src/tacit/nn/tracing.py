"""How a module is traced, changes in place as what they are, and what a node of its graph is."""

import operator
import threading
from collections.abc import Callable
from typing import Any

from torch import fx, nn


class Proxy(fx.Proxy):
    """Notes changes in place as what they are; torch's own takes ``x += 1`` for ``x = x + 1``."""

    def _changed(self, operator_: Callable[..., Any], *given: Any) -> Any:
        return self.tracer.create_proxy("call_function", operator_, (self, *given), {})

    def __iadd__(self, other: Any) -> Any:
        return self._changed(operator.iadd, other)

    def __isub__(self, other: Any) -> Any:
        return self._changed(operator.isub, other)

    def __imul__(self, other: Any) -> Any:
        return self._changed(operator.imul, other)

    def __itruediv__(self, other: Any) -> Any:
        return self._changed(operator.itruediv, other)

    def __ifloordiv__(self, other: Any) -> Any:
        return self._changed(operator.ifloordiv, other)

    def __ipow__(self, other: Any) -> Any:
        return self._changed(operator.ipow, other)

    def __setitem__(self, index: Any, value: Any) -> None:
        self._changed(operator.setitem, index, value)


class Tracer(fx.Tracer):
    """Traces what its own thread calls; other threads run their modules as ever."""

    def __init__(self) -> None:
        super().__init__()
        self._thread = threading.get_ident()

    def proxy(self, node: fx.Node) -> fx.Proxy:
        """Put a note in the place of a value."""
        return Proxy(node, self)

    def call_module(
        self,
        m: nn.Module,
        forward: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:  # as torch.fx has it
        """Note the call of a module, if it is ours."""
        if threading.get_ident() != self._thread:
            return forward(*args, **kwargs)
        return super().call_module(m, forward, args, kwargs)

    # Any: whatever a module holds.
    def getattr(self, attr: str, attr_val: Any, parameter_proxy_cache: dict[str, Any]) -> Any:
        """Put a note in the place of a weight, if it is we who look at it."""
        if threading.get_ident() != self._thread:
            return attr_val
        return super().getattr(attr, attr_val, parameter_proxy_cache)


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
