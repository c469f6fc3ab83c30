"""Local training: many clients at once, each on its own rows from the same weights.

The models that a job can name stand last; a user's own is any torch module.
"""

import copy
from collections.abc import Callable, Sequence
from typing import final

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from tacit.data.partition import Places
from tacit.errors import ConfigError, DataError
from tacit.exclusive import seeded
from tacit.federated.contract import Update
from tacit.federated.data import Shards
from tacit.federated.spec import Augment, FederatedModel, Training
from tacit.ring import Prg

_FARTHEST = 2  # pixels of a shift


@final
class Learner:
    """The clients' rows on one device, and the model that they train.

    Attributes:
        clients: how many have rows.
        row_shape: of one row.
        names: of the model's parameters in order.
        shapes: theirs.
        dimension: numbers in an update.
        l2: the weight of half the squared norm in the loss.
        class_weights: how much an error on each class counts.
    """

    def __init__(
        self,
        model: nn.Module,
        features: Tensor,
        labels: Tensor,
        parts: Sequence[Places],
        *,
        training: Training,
    ) -> None:
        if any(len(rows) == 0 for rows in parts):
            raise DataError("a client has no rows to train on")
        if training.augment != "none" and features.dim() < 3:
            numbers = features.shape[1:].numel()
            raise ConfigError(
                f"augment {training.augment!r} wants pictures, got rows of {numbers} numbers"
            )
        self._model, self._features, self._labels = model, features, labels
        self._parts, self._training = parts, training
        self.clients, self.row_shape = len(parts), tuple(features.shape[1:])
        self.names = tuple(name for name, _ in model.named_parameters())
        self.shapes = tuple(tuple(parameter.shape) for parameter in model.parameters())
        self._sizes = [parameter.numel() for parameter in model.parameters()]
        self.dimension, self.l2 = sum(self._sizes), training.l2
        self._learner = _deal(model, len(features), parts).to(features.device)
        self.class_weights = self._weigh(training.class_weights)
        self._step = vmap(grad(self._loss), randomness="different")

    def _weigh(self, weights: tuple[float, ...] | None) -> Tensor | None:
        if weights is None:
            return None
        with torch.no_grad():
            classes = self._model.eval()(self._features[:1]).shape[-1]
        if len(weights) != classes:
            raise ConfigError(f"wanted {classes} class weights, got {len(weights)}")
        return torch.tensor(weights, dtype=torch.float32, device=self._features.device)

    def rows_of(self, client: int) -> Tensor:
        """Return the features of a client's rows."""
        return self._features[torch.from_numpy(self._parts[client]).to(self._features.device)]

    def labels_of(self, client: int) -> Tensor:
        """Return the labels of a client's rows."""
        return self._labels[torch.from_numpy(self._parts[client]).to(self._labels.device)]

    def model_at(self, weights: Tensor) -> nn.Module:
        """Return a copy of the model with these weights."""
        model = copy.deepcopy(self._model)
        with torch.no_grad():
            parts = torch.split(weights, self._sizes)
            for parameter, part in zip(model.parameters(), parts, strict=True):
                parameter.copy_(part.reshape(parameter.shape))
        return model

    def first_weights(self) -> Tensor:
        """Return the weights that the model was built with."""
        return flatten(self._model).to(self._features.device)

    def updates(self, weights: Tensor, clients: Sequence[int], prg: Prg) -> list[Update]:
        """Train some clients side by side and return what each changed."""
        trained = weights.detach().repeat(len(clients), 1)
        self._model.train()
        for rows in self._batches(clients, prg):
            chosen = torch.from_numpy(rows).to(self._features.device)
            x = augment(self._features[chosen], self._training.augment, prg)
            named, y, whose = self._unflatten(trained), self._labels[chosen], self._learner[chosen]
            slopes = self._step(named, x, y, whose)
            flat = torch.cat([slopes[name].reshape(len(clients), -1) for name in self.names], 1)
            trained -= self._training.rate * (flat + self._training.l2 * trained)
        changed = (trained - weights).cpu().numpy()
        return [
            Update(row, len(self._parts[client]))
            for row, client in zip(changed, clients, strict=True)
        ]

    def odds(self, weights: Tensor, features: Tensor) -> Tensor:
        """Return the probability of every class, for every row."""
        self._model.eval()
        named = {name: part[0] for name, part in self._unflatten(weights[None]).items()}
        with torch.no_grad():
            logits = [
                functional_call(self._model, named, (features[start : start + 4096],))
                for start in range(0, len(features), 4096)
            ]
        return torch.cat(logits).softmax(1)

    def _loss(self, named: dict[str, Tensor], x: Tensor, y: Tensor, whose: Tensor) -> Tensor:
        logits = functional_call(self._model, named, (x,))
        if isinstance(self._model, Stack):
            return stack_loss(logits, y, whose, weight=self.class_weights)
        each = nn.functional.cross_entropy(logits, y, weight=self.class_weights, reduction="none")
        return each.mean()

    def _unflatten(self, flat: Tensor) -> dict[str, Tensor]:
        parts = torch.split(flat, self._sizes, dim=1)
        return {
            name: part.reshape(len(flat), *shape)
            for name, part, shape in zip(self.names, parts, self.shapes, strict=True)
        }

    def _batches(self, clients: Sequence[int], prg: Prg) -> list[Places]:
        """Draw (clients, batch) row numbers for every step."""
        training = self._training
        need = training.steps * training.batch
        drawn = np.empty((len(clients), need), np.int64)
        for at, client in enumerate(clients):
            rows = self._parts[client]
            turns = range(-(-need // len(rows)))
            orders = [rows[prg.permutation(len(rows)).numpy()] for _ in turns]
            drawn[at] = np.concatenate(orders)[:need]
        return list(drawn.reshape(len(clients), training.steps, training.batch).transpose(1, 0, 2))


def flatten(model: nn.Module) -> Tensor:
    """Return all parameters as one vector."""
    return torch.cat([parameter.detach().reshape(-1) for parameter in model.parameters()])


def _deal(model: nn.Module, rows: int, parts: Sequence[Places]) -> Tensor:
    """Deal every client's rows out to the learners of a stack; one learner has them all."""
    learners = model.learners if isinstance(model, Stack) else 1
    whose = torch.zeros(rows, dtype=torch.int64)
    for part in parts:
        whose[torch.from_numpy(part)] = torch.arange(len(part)) % learners
    return whose


def augment(x: Tensor, how: Augment, prg: Prg) -> Tensor:
    """Change each of (clients, batch) pictures at random."""
    if how == "none":
        return x
    rows = x.flatten(0, 1)
    if how == "flip":
        turned = prg.bits(len(rows), device=x.device).bool()
        return torch.where(turned.view(-1, *[1] * (rows.dim() - 1)), rows.flip(-1), rows).view_as(x)
    down, right = prg.below(2 * _FARTHEST + 1, (2, len(rows), 1), device=x.device)
    height = down + torch.arange(x.shape[-2], device=x.device)  # (rows, height)
    width = right + torch.arange(x.shape[-1], device=x.device)
    padded = nn.functional.pad(rows, (_FARTHEST,) * 4)
    places = torch.arange(len(rows), device=x.device)[:, None, None]
    if rows.dim() == 3:
        return padded[places, height[:, :, None], width[:, None, :]].view_as(x)
    moved = padded.movedim(1, -1)[places, height[:, :, None], width[:, None, :]]
    return moved.movedim(-1, 1).reshape(x.shape)


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


def build_named(model: FederatedModel, shards: Shards) -> nn.Module:
    """Build what a spec names, for these rows."""
    shape, classes = shards.row_shape, shards.classes
    if model.stack:
        return build_stack(model.stack, shape, classes, seed=model.seed, dropout=model.dropout)
    return build_model(model.name, shape, classes, seed=model.seed, dropout=model.dropout)


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
