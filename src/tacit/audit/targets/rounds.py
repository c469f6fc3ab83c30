"""A game of federated training in which one participant pushes the model away from records."""

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call

from tacit.audit.membership.views import Push, SeenRounds
from tacit.data.partition import data_generator
from tacit.errors import DataError
from tacit.federated import Learner, Training
from tacit.ring import KEY_BYTES, Prg


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
    recipe = Training(steps=push.steps, batch=push.batch, rate=push.rate)
    learner = Learner(model, x, y, parts, training=recipe)
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
