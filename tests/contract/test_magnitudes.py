"""Functions at every magnitude that a bound allows: what is planned is right, up to the bound."""

from math import log10

import pytest
import torch
from torch.nn import functional

from support.mpc import ALICE, simulate
from tacit.errors import RangeError
from tacit.mpc import PROTOCOLS

BOUNDS = (2.0**13, 2.0**17, 2.0**21, 2.0**30)
ALONE = "sealed; linear: he; activations: garbled"
FEW, MANY = 24, 520
"""Of up to 512 numbers all pieces are compared at once; of more, the leading bit comes first."""
POLES = {
    "log": torch.log,
    "sqrt": torch.sqrt,
    "rsqrt": torch.rsqrt,
    "reciprocal": torch.reciprocal,
}
NORMS = {
    "layer_norm": lambda x: functional.layer_norm(x, (8,)),
    "rms_norm": lambda x: functional.rms_norm(x, (8,), eps=1e-5),
}


def evaluate(private, inputs, *, protocol, frac_bits):
    """Apply a function to inputs by their bounds; None for a plan that is refused."""

    def program(ops):
        opened = {}
        for bound, x in inputs.items():
            secret = ops.input(f"{bound}", owner=ALICE, shape=tuple(x.shape), bound=bound)
            value = private(ops, secret)
            opened[bound] = ops.open(value, to=(ALICE,), what="f(x)", why="test")
        return opened

    words = {ALICE: {f"{bound}": x for bound, x in inputs.items()}}
    run = simulate(program, protocol=protocol, inputs=words, frac_bits=frac_bits)
    assert run.metered == run.plan.cost
    return run.values[ALICE]


def spread(count, bound, frac_bits):
    """Draw numbers of every magnitude up to a bound, the bound among them."""
    x = torch.logspace(-1, log10(bound), count, dtype=torch.float64).clamp(max=bound)
    return (x * 2**frac_bits).round() / 2**frac_bits


@pytest.mark.parametrize("count", [FEW, MANY])
@pytest.mark.parametrize("frac_bits", [12, 16, pytest.param(20, marks=pytest.mark.slow)])
@pytest.mark.parametrize("protocol", [*PROTOCOLS, pytest.param(ALONE, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", POLES)
def test_functions_with_a_pole_are_right_up_to_the_bound(name, protocol, frac_bits, count):
    below = torch.tensor([0.0, -1.0], dtype=torch.float64)
    inputs = {
        bound: torch.cat((spread(count - 3, bound, frac_bits), below, below.new_tensor([-bound])))
        for bound in BOUNDS
        # The root of the largest numbers, as precise as it has to be, has no room in the word.
        if not (name == "sqrt" and bound == 2.0**30 and frac_bits == 20)
    }
    got = evaluate(
        lambda ops, x: getattr(ops, name)(x), inputs, protocol=protocol, frac_bits=frac_bits
    )
    unit = 2.0 ** max(0, 16 - frac_bits)
    for bound, x in inputs.items():
        wanted, found = POLES[name](x[:-3]), got[bound]
        off = (found[:-3] - wanted).abs()
        share = 0.006 if name == "sqrt" else 0.002
        assert (off <= share * wanted.abs() + 2e-4 * unit).all(), bound
        # Below the range they stay at their value at 2^-8, however large a negative number is.
        least = 0.0 if name == "sqrt" else float(POLES[name](torch.tensor(2.0**-8)))
        assert (found[-3:] - least).abs().max() <= 0.003 * abs(least) + 2e-4 * unit, bound


@pytest.mark.parametrize("count", [FEW, MANY])
@pytest.mark.parametrize("frac_bits", [12, 13, 14, 16])
@pytest.mark.parametrize("protocol", ["sealed", "checked"])
@pytest.mark.parametrize("name", NORMS)
def test_norms_are_right_up_to_the_bound(name, protocol, frac_bits, count):
    coins = torch.Generator().manual_seed(3)
    inputs = {}
    for bound in (8.0, 64.0, 1000.0):
        deviations = torch.logspace(0, log10(bound / 2), count, dtype=torch.float64)[:, None]
        x = torch.randn((count, 8), generator=coins, dtype=torch.float64) * deviations
        inputs[bound] = (x.clamp(-bound, bound) * 2**frac_bits).round() / 2**frac_bits
    got = evaluate(
        lambda ops, x: getattr(ops, name)(x, eps=1e-5),
        inputs,
        protocol=protocol,
        frac_bits=frac_bits,
    )
    for bound, x in inputs.items():
        assert (got[bound] - NORMS[name](x)).abs().max() < 6e-3, bound


@pytest.mark.parametrize("name", POLES)
def test_a_root_that_has_no_room_is_refused_and_nothing_else_is(name):
    def plan(frac_bits):
        x = {2.0**30: spread(3, 2.0**30, frac_bits)}
        return evaluate(
            lambda ops, x: getattr(ops, name)(x), x, protocol="sealed", frac_bits=frac_bits
        )

    if name == "sqrt":
        with pytest.raises(RangeError, match="need more than 62 bits"):
            plan(24)
    else:
        plan(24)
