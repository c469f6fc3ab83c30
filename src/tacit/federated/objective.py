"""Objective perturbation as a client's whole training: private weights of a linear model, once."""

import math

import numpy as np
import torch
from torch import Tensor

from tacit.errors import ConfigError
from tacit.federated.contract import Update
from tacit.federated.training import Learner
from tacit.learn.noise import ObjectiveSettings, fit_private_logistic
from tacit.ring import Prg

_USUAL_L2 = 1e-2


def fit_update(
    learner: Learner, client: int, weights: Tensor, *, epsilon: float, prg: Prg
) -> Update:
    """Fit one client's linear model privately and return how far it lies from the global one.

    One classifier per class against the rest, each for an equal share of ε. Rows are divided by a
    public bound of their norm: features lie within [−1, 1].

    Guarantee: ε for replacing one record of the client; see `fit_private_logistic`.
    Cost: 0 rounds, 0 bits.

    Raises:
        ConfigError: the model is not linear.
    """
    if learner.class_weights is not None:
        raise ConfigError("objective perturbation weighs no classes: its loss is the logistic one")
    x, labels = learner.rows_of(client).flatten(1), learner.labels_of(client)
    features = x.shape[1]
    classes = learner.shapes[-1][0]
    if learner.shapes != ((classes, features), (classes,)):
        raise ConfigError("objective perturbation trains the model 'linear' and no other")
    bound = math.sqrt(features + 1)
    rows = torch.cat([x, torch.ones(len(x), 1, device=x.device)], 1).double().cpu() / bound
    # A row that is not finite counts as zeros: to leave, or to fail, would show that it is there.
    rows = torch.where(rows.isfinite().all(dim=1, keepdim=True), rows, 0.0)
    # Features beyond their published scale are drawn back to the bound.
    rows = rows / rows.norm(dim=1, keepdim=True).clamp_min(1.0)
    settings = ObjectiveSettings(epsilon=epsilon / classes, regularisation=learner.l2 or _USUAL_L2)
    found = torch.stack(
        [
            fit_private_logistic(rows, 2.0 * (labels.cpu() == one) - 1.0, settings, prg=prg)[0]
            for one in range(classes)
        ]
    )
    flat = torch.cat([found[:, :-1].reshape(-1), found[:, -1]]) / bound
    change = flat - weights.cpu().double()
    return Update(change.numpy().astype(np.float32), len(x))
