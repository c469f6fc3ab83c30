"""Attention and Transformer blocks as functions of ops, under every interpreter."""

import pytest
import torch
from torch.nn import functional

from support.mpc import ALICE, BOB, simulate
from tacit.errors import InputError
from tacit.mpc import PROTOCOLS
from tacit.nn import (
    Block,
    TorchOps,
    attention,
    causal_mask,
    quarters_of,
    rotary,
    size_of,
    transformer_block,
)


def uniform(*shape, seed=0, reach=1.0):
    generator = torch.Generator().manual_seed(seed)
    return (torch.rand(shape, generator=generator, dtype=torch.float64) * 2 - 1) * reach


def private(function, inputs, *, protocol):
    def program(ops):
        secrets = {
            name: ops.input(
                name, owner=owner, shape=tuple(value.shape), bound=size_of(quarters_of(largest))
            )
            for owner, tensors in inputs.items()
            for name, value in tensors.items()
            for largest in [float(value.abs().max())]
        }
        return ops.open(function(ops, secrets), to=(ALICE,), what="y", why="test")

    run = simulate(program, protocol=protocol, inputs=inputs)
    assert run.metered == run.plan.cost
    return run.values[ALICE]


def heads(groups):
    return {
        "q": uniform(1, 4, 3, 4),
        "k": uniform(1, groups, 5, 4, seed=1),
        "v": uniform(1, groups, 5, 2, seed=2),
    }


@pytest.mark.parametrize("groups", [4, 2, 1])
@pytest.mark.parametrize("is_causal", [False, True])
def test_plain_attention_is_that_of_torch(groups, is_causal):
    given = heads(groups)
    kept = causal_mask(3, 5) if is_causal else None
    got = attention(TorchOps(), *given.values(), kept=kept)
    wanted = functional.scaled_dot_product_attention(
        *given.values(), attn_mask=kept, enable_gqa=True
    )
    assert torch.allclose(got, wanted, atol=1e-12)


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("groups", [4, 2])
def test_private_attention_is_that_of_torch(protocol, groups):
    given, kept = heads(groups), causal_mask(3, 5)
    got = private(
        lambda ops, s: attention(ops, s["q"], s["k"], s["v"], kept=kept),
        {ALICE: given},
        protocol=protocol,
    )
    wanted = functional.scaled_dot_product_attention(
        *given.values(), attn_mask=kept, enable_gqa=True
    )
    assert (got - wanted).abs().max() < 3e-3


def turned(x):
    """Rotate pairs as complex numbers, which is how the paper writes it."""
    tokens, width = x.shape[-2:]
    speeds = 10_000.0 ** (-torch.arange(0, width, 2, dtype=torch.float64) / width)
    angles = torch.arange(tokens, dtype=torch.float64)[:, None] * speeds
    pairs = torch.complex(x[..., : width // 2], x[..., width // 2 :])
    moved = pairs * torch.polar(torch.ones_like(angles), angles)
    return torch.cat((moved.real, moved.imag), dim=-1)


def test_rotary_positions_turn_pairs():
    x = uniform(2, 2, 5, 6)
    assert torch.allclose(rotary(TorchOps(), x), turned(x), atol=1e-12)
    later = rotary(TorchOps(), x[..., 2:, :], first=2)
    assert torch.allclose(later, turned(x)[..., 2:, :], atol=1e-12)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_rotary_positions_cost_nothing_and_are_exact_up_to_rounding(protocol):
    x = uniform(1, 2, 5, 6)
    got = private(lambda ops, s: rotary(ops, s["x"]), {ALICE: {"x": x}}, protocol=protocol)
    assert (got - turned(x)).abs().max() < 2.0**-14


def weights(width, wide, groups, heads):
    small = width // heads * groups
    shapes = {
        "attention/query/weight": (width, width),
        "attention/key/weight": (width, small),
        "attention/value/weight": (width, small),
        "attention/value/bias": (small,),
        "attention/out/weight": (width, width),
        "attention/out/bias": (width,),
        "up/weight": (width, wide),
        "up/bias": (wide,),
        "down/weight": (wide, width),
        "down/bias": (width,),
        **{f"norm{at}/{what}": (width,) for at in (1, 2) for what in ("weight", "bias")},
    }
    return {
        name: uniform(*shape, seed=at, reach=1.0 if "norm" in name else 0.4)
        for at, (name, shape) in enumerate(shapes.items())
    }


BLOCKS = {
    "pre-norm, causal, grouped, rotary": Block(heads=4, groups=2, is_causal=True, has_rotary=True),
    "post-norm": Block(heads=2, norm_first=False),
}


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("name", BLOCKS)
def test_a_private_block_gives_what_a_plain_one_does(protocol, name):
    block = BLOCKS[name]
    x, given = uniform(1, 4, 8), weights(8, 16, block.groups or block.heads, block.heads)
    wanted = transformer_block(TorchOps(), given, x, block=block)
    got = private(
        lambda ops, s: transformer_block(ops, s, s["x"], block=block),
        {ALICE: {"x": x}, BOB: given},
        protocol=protocol,
    )
    assert (got - wanted).abs().max() < 2e-2


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (lambda ops: attention(ops, uniform(1, 3, 2, 4), *(uniform(1, 2, 2, 4),) * 2), "3 heads"),
        (lambda ops: rotary(ops, uniform(1, 2, 3)), "even width"),
    ],
)
def test_heads_and_widths_that_do_not_fit_are_refused(function, words):
    with pytest.raises(InputError, match=words):
        function(TorchOps())
