"""The models that a federated job can train by name; a user's own is any torch module."""

from collections.abc import Callable, Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from tacit.errors import ConfigError

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
    state = torch.random.get_rng_state()
    torch.manual_seed(seed)
    try:
        return MODELS[name](tuple(shape), classes, dropout)
    finally:
        torch.random.set_rng_state(state)


def flatten(model: nn.Module) -> Tensor:
    """Return all parameters as one vector."""
    return torch.cat([parameter.detach().reshape(-1) for parameter in model.parameters()])


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
