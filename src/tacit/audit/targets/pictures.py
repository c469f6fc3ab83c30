"""What the classes of a model look like, to whoever may ask it."""

import torch
from torch import Tensor, nn

from tacit.audit.findings import Finding
from tacit.audit.inversion import Climb, SeenConfidences, score_representatives
from tacit.audit.targets.target import Target
from tacit.audit.views import seeded

_MOST_CLASSES = 20


def show_classes(target: Target, *, is_quick: bool) -> tuple[Finding, ...]:
    """Let a client of the model find out what its classes look like; nothing without pictures."""
    x, y = target.members
    rows = to_pictures(x, target.picture)
    if rows.dim() != 4 or target.classes > _MOST_CLASSES:
        return ()
    if len(set(y.tolist())) < target.classes:
        return ()  # a class without rows has no mean to compare with
    seen = SeenConfidences(
        ask=lambda rows: target.model.log_probs(rows).exp().float(),
        shape=tuple(x.shape[1:]),
        classes=target.classes,
        bounds=bounds_of(x),
    )
    found = Climb(steps=20 if is_quick else 60)(seen, generator=seeded(0))
    low, high = seen.bounds
    # Shown between black and white; which class is the nearest does not change by that.
    shown, rows = ((one - low) / (high - low) for one in (found.view(-1, *rows.shape[1:]), rows))
    return (score_representatives("climbing", shown, rows, y),)


class Shaped(nn.Module):
    """Takes pictures with a channel and hands rows on in the shape that a model wants."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        self._shape = shape

    def forward(self, x: Tensor) -> Tensor:
        """Return (rows, *shape)."""
        return x.reshape(len(x), *self._shape)


def to_pictures(x: Tensor, picture: tuple[int, ...] = ()) -> Tensor:
    """Give rows that are pictures their channel: (rows, 1, height, width)."""
    if x.dim() == 2 and picture:
        return x.view(-1, 1, *picture)
    return x.unsqueeze(1) if x.dim() == 3 else x


def bounds_of(x: Tensor) -> tuple[float, float]:
    """Return the least and the largest value."""
    return float(torch.min(x)), float(torch.max(x))
