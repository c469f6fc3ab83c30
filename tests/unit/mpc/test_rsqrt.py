"""The inverse root that clipping rests on: never above the true one, after every rounding."""

import pytest
import torch

from support.mpc import ALICE, simulate
from tacit.mpc.functions.poles import FEW, decline_curve
from tacit.mpc.ops import ProtocolOps

FRAC_BITS = 16
LOW, HIGH = -8, 16
"""Binary exponents of the range for which `rsqrt_below` is meant."""


def arguments(count, seed=0):
    """Draw words over all octaves, and add every neighbour of a breakpoint of the kernels."""
    coins = torch.Generator().manual_seed(seed)
    spread = LOW + (HIGH - LOW) * torch.rand(count, generator=coins, dtype=torch.float64)
    octaves = [2.0**k * (1 + j / 8) for k in range(LOW, HIGH) for j in range(8)]
    edges = [round(edge * 2**FRAC_BITS) for edge in octaves]
    edges += [*decline_curve("rsqrt", FRAC_BITS, 2.0**HIGH).breaks, 2 ** (FRAC_BITS + HIGH)]
    near = torch.tensor(edges)[:, None] + torch.arange(-3, 4)
    words = torch.cat([(2.0**spread * 2**FRAC_BITS).round().long(), near.reshape(-1)])
    return words.clamp(2 ** (FRAC_BITS + LOW), 2 ** (FRAC_BITS + HIGH)).double() / 2**FRAC_BITS


def roots(x, protocol):
    def program(ops):
        secret = ops.input("x", owner=ALICE, shape=tuple(x.shape), bound=2.0**HIGH)
        found = ops.normalise_scale(ops.rsqrt_below(secret))
        return ops.open(found, to=(ALICE,), what="f(x)", why="test")

    return simulate(program, protocol=protocol, inputs={ALICE: {"x": x}}).values[ALICE]


def check(x, protocol):
    gap = x.rsqrt() - roots(x, protocol)
    assert gap.min() >= 0
    assert (gap <= 0.006 * x.rsqrt() + 2.0**-11).all()


@pytest.mark.parametrize("protocol", ["sealed", "permuted3"])
def test_the_inverse_root_from_below_is_never_above_the_true_one(protocol):
    check(arguments(100_000), protocol)


def test_a_few_values_take_another_way_and_stay_below_too():
    x = arguments(0)
    for first in range(0, len(x), FEW):
        check(x[first : first + FEW], "sealed")


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_a_million_inverse_roots_are_never_above_the_true_ones(seed):
    check(arguments(250_000, seed=1 + seed), "sealed")


def test_without_its_margin_the_inverse_root_is_sometimes_above(monkeypatch):
    monkeypatch.setattr(ProtocolOps, "rsqrt_below", ProtocolOps.rsqrt)
    with pytest.raises(AssertionError):
        check(arguments(10_000), "sealed")
