"""Optimisers against torch's own."""

import pytest
import torch

from tacit.training import Training
from tacit.training.ops import CORRECTION, PlainStepOps


def our_steps(optimiser, start, gradients, *, rate):
    """Walk along gradients of a batch of two rows."""
    weights = {"w": start.clone()}
    state = {f"{slot}/w": torch.zeros_like(start) for slot in optimiser.slots()}
    for step, gradient in enumerate(gradients, start=1):
        ops = PlainStepOps(optimiser.dials(step))
        weights, state = optimiser.step(
            ops, weights, {"w": 2 * gradient}, state, rate=rate, batch=2
        )
    return weights["w"]


def torch_steps(make, start, gradients):
    weight = start.clone().requires_grad_()
    optimiser = make([weight])
    for gradient in gradients:
        weight.grad = gradient.clone()
        optimiser.step()
    return weight.detach()


@pytest.mark.parametrize("steps", [1, 2, 40])
@pytest.mark.parametrize(("momentum", "decay"), [(0.9, 0.99), (0.9, 0.999), (0.5, 0.9)])
def test_adam_takes_the_steps_that_torch_takes(momentum, decay, steps):
    generator = torch.Generator().manual_seed(5)
    start = torch.randn(20, generator=generator, dtype=torch.float64)
    gradients = torch.randn(steps, 20, generator=generator, dtype=torch.float64) * 0.05
    ours = our_steps(
        Training(optimiser="adam", momentum=momentum, decay=decay), start, gradients, rate=0.01
    )
    theirs = torch_steps(
        lambda weights: torch.optim.Adam(weights, lr=0.01, betas=(momentum, decay), eps=1e-12),
        start,
        gradients,
    )
    # An inverse root begins at 2^-8, which is Adam's epsilon here; it takes part in the first
    # steps of the smallest gradients alone.
    assert (ours - theirs).abs().quantile(0.9) < 1e-6
    assert (ours - theirs).abs().max() < 0.01


def test_momentum_takes_the_steps_that_torch_takes():
    generator = torch.Generator().manual_seed(5)
    start = torch.randn(20, generator=generator, dtype=torch.float64)
    gradients = torch.randn(9, 20, generator=generator, dtype=torch.float64)
    ours = our_steps(Training(optimiser="momentum", momentum=0.8), start, gradients, rate=0.1)
    theirs = torch_steps(
        lambda weights: torch.optim.SGD(weights, lr=0.1, momentum=0.8), start, gradients
    )
    torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize(("momentum", "decay"), [(0.9, 0.99), (0.99, 0.9), (0.0, 0.0)])
def test_the_correction_of_adam_is_what_its_moments_lack_and_within_its_bound(momentum, decay):
    optimiser = Training(optimiser="adam", momentum=momentum, decay=decay)
    for step in (1, 2, 10, 1000, 100_000):
        wanted = (1 - decay**step) ** 0.5 / (1 - momentum**step)
        assert optimiser.dials(step)[CORRECTION] == pytest.approx(wanted, rel=1e-12)
        assert wanted <= optimiser.dial_bounds()[CORRECTION]


def test_only_adam_has_dials():
    assert Training().dials(3) == Training(optimiser="momentum").dials(3) == {}
