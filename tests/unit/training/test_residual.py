"""A small ResNet: its gradients against torch's, and a private training."""

from dataclasses import replace

import pytest
import torch

from support.mpc import ALICE, ROLES, simulate
from tacit.nn import TorchOps, import_module, parse_layers
from tacit.nn.described import Residual, groups_of
from tacit.nn.gradient import GradientOps, pull_back
from tacit.training import train_plain

LAYERS = (
    "conv 8 3 1 1",
    "norm",
    "relu",
    "block 8",
    "block 16 2",
    "avgpool 4",
    "flatten",
    "dense 10",
)


def test_the_gradients_of_a_small_resnet_are_those_of_torch():
    module = parse_layers(LAYERS, (1, 8, 8), seed=3).double()
    x = torch.rand(5, 1, 8, 8, dtype=torch.float64)
    plain = module(x)
    above = torch.randn(plain.shape, dtype=torch.float64)
    wanted = torch.autograd.grad(plain, list(module.parameters()), above)
    model = import_module(module)
    ops = GradientOps(TorchOps())
    leaves = {name: ops.leaf(value) for name, value in model.weights.items()}
    out = model(ops, leaves, ops.leaf(x))
    torch.testing.assert_close(out.value, plain.detach())
    got = pull_back(TorchOps(), out, above, list(leaves.values()))
    names = [name.replace(".", "/") for name, _ in module.named_parameters()]
    assert names == list(leaves)
    for mine, theirs in zip(got, wanted, strict=True):
        torch.testing.assert_close(mine, theirs, atol=1e-8, rtol=1e-6)


@pytest.mark.parametrize("protocol", ["sealed", "permuted3", "permuted2"])
def test_the_private_gradients_of_a_residual_block_are_those_of_torch(protocol):
    torch.manual_seed(2)
    module = Residual(2, 4, 2).double()
    x = torch.rand(2, 2, 4, 4, dtype=torch.float64)
    plain = module(x)
    above = torch.randn(plain.shape, dtype=torch.float64).clamp(-2, 2)
    wanted = torch.autograd.grad(plain, list(module.parameters()), above)
    weights = {name.replace(".", "/"): one.detach() for name, one in module.named_parameters()}
    imported = make_imported(module, cap=32.0)

    def private(ops):
        leaves = {
            name: ops.input(name, owner=ALICE, shape=tuple(one.shape), bound=2.0)
            for name, one in weights.items()
        }
        images = ops.input("x", owner=ALICE, shape=tuple(x.shape), bound=1.0)
        error = ops.input("above", owner=ALICE, shape=tuple(above.shape), bound=2.0)
        tape = GradientOps(ops, cap=32.0)
        nodes = {name: tape.leaf(one) for name, one in leaves.items()}
        out = imported(tape, nodes, tape.leaf(images))
        found = pull_back(ops, out, error, list(nodes.values()))
        return [
            ops.open(ops.normalise_scale(one), to=(ALICE,), what="g", why="test") for one in found
        ]

    inputs = {ALICE: {**weights, "x": x, "above": above}}
    got = simulate(private, protocol=protocol, inputs=inputs).values[ALICE]
    for mine, theirs in zip(got, wanted, strict=True):
        torch.testing.assert_close(mine, theirs, atol=0.05, rtol=0.03)


def make_imported(module, *, cap):
    """Import a block alone, with weights whose sizes are not known."""
    return replace(import_module(module), gains={}, cap=cap)


def test_a_small_resnet_trains_as_it_does_in_the_clear(make_task, run_training, digits):
    rows, labels = digits
    rows, half = rows.reshape(-1, 1, 8, 8), len(rows) // 2
    layers = ("conv 4 3 1 1", "norm", "relu", "block 4", "avgpool 4", "flatten", "dense 10")
    task = make_task(layers=layers, inputs=(1, 8, 8), cap=32.0, rate=0.1, look_every=2)
    inputs = {
        ROLES.first: (rows[:half], labels[:half]),
        ROLES.second: (rows[half:], labels[half:]),
    }
    shown = run_training(task, inputs)[ROLES.first].shown
    plain = train_plain(task, rows, labels)
    for (step, loss, right), (at, plain_loss, plain_right) in zip(shown, plain, strict=True):
        assert step == at
        assert abs(loss - plain_loss) < 0.05
        assert abs(right - plain_right) <= 2 / task.test_rows


@pytest.mark.parametrize(("channels", "groups"), [(1, 1), (8, 1), (16, 2), (12, 2), (11, 11)])
def test_channels_are_cut_into_equal_groups_of_at_most_eight(channels, groups):
    assert groups_of(channels) == groups
