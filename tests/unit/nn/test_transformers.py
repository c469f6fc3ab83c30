"""Blocks of Transformers as people write them in torch: imported, differentiated, trained."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from support.mpc import ALICE, BOB, simulate
from tacit.errors import InputError
from tacit.nn import TorchOps, import_module, make_model
from tacit.nn.gradient import GradientOps, pull_back

WIDTH, TOKENS, HEADS, GROUPS = 8, 3, 4, 2
SIDE = WIDTH // HEADS


def heads_of(x, count):
    return x.view(x.shape[0], x.shape[1], count, SIDE).transpose(1, 2)


class Llama(nn.Module):
    """Norm of squares, rotary positions from buffers, keys shared by heads, a gated network."""

    def __init__(self):
        super().__init__()
        self.before, self.after = nn.RMSNorm(WIDTH, eps=1e-5), nn.RMSNorm(WIDTH, eps=1e-5)
        self.q = nn.Linear(WIDTH, WIDTH, bias=False)
        self.k, self.v = (nn.Linear(WIDTH, GROUPS * SIDE, bias=False) for _ in range(2))
        self.out = nn.Linear(WIDTH, WIDTH, bias=False)
        self.gate, self.up = (nn.Linear(WIDTH, 12, bias=False) for _ in range(2))
        self.down = nn.Linear(12, WIDTH, bias=False)
        angles = torch.arange(5.0)[:, None] * 10000.0 ** -torch.arange(0, SIDE, 2).div(SIDE)
        self.register_buffer("cos", torch.cat((angles, angles), -1).cos())
        self.register_buffer("sin", torch.cat((angles, angles), -1).sin())

    def turn(self, x):
        cos = self.cos[: x.shape[2]].unsqueeze(0).unsqueeze(0)
        sin = self.sin[: x.shape[2]].to(x.dtype)
        first, last = x.chunk(2, dim=-1)
        return x * cos + torch.cat((-last, first), dim=-1) * sin

    def forward(self, x):
        y = self.before(x)
        q, k = self.turn(heads_of(self.q(y), HEADS)), self.turn(heads_of(self.k(y), GROUPS))
        k = k.repeat_interleave(HEADS // GROUPS, dim=1)
        v = heads_of(self.v(y), GROUPS)[:, :, None]
        v = v.expand(v.shape[0], GROUPS, HEADS // GROUPS, v.shape[3], SIDE)
        v = v.reshape(v.shape[0], HEADS, v.shape[3], SIDE)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(x.shape[0], x.shape[1], WIDTH))
        y = self.after(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Gpt2(nn.Module):
    """Learned positions by public numbers, one product for queries, keys and values, GELU."""

    def __init__(self):
        super().__init__()
        self.places = nn.Embedding(5, WIDTH)
        self.before, self.after = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 16), nn.Linear(16, WIDTH)
        self.head = nn.Linear(WIDTH, WIDTH, bias=False)
        self.head.weight = self.out.weight  # tied, as a head and its embeddings are
        self.register_buffer("positions", torch.arange(5)[None])

    def forward(self, x):
        x = x + self.places(self.positions[:, : x.shape[1]])
        q, k, v = self.qkv(self.before(x)).split(WIDTH, dim=2)
        q, k, v = (heads_of(part, HEADS) for part in (q, k, v))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(x.shape[0], x.shape[1], WIDTH))
        return self.head(x + self.down(F.gelu(self.up(self.after(x)))))


class Encoder(nn.Module):
    """Torch's own layer, on rows brought to a mean and a spread that are buffers."""

    def __init__(self):
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(WIDTH, 2, 12, dropout=0.0, batch_first=True)
        self.register_buffer("mean", torch.full((WIDTH,), 0.125))
        self.register_buffer("spread", torch.linspace(0.5, 1.5, WIDTH))

    def forward(self, x):
        return self.layer((x - self.mean) / self.spread)


class Vit(nn.Module):
    """Patches by a convolution, a learned token in front, learned positions."""

    def __init__(self):
        super().__init__()
        self.patches = nn.Conv2d(1, WIDTH, 2, 2)
        self.token = nn.Parameter(torch.rand(1, 1, WIDTH) - 0.5)
        self.positions = nn.Parameter(torch.rand(1, 5, WIDTH) - 0.5)
        self.layer = nn.TransformerEncoderLayer(
            WIDTH, 2, 12, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
        )
        self.norm = nn.LayerNorm(WIDTH)

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat((self.token.expand(x.shape[0], -1, -1), x), dim=1) + self.positions
        return self.norm(self.layer(x))


ROWS = {Llama: (TOKENS, WIDTH), Gpt2: (TOKENS, WIDTH), Encoder: (TOKENS, WIDTH), Vit: (1, 4, 4)}


class Scored(nn.Module):
    """One row of scores of a block, as a training wants them."""

    def __init__(self, block):
        super().__init__()
        self.block, self.head = block(), nn.Linear(WIDTH, 2)

    def forward(self, x):
        return self.head(self.block(x).mean(dim=1))


