"""A game of federated training in which one participant pushes the model away from records."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call

from tacit.audit.membership.views import SeenRounds
from tacit.data.partition import data_generator
from tacit.errors import ConfigError, DataError
from tacit.federated import Learner, LocalTraining
from tacit.ring import KEY_BYTES, Prg


@dataclass(frozen=True, kw_only=True)
class Push:
    """How the participant attacks.

    Attributes:
        clients: honest ones, who share the members among themselves.
        warm_rounds: rounds before the attack begins.
        rounds: rounds of attack; each is a push and the others' answer.
        length: of a push, as a share of the weights' norm.
        recipe: how the honest clients train.
    """

    clients: int = 4
    warm_rounds: int = 10
    rounds: int = 10
    length: float = 0.1
    recipe: LocalTraining = LocalTraining(steps=10, batch=16, rate=0.1)  # noqa: RUF009  it is frozen

    def __post_init__(self) -> None:
        if self.clients < 1 or self.rounds < 1 or self.warm_rounds < 1 or not self.length > 0:
            raise ConfigError(f"clients, rounds and length must be positive, got {self}")


def play_rounds(
    model: nn.Module, x: Tensor, y: Tensor, is_member: Tensor, *, push: Push, seed: int
) -> SeenRounds:
    """Train on the members as honest clients do, with the attacker's pushes in between.

    The attacker's upload is scaled up so that it survives the averaging whole; it is not shown
    which of its candidates the clients hold, nor their updates, only the mean model.
    """
    members = torch.nonzero(is_member).view(-1).numpy()
    if len(members) < push.clients:
        raise DataError(f"wanted a member for each of {push.clients} clients, got {len(members)}")
    generator, prg = data_generator(seed), Prg(seed.to_bytes(KEY_BYTES, "big", signed=True))
    parts = np.array_split(generator.permutation(members), push.clients)
    learner = Learner(model, x, y, parts, training=push.recipe)
    everyone = list(range(push.clients))

    def answer(weights: Tensor) -> Tensor:
        updates = learner.updates(weights, everyone, prg)
        mean = np.mean([one.values for one in updates], axis=0)
        return weights + torch.from_numpy(mean).to(weights)

    weights = learner.first_weights()
    quiet, pushed, returned = [], [], []
    for _ in range(push.warm_rounds):
        weights = answer(weights)
        quiet.append(_losses(model, weights, x, y).detach())
    for _ in range(push.rounds):
        slope = _slope(model, weights, x, y)
        size = push.length * float(weights.norm()) / max(float(slope.norm()), 1e-12)
        weights = weights + size * slope
        pushed.append(_losses(model, weights, x, y).detach())
        weights = answer(weights)
        returned.append(_losses(model, weights, x, y).detach())
    return SeenRounds(
        quiet=torch.stack(quiet), pushed=torch.stack(pushed), returned=torch.stack(returned)
    )


def _slope(model: nn.Module, weights: Tensor, x: Tensor, y: Tensor) -> Tensor:
    leaf = weights.detach().clone().requires_grad_()
    (slope,) = torch.autograd.grad(_losses(model, leaf, x, y).mean(), leaf)
    return slope


def _losses(model: nn.Module, weights: Tensor, x: Tensor, y: Tensor) -> Tensor:
    model.eval()
    named = list(model.named_parameters())
    parts = torch.split(weights, [p.numel() for _, p in named])
    values = {name: part.view_as(p) for (name, p), part in zip(named, parts, strict=True)}
    logits = functional_call(model, values, (x,))
    return nn.functional.cross_entropy(logits, y, reduction="none")
