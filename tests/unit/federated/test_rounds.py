"""Whole runs in one process: they learn, count what they spend, and go on after losses."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from support.federated import make_spec
from tacit.data import Partition, divide, load_dataset, measure_odds, split_dataset
from tacit.errors import ConfigError
from tacit.federated import (
    Learner,
    LocalEngine,
    Privacy,
    Training,
    build_model,
    find_aggregator,
    round_config,
    run_rounds,
)
from tacit.federated.contract import RunOver
from tacit.federated.summary import notes_of
from tacit.ring import Prg


def make_learner(clients=12, model="linear"):
    rows = split_dataset(load_dataset("digits", ()), part="train", seed=0)
    features = torch.tensor(rows.features, dtype=torch.float32)
    parts = divide(rows.labels, clients, Partition(how="iid"), np.random.default_rng(0))
    built = build_model(model, features.shape[1:], 10, seed=0)
    recipe = Training(steps=5, batch=16, rate=0.5)
    return Learner(built, features, torch.tensor(rows.labels), parts, training=recipe)


def run(policy, *, rounds=None, drop_rate=0.0, patience=0):
    learner = make_learner(policy.federated.clients)
    test = split_dataset(load_dataset("digits", ()), part="test", seed=0)
    features = torch.tensor(test.features, dtype=torch.float32)
    engine = LocalEngine(
        learner,
        find_aggregator(policy.federated.aggregator),
        drop_rate=drop_rate,
        prg=Prg(b"\1" * 16),
    )
    seen = []
    outcome = run_rounds(
        engine,
        learner.first_weights(),
        replace(policy, train=replace(policy.train, patience=patience)),
        rounds=rounds,
        judge=lambda weights: measure_odds(learner.odds(weights, features).numpy(), test.labels),
        on_round=seen.append,
    )
    assert tuple(seen) == outcome.rounds
    return outcome


def test_a_last_round_that_is_worse_than_one_before_is_noted():
    outcome = run(make_policy("plain", "none", rounds=2))
    assert notes_of(outcome) == ()
    rounds = list(outcome.rounds)
    worse = tuple(
        replace(one, value=0.2, high=0.3) if one.name == "accuracy" else one
        for one in rounds[-1].metrics
    )
    rounds[0] = replace(rounds[0], accuracy=0.825)
    rounds[-1] = replace(rounds[-1], accuracy=0.2, metrics=worse)
    (note,) = notes_of(replace(outcome, rounds=tuple(rounds)))
    assert note.startswith("accuracy fell from 82.5 % after round 1 to 20 % after the last")


def make_policy(aggregator, kind, epsilon=None, rounds=4, clients=12, clip=2.0):
    return make_spec(
        clients=clients,
        rounds=rounds,
        aggregator=aggregator,
        privacy=Privacy(kind=kind, clip=clip, epsilon=epsilon),
        minimum=clients // 2,
        drop_rate=0.3,
        colluding_share=0.0,
        largest_weight=1000 if kind == "none" else 1,
    )


@pytest.mark.parametrize("aggregator", ["plain", "masked"])
def test_a_model_is_learned_with_drop_outs(aggregator):
    outcome = run(make_policy(aggregator, "none"), drop_rate=0.2)
    assert outcome.rounds[-1].accuracy > 0.8
    # A plain round has one stage; those that would fall silent later have sent everything.
    assert aggregator == "plain" or any(report.dropped for report in outcome.rounds)
    assert len(outcome.ledger) == 0


def test_the_budget_is_spent_round_by_round_and_never_beyond_the_promise():
    policy = make_policy("masked", "central", epsilon=30.0, rounds=3)
    outcome = run(policy)
    spent = [report.claim.epsilon for report in outcome.rounds]
    assert spent == sorted(spent)
    planned = round_config(policy, 650).mechanism.claim
    assert spent[-1] == pytest.approx(planned.epsilon)
    assert spent[-1] <= 30.0
    assert len(outcome.ledger) == 3


def test_with_local_noise_each_client_has_its_own_account():
    outcome = run(make_policy("plain", "local", epsilon=40.0, rounds=2), drop_rate=0.3)
    assert len(outcome.ledger.clients) <= 12
    assert {len(outcome.ledger.events_of(name)) for name in outcome.ledger.clients} <= {1, 2}


def test_a_void_round_changes_nothing_and_still_counts():
    policy = make_policy("masked", "central", epsilon=30.0, rounds=1)
    outcome = run(policy, drop_rate=0.95)
    assert outcome.rounds[0].void is not None
    assert np.array_equal(outcome.weights, make_learner().first_weights().numpy())
    assert outcome.rounds[0].claim.epsilon > 0


def test_patience_ends_a_run_that_does_not_get_better():
    outcome = run(make_policy("plain", "none", rounds=60, clip=1e-6), patience=2)
    assert len(outcome.rounds) < 10


@pytest.mark.parametrize("model", ["linear", "mlp"])
def test_training_clients_together_equals_training_them_apart(model):
    learner = make_learner(3, model=model)
    weights = learner.first_weights()
    # The first of them draws first, and so the same batches.
    (alone,) = learner.updates(weights, [0], Prg(b"\5" * 16))
    together = learner.updates(weights, [0, 1, 2], Prg(b"\5" * 16))
    assert np.allclose(together[0].values, alone.values, atol=1e-6)
    assert not np.allclose(together[1].values, alone.values, atol=1e-3)
    assert [one.weight for one in together] == [len(part) for part in learner._parts]


def test_a_convolution_is_built_for_pictures_only():
    assert build_model("cnn", (28, 28), 10, seed=0)(torch.zeros(2, 28, 28)).shape == (2, 10)
    assert build_model("cnn", (3, 32, 32), 10, seed=0)(torch.zeros(2, 3, 32, 32)).shape == (2, 10)
    with pytest.raises(ConfigError, match="wants pictures"):
        build_model("cnn", (30,), 2, seed=0)


def test_a_complaint_of_a_client_ends_the_run_after_its_round():
    class Cheated:
        def carry(self, weights, terms, meter):
            raise RunOver("shuffler", "client 3 misses a report of its own")

    policy = make_policy("masked", "none")
    outcome = run_rounds(
        Cheated(),
        torch.zeros(3),
        policy,
        rounds=4,
        judge=lambda weights: (),
        on_round=lambda report: None,
    )
    (report,) = outcome.rounds
    assert "client 3 misses a report" in report.void
