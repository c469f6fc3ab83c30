"""The ends of a language model that stay with the owners of texts: a public table, a public head.

Both are known to everyone and do not learn. An owner looks its own ids up, so that no comparison
with the vocabulary is computed on shares; and it computes the loss from its own last hidden states
(`holder`), so that no score of the vocabulary is.
"""

from copy import deepcopy
from dataclasses import dataclass

from torch import Tensor, nn

from tacit.errors import ConfigError


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
