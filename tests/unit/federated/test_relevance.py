"""Contributions: off public inputs for nothing, of clients once and under noise."""

import numpy as np
import torch

from support.federated import make_spec
from tacit.data import Partition, divide, load_dataset, split_dataset
from tacit.dp import epsilon
from tacit.federated import (
    AdaptiveNoise,
    Learner,
    LocalEngine,
    Privacy,
    Training,
    build_model,
    calibrate,
    find_aggregator,
    run_rounds,
)
from tacit.federated.adaptive import find_shares
from tacit.ring import Prg


def spec_of(adaptive, epsilon):
    privacy = Privacy(
        kind="local-adaptive", clip=1.0, epsilon=epsilon, delta=1e-3, adaptive=adaptive
    )
    return make_spec(clients=8, rounds=2, aggregator="plain", privacy=privacy)


def make(adaptive, model="mlp", epsilon=90.0):
    rows = split_dataset(load_dataset("digits", ()), part="train", seed=0)
    features = torch.tensor(rows.features, dtype=torch.float32)
    parts = divide(rows.labels, 8, Partition(how="iid"), np.random.default_rng(0))
    built = build_model(model, features.shape[1:], 10, seed=0)
    learner = Learner(built, features, torch.tensor(rows.labels), parts, training=Training())
    return learner, calibrate(spec_of(adaptive, epsilon), learner.dimension)


def test_shares_of_layers_name_the_layers_and_add_up_to_one():
    learner, made = make(AdaptiveNoise(by="layers"))
    shares = find_shares(learner, learner.first_weights(), made.adaptive, None)
    assert set(shares) == {name.rpartition(".")[0] for name in learner.names}
    assert np.isclose(sum(shares.values()), 1.0)
    assert made.first is None


def test_clients_are_asked_once_and_it_is_paid_for():
    """The noise has no seed: the shares of pixels that carry nothing lie 5 deviations below."""
    adaptive = AdaptiveNoise(relevance="clients", relevance_epsilon=190.0)
    learner, made = make(adaptive, model="linear", epsilon=300.0)
    shares = find_shares(learner, learner.first_weights(), made.adaptive, None)
    assert shares.shape == (64,)
    # These pixels are black in every digit, so nobody's class depends on them.
    assert shares[[0, 32, 39]].mean() < shares.mean()
    assert find_shares(learner, learner.first_weights(), made.adaptive, shares) is shares
    assert made.first.epsilon >= 190.0


def test_the_price_of_asking_is_in_the_ledger_and_in_every_claim():
    adaptive = AdaptiveNoise(relevance="clients", relevance_epsilon=190.0)
    learner, made = make(adaptive, model="linear", epsilon=300.0)
    engine = LocalEngine(learner, find_aggregator("plain"), drop_rate=0.0, prg=Prg(bytes(16)))
    outcome = run_rounds(
        engine,
        learner.first_weights(),
        spec_of(adaptive, 300.0),
        judge=lambda weights: (),
        on_round=lambda report: None,
    )
    asked, *rounds = outcome.ledger.entries
    assert (asked.event, asked.clients, asked.note) == (made.first, None, "before the first round")
    assert made.first not in [entry.event for entry in rounds]
    without = epsilon([entry.event for entry in rounds[:1]], delta=1e-3).epsilon
    for report in outcome.rounds:
        assert report.claim.epsilon >= 190.0 + without / 2
    assert outcome.rounds[-1].claim.epsilon <= 300.0


def test_the_model_alone_decides_about_attributes_unless_clients_are_asked():
    learner, made = make(AdaptiveNoise())
    assert find_shares(learner, learner.first_weights(), made.adaptive, None) is None
