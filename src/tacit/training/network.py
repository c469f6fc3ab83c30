"""The network of a training: built, cut to what learns, and put together again in the end."""

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, replace

from torch import Tensor, nn

from tacit.errors import ConfigError
from tacit.nn import add_adapters, merge_adapters
from tacit.nn.code import build_network
from tacit.nn.weights import load_weights
from tacit.training.spec import TrainModel


def build(model: TrainModel, inputs: tuple[int, ...], module: nn.Module | None = None) -> nn.Module:
    """Build the torch module for rows of a shape, with weights to start from.

    Args:
        model: what its user says of it.
        inputs: the shape of a row; of a network whose table is public, with or without the
            width of what its owner looked up: the whole network reads ids.
        module: the network itself, where a program gives it; it is not changed.
    """
    read = inputs if model.table is None else inputs[:1]
    if module is None:
        module = build_network(model.layers, model.code, read, seed=model.seed)
    elif model.file is not None:
        module = deepcopy(module)
    if model.file is not None:
        load_weights(module, model.file)
    return module


def trainable(
    model: TrainModel, inputs: tuple[int, ...], module: nn.Module | None = None
) -> "Ends":
    """Build the module that is trained: without its ends, and with adapters."""
    ends = cut_ends(build(model, inputs, module), table=model.table, head=model.head)
    if model.adapters is None:
        return ends
    adapted = add_adapters(
        ends.module,
        rank=model.adapters,
        seed=model.seed,
        only=model.adapt,
        keep_training=model.train,
    )
    return replace(ends, module=adapted)


def whole_state(
    model: TrainModel,
    inputs: tuple[int, ...],
    found: Mapping[str, Tensor],
    module: nn.Module | None = None,
) -> dict[str, Tensor]:
    """Return a trained state as `load_state_dict` of the whole network takes it.

    That is with its ends, and with what its layers and adapters became.
    """
    if model.adapters is not None:
        adapted = trainable(model, inputs, module).module.double()
        adapted.load_state_dict(found, strict=False)
        found = dict(merge_adapters(adapted).state_dict())
    if model.table is not None or model.head is not None:
        found = {**build(model, inputs, module).state_dict(), **found}
    return dict(found)


def ids_of(module: nn.Module) -> int | None:
    """Return how many ids a network reads; None of one that reads numbers."""
    tables = [layer for layer in module.modules() if isinstance(layer, nn.Embedding)]
    return tables[0].num_embeddings if tables else None


@dataclass(frozen=True, eq=False)
class Ends:
    """A module without its ends, and what they were: (vocabulary, width) each, or None."""

    module: nn.Module
    table: Tensor | None
    head: Tensor | None


def cut_ends(module: nn.Module, *, table: str | None = None, head: str | None = None) -> Ends:
    """Return a copy of a module without the named ends.

    Args:
        module: what is trained.
        table: the name of its `nn.Embedding`, which is to be the first thing that ids meet.
        head: the name of its last layer, an `nn.Linear` without bias.

    Raises:
        ConfigError: there is no such layer, or it is of another kind.
    """
    cut = deepcopy(module)
    embedding = _taken(cut, table, nn.Embedding, "an nn.Embedding")
    last = _taken(cut, head, nn.Linear, "an nn.Linear")
    if isinstance(last, nn.Linear) and last.bias is not None:
        raise ConfigError(f"model.head: {head!r} has a bias; wanted an nn.Linear without one")
    ends = [None if one is None else one.weight for one in (embedding, last)]
    for name, weight in cut.named_parameters():
        if weight.requires_grad and any(weight is one for one in ends):
            raise ConfigError(f"{name!r} is also an end of the model, which does not learn")
    found = [None if one is None else one.detach().cpu().double() for one in ends]
    return Ends(cut, found[0], found[1])


def _taken(
    module: nn.Module, name: str | None, kind: type[nn.Module], wanted: str
) -> nn.Embedding | nn.Linear | None:
    """Put nothing into the place of a layer, and return the layer."""
    if name is None:
        return None
    try:
        layer = module.get_submodule(name)
    except AttributeError:
        layer = None
    if not name or not isinstance(layer, kind):
        known = ", ".join(at for at, one in module.named_modules() if isinstance(one, kind))
        raise ConfigError(f"no layer {name!r} that is {wanted}; there are {known or 'none'}")
    module.set_submodule(name, nn.Identity())
    return layer  # type: ignore[return-value]  # of the kind that was asked for
