"""What the parties of a split model can see of each other."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from tacit.errors import DataError
from tacit.split import cut

Make = Callable[[], nn.Module]
"""Builds a model with fresh weights; an attacker knows the architecture, not the weights."""


@dataclass(frozen=True, kw_only=True, eq=False)
class SeenLayer:
    """A feature owner with its bottom model: a layer's values on rows, few of them labelled.

    Attributes:
        leaked: (few, width) values of the rows whose labels leaked.
        leaked_labels: (few,) those labels.
        targets: (rows, width) values of the rows whose labels are to be guessed.
        classes: how many there are.
    """

    leaked: Tensor
    leaked_labels: Tensor
    targets: Tensor
    classes: int


@dataclass(frozen=True, kw_only=True, eq=False)
class SeenRows:
    """The same leak without any bottom model: the rows themselves, and the architecture."""

    leaked: Tensor
    leaked_labels: Tensor
    targets: Tensor
    classes: int
    make_model: Make


@dataclass(frozen=True, kw_only=True, eq=False)
class SeenGradients:
    """A feature owner while training: one gradient row per sample, (rows, width)."""

    gradients: Tensor


@dataclass(frozen=True, kw_only=True, eq=False)
class SeenCut:
    """A label owner: the cut layer of rows it does not know, and of a few that leaked."""

    leaked: Tensor
    leaked_inputs: Tensor
    targets: Tensor


def see_layer(
    bottom: nn.Module,
    *,
    leaked: tuple[Tensor, Tensor],
    targets: Tensor,
    classes: int,
    before: str | None = None,
) -> SeenLayer:
    """Look through a bottom model, at its end or, with `before`, after an earlier layer of it.

    Raises:
        DataError: nothing leaked, or not one label per leaked row.
    """
    rows, labels = leaked
    if len(rows) < 1 or rows.shape[0] != labels.shape[0]:
        raise DataError(f"wanted leaked rows with a label each, got {len(rows)} and {len(labels)}")
    part = bottom if before is None else cut(bottom, before)[0]
    return SeenLayer(
        leaked=_run(part, rows),
        leaked_labels=labels,
        targets=_run(part, targets),
        classes=classes,
    )


def see_cut(
    bottom: nn.Module, *, leaked: Tensor, targets: Tensor, as_sent: Callable[[Tensor], Tensor]
) -> SeenCut:
    """Look at a cut layer from the label owner's side, as the compressor lets it through."""
    return SeenCut(
        leaked=as_sent(_run(bottom, leaked)),
        leaked_inputs=leaked,
        targets=as_sent(_run(bottom, targets)),
    )


def pick_leak(labels: Tensor, per_class: int, *, generator: torch.Generator) -> Tensor:
    """Return the positions of `per_class` rows of every class, chosen at random."""
    keys = torch.empty(len(labels)).uniform_(generator=generator)
    found = []
    for one in sorted(set(labels.tolist())):
        members = (labels == one).nonzero()[:, 0].cpu()
        found.append(members[keys[members].argsort()][:per_class])
    return torch.cat(found)


def _run(part: nn.Module, rows: Tensor) -> Tensor:
    was_training = part.training
    part.eval()
    with torch.no_grad():
        values = [part(batch).flatten(1) for batch in torch.split(rows, 1024)]
    part.train(was_training)
    return torch.cat(values)
