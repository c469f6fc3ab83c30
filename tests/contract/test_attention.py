"""Attention as a function of ops, under every interpreter."""

import pytest
import torch
from torch.nn import functional

from support.mpc import ALICE, simulate
from tacit.errors import InputError
from tacit.mpc import PROTOCOLS
from tacit.nn import TorchOps, attention, causal_mask, quarters_of, size_of


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


def test_heads_that_groups_do_not_share_are_refused():
    with pytest.raises(InputError, match="3 heads"):
        attention(TorchOps(), uniform(1, 3, 2, 4), *(uniform(1, 2, 2, 4),) * 2)
