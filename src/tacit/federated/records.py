"""Privacy of single records across silos: every client trains with DP-SGD on its own rows.

How many rows a client has is nobody's business: the sampling rate, the noise and the divisor of a
batch follow from public numbers, so that adding or removing a row changes nothing but the sum that
the noise is for. What leaves a client is private by itself. Secure aggregation comes on top of it,
and no claim here rests on it.
"""

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

from tacit.dp import BudgetTarget, Event, Ledger, Repeated, least_noise
from tacit.dp.check import delta_among
from tacit.dp.ghost import ENOUGH, Ghost
from tacit.dp.mixing import refuse_mixing
from tacit.dp.private import Private, PrivateLoader, step_event
from tacit.errors import ConfigError
from tacit.federated.contract import Update
from tacit.federated.spec import FederatedSpec
from tacit.federated.training import Learner, Stack, augment, flatten
from tacit.ring import Prg

ACCOUNTANT = "fourier"  # our own: needs no extra
WHO = "everybody but its own client: whoever sees models, sums, or a single update"
ASSUMPTIONS = (
    "every client's own code draws its batches and its noise as recorded, and shows nothing else; "
    "no server and no other client is trusted",
    "a record is one row of one client: for somebody with k rows, here or there, ε is k times this "
    "one, and δ grows more",
    "rows that are kept to test on are not trained on: scores on them are in no claim",
)

_AT_ONCE = 1024  # rows that the model is given at a time
_BATCHES = 2.0  # how much larger than expected a batch may be before an update is shortened
_TAIL = 1.5  # and by how much the noise may be longer than it is on average


@dataclass(frozen=True, kw_only=True)
class RecordSteps:
    """What a client does in every round.

    Attributes:
        spec: how it trains (steps, expected batch, rate), and how many records it is taken to have.
        clip: largest norm of one record's gradient.
        rate: the probability with which a record is in a batch.
        multiplier: noise on the sum of a batch, in clips.
        event: of one round, all of its steps.
        bound: what an update is shortened to before it is added up; no claim rests on it.
    """

    spec: FederatedSpec
    clip: float
    rate: float
    multiplier: float
    event: Event
    bound: float


def plan_records(spec: FederatedSpec, dimension: int) -> RecordSteps:
    """Find the least noise of a step that keeps the spec over all steps of all rounds.

    Raises:
        ConfigError: something is not said that ε depends on, or no noise keeps it.
    """
    training, asked = spec.train, spec.privacy
    records, target, clip = asked.records, asked.epsilon, asked.clip
    if records is None or target is None or clip is None:
        raise ConfigError("privacy 'record' wants epsilon, clip and records")
    delta_among(asked.delta, records, "record")
    rate = min(1.0, training.batch / records)

    def step(multiplier: float) -> Event:
        return step_event(dimension, multiplier=multiplier, clip=clip, rate=rate)

    def plan(multiplier: float) -> list[Event]:
        return [Repeated(event=step(multiplier), count=spec.federated.rounds * training.steps)]

    accountant = asked.accountant or ACCOUNTANT
    goal = BudgetTarget(epsilon=target, delta=asked.delta, accountant=accountant)
    multiplier = least_noise(plan, goal)
    noise = multiplier * math.sqrt(dimension * training.steps) / training.batch
    return RecordSteps(
        spec=spec,
        clip=clip,
        rate=rate,
        multiplier=multiplier,
        event=Repeated(event=step(multiplier), count=training.steps),
        bound=training.rate * clip * (_BATCHES * training.steps + _TAIL * noise),
    )


def train_records(
    learner: Learner, client: int, weights: torch.Tensor, steps: RecordSteps, *, prg: Prg
) -> tuple[Update, Ledger]:
    """Train one client for a round; return what it changed, and what that spent.

    Guarantee: for adding or removing one record of the client, towards whoever sees the update and
    the weights it began with, what the ledger says; the number of its records is protected as well.
    Cost: `Ghost`'s.

    Raises:
        ConfigError: the model mixes records.
    """
    model, ghost = _checked(learner, weights, steps)
    training = steps.spec.train
    rows = TensorDataset(learner.rows_of(client), learner.labels_of(client))
    loader = PrivateLoader(
        DataLoader(rows),
        rate=steps.rate,
        steps=training.steps,
        at_once=_AT_ONCE,
        prg=prg,
        divisor=float(training.batch),
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=training.rate, weight_decay=training.l2)
    noise = steps.multiplier, steps.clip
    private = Private(ghost, optimizer, loader, noise=noise, delta=steps.spec.privacy.delta)
    while loader.steps_left:
        for x, y in loader:
            seen = augment(x[None], training.augment, prg)[0]
            weight = learner.class_weights
            private.step(cross_entropy(model(seen), y, weight=weight, reduction="none"))
    private.remove()
    change = (flatten(model) - weights).cpu().numpy()
    return Update(change.astype(np.float32), 1), private.ledger


def _checked(
    learner: Learner, weights: torch.Tensor, steps: RecordSteps
) -> tuple[nn.Module, Ghost]:
    """Make sure that no layer mixes records: with rows that are public, and three sets of weights.

    The first ones, others in their place, and those of this round, as a branch that began at zero
    has been trained since. On a client's own rows the check could fail for some rows and not for
    others: to fall out of a round would then tell something about them.
    """
    model = learner.model_at(learner.first_weights())
    if isinstance(model, Stack):
        raise ConfigError("a stack learns rows apart, which privacy 'record' does not account for")
    model.train()
    ghost = Ghost(model)
    device = learner.first_weights().device
    # All of one sign and one class: their gradients do not cancel.
    rows = torch.linspace(0.1, 1, ENOUGH * math.prod(learner.row_shape), device=device)
    rows = rows.view(ENOUGH, *learner.row_shape)
    labels = torch.zeros(ENOUGH, dtype=torch.int64, device=device)
    ghost.clipped_sum(cross_entropy(model(rows), labels, reduction="none"), steps.clip)
    if not ghost.is_checked:
        raise ConfigError("the model's first weights give no finite gradients")
    ghost.settle()
    with torch.no_grad():
        for parameter, given in zip(
            model.parameters(), learner.model_at(weights).parameters(), strict=True
        ):
            parameter.copy_(given)
    refuse_mixing(model, (rows,), {}, records=ENOUGH)
    return model, ghost
