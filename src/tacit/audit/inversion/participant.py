"""Class representatives: a participant of federated learning paints a class it does not hold.

Hitaj, Ateniese and Perez-Cruz 2017. The joint model serves as the judge of a generator; to make
the class's owner give more of it away, the participant trains the joint model to call the
generator's pictures something else.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor, nn

from tacit.audit.reconstruction import Update, Work, do_work
from tacit.errors import ConfigError

_NOISE = 16


@dataclass(frozen=True, kw_only=True)
class Painting:
    """How a participant paints.

    Args:
        wanted: the class that is to be shown.
        called: the class, one of the participant's own, under which it hands pictures in.
        steps: of the generator in every round.
        injected: pictures that it hands in per round; 0 only looks on.
    """

    wanted: int
    called: int
    steps: int = 20
    injected: int = 16

    def __post_init__(self) -> None:
        if self.wanted == self.called or self.steps < 1 or self.injected < 0:
            raise ConfigError(f"wanted and called must differ, steps be positive, got {self}")


class Painter:
    """A participant that sees the joint model of every round and its own rows, nothing else."""

    def __init__(
        self,
        painting: Painting,
        *,
        rows: Tensor,
        labels: Tensor,
        bounds: tuple[float, float] = (0.0, 1.0),
        generator: torch.Generator,
    ) -> None:
        self._painting, self._rows, self._labels = painting, rows, labels
        self._bounds, self._random = bounds, generator
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(int(torch.empty(()).uniform_(generator=generator) * 2**31))
            self._brush = nn.Sequential(
                nn.Linear(_NOISE, 64), nn.ReLU(), nn.Linear(64, prod(rows.shape[1:])), nn.Sigmoid()
            ).to(rows)
        self._optimiser = torch.optim.Adam(self._brush.parameters(), lr=5e-3)

    def paint(self, count: int) -> Tensor:
        """Return pictures of the wanted class, as far as it is known by now."""
        noise = torch.empty(count, _NOISE).normal_(generator=self._random).to(self._rows)
        low, high = self._bounds
        painted: Tensor = low + (high - low) * self._brush(noise)
        return painted.view(count, *self._rows.shape[1:])

    def take_part(self, model: nn.Module, work: Work) -> Update:
        """Learn from the joint model and answer with an update, as an honest client would."""
        wanted = torch.full((32,), self._painting.wanted)
        for _ in range(self._painting.steps):
            loss = nn.functional.cross_entropy(model(self.paint(32)), wanted.to(self._rows.device))
            parameters = list(self._brush.parameters())
            for one, gradient in zip(
                parameters, torch.autograd.grad(loss, parameters), strict=True
            ):
                one.grad = gradient
            self._optimiser.step()
        rows, labels = self._rows, self._labels
        if self._painting.injected:
            false = self.paint(self._painting.injected).detach()
            called = torch.full((len(false),), self._painting.called).to(labels)
            rows, labels = torch.cat([rows, false]), torch.cat([labels, called])
        return do_work(model, rows, labels, work)


def train_with(
    model: nn.Module,
    clients: Sequence[tuple[Tensor, Tensor]],
    painter: Painter,
    *,
    rounds: int,
    work: Work,
) -> None:
    """Train a model in place with honest clients and one painter, by averaging their updates."""
    rate = work.rate * work.steps
    for _ in range(rounds):
        updates = [do_work(model, rows, labels, work) for rows, labels in clients]
        updates.append(painter.take_part(model, work))
        with torch.no_grad():
            own = [p for p in model.parameters() if p.requires_grad]
            for parameter, *parts in zip(own, *updates, strict=True):
                parameter -= rate * torch.stack(parts).mean(0)
