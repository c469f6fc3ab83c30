"""Adaptive noise: the scale of parameters, what contributes to an answer, and what saying so costs.

Seeds are fixed; a fresh seed fails with probability below 1e-6.
"""

import numpy as np
import pytest
import torch
from torch import nn

from support.federated import make_spec
from tacit.data import Partition, divide, load_dataset, split_dataset
from tacit.dp import REPLACE_CLIENT, epsilon
from tacit.errors import ConfigError
from tacit.federated import (
    AdaptiveNoise,
    Learner,
    LocalEngine,
    Privacy,
    Training,
    attribute_scale,
    build_model,
    calibrate,
    find_aggregator,
    run_rounds,
)
from tacit.federated.adaptive import (
    Selection,
    contribution_event,
    contributions,
    find_shares,
    floored,
    layer_shares,
    relevance,
    show_contributions,
    upload_selected,
)
from tacit.ring import Prg

SHAPES = [(10, 6), (10,)]


def test_a_fresh_model_is_scaled_evenly():
    assert np.array_equal(attribute_scale(np.zeros(70), SHAPES), np.ones(70))


def test_attributes_that_carry_something_get_a_larger_scale():
    matrix = np.full((10, 6), 0.01)
    matrix[:, 2] = 1.0
    scale = attribute_scale(np.concatenate([matrix.ravel(), np.zeros(10)]), SHAPES)
    columns = scale[:60].reshape(10, 6)
    assert (columns[:, 2] > 2 * columns[:, 0]).all()
    assert np.isclose(np.mean(scale**2), 1.0)


def prg(label="adaptive"):
    return Prg(b"a key for tests.").fork(label)


def network():
    torch.manual_seed(3)
    return nn.Sequential(
        nn.Conv2d(1, 4, 3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Dropout(0.5),
        nn.Linear(4 * 4 * 4, 8),
        nn.ReLU(),
        nn.Linear(8, 3),
    ).double()


def without_biases(model):
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("bias"):
                parameter.zero_()
    return model


def test_relevance_of_one_layer_is_input_times_weight():
    model = without_biases(nn.Sequential(nn.Linear(3, 2))).double()
    x = torch.tensor([[1.0, -2.0, 0.5]], dtype=torch.float64)
    inputs, _ = relevance(model, x, torch.tensor([1]))
    expected = x * model[0].weight[1]
    assert torch.allclose(inputs, expected, rtol=1e-4)


def test_relevance_is_conserved_through_convolution_pooling_and_activation():
    model = without_biases(network())
    x = torch.randn(5, 1, 10, 10, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    inputs, layers = relevance(model, x)
    scores = model(x).max(dim=1).values
    assert torch.allclose(inputs.flatten(1).sum(1), scores, rtol=1e-2, atol=1e-4)
    assert list(layers) == ["0", "5", "7"]


def test_an_input_that_the_network_ignores_contributes_nothing():
    model = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 2))
    with torch.no_grad():
        model[0].weight[:, 2] = 0
    shares = contributions(relevance(model, torch.rand(20, 4))[0])
    assert float(shares[:, 2].max()) == 0
    assert torch.allclose(shares.sum(1), torch.ones(20, dtype=torch.float64))


def test_a_row_without_relevance_is_shared_evenly():
    assert contributions(torch.zeros(1, 4)).tolist() == [[0.25] * 4]


def test_a_layer_that_relevance_cannot_pass_is_named():
    model = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4), nn.Linear(4, 2))
    with pytest.raises(ConfigError, match="LayerNorm"):
        relevance(model, torch.rand(2, 4))


def test_no_share_is_zero_or_negative():
    shares = floored(torch.tensor([5.0, -1.0, 0.0]))
    assert float(shares.min()) > 0
    assert float(shares.sum()) == pytest.approx(1.0)


def test_shares_of_layers_minimise_the_weighted_noise():
    weights, sizes = {"a": 0.9, "b": 0.1}, {"a": 10, "b": 4000}
    bounds = {"a": 1.0, "b": 2.0}

    def cost(share):
        parts = {"a": share, "b": 1 - share}
        return sum(weights[n] * sizes[n] * bounds[n] ** 2 / parts[n] for n in parts)

    best = layer_shares(weights, sizes, bounds)["a"]
    assert all(cost(best) <= cost(other) for other in (best / 1.3, best * 1.3, 0.5))


def test_selected_entries_are_the_large_ones_and_cost_both_budgets():
    update = torch.zeros(300)
    update[[7, 100, 250]] = torch.tensor([1.0, -1.0, 1.0])
    selection = Selection(
        bound=1.0, threshold=0.5, answers=3, choice_epsilon=150.0, value_epsilon=150.0
    )
    indices, values, events = upload_selected(update, selection, relation=REPLACE_CLIENT, prg=prg())
    assert indices.tolist() == [7, 100, 250]
    assert values.tolist() == pytest.approx([1.0, -1.0, 1.0], abs=0.6)
    assert sum(event.epsilon for event in events) == pytest.approx(300, rel=1e-4)


@pytest.mark.parametrize("value_epsilon", [1e-3, 1.0, 100.0])
@pytest.mark.parametrize("answers", [1, 40, 5000])
def test_a_selection_says_beforehand_what_it_costs(answers, value_epsilon):
    selection = Selection(
        bound=0.3, threshold=0.1, answers=answers, choice_epsilon=0.5, value_epsilon=value_epsilon
    )
    _, _, events = upload_selected(torch.zeros(5000), selection, relation=REPLACE_CLIENT, prg=prg())
    spent = sum(event.epsilon for event in events)
    assert selection.epsilon(REPLACE_CLIENT) == pytest.approx(spent, rel=1e-12)


def test_contributions_of_a_client_say_beforehand_what_they_cost():
    mean = torch.full((700,), 1 / 700, dtype=torch.float64)
    _, event = show_contributions(mean, epsilon=1e-3, prg=prg())
    assert contribution_event(700, epsilon=1e-3) == event
    assert event.epsilon > 1e-3 * (1 + 1e-4), "rounding of many entries counts"


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
