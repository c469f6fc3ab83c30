"""LoRA (Hu et al. 2021): thin matrices that learn beside large ones that stay, and are public."""

from collections.abc import Sequence
from copy import deepcopy

import torch
from torch import Tensor, nn

from tacit.errors import ConfigError
from tacit.exclusive import seeded
from tacit.nn.table import LAYERS


class Adapted(nn.Module):
    """A linear layer that stays, and a product of two thin matrices that learns beside it."""

    def __init__(self, base: nn.Linear, rank: int) -> None:
        super().__init__()
        self.base = base
        self.down = nn.Linear(base.in_features, rank, bias=False).to(base.weight)
        self.up = nn.Linear(rank, base.out_features, bias=False).to(base.weight)
        nn.init.zeros_(self.up.weight)

    def forward(self, x: Tensor) -> Tensor:
        """Add what both paths give."""
        out: Tensor = self.base(x) + self.up(self.down(x))
        return out


def add_adapters(
    module: nn.Module,
    *,
    rank: int,
    seed: int,
    only: Sequence[str] = (),
    keep_training: Sequence[str] = (),
) -> nn.Module:
    """Return a copy that computes the same, in which adapters alone learn.

    Every `nn.Linear` gets an adapter, but for those within layers of torch.nn that are imported as
    one, such as `nn.TransformerEncoderLayer`.

    Args:
        module: what stays, and is known to all parties.
        rank: of the adapters.
        seed: of their first matrices, which are public; the second start at zero.
        only: last names of the layers that get one, such as "q_proj" and "v_proj"; all if empty.
            Of a layer that gets none, neither its input nor its gradient is opened.
        keep_training: names of layers that learn as a whole, such as a new head.

    Raises:
        ConfigError: no layer of that name, no linear layer, or a rank that saves nothing.
    """
    adapted = deepcopy(module).requires_grad_(False)
    whole = [_layer(adapted, name).requires_grad_(True) for name in keep_training]
    kept = {inner for layer in whole for inner in layer.modules()}
    found = {name: layer for name, layer in _linear_layers(adapted).items() if layer not in kept}
    if only:
        found = {name: one for name, one in found.items() if name.split(".")[-1] in only}
    if not found:
        named = f" among {', '.join(only)}" if only else ""
        raise ConfigError(
            f"{type(module).__name__} has no nn.Linear that could get an adapter{named}"
        )
    least = min(min(layer.in_features, layer.out_features) for layer in found.values())
    if not 0 < rank < least:
        raise ConfigError(f"wanted a rank from 1 to {least - 1}, got {rank}")
    with seeded(seed):
        for name, layer in found.items():
            adapted = _replaced(adapted, name, Adapted(layer, rank))
    return adapted


def merge_adapters(module: nn.Module) -> nn.Module:
    """Return a copy whose linear layers hold what they and their adapters have become."""
    merged = deepcopy(module)
    for name, layer in list(merged.named_modules()):
        if isinstance(layer, Adapted):
            with torch.no_grad():
                layer.base.weight += layer.up.weight @ layer.down.weight
            merged = _replaced(merged, name, layer.base)
    return merged


def _layer(module: nn.Module, name: str) -> nn.Module:
    try:
        return module.get_submodule(name)
    except AttributeError as error:
        known = ", ".join(one for one, _ in module.named_children())
        raise ConfigError(f"no layer {name!r} to keep training; there are {known}") from error


def _linear_layers(module: nn.Module, path: str = "") -> dict[str, nn.Linear]:
    """List the linear layers that tracing sees as layers, by name."""
    if isinstance(module, nn.Linear):
        return {path: module}
    if type(module) in LAYERS:
        return {}
    found = {}
    for name, inner in module.named_children():
        found.update(_linear_layers(inner, f"{path}.{name}" if path else name))
    return found


def _replaced(module: nn.Module, name: str, layer: nn.Module) -> nn.Module:
    if not name:
        return layer
    module.set_submodule(name, layer)
    return module
