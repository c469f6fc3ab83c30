"""Contributions of layers or attributes, for adaptive noise: off the model, or asked of clients."""

import numpy as np
import torch
from torch import Tensor, nn

from tacit.data.partition import data_generator
from tacit.errors import ConfigError
from tacit.federated.calibration import CalibratedMechanism
from tacit.federated.shaping import Shares
from tacit.federated.training import Learner
from tacit.learn.noise import contributions, floored, relevance, show_contributions
from tacit.ring import Prg

_PUBLIC_ROWS = 64
_MOST_ROWS = 256  # of a client that are looked at


def find_shares(
    learner: Learner, weights: Tensor, mechanism: CalibratedMechanism, known: Shares | None
) -> Shares | None:
    """Find the contributions of this round; None where the global model alone decides.

    Guarantee: off public inputs, none needed; of clients, each one's mean contribution is put under
    Laplace noise by itself, once, as ``mechanism.first`` says.
    Cost: in this process nothing is sent; of a real client, 4 bytes per layer or attribute, once.
    """
    adaptive = mechanism.adaptive
    if adaptive is None or (adaptive.by == "attributes" and adaptive.relevance == "model"):
        return None
    if adaptive.relevance == "clients" and known is not None:
        return known
    model = learner.model_at(weights)
    if not isinstance(model, nn.Sequential):
        raise ConfigError("relevance is traced through a torch.nn.Sequential, got another module")
    if adaptive.relevance_epsilon is None:
        rows = torch.from_numpy(data_generator(0).random((_PUBLIC_ROWS, *learner.row_shape)))
        names, found = _trace(model, rows.to(weights), adaptive.by)
        return _named(names, found)
    total, names = None, list[str]()
    for client in range(learner.clients):
        rows = learner.rows_of(client)[:_MOST_ROWS]
        names, mean = _trace(model, rows, adaptive.by)
        noisy, _ = show_contributions(mean, epsilon=adaptive.relevance_epsilon, prg=Prg.from_os())
        total = noisy if total is None else total + noisy
    if total is None:
        raise ConfigError("nobody to ask for contributions")
    return _named(names, total)


def _trace(model: nn.Sequential, rows: Tensor, by: str) -> tuple[list[str], Tensor]:
    """Average the rows' shares: of layers by name, or of attributes without names."""
    found = relevance(model, rows)
    if by == "attributes":
        return [], contributions(found.inputs).mean(dim=0).cpu()
    stacked = torch.stack(list(found.layers.values()), dim=1)
    return list(found.layers), contributions(stacked).mean(dim=0).cpu()


def _named(names: list[str], found: Tensor) -> Shares:
    shares = floored(found)
    if not names:
        return np.asarray(shares.numpy(), np.float64)
    return dict(zip(names, shares.tolist(), strict=True))
