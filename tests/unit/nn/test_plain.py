import torch

from tacit.nn import TorchOps, linear, logistic_class, logistic_score

WEIGHTS = {"weight": torch.tensor([[2.0], [-1.0]]), "bias": torch.tensor([0.5])}
X = torch.tensor([[1.0, 2.0], [0.0, 3.0]])


def test_a_linear_model_is_an_affine_map():
    assert linear(TorchOps(), WEIGHTS, X).flatten().tolist() == [0.5, -2.5]


def test_the_score_is_the_logistic_function_of_the_linear_model():
    wanted = 1 / (1 + torch.exp(-torch.tensor([0.5, -2.5])))
    assert torch.allclose(logistic_score(TorchOps(), WEIGHTS, X).flatten(), wanted)


def test_the_class_is_its_sign_with_zero_counting_as_positive():
    assert logistic_class(TorchOps(), WEIGHTS, X).flatten().tolist() == [1.0, 0.0]
    assert TorchOps().is_positive(torch.zeros(1)).item() == 1.0
