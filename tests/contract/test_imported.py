"""One torch module under every interpreter: torch itself, our plain ops, and each protocol."""

from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.nn import functional

from support.mpc import ALICE, BOB, simulate
from tacit.errors import InputError, RangeError
from tacit.mpc import PROTOCOLS
from tacit.nn import GradientOps, TorchOps, import_module, pull_back, quarters_of, size_of


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(6, 6), nn.GELU())
        self.norm = nn.LayerNorm(6)

    def forward(self, x):
        return self.norm(x + self.inner(x))


class ResNet(nn.Module):
    """Two blocks with a skip, batch norms and a global pool."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4))
        self.blocks = nn.ModuleList(
            nn.Sequential(
                nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 4, 1)
            )
            for _ in range(2)
        )
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.head = nn.Linear(4, 3)

    def forward(self, x):
        x = torch.relu(self.stem(x))
        for block in self.blocks:
            x = functional.relu(x + block(x))
        return self.head(self.pool(x).flatten(1))


class Attention(nn.Module):
    """What people write by hand: chunks, views, a mask, and torch's own attention."""

    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(8, 24)
        self.scale = nn.Parameter(torch.tensor([0.5, 2.0, 1.0, 1.5, 0.25, 1.0, 1.0, 1.0]))
        self.out = nn.Linear(8, 8)

    def forward(self, x):
        b, t, e = x.shape
        q, k, v = self.qkv(x * self.scale).chunk(3, dim=-1)
        q, k, v = (y.view(b, t, 2, e // 2).transpose(1, 2) for y in (q, k, v))
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        y = y.permute(0, 2, 1, 3).reshape(b, x.size(1), -1)
        return self.out(y)[:, -1] / 2 - 1.0


class Masked(nn.Module):
    """A MultiheadAttention with a mask of -inf in a buffer, and tokens before batches."""

    def __init__(self):
        super().__init__()
        self.attend = nn.MultiheadAttention(8, 2)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(3))

    def forward(self, x):
        y, _ = self.attend(x, x, x, attn_mask=self.mask, need_weights=False)
        return torch.cat((x, y), dim=-1).mean(dim=(0, 2))


class Recurrent(nn.Module):
    """An LSTM of two ways, and a GRU of which the last state counts."""

    def __init__(self):
        super().__init__()
        self.first = nn.LSTM(3, 4, bidirectional=True, batch_first=True)
        self.second = nn.GRU(8, 5, batch_first=True)
        self.head = nn.Linear(5, 3)

    def forward(self, x):
        y, _ = self.first(x)
        return self.head(self.second(y)[1][-1])


class Odds(nn.Module):
    """Operators that stand between layers."""

    def __init__(self):
        super().__init__()
        self.register_buffer("shifts", torch.tensor([1, 2, 3, 4]))
        self.slope = nn.LeakyReLU(0.25)

    def forward(self, x):
        a, b = x.split(2, dim=1)
        y = torch.stack((a * b, 1.0 - a), dim=1).unsqueeze(-1).squeeze(-1)
        z = self.slope(y.flatten(1) + self.shifts) * 0.5
        z = z.amax(dim=1, keepdim=True) - z.clamp(-1.0, 1.0) ** 2
        return z[..., 1:3] + (-x[:, None, 0])


def encoder(**options):
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.1, batch_first=True, **options)
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)


def trained(module):
    """Give batch norms statistics that are not the initial ones."""
    generator = torch.Generator().manual_seed(4)
    for layer in module.modules():
        if isinstance(layer, nn.BatchNorm1d | nn.BatchNorm2d):
            layer.running_mean.copy_(torch.rand(layer.num_features, generator=generator))
            layer.running_var.copy_(torch.rand(layer.num_features, generator=generator) + 0.5)
    return module.eval().double()


