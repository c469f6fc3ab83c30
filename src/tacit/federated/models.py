"""The models that a federated job can train by name; a user's own is any torch module."""

from collections.abc import Callable, Sequence
from typing import Literal, final

import torch
from torch import Tensor, nn

from tacit.errors import ConfigError
from tacit.nn.tracing import seeded

ModelName = Literal["linear", "mlp", "cnn"]


def build_model(
    name: str, shape: Sequence[int], classes: int, *, seed: int, dropout: float = 0.0
) -> nn.Module:
    """Build a classifier for rows of a shape; the same seed gives the same first weights.

    Raises:
        ConfigError: no such model, or not for rows of this shape.
    """
    if name not in MODELS:
        raise ConfigError(f"the model is one of {', '.join(MODELS)}, got {name!r}")
    if not 0 <= dropout < 1:
        raise ConfigError(f"dropout must be at least 0 and below 1, got {dropout}")
    with seeded(seed):
        return MODELS[name](tuple(shape), classes, dropout)


def build_stack(
    names: Sequence[str], shape: Sequence[int], classes: int, *, seed: int, dropout: float = 0.0
) -> "Stack":
    """Build a stack of named models for rows of a shape.

    Raises:
        ConfigError: fewer than two models, or one that does not exist or fit.
    """
    if len(names) < 2:
        raise ConfigError(f"a stack wants two models or more, got {list(names)}")
    members = [
        build_model(name, shape, classes, seed=seed + at, dropout=dropout)
        for at, name in enumerate(names)
    ]
    with seeded(seed + len(names)):
        return Stack(members, classes)


@final
class Stack(nn.Module):
    """Models of different kinds, and a linear one that weighs what they say (Wolpert 1992).

    Every one is to be trained on rows that the others never learn from, so that the last learns how
    far the others can be trusted on rows they have not seen (Salem et al. 2019, against membership
    inference). In training the answers of all come out, (learners, rows, classes), the last one's
    at the end and with nothing flowing back into the others; else the last one's alone.

    Guarantee: none; it makes overfitting less likely.
    """

    def __init__(self, members: Sequence[nn.Module], classes: int) -> None:
        super().__init__()
        self.members = nn.ModuleList(members)
        self.head = nn.Linear(len(members) * classes, classes)

    @property
    def learners(self) -> int:
        """How many there are, the last one included."""
        return len(self.members) + 1

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits."""
        said = [member(x) for member in self.members]
        shares = torch.cat([torch.softmax(one, -1) for one in said], -1)
        joint: Tensor = self.head(shares.detach())
        return torch.stack([*said, joint]) if self.training else joint


def stack_loss(
    logits: Tensor, labels: Tensor, learner: Tensor, *, weight: Tensor | None = None
) -> Tensor:
    """Return the mean loss of rows, each of which only one learner of a stack learns from.

    Args:
        logits: of all learners, (learners, rows, classes).
        labels: of the rows.
        learner: whose each row is.
        weight: how much each class counts.
    """
    count, rows, classes = logits.shape
    each = nn.functional.cross_entropy(
        logits.reshape(-1, classes), labels.repeat(count), weight=weight, reduction="none"
    ).view(count, rows)
    own = learner == torch.arange(count, device=labels.device)[:, None]
    # Times the learners: each sees one in so many rows, and is to move as if it saw a whole batch.
    return (each * own).mean(1).sum() * count


def _linear(shape: tuple[int, ...], classes: int, dropout: float) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Dropout(dropout), nn.Linear(_size(shape), classes))


def _mlp(shape: tuple[int, ...], classes: int, dropout: float) -> nn.Module:
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(_size(shape), 64),
        nn.ReLU(),
        nn.Dropout(dropout),
        nn.Linear(64, classes),
    )


class _AsPictures(nn.Module):
    """Adds the one channel that pictures without colour lack."""

    def forward(self, x: Tensor) -> Tensor:
        """Return (batch, channels, height, width)."""
        return x.unsqueeze(-3) if x.dim() == 3 else x


def _cnn(shape: tuple[int, ...], classes: int, dropout: float) -> nn.Module:
    if len(shape) not in (2, 3) or min(shape[-2:]) < 12:
        raise ConfigError(f"the model 'cnn' wants pictures of 12 pixels or more, got rows {shape}")
    channels = 1 if len(shape) == 2 else shape[0]
    height, width = ((side - 4) // 2 for side in shape[-2:])
    height, width = (height - 2) // 2, (width - 2) // 2
    return nn.Sequential(
        _AsPictures(),
        nn.Conv2d(channels, 16, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 16, 3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Dropout(dropout),
        nn.Linear(16 * height * width, classes),
    )


def _size(shape: tuple[int, ...]) -> int:
    size = 1
    for extent in shape:
        size *= extent
    return size


MODELS: dict[str, Callable[[tuple[int, ...], int, float], nn.Module]] = {
    "linear": _linear,
    "mlp": _mlp,
    "cnn": _cnn,
}
