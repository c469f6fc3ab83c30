"""Every interpreter has every verb of the contract, with the same parameters."""

import inspect

import pytest
import torch

from tacit.mpc.ops import ProtocolOps
from tacit.nn import Ops, TorchOps, linear, logistic_class, logistic_score
from tacit.nn.gradient import GradientOps
from tacit.nn.running import key_of, quarters_of, row_gain, size_of

VERBS = [name for name, _ in inspect.getmembers(Ops, inspect.isfunction) if name[0] != "_"]


STEPS = {"argmax", "is_positive"}  # they have no gradient
CASES = [(one, verb) for one in (TorchOps, ProtocolOps) for verb in VERBS]
CASES += [(GradientOps, verb) for verb in VERBS if verb not in STEPS]


@pytest.mark.parametrize(("interpreter", "verb"), CASES)
def test_an_interpreter_takes_what_the_contract_says(interpreter, verb):
    wanted, got = (
        dict(list(inspect.signature(getattr(one, verb)).parameters.items())[1:])  # less itself
        for one in (Ops, interpreter)
    )
    assert set(wanted) <= set(got)
    assert [p.kind for p in wanted.values()] == [got[name].kind for name in wanted]


@pytest.mark.parametrize("size", [1e-9, 0.3, 1.0, 1.01, 777.0])
def test_a_published_size_is_above_the_true_one_and_close_to_it(size):
    said = size_of(quarters_of(size))
    assert size <= said <= max(size * 2**0.2501, 2.0**-16)


def test_a_gain_bounds_every_product():
    generator = torch.Generator().manual_seed(1)
    weight = torch.randn(5, 40, generator=generator, dtype=torch.float64)
    signs = torch.sign(weight)
    rounded = (weight * 2**10).round() / 2**10
    assert (rounded @ signs.T).abs().max() <= row_gain(weight)


def test_the_name_of_a_weight_has_slashes():
    assert key_of("a.0", "weight") == "a/0/weight"
    assert key_of("", "weight") == "weight"


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