# name → (module, shape of its input, largest error of a private run)
MODULES = {
    "mlp": (lambda: nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 3)), (4, 5), 1e-3),
    "residual block": (Residual, (4, 6), 6e-3),
    "cnn": (
        lambda: nn.Sequential(
            nn.Conv2d(1, 3, 3, stride=2, padding=1),
            nn.BatchNorm2d(3),
            nn.ReLU(),
            nn.Dropout(0.5),
            nn.Flatten(),
            nn.Linear(48, 4),
            nn.Softmax(dim=-1),
        ),
        (2, 1, 8, 8),
        6e-3,
    ),
    "lenet": (
        lambda: nn.Sequential(
            nn.Conv2d(1, 4, 5, padding=2),
            nn.Tanh(),
            nn.AvgPool2d(2),
            nn.Conv2d(4, 6, 3),
            nn.ReLU6(),
            nn.MaxPool2d(3, stride=2, padding=1),
            nn.Flatten(),
            nn.Linear(6, 8),
            nn.Sigmoid(),
            nn.Linear(8, 3),
            nn.LogSoftmax(dim=1),
        ),
        (2, 1, 8, 8),
        1e-2,
    ),
    "series": (
        lambda: nn.Sequential(
            nn.GroupNorm(2, 2),
            nn.Conv1d(2, 4, 3, padding=1),
            nn.BatchNorm1d(4),
            nn.SiLU(),
            nn.MaxPool1d(2),
            nn.Hardswish(),
            nn.AdaptiveAvgPool1d(2),
            nn.Hardsigmoid(),
        ),
        (2, 2, 8),
        6e-3,
    ),
    "grouped": (
        lambda: nn.Sequential(
            nn.Conv2d(4, 8, 3, padding="same", groups=4),
            nn.GroupNorm(2, 8),
            nn.ReLU(),
            nn.Conv2d(8, 2, 3, stride=2, padding=2, dilation=2),
            nn.ConvTranspose2d(2, 4, 3, stride=2, padding=1, output_padding=1, groups=2),
            nn.AdaptiveMaxPool2d((4, 3)),
            nn.AdaptiveAvgPool2d((3, 2)),
        ),
        (2, 4, 6, 8),
        3e-3,
    ),
    "recurrent": (Recurrent, (2, 4, 3), 1e-2),
    "resnet": (ResNet, (2, 1, 6, 6), 3e-3),
    "attention by hand": (Attention, (2, 3, 8), 6e-3),
    "masked attention": (Masked, (3, 2, 8), 3e-3),
    "encoder": (encoder, (2, 3, 8), 2e-2),
    "pre-norm encoder": (lambda: encoder(norm_first=True, activation="gelu"), (2, 3, 8), 2e-2),
    "operators": (Odds, (3, 4), 1e-3),
}


def made(name):
    torch.manual_seed(1)
    make, shape, _ = MODULES[name]
    generator = torch.Generator().manual_seed(2)
    return trained(make()), torch.rand(shape, generator=generator, dtype=torch.float64) * 2 - 1


def run_private(model, x, *, protocol, bound=1.0):
    def program(ops):
        secret = ops.input("x", owner=ALICE, shape=tuple(x.shape), bound=bound)
        weights = {
            key: ops.input(
                key,
                owner=BOB,
                shape=tuple(value.shape),
                bound=size_of(quarters_of(float(value.abs().max()))),
            )
            for key, value in model.weights.items()
        }
        return ops.open(model(ops, weights, secret), to=(ALICE,), what="answers", why="test")

    run = simulate(program, protocol=protocol, inputs={ALICE: {"x": x}, BOB: dict(model.weights)})
    assert run.metered == run.plan.cost
    return run.values[ALICE]


@pytest.mark.parametrize("name", MODULES)
def test_our_plain_ops_do_what_torch_does(name):
    module, x = made(name)
    model = import_module(module)
    assert torch.allclose(model(TorchOps(), model.weights, x), module(x), atol=1e-10)


PRIVATE = [
    # Cells one after another, each with tags; their gradients are tested every day.
    pytest.param(
        protocol, name, marks=[pytest.mark.slow] * ((protocol, name) == ("checked", "recurrent"))
    )
    for protocol in PROTOCOLS
    for name in MODULES
]


@pytest.mark.parametrize(("protocol", "name"), PRIVATE)
def test_a_protocol_gives_the_same_within_its_error(protocol, name):
    module, x = made(name)
    got = run_private(import_module(module), x, protocol=protocol)
    assert (got - module(x)).abs().max() < MODULES[name][2]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_an_embedding_is_read_at_secret_ids(protocol):
    torch.manual_seed(3)
    module = nn.Sequential(nn.Embedding(6, 4), nn.RMSNorm(4), nn.Flatten(), nn.Linear(8, 2))
    module = module.eval().double()
    ids = torch.tensor([[0, 5], [3, 3]])
    got = run_private(import_module(module), ids.double(), protocol=protocol, bound=5.0)
    assert (got - module(ids)).abs().max() < 6e-3


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_hidden_values_saturate_at_a_cap_and_are_right_below_it(protocol):
    torch.manual_seed(5)
    deep = [layer for _ in range(9) for layer in (nn.Linear(16, 16), nn.ReLU())]
    module = nn.Sequential(*deep).eval().double()
    for layer in module[::2]:
        layer.weight.data.mul_(6)
    x = torch.rand(2, 16, dtype=torch.float64)
    loose = replace(import_module(module), gains={})
    with pytest.raises(RangeError, match="fraction bits"):
        run_private(loose, x, protocol=protocol)
    assert module(x).abs().max() > 100
    capped = replace(loose, cap=4096.0)
    assert (run_private(capped, x, protocol=protocol) - module(x)).abs().max() < 1e-3 * 4096
    low = run_private(replace(loose, cap=2.0), x, protocol=protocol)
    assert low.abs().max() <= 2.0 + 2.0**-16


