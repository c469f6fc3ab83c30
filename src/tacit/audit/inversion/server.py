"""One client's pictures, painted by the server: a discriminator with three tasks.

Wang et al. 2019 (mGAN-AI). The server holds every client's update. Rows that would have caused an
update stand for its client; a discriminator that starts from the joint model of the round learns
from them what is real, which class it is, and whether it is the victim's; a generator learns to
please it in all three.
"""

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor, nn

from tacit.audit.inversion.course import SeenCourse
from tacit.audit.reconstruction import MatchExactly, SeenUpdate, Update
from tacit.errors import ConfigError, DataError

_NOISE = 16


@dataclass(frozen=True, kw_only=True)
class PaintVictim:
    """Paint pictures of one client, so many of every class.

    Args:
        victim: the number of the client.
        count: pictures of every class.
        stand_ins: rows that stand for a client in a round.
        search: finds them.
        steps: of discriminator and generator in every round.
    """

    victim: int
    count: int = 4
    stand_ins: int = 16
    search: MatchExactly = MatchExactly(steps=60, restarts=1)  # noqa: RUF009  it is frozen
    steps: int = 40

    def __post_init__(self) -> None:
        if self.victim < 0 or min(self.count, self.stand_ins, self.steps) < 1:
            raise ConfigError(f"victim, count, stand_ins and steps must make sense, got {self}")

    def __call__(self, seen: SeenCourse, *, generator: torch.Generator) -> Tensor:
        """Return (classes · count, *shape) pictures, in order of their classes.

        Raises:
            DataError: there is no such client, or the model does not end in a dense layer.
        """
        clients = len(seen.updates[0])
        if self.victim >= clients:
            raise DataError(f"wanted one of clients 0 to {clients - 1}, got {self.victim}")
        brush = _Brush(seen, generator)
        for model, updates in zip(seen.models, seen.updates, strict=True):
            judge = _Judge(model, generator)
            sides = [self._stand_in(seen, model, one, generator) for one in updates]
            victim = sides.pop(self.victim)
            for _ in range(self.steps):
                judge.learn(seen, victim, sides, brush.paint(_draw(seen.classes, 32, generator)))
                brush.learn(judge, _draw(seen.classes, 32, generator))
        wanted = torch.arange(seen.classes).repeat_interleave(self.count)
        with torch.no_grad():
            return brush.paint(wanted)

    def _stand_in(
        self, seen: SeenCourse, model: nn.Module, update: Update, generator: torch.Generator
    ) -> Tensor:
        """Return rows that would have caused about this update."""
        view = SeenUpdate(
            model=model,
            update=update,
            work=seen.work,
            records=self.stand_ins,
            shape=tuple(seen.own.shape[1:]),
            classes=seen.classes,
            bounds=seen.bounds,
        )
        return self.search(view, generator=generator).rows.detach()


class _Judge:
    """The joint model of a round with two more heads: real or not, the victim's or not."""

    def __init__(self, model: nn.Module, generator: torch.Generator) -> None:
        if not isinstance(model, nn.Sequential) or not isinstance(model[-1], nn.Linear):
            raise DataError("wanted a sequence of layers that ends in a dense one")
        self._trunk, self._class = copy.deepcopy(model[:-1]), copy.deepcopy(model[-1])
        width = model[-1].in_features
        self._real = _started(lambda: nn.Linear(width, 1), generator)
        self._whose = _started(lambda: nn.Linear(width, 1), generator)
        parts = (self._trunk, self._class, self._real, self._whose)
        self._parameters = [p for part in parts for p in part.parameters()]
        self._optimiser = torch.optim.Adam(self._parameters, lr=5e-3)

    def learn(
        self, seen: SeenCourse, victim: Tensor, others: Sequence[Tensor], painted: Tensor
    ) -> None:
        """Take one step on all three tasks."""
        loss = (
            _says(self._real, self._trunk(torch.cat([victim, seen.own])), True)
            + _says(self._real, self._trunk(painted.detach()), False)
            + _says(self._whose, self._trunk(victim), True)
            + _says(self._whose, self._trunk(torch.cat(list(others))), False)
            + nn.functional.cross_entropy(self._class(self._trunk(seen.own)), seen.own_labels)
        )
        _step(self._optimiser, self._parameters, loss)

    def displeased(self, painted: Tensor, wanted: Tensor) -> Tensor:
        """Return how far pictures are from real ones of the victim of their classes."""
        inner = self._trunk(painted)
        return (
            _says(self._real, inner, True)
            + _says(self._whose, inner, True)
            + nn.functional.cross_entropy(self._class(inner), wanted)
        )


class _Brush:
    """The generator: noise and a class go in, a picture comes out."""

    def __init__(self, seen: SeenCourse, generator: torch.Generator) -> None:
        self._random, self._bounds, self._classes = generator, seen.bounds, seen.classes
        self._shape = tuple(seen.own.shape[1:])
        self._net = _started(
            lambda: nn.Sequential(
                nn.Linear(_NOISE + seen.classes, 64),
                *(nn.ReLU(), nn.Linear(64, prod(self._shape)), nn.Sigmoid()),
            ),
            generator,
        )
        self._optimiser = torch.optim.Adam(self._net.parameters(), lr=5e-3)

    def paint(self, wanted: Tensor) -> Tensor:
        """Return a picture of each wanted class."""
        noise = torch.empty(len(wanted), _NOISE).normal_(generator=self._random)
        words = nn.functional.one_hot(wanted, self._classes).float()
        low, high = self._bounds
        painted: Tensor = low + (high - low) * self._net(torch.cat([noise, words], dim=1))
        return painted.view(len(wanted), *self._shape)

    def learn(self, judge: _Judge, wanted: Tensor) -> None:
        """Take one step towards what pleases the judge."""
        loss = judge.displeased(self.paint(wanted), wanted)
        _step(self._optimiser, list(self._net.parameters()), loss)


def _started(build: Callable[[], nn.Module], generator: torch.Generator) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(torch.empty(()).uniform_(generator=generator) * 2**31))
        return build()


def _draw(classes: int, count: int, generator: torch.Generator) -> Tensor:
    return (torch.empty(count).uniform_(generator=generator) * classes).long()


def _says(head: nn.Module, inner: Tensor, answer: bool) -> Tensor:
    score: Tensor = head(inner)[:, 0]
    return nn.functional.softplus(-score if answer else score).mean()


def _step(optimiser: torch.optim.Optimizer, parameters: Sequence[Tensor], loss: Tensor) -> None:
    gradients = torch.autograd.grad(loss, parameters)
    for parameter, gradient in zip(parameters, gradients, strict=True):
        parameter.grad = gradient
    optimiser.step()
