"""The short way of a step ends in the bits of torch's own."""

import copy

import pytest
import torch
from torch import nn

from tacit.split import TrainingPace
from tacit.split.stepping import Stepper, make_optimiser


def twins(pace):
    """Return two equal models with an optimiser each."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 7), nn.ReLU(), nn.Linear(7, 3))
    return [(one, make_optimiser(one, pace)) for one in (model, copy.deepcopy(model))]


def give_gradients(models, step, without=()):
    for model in models:
        generator = torch.Generator().manual_seed(step)
        for name, weight in model.named_parameters():
            slope = torch.randn(weight.shape, generator=generator)
            weight.grad = None if name in without else slope


def assert_alike(one, two):
    for ours, theirs in zip(one.parameters(), two.parameters(), strict=True):
        assert torch.equal(ours, theirs)


@pytest.mark.parametrize(
    "pace",
    [TrainingPace(), TrainingPace(weight_decay=0.1), TrainingPace(optimiser="sgd")],
    ids=["adam", "decay", "sgd"],
)
def test_many_steps_end_in_the_bits_of_torch(pace):
    (model, optimiser), (other, reference) = twins(pace)
    stepper = Stepper(optimiser)
    for step in range(6):
        give_gradients((model, other), step)
        for group in (*optimiser.param_groups, *reference.param_groups):
            group["lr"] = 0.01 / (1 + step)  # a schedule is followed
        stepper.step()
        reference.step()
        assert_alike(model, other)
    theirs = reference.state_dict()["state"]
    for index, state in optimiser.state_dict()["state"].items():
        assert all(torch.equal(value, theirs[index][name]) for name, value in state.items())


def test_a_weight_without_a_gradient_stays_as_it_is():
    (model, optimiser), (other, reference) = twins(TrainingPace())
    stepper = Stepper(optimiser)
    for step, without in enumerate([(), ("2.weight",), (), ("0.bias", "2.bias"), ()]):
        give_gradients((model, other), step, without)
        stepper.step()
        reference.step()
        assert_alike(model, other)


def test_a_state_that_was_put_back_is_stepped_on_from():
    (model, optimiser), (other, reference) = twins(TrainingPace())
    stepper = Stepper(optimiser)
    for step in range(3):
        give_gradients((model, other), step)
        stepper.step()
        reference.step()
    optimiser.load_state_dict(copy.deepcopy(reference.state_dict()))
    for step in range(3):
        give_gradients((model, other), step)
        stepper.step()
        reference.step()
    assert_alike(model, other)
