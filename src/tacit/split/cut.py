"""Cut a torch model in two at a named layer."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, fx, nn

from tacit.errors import ConfigError
from tacit.nn.tracing import TRACING, Tracer


def cut(model: nn.Module, at: str) -> tuple[nn.Module, nn.Module]:
    """Return the bottom, up to and with the layer `at`, and the top, which takes its output.

    Any model that torch.fx can trace is cut, if the output of `at` is the only thing that the
    rest of it needs: then nothing else has to travel. The parts share the model's parameters.

    Args:
        model: takes one tensor and returns one.
        at: the dotted name of the layer, as in `model.named_modules()`.

    Raises:
        ConfigError: no such layer, a layer that runs twice, a model that cannot be traced, or one
            in which something else crosses the cut.
    """
    if at not in dict(model.named_modules()) or not at:
        names = [name for name, _ in model.named_modules() if name]
        shown = ", ".join(names[:20]) + (", …" if len(names) > 20 else "")
        raise ConfigError(f"cut: the model has no layer {at!r}; it has {shown}")
    traced = _trace(model, at)
    nodes = list(traced.graph.nodes)
    where = _find(nodes, at)
    below, above = nodes[: where + 1], nodes[where + 1 :]
    _check_crossing(below, above, nodes[where], at)
    return _bottom(traced, below), _top(traced, above, nodes[where])


class _LeafTracer(Tracer):
    """Looks only into what surrounds the cut; other layers stay whole, whatever they do inside."""

    def __init__(self, at: str) -> None:
        super().__init__()
        self._at = at

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return not self._at.startswith(f"{module_qualified_name}.")


def _trace(model: nn.Module, at: str) -> fx.GraphModule:
    try:
        with TRACING:
            return fx.GraphModule(model, _LeafTracer(at).trace(model))
    except (fx.proxy.TraceError, TypeError) as error:
        raise ConfigError(
            f"cut: torch.fx cannot trace the model ({error}); give the two parts as modules"
        ) from error


def _find(nodes: Sequence[fx.Node], at: str) -> int:
    places = [i for i, node in enumerate(nodes) if node.op == "call_module" and node.target == at]
    if len(places) != 1:
        raise ConfigError(f"cut: layer {at!r} runs {len(places)} times; wanted once")
    return places[0]


def _check_crossing(
    below: Sequence[fx.Node], above: Sequence[fx.Node], last: fx.Node, at: str
) -> None:
    under = {node for node in below if node.op != "get_attr"} - {last}
    crossing = sorted(
        {str(used) for node in above for used in node.all_input_nodes if used in under}
    )
    if crossing:
        raise ConfigError(
            f"cut: besides the output of {at!r}, the rest of the model needs "
            f"{', '.join(crossing)}; cut where one value crosses"
        )


def _bottom(traced: fx.GraphModule, nodes: Sequence[fx.Node]) -> nn.Module:
    graph = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    for node in nodes:
        copies[node] = graph.node_copy(node, lambda used: copies[used])
    graph.output(copies[nodes[-1]])
    return _module(traced, graph)


def _top(traced: fx.GraphModule, nodes: Sequence[fx.Node], last: fx.Node) -> nn.Module:
    graph = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {last: graph.placeholder("h")}
    for node in nodes:
        for used in node.all_input_nodes:
            if used.op == "get_attr" and used not in copies:
                copies[used] = graph.node_copy(used)
        copies[node] = graph.node_copy(node, lambda used: copies[used])
    return _module(traced, graph)


def _module(traced: fx.GraphModule, graph: fx.Graph) -> nn.Module:
    part = fx.GraphModule(traced, graph)
    part.delete_all_unused_submodules()
    return part


class Flat(nn.Module):
    """A bottom whose output is laid flat for the wire: (rows, width)."""

    def __init__(self, bottom: nn.Module, *, is_normalised: bool = False) -> None:
        super().__init__()
        self.bottom = bottom
        self.is_normalised = is_normalised

    def forward(self, x: Tensor) -> Tensor:
        """Return the cut layer, normalised if the defence wants it on a sphere."""
        h: Tensor = self.bottom(x).flatten(1)
        return nn.functional.layer_norm(h, h.shape[1:]) if self.is_normalised else h


class Shaped(nn.Module):
    """A top whose input comes flat from the wire."""

    def __init__(self, top: nn.Module, shape: Sequence[int]) -> None:
        super().__init__()
        self.top = top
        self.shape = tuple(shape)

    def forward(self, h: Tensor) -> Tensor:
        """Return what the top makes of the cut layer."""
        logits: Tensor = self.top(h.view(-1, *self.shape))
        return logits


def cut_shape(bottom: nn.Module, example: Tensor) -> tuple[int, ...]:
    """Return the shape of one row of the cut layer, by running one row through the bottom."""
    was_training = bottom.training
    bottom.eval()
    with torch.no_grad():
        shape: Any = bottom(example[:1]).shape  # the module may return anything with a shape
    bottom.train(was_training)
    return tuple(shape[1:])
