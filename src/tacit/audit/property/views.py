"""What attackers see who want to know something about a data set as a whole."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from tacit.audit.reconstruction import GRADIENT, Defence, Update, Work, see_update
from tacit.errors import ConfigError, DataError

Labelled = tuple[Tensor, Tensor]
"""Rows and their labels."""

Layers = tuple[tuple[Tensor, Tensor], ...]
"""The dense layers of a model from bottom to top: (out, in) weights and (out,) bias."""


@dataclass(frozen=True, kw_only=True, eq=False)
class SeenUpdates:
    """A semi-honest server with rows of its own, some that have the property and some that do not.

    Attributes:
        model: as it was sent out.
        updates: one per client and round, after the defence.
        records: rows behind each update.
        with_property: the attacker's own rows that have it.
        without: the attacker's own rows that have it not.
        work: the terms of the round.
    """

    model: nn.Module
    updates: tuple[Update, ...]
    records: int
    with_property: Labelled
    without: Labelled
    work: Work = GRADIENT


@dataclass(frozen=True, kw_only=True, eq=False)
class SeenWeights:
    """Someone who holds finished models, and has trained others on data of known properties.

    Attributes:
        targets: the models in question.
        shadows: the attacker's own models, of the same architecture.
        has_property: one truth per shadow.
    """

    targets: tuple[Layers, ...]
    shadows: tuple[Layers, ...]
    has_property: Tensor


def see_updates(
    model: nn.Module,
    clients: Sequence[Labelled],
    *,
    with_property: Labelled,
    without: Labelled,
    classes: int,
    work: Work = GRADIENT,
    defence: Defence | None = None,
) -> SeenUpdates:
    """Let clients work, all with equally many rows, and show their updates.

    Raises:
        DataError: no clients, or clients with different numbers of rows.
    """
    sizes = {len(rows) for rows, _ in clients}
    if len(sizes) != 1:
        raise DataError(f"wanted clients of one size, got sizes {sorted(sizes)}")
    seen = [
        see_update(model, x, y, classes=classes, work=work, defence=defence).update
        for x, y in clients
    ]
    return SeenUpdates(
        model=model,
        updates=tuple(seen),
        records=sizes.pop(),
        with_property=with_property,
        without=without,
        work=work,
    )


def see_weights(
    targets: Sequence[nn.Module], *, shadows: Sequence[nn.Module], has_property: Sequence[bool]
) -> SeenWeights:
    """Show finished models of dense layers.

    Raises:
        DataError: not one truth per shadow, or shadows of one kind alone.
        ConfigError: a model has layers with weights that are not dense.
    """
    if len(shadows) != len(has_property) or not 0 < sum(has_property) < len(has_property):
        raise DataError(
            "wanted shadows of both kinds with a truth each, got "
            f"{len(shadows)} shadows and {sum(has_property)} of {len(has_property)} truths"
        )
    return SeenWeights(
        targets=tuple(dense_layers(model) for model in targets),
        shadows=tuple(dense_layers(model) for model in shadows),
        has_property=torch.tensor(list(has_property)),
    )


def dense_layers(model: nn.Module) -> Layers:
    """Return the weights and biases of a model of dense layers, bottom to top."""
    found = []
    for leaf in model.modules():
        if list(leaf.children()) or not list(leaf.parameters()):
            continue
        if not isinstance(leaf, nn.Linear) or leaf.bias is None:
            raise ConfigError(
                "the meta-classifier reads models of dense layers with a bias, got "
                f"{type(leaf).__name__}"
            )
        found.append((leaf.weight.detach(), leaf.bias.detach()))
    return tuple(found)
