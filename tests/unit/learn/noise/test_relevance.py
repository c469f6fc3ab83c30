import pytest
import torch
from torch import nn

from tacit.errors import ConfigError
from tacit.learn.noise import contributions, relevance


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
