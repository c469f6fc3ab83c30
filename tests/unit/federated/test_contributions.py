"""What contributes to an answer, what saying so costs, and which entries are worth sending.

Seeds are fixed; a fresh seed fails with probability below 1e-6.
"""

import pytest
import torch
from torch import nn

from tacit.dp import REPLACE_CLIENT
from tacit.errors import ConfigError
from tacit.federated.adaptive import (
    Selection,
    contribution_event,
    contributions,
    floored,
    layer_shares,
    relevance,
    show_contributions,
    upload_selected,
)
from tacit.ring import Prg


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
    found = relevance(model, x, torch.tensor([1]))
    expected = x * model[0].weight[1]
    assert torch.allclose(found.inputs, expected, rtol=1e-4)


def test_relevance_is_conserved_through_convolution_pooling_and_activation():
    model = without_biases(network())
    x = torch.randn(5, 1, 10, 10, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    found = relevance(model, x)
    scores = model(x).max(dim=1).values
    assert torch.allclose(found.inputs.flatten(1).sum(1), scores, rtol=1e-2, atol=1e-4)
    assert list(found.layers) == ["0", "5", "7"]


def test_an_input_that_the_network_ignores_contributes_nothing():
    model = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 2))
    with torch.no_grad():
        model[0].weight[:, 2] = 0
    shares = contributions(relevance(model, torch.rand(20, 4)).inputs)
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
