"""Adapters: they start where the module is, learn alone, cost less, and can be merged."""

from functools import partial

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from support.mpc import ROLES
from support.training import train_plan
from tacit import ring
from tacit.data import Holding
from tacit.errors import ConfigError
from tacit.mpc import PROTOCOLS, find_protocol, make_plan
from tacit.nn import TorchOps, add_adapters, make_model, merge_adapters, parse_layers
from tacit.training import Programs, train_plain

WIDTH, TOKENS = 128, 8


class Block(nn.Module):
    """A block as GPT-2 has it, and a head."""

    def __init__(self):
        super().__init__()
        self.before, self.after = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        self.head = nn.Linear(WIDTH, 4)

    def forward(self, x):
        q, k, v = self.qkv(self.before(x)).split(WIDTH, dim=2)
        q, k, v = (part.unflatten(2, (4, WIDTH // 4)).transpose(1, 2) for part in (q, k, v))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        x = x + self.down(F.gelu(self.up(self.after(x))))
        return self.head(x.mean(dim=1))


def online_bytes(module, protocol):
    task = train_plan(
        roles=ROLES,
        protocol=protocol,
        model=make_model(module, (TOKENS, WIDTH), cap=8.0),
        holdings=(Holding(ROLES.first, 4, (TOKENS, WIDTH), "classes"),),
        split="rows",
        test_rows=1,
        batch=1,
        weight_bound=0.5,
        cap=1.0,
    )
    program = partial(Programs(task).step, rate=0.1)
    plan = make_plan(program, find_protocol(protocol), ROLES, frac_bits=16)
    return sum(one.payload_bytes for one in plan.cost.traffic if one.phase == "online")


@pytest.mark.parametrize("protocol", ["sealed", "permuted3"])
def test_a_step_of_adapters_sends_at_most_three_fifths_of_a_whole_step(protocol):
    module = Block()
    adapted = add_adapters(module, rank=4, seed=1, keep_training=["head"])
    assert online_bytes(adapted, protocol) <= 0.6 * online_bytes(module, protocol)


def test_adapters_of_some_layers_leave_the_others_as_they_are():
    adapted = add_adapters(Block(), rank=2, seed=1, only=["qkv"])
    trained = {name for name, value in adapted.named_parameters() if value.requires_grad}
    assert trained == {"qkv.down.weight", "qkv.up.weight"}
    everywhere = add_adapters(Block(), rank=2, seed=1)
    assert online_bytes(adapted, "sealed") < online_bytes(everywhere, "sealed")


def test_adapters_start_where_the_module_is_and_learn_alone():
    module = nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Sequential(nn.Linear(5, 4)), nn.Flatten())
    adapted = add_adapters(module, rank=2, seed=1, keep_training=["2"])
    x = torch.rand(3, 6)
    assert torch.equal(adapted(x), module(x))
    assert all(value.requires_grad for value in module.parameters())
    trained = {"0/down/weight", "0/up/weight", "2/0/weight", "2/0/bias"}
    model = make_model(adapted, (6,)).frozen()
    assert model.initial.keys() == trained
    changed = {name: value + 0.5 for name, value in model.initial.items()}
    adapted.load_state_dict(model.state(changed))
    assert torch.equal(adapted.get_submodule("0.base").weight, module[0].weight)
    merged = merge_adapters(adapted)
    assert list(merged.state_dict()) == list(module.state_dict())
    wanted = model(TorchOps(), changed, x.double()).float()
    torch.testing.assert_close(merged(x), wanted)
    torch.testing.assert_close(adapted(x), wanted)


@pytest.mark.parametrize("protocol", [name for name in PROTOCOLS if name != "checked"])
def test_adapters_train_in_private_as_in_the_clear(protocol, make_task, run_training, digits):
    rows, labels = digits
    base = parse_layers(("dense 12", "relu", "dense 10"), (64,), seed=1)
    model = make_model(add_adapters(base, rank=4, seed=2), (64,))
    task = make_task(model=model, protocol=protocol, give_to=ROLES.computing, rate=1.0, epochs=4)
    half = len(rows) // 2
    mine = {ROLES.first: (rows[:half], labels[:half]), ROLES.second: (rows[half:], labels[half:])}
    found = run_training(task, mine)
    private, plain = found[ROLES.first].shown, train_plain(task, rows, labels)
    assert plain[-1][1] < 0.99 * plain[0][1]
    for (step, loss, _), (other, wanted, _) in zip(private, plain, strict=True):
        assert step == other
        assert loss == pytest.approx(wanted, abs=0.02)
    assert found[ROLES.first].weights.keys() == task.model.initial.keys()
    assert all(name.split("/")[1] != "base" for name in task.model.initial)
    shares = [found[name].shares for name in ROLES.computing]
    assert shares[0].keys() == shares[1].keys() == model.initial.keys()
    name = "0/base/weight"
    served = ring.decode(shares[0][name] + shares[1][name], frac_bits=task.frac_bits)
    torch.testing.assert_close(served, model.initial[name], atol=2.0**-16, rtol=0)


@pytest.mark.parametrize(
    ("module", "changes", "words"),
    [
        (nn.Linear(4, 3), {"rank": 3}, "a rank from 1 to 2, got 3"),
        (nn.Linear(4, 3), {"keep_training": ["head"]}, "no layer 'head'"),
        (nn.Linear(4, 3), {"only": ["qkv"]}, "no nn.Linear .* among qkv"),
        (nn.TransformerEncoderLayer(8, 2, 12, batch_first=True), {}, "no nn.Linear"),
    ],
)
def test_adapters_that_cannot_be_are_refused(module, changes, words):
    with pytest.raises(ConfigError, match=words):
        add_adapters(module, **{"rank": 2, "seed": 0, **changes})
