"""Truncation: right for every bound, at a bit per element."""

import pytest
import torch

from support.mpc import ALICE, BOB, ROLES, simulate
from tacit.mpc import PROTOCOLS, make_plan

FRAC_BITS = 16
BOUNDS = (2.0**-3, 2.0, 100.0, 1000.0, 10_000.0)


def product(bound):
    def program(ops):
        x = ops.input("x", owner=ALICE, shape=(4000,), bound=bound)
        y = ops.input("y", owner=BOB, shape=(4000,), bound=bound)
        z = ops.normalise_scale(ops.mul(x, y))
        return ops.open(z, to=(ALICE,), what="x·y", why="test")

    return program


def operands(bound):
    generator = torch.Generator().manual_seed(5)
    largest = int(bound * 2**FRAC_BITS)
    drawn = torch.randint(-largest, largest + 1, (2, 4000), generator=generator)
    drawn[:, :5] = torch.tensor([[largest, -largest, largest, 0, 1], [largest, largest, 1, 0, -1]])
    return drawn


@pytest.mark.parametrize("bound", BOUNDS)
def test_a_product_is_less_than_one_unit_off_whatever_the_mask_was(bound):
    x, y = operands(bound)
    inputs = {ALICE: {"x": x.double() / 2**FRAC_BITS}, BOB: {"y": y.double() / 2**FRAC_BITS}}
    got = simulate(product(bound), protocol="sealed", inputs=inputs).values[ALICE]
    exact = (x * y).double() / 2 ** (2 * FRAC_BITS)
    assert ((got - exact).abs() * 2**FRAC_BITS).max() <= 1


def test_a_product_is_truncated_for_a_bit_per_element():
    plan = make_plan(product(2.0), PROTOCOLS["sealed"], ROLES, frac_bits=FRAC_BITS)
    (truncation,) = (step for step in plan.steps if type(step.kernel).__name__ == "Truncate")
    declared = truncation.kernel.declare(ROLES, *truncation.operands)
    words = -(-4000 // 64)
    assert [message.payload_bytes for message in declared.rounds[0]] == [8 * words] * 2
