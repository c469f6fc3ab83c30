"""Local training: many clients at once, each on its own rows from the same weights."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from tacit.errors import ConfigError, DataError
from tacit.learn.federated.contract import Update
from tacit.learn.federated.models import flatten

Rows = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How a client trains in a round.

    Attributes:
        steps: batches.
        batch: rows in each; drawn in a new order whenever all rows have been seen.
        rate: of plain gradient descent.
        l2: weight of half the squared norm of the parameters in the loss.
    """

    steps: int = 10
    batch: int = 32
    rate: float = 0.1
    l2: float = 0.0

    def __post_init__(self) -> None:
        if self.steps < 1 or self.batch < 1:
            raise ConfigError(f"steps and batch must be 1 or more, got {self.steps}, {self.batch}")
        if not self.rate > 0 or not self.l2 >= 0:
            raise ConfigError(
                f"rate must be positive and l2 not negative, got {self.rate}, {self.l2}"
            )


@final
class Learner:
    """The clients' rows on one device, and the model that they train."""

    def __init__(
        self,
        model: nn.Module,
        features: Tensor,
        labels: Tensor,
        parts: Sequence[Rows],
        *,
        recipe: Recipe,
    ) -> None:
        if any(len(rows) == 0 for rows in parts):
            raise DataError("a client has no rows to train on")
        self._model, self._features, self._labels = model, features, labels
        self._parts, self._recipe = parts, recipe
        self._names = [name for name, _ in model.named_parameters()]
        self._shapes = [parameter.shape for parameter in model.parameters()]
        self._step = vmap(grad(self._loss), randomness="different")

    @property
    def clients(self) -> int:
        """How many have rows."""
        return len(self._parts)

    @property
    def dimension(self) -> int:
        """Numbers in an update."""
        return sum(shape.numel() for shape in self._shapes)

    @property
    def most_rows(self) -> int:
        """The largest number of rows that a client has."""
        return max(len(rows) for rows in self._parts)

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """The shapes of the model's parameters in order."""
        return tuple(tuple(shape) for shape in self._shapes)

    def first_weights(self) -> Tensor:
        """Return the weights that the model was built with."""
        return flatten(self._model).to(self._features.device)

    def updates(
        self, weights: Tensor, clients: Sequence[int], generator: np.random.Generator
    ) -> list[Update]:
        """Train some clients side by side and return what each changed."""
        trained = weights.detach().repeat(len(clients), 1)
        self._model.train()
        for rows in self._batches(clients, generator):
            chosen = torch.from_numpy(rows).to(self._features.device)
            slopes = self._step(
                self._unflatten(trained), self._features[chosen], self._labels[chosen]
            )
            flat = torch.cat([slopes[name].reshape(len(clients), -1) for name in self._names], 1)
            trained -= self._recipe.rate * (flat + self._recipe.l2 * trained)
        changed = (trained - weights).cpu().numpy()
        return [
            Update(row, len(self._parts[client]))
            for row, client in zip(changed, clients, strict=True)
        ]

    def accuracy(self, weights: Tensor, features: Tensor, labels: Tensor) -> float:
        """Return the share of rows whose class is found."""
        self._model.eval()
        named = {name: part[0] for name, part in self._unflatten(weights[None]).items()}
        right = 0
        with torch.no_grad():
            for start in range(0, len(labels), 4096):
                block = slice(start, start + 4096)
                logits = functional_call(self._model, named, (features[block],))
                right += int((logits.argmax(1) == labels[block]).sum())
        return right / len(labels)

    def _loss(self, named: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        return nn.functional.cross_entropy(functional_call(self._model, named, (x,)), y)

    def _unflatten(self, flat: Tensor) -> dict[str, Tensor]:
        parts = torch.split(flat, [shape.numel() for shape in self._shapes], dim=1)
        return {
            name: part.reshape(len(flat), *shape)
            for name, part, shape in zip(self._names, parts, self._shapes, strict=True)
        }

    def _batches(self, clients: Sequence[int], generator: np.random.Generator) -> list[Rows]:
        """Draw (clients, batch) row numbers for every step."""
        recipe = self._recipe
        need = recipe.steps * recipe.batch
        drawn = np.empty((len(clients), need), np.int64)
        for at, client in enumerate(clients):
            rows = self._parts[client]
            orders = [generator.permutation(rows) for _ in range(-(-need // len(rows)))]
            drawn[at] = np.concatenate(orders)[:need]
        return list(drawn.reshape(len(clients), recipe.steps, recipe.batch).transpose(1, 0, 2))