@pytest.mark.parametrize(
    ("module", "words"),
    [
        (nn.Sequential(nn.Linear(3, 3), nn.CELU()), ["'1'", "CELU", "supported are"]),
        (nn.Sequential(nn.Conv2d(2, 2, 1, padding_mode="circular")), ["'0'", "must be zeros"]),
        (nn.Sequential(nn.MaxPool2d(2, ceil_mode=True)), ["'0'", "ceil_mode"]),
        (nn.Sequential(nn.LayerNorm((3, 3))), ["'0'", "last dimension"]),
        (nn.Sequential(nn.BatchNorm1d(3, track_running_stats=False)), ["'0'", "statistics"]),
        (nn.Sequential(nn.RNN(3, 3)), ["'0'", "RNN"]),
    ],
)
def test_an_unsupported_layer_is_named_with_its_place(module, words):
    with pytest.raises(InputError) as caught:
        import_module(module)
    assert all(word in str(caught.value) for word in words)


class Inner(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (lambda x: torch.cumsum(x, dim=0), ["'cumsum'", "'outer.1'", "not supported"]),
        (lambda x: torch.clamp(x, x), ["'clamp'", "'outer.1'", "bounds that are numbers"]),
        (lambda x: x.mean(dim=1, dtype=torch.float64), ["'mean'", "dtype"]),
        (lambda x: x @ x.T, ["'getattr'", "'T'"]),
        (lambda x: x**3, ["'pow'", "got 3"]),
        (lambda x: x[x.shape], ["'getitem'", "index"]),
        (lambda x: x // 2, ["'floordiv'", "shapes alone"]),
        (lambda x: (x, x), ["one tensor"]),
    ],
)
def test_an_unsupported_operation_is_named_with_its_place(function, words):
    outer = nn.Sequential(nn.Identity(), Inner(function))
    module = nn.Sequential()
    module.add_module("outer", outer)

    def run():
        model = import_module(module)
        return model(TorchOps(), model.weights, torch.ones(2, 2))

    with pytest.raises(InputError) as caught:
        run()
    assert all(word in str(caught.value) for word in words), str(caught.value)


def test_a_shape_that_does_not_fit_is_refused_with_its_place():
    model = import_module(nn.Sequential(nn.Linear(4, 3), nn.Linear(5, 2)))
    with pytest.raises(InputError, match=r"layer 1.*cannot multiply"):
        run_private(model, torch.ones(2, 4), protocol="sealed")


def test_a_module_of_two_inputs_is_refused():
    class Two(nn.Module):
        def forward(self, x, y):
            return x + y

    with pytest.raises(InputError, match="one input, got 2: x, y"):
        import_module(Two())


def test_a_broken_parameter_is_refused():
    module = nn.Linear(2, 2)
    module.weight.data[0, 0] = float("nan")
    with pytest.raises(RangeError, match="weight"):
        import_module(nn.Sequential(module))


def test_a_module_that_branches_on_values_is_refused():
    class Branching(nn.Module):
        def forward(self, x):
            return x if x.sum() > 0 else -x

    with pytest.raises(InputError, match="whatever its input"):
        import_module(Branching())


@pytest.mark.parametrize("name", MODULES)
def test_every_module_can_be_trained(name):
    module, x = made(name)
    parameters = dict(module.named_parameters())
    x = x.clone().requires_grad_()
    plain = module(x)
    above = torch.linspace(-1.0, 1.0, plain.numel(), dtype=torch.float64).view(plain.shape)
    by_input, *by_weights = torch.autograd.grad(plain, [x, *parameters.values()], above)
    imported = import_module(module)
    ops = GradientOps(TorchOps())
    leaves = {key: ops.leaf(value) for key, value in imported.weights.items()}
    start = ops.leaf(x.detach())
    out = imported(ops, leaves, start)
    # Batch norms are folded into factors and offsets, which torch has no names for.
    known = {key.replace(".", "/"): one for key, one in zip(parameters, by_weights, strict=True)}
    shared = [key for key in leaves if key in known]
    got = pull_back(TorchOps(), out, above, [start, *(leaves[key] for key in shared)])
    for mine, theirs in zip(got, [by_input, *(known[key] for key in shared)], strict=True):
        torch.testing.assert_close(mine, theirs, atol=1e-6, rtol=1e-5)
