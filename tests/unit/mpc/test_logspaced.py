from math import log

import pytest
import torch

from support.mpc import ALICE, BOB, CAROL, simulate
from tacit.errors import RangeError
from tacit.mpc import Roles, find_protocol, make_plan
from tacit.mpc.functions.poles import FEW, decline_curve, has_curve

OFF = {"rsqrt": 2e-5, "reciprocal": 6e-5, "log": 6e-5}
PLAIN = {"rsqrt": torch.rsqrt, "reciprocal": torch.reciprocal, "log": torch.log}


@pytest.mark.parametrize("name", PLAIN)
@pytest.mark.parametrize("frac_bits", [16, 20])
def test_few_values_take_few_rounds_and_are_accurate(name, frac_bits):
    x = torch.logspace(-2.4, log(999, 10), FEW - 2, dtype=torch.float64)
    x = torch.cat((x, torch.tensor([0.0, -900.0], dtype=torch.float64)))
    x = (x * 2**frac_bits).round() / 2**frac_bits

    def program(ops):
        secret = ops.input("x", owner=ALICE, shape=(FEW,), bound=1000.0)
        return ops.open(getattr(ops, name)(secret), to=(ALICE,), what="f(x)", why="test")

    run = simulate(program, inputs={ALICE: {"x": x}}, frac_bits=frac_bits)
    assert run.metered == run.plan.cost
    assert run.plan.cost.online_rounds <= 6  # with the opening
    got, inside = run.values[ALICE], x >= 2.0**-8
    exact = PLAIN[name](x[inside])
    scale = torch.ones_like(exact) if name == "log" else exact
    # What the pieces may be off, the steepest slope times half a unit, and two units.
    assert ((got[inside] - exact).abs() <= OFF[name] * scale + 2.0 ** (2 - frac_bits)).all()
    assert (got[-2:] - PLAIN[name](torch.tensor(2.0**-8))).abs().max() < 2.0**-8


def test_pieces_grow_with_the_argument():
    curve = decline_curve("rsqrt", 16, 1000.0)
    widths = torch.tensor(curve.breaks).diff()
    assert widths[-1] > 20 * widths[0]
    assert len(curve.breaks) < 330


@pytest.mark.parametrize("frac_bits", [8, 12, 16, 20, 24])
@pytest.mark.parametrize("name", PLAIN)
def test_pieces_that_would_be_too_many_are_refused_and_another_way_is_taken(name, frac_bits):
    def program(ops):
        x = ops.input("x", owner=ALICE, shape=(2,), bound=2.0**16)
        ops.open(getattr(ops, name)(x), to=(ALICE,), what="f(x)", why="test")

    roles = Roles(ALICE, BOB, CAROL)
    plan = make_plan(program, find_protocol("sealed"), roles, frac_bits=frac_bits)
    is_direct = has_curve(name, frac_bits, 2.0**16)
    assert (plan.cost.online_rounds <= 6) is is_direct
    if is_direct:
        assert len(decline_curve(name, frac_bits, 2.0**16).breaks) <= 2048
    else:
        with pytest.raises(RangeError, match="more than 2048 pieces"):
            decline_curve(name, frac_bits, 2.0**16)
