"""Cut a torch model in two at a named layer."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, fx, nn

from tacit.errors import ConfigError
from tacit.exclusive import TORCH_LOCK
from tacit.nn.tracing import Tracer


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
    try:
        with TORCH_LOCK:
            traced = fx.GraphModule(model, _LeafTracer(at).trace(model))
    except (fx.proxy.TraceError, TypeError) as error:
        raise ConfigError(
            f"cut: torch.fx cannot trace the model ({error}); give the two parts as modules"
        ) from error
    nodes = list(traced.graph.nodes)
    places = [i for i, node in enumerate(nodes) if node.op == "call_module" and node.target == at]
    if len(places) != 1:
        raise ConfigError(f"cut: layer {at!r} runs {len(places)} times; wanted once")
    below, above = nodes[: places[0] + 1], nodes[places[0] + 1 :]
    # Weights that both parts read are copied to both: only what is computed would have to travel.
    under = {node for node in below[:-1] if node.op != "get_attr"}
    crossing = sorted(
        {str(used) for node in above for used in node.all_input_nodes if used in under}
    )
    if crossing:
        raise ConfigError(
            f"cut: besides the output of {at!r}, the rest of the model needs "
            f"{', '.join(crossing)}; cut where one value crosses"
        )
    bottom, top = fx.Graph(), fx.Graph()
    bottom.output(_copy(bottom, below, {})[below[-1]])
    _copy(top, above, {below[-1]: top.placeholder("h")})
    return _module(traced, bottom), _module(traced, top)


class _LeafTracer(Tracer):
    """Looks only into what surrounds the cut; other layers stay whole, whatever they do inside."""

    def __init__(self, at: str) -> None:
        super().__init__()
        self._at = at

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return not self._at.startswith(f"{module_qualified_name}.")


def _copy(
    graph: fx.Graph, nodes: Sequence[fx.Node], copies: dict[fx.Node, fx.Node]
) -> dict[fx.Node, fx.Node]:
    """Copy nodes into a graph, with the weights that they read, and return what became of each."""
    for node in nodes:
        for used in node.all_input_nodes:
            if used.op == "get_attr" and used not in copies:
                copies[used] = graph.node_copy(used)
        copies[node] = graph.node_copy(node, lambda used: copies[used])
    return copies


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


class ShapedTop(nn.Module):
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
