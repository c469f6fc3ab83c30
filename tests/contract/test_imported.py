"""One torch module under every interpreter: torch itself, our plain ops, and each protocol."""

import pytest
import torch
from torch import nn

from harness import ALICE, BOB, simulate
from tacit.errors import InputError
from tacit.mpc import PROTOCOLS
from tacit.nn import TorchOps, import_module


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(6, 6), nn.GELU())
        self.norm = nn.LayerNorm(6)

    def forward(self, x):
        return self.norm(x + self.inner(x))


def trained(module):
    """Give batch norms statistics that are not the initial ones."""
    generator = torch.Generator().manual_seed(4)
    for layer in module.modules():
        if isinstance(layer, nn.BatchNorm2d):
            layer.running_mean.copy_(torch.rand(layer.num_features, generator=generator))
            layer.running_var.copy_(torch.rand(layer.num_features, generator=generator) + 0.5)
    return module.eval().double()


MODULES = {
    "mlp": lambda: (nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 3)), (4, 5)),
    "residual block": lambda: (Residual(), (4, 6)),
    "cnn": lambda: (
        nn.Sequential(
            nn.Conv2d(1, 3, 3, stride=2, padding=1),
            nn.BatchNorm2d(3),
            nn.ReLU(),
            nn.Dropout(0.5),
            nn.Flatten(),
            nn.Linear(48, 4),
            nn.Softmax(dim=-1),
        ),
        (2, 1, 8, 8),
    ),
}


def made(name):
    torch.manual_seed(1)
    module, shape = MODULES[name]()
    generator = torch.Generator().manual_seed(2)
    return trained(module), torch.rand(shape, generator=generator, dtype=torch.float64) * 2 - 1


@pytest.mark.parametrize("name", MODULES)
def test_our_plain_ops_do_what_torch_does(name):
    module, x = made(name)
    model = import_module(module)
    assert torch.allclose(model(TorchOps(), model.weights, x), module(x), atol=1e-12)


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("name", MODULES)
def test_a_protocol_gives_the_same_within_its_error(protocol, name):
    module, x = made(name)
    model = import_module(module)

    def program(ops):
        secret = ops.input("x", owner=ALICE, shape=tuple(x.shape), bound=1.0)
        weights = {
            key: ops.input(key, owner=BOB, shape=tuple(value.shape), bound=4.0)
            for key, value in model.weights.items()
        }
        return ops.open(model(ops, weights, secret), to=(ALICE,), what="answers", why="test")

    run = simulate(program, protocol=protocol, inputs={ALICE: {"x": x}, BOB: dict(model.weights)})
    assert (run.values[ALICE] - module(x)).abs().max() < 6e-3
    assert run.metered == run.plan.cost


@pytest.mark.parametrize(
    ("module", "words"),
    [
        (nn.Sequential(nn.Linear(3, 3), nn.Hardswish()), ["'1'", "Hardswish", "supported are"]),
        (nn.Sequential(nn.Conv2d(2, 2, 1, groups=2)), ["'0'", "plain convolution"]),
    ],
)
def test_an_unsupported_layer_is_named_with_its_place(module, words):
    with pytest.raises(InputError) as caught:
        import_module(module)
    assert all(word in str(caught.value) for word in words)


def test_an_unsupported_operation_is_named_with_its_place():
    class Fancy(nn.Module):
        def forward(self, x):
            return torch.cumsum(x, dim=0)

    with pytest.raises(InputError, match="cumsum"):
        import_module(Fancy())


def test_a_module_that_branches_on_values_is_refused():
    class Branching(nn.Module):
        def forward(self, x):
            return x if x.sum() > 0 else -x

    with pytest.raises(InputError, match="whatever its input"):
        import_module(Branching())
