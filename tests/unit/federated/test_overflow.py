"""A server that sends all clients one model, which overflows on the rows that it looks for."""

import numpy as np
import pytest
import torch

from support.federated import Stage, make_spec
from tacit.federated import Privacy, Update

CLIENTS, SIZE = 5, 3
NAMED = frozenset(bytes([at] * 32) for at in range(CLIENTS))
AGAINST_ALL = {"keys": NAMED, "server": "malicious"}
WORDS = {
    "masked": AGAINST_ALL,
    "keyed": {**AGAINST_ALL, "authority": bytes(32)},
    "masked, verified": {**AGAINST_ALL, "verified": True},
}
OLD = (1, 4)  # the clients with a row of somebody above 90


def learn(ages):
    """One step of gradient descent on a model that is flat up to an age of 90."""
    weights = torch.tensor([3e36, -2.7e38, 0.1], requires_grad=True)
    rows = torch.tensor(ages)
    found = torch.relu(weights[0] * rows + weights[1]) ** 2 + weights[2] * rows
    (slope,) = torch.autograd.grad(found.sum(), weights)
    return Update((-1e-3 * slope).numpy(), 1)


def run(name, **changes):
    spec = make_spec(
        clients=CLIENTS,
        rounds=1,
        aggregator=name.split(",")[0],
        minimum=3,
        privacy=Privacy(clip=1.0),
        **{**WORDS[name], **changes},
    )
    ages = [[30.0, 60.0, 91.0 if index in OLD else 89.0] for index in range(CLIENTS)]
    stage = Stage(spec, [learn(one) for one in ages])
    assert [np.isfinite(one.values).all() for one in stage.offers] == [
        index not in OLD for index in range(CLIENTS)
    ]
    return stage


@pytest.mark.parametrize("name", WORDS)
def test_who_has_rows_that_a_model_overflows_on_is_not_told_by_who_falls_out(name):
    stage = run(name)
    found = stage.run()
    assert found.survivors == tuple(range(CLIENTS))
    assert stage.meter.refused == []
    wanted = sum(stage.offers[index].values for index in range(CLIENTS) if index not in OLD)
    assert np.abs(found.mean * CLIENTS - wanted).max() < 1e-6


@pytest.mark.parametrize("name", WORDS)
def test_they_were_told_by_name_while_such_updates_were_refused(name, monkeypatch):
    refuse = "tacit.federated.{}.made_finite"
    for room in ("secagg.sides", "shuffled.roles"):
        monkeypatch.setattr(refuse.format(room), lambda update, config: update)
    stage = run(name)
    assert stage.run().survivors == tuple(index for index in range(CLIENTS) if index not in OLD)
    assert {error.party for error in stage.meter.refused} >= {f"client {index}" for index in OLD}


def test_a_server_that_follows_the_protocol_hears_whose_training_diverged():
    changes = {"server": "curious", "keys": None}
    stage = run("masked", **changes)
    assert stage.run().survivors == (0, 2, 3)
    assert len(stage.meter.refused) == len(OLD)