def made(block):
    torch.manual_seed(3)
    module = Scored(block).eval().double()
    with torch.no_grad():
        for value in module.parameters():
            value.add_(torch.rand_like(value) * 0.2)
    x = torch.rand(2, *ROWS[block], dtype=torch.float64) * 2 - 1
    return module, x


def gradients(module, x, above, *, is_private):
    model = make_model(module, tuple(x.shape[1:]), cap=16.0).frozen()

    def program(ops):
        weights = {
            name: ops.input(name, owner=ALICE, shape=tuple(value.shape), bound=2.0)
            for name, value in model.initial.items()
        }
        rows = ops.input("x", owner=BOB, shape=tuple(x.shape), bound=1.0)
        error = ops.input("above", owner=BOB, shape=tuple(above.shape), bound=1.0)
        found = differentiated(ops, model, weights, rows, error)
        return [ops.open(ops.normalise_scale(g), to=(ALICE,), what="g", why="t") for g in found]

    if not is_private:
        return model, differentiated(TorchOps(), model, model.initial, x, above)
    inputs = {ALICE: dict(model.initial), BOB: {"x": x, "above": above}}
    return model, simulate(program, protocol="sealed", inputs=inputs).values[ALICE]


def differentiated(ops, model, weights, rows, error):
    tape = GradientOps(ops, cap=16.0)
    leaves = {name: tape.leaf(value) for name, value in weights.items()}
    out = model(tape, leaves, tape.leaf(rows))
    return pull_back(ops, out, error, list(leaves.values()))


def gradients_of(module):
    """Return torch's gradients by our names: attention's joint product is three, with its scale."""
    found = {}
    for name, value in module.named_parameters():
        *path, last = name.split(".")
        if last.startswith("in_proj_"):
            scale = module.get_submodule(".".join(path)).head_dim ** 0.5
            for which, part in zip("qkv", value.grad.chunk(3), strict=True):
                key = "/".join((*path, f"{which}_{last.removeprefix('in_proj_')}"))
                found[key] = part * (scale if which == "q" else 1.0)
        else:
            found[name.replace(".", "/")] = value.grad
    return found


@pytest.mark.parametrize("is_private", [False, True], ids=["clear", "sealed"])
@pytest.mark.parametrize("block", ROWS)
def test_the_gradients_of_a_block_are_those_of_torch(block, is_private):
    module, x = made(block)
    above = torch.tensor([[1.0, -0.5], [-0.75, 1.0]], dtype=torch.float64)
    model, got = gradients(module, x, above, is_private=is_private)
    module(x).backward(above)
    wanted = gradients_of(module)
    mine = torch.cat([g.flatten() for g in got])
    theirs = torch.cat([wanted[name].flatten() for name in model.initial])
    error = float((mine - theirs).norm() / theirs.norm())
    assert error < (0.005 if is_private else 1e-5)


@pytest.mark.parametrize("block", ROWS)
def test_buffers_are_no_weights_and_come_back_as_they_were(block):
    module, x = made(block)
    model = make_model(module, tuple(x.shape[1:])).frozen()
    buffers = {name: value.clone() for name, value in module.named_buffers()}
    assert not {name.replace(".", "/") for name in buffers} & model.initial.keys()
    changed = {name: value + 0.25 for name, value in model.initial.items()}
    module.load_state_dict(model.state(changed))
    for name, value in module.named_buffers():
        assert torch.equal(value, buffers[name]), name
    torch.testing.assert_close(module(x), model(TorchOps(), changed, x), atol=1e-6, rtol=1e-6)


def test_the_statistics_of_a_norm_are_not_trained():
    torch.manual_seed(4)
    module = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.BatchNorm1d(4, affine=False))
    module(torch.randn(9, 3) * 2 + 1)
    module = module.eval().double()
    model = make_model(module, (3,)).frozen()
    assert model.initial.keys() == {"0/weight", "0/bias", "1/factor", "1/offset"}
    statistics = {name: value.clone() for name, value in module.named_buffers()}
    changed = {name: value * 1.5 for name, value in model.initial.items()}
    module.load_state_dict(model.state(changed))
    for name, value in module.named_buffers():
        torch.testing.assert_close(value, statistics[name], atol=1e-12, rtol=1e-9)
    x = torch.randn(5, 3, dtype=torch.float64)
    torch.testing.assert_close(module(x), model(TorchOps(), changed, x))
    module[1].bias.requires_grad_(False)
    with pytest.raises(InputError, match="'1': train the gain and the offset of a norm, or neith"):
        make_model(module, (3,))


def test_a_model_that_is_only_used_keeps_its_buffers_and_frozen_parameters_secret():
    module, x = made(Encoder)
    module.requires_grad_(False)
    used = import_module(module)
    held = {name.replace(".", "/") for name, _ in module.named_buffers()}
    assert held <= used.weights.keys()
    assert not used.public
    # A job that serves a model makes it so, too: only a training makes public what stays.
    assert make_model(module, tuple(x.shape[1:])).initial.keys() == used.weights.keys()
