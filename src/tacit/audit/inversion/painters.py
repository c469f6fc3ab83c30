"""Pictures painted in federated learning: of a class, by a participant; of a client, by the server.

Hitaj, Ateniese and Perez-Cruz 2017: the joint model serves a participant as the judge of a
generator; to make the class's owner give more of it away, the participant trains the joint model to
call the generator's pictures something else.

Wang et al. 2019 (mGAN-AI): the server holds every client's update. Rows that would have caused an
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

from tacit.audit.reconstruction import MatchExactly, SeenUpdate, Update, Work, do_work
from tacit.audit.views import started
from tacit.errors import ConfigError, DataError


@dataclass(frozen=True, kw_only=True, eq=False)
class SeenCourse:
    """The server: the joint model and all updates of every round, and rows of its own.

    Attributes:
        models: the joint model at the start of each round.
        updates: for each round, one update per client.
        work: the terms of the rounds.
        own: rows of the server, of the same kind as the clients'.
        own_labels: their classes.
        classes: how many.
        bounds: the smallest and the largest value of a row.
    """

    models: tuple[nn.Sequential, ...]
    updates: tuple[tuple[Update, ...], ...]
    work: Work
    own: Tensor
    own_labels: Tensor
    classes: int
    bounds: tuple[float, float] = (0.0, 1.0)


def see_course(
    model: nn.Sequential,
    clients: Sequence[tuple[Tensor, Tensor]],
    *,
    own: tuple[Tensor, Tensor],
    rounds: int,
    work: Work,
    classes: int,
    defence: Callable[[Update], Update] | None = None,
) -> SeenCourse:
    """Train a model in place with honest clients, and return what the server saw of it."""
    models, updates = [], []
    for _ in range(rounds):
        models.append(copy.deepcopy(model))
        found = tuple(do_work(model, rows, labels, work) for rows, labels in clients)
        found = tuple(defence(one) for one in found) if defence else found
        updates.append(found)
        _average(model, found, work)
    return SeenCourse(
        models=tuple(models),
        updates=tuple(updates),
        work=work,
        own=own[0],
        own_labels=own[1],
        classes=classes,
    )


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
        self._random = generator
        self._brush = _Brush(_NOISE, rows.shape[1:], bounds, generator)
        self._brush.net.to(rows)

    def paint(self, count: int) -> Tensor:
        """Return pictures of the wanted class, as far as it is known by now."""
        noise = torch.empty(count, _NOISE).normal_(generator=self._random)
        return self._brush.paint(noise.to(self._rows))

    def take_part(self, model: nn.Module, work: Work) -> Update:
        """Learn from the joint model and answer with an update, as an honest client would."""
        wanted = torch.full((32,), self._painting.wanted)
        for _ in range(self._painting.steps):
            loss = nn.functional.cross_entropy(model(self.paint(32)), wanted.to(self._rows.device))
            self._brush.learn(loss)
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
    for _ in range(rounds):
        updates = [do_work(model, rows, labels, work) for rows, labels in clients]
        _average(model, [*updates, painter.take_part(model, work)], work)


@torch.no_grad()
def _average(model: nn.Module, updates: Sequence[Update], work: Work) -> None:
    """Move a model in place by the mean of its clients' updates."""
    trained = [p for p in model.parameters() if p.requires_grad]
    for parameter, *parts in zip(trained, *updates, strict=True):
        parameter -= work.rate * work.steps * torch.stack(parts).mean(0)


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
        brush = _Brush(_NOISE + seen.classes, seen.own.shape[1:], seen.bounds, generator)

        def paint(wanted: Tensor) -> Tensor:
            """Return a picture of each wanted class."""
            noise = torch.empty(len(wanted), _NOISE).normal_(generator=generator)
            words = nn.functional.one_hot(wanted, seen.classes).float()
            return brush.paint(torch.cat([noise, words], dim=1))

        for model, updates in zip(seen.models, seen.updates, strict=True):
            judge = _Judge(model, generator)
            sides = [self._stand_in(seen, model, one, generator) for one in updates]
            victim = sides.pop(self.victim)
            for _ in range(self.steps):
                judge.learn(seen, victim, sides, paint(_draw(seen.classes, 32, generator)))
                asked = _draw(seen.classes, 32, generator)
                brush.learn(judge.displeased(paint(asked), asked))
        wanted = torch.arange(seen.classes).repeat_interleave(self.count)
        with torch.no_grad():
            return paint(wanted)

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
        self._real = started(lambda: nn.Linear(width, 1), generator)
        self._whose = started(lambda: nn.Linear(width, 1), generator)
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
    """The generator: noise, and words if it knows any, go in, and a picture comes out."""

    def __init__(
        self,
        inputs: int,
        shape: Sequence[int],
        bounds: tuple[float, float],
        generator: torch.Generator,
    ) -> None:
        self._shape, self._bounds = shape, bounds
        self.net = started(
            lambda: nn.Sequential(
                *(nn.Linear(inputs, 64), nn.ReLU()), *(nn.Linear(64, prod(shape)), nn.Sigmoid())
            ),
            generator,
        )
        self._optimiser = torch.optim.Adam(self.net.parameters(), lr=5e-3)

    def paint(self, inputs: Tensor) -> Tensor:
        """Return a picture for each row of inputs."""
        low, high = self._bounds
        painted: Tensor = low + (high - low) * self.net(inputs)
        return painted.view(len(inputs), *self._shape)

    def learn(self, loss: Tensor) -> None:
        """Take one step towards a smaller loss."""
        _step(self._optimiser, list(self.net.parameters()), loss)


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
