"""Scaling before truncation: one truncation per weight of a step, and the right number."""

from functools import partial

import pytest
import torch

from support.mpc import ALICE, ROLES, simulate
from tacit.mpc import find_protocol, make_plan
from tacit.mpc.arithmetic.truncation import Truncate
from tacit.training.ops import PlainStepOps, scale_unnormalised
from tacit.training.programs import Programs


def test_a_step_of_sgd_truncates_the_gradient_of_the_first_layer_once(make_task):
    task = make_task(rate=0.1)
    program = partial(Programs(task).step, rate=0.1)
    plan = make_plan(program, find_protocol(task.spec.protocol.spelled), ROLES, frac_bits=16)
    shapes = [step.operands[0].shape for step in plan.steps if isinstance(step.kernel, Truncate)]
    assert sum(sorted(shape) == [12, 64] for shape in shapes) == 1


@pytest.mark.parametrize("factor", [0.1 / 128, 0.3, -7.7, 2.0**-7, 1e-3])
def test_a_product_before_truncation_is_scaled_by_the_factor(factor):
    x = torch.linspace(-1, 1, 12).double().reshape(3, 4)
    y = torch.linspace(2, -2, 12).double().reshape(3, 4)

    def program(ops):
        a = ops.input("x", owner=ALICE, shape=(3, 4), bound=1.0)
        b = ops.input("y", owner=ALICE, shape=(3, 4), bound=2.0)
        grown = scale_unnormalised(ops, ops.mul(a, b), factor, beside=a)
        return ops.open(ops.add(a, grown), to=(ALICE,), what="it", why="test")

    run = simulate(program, inputs={ALICE: {"x": x, "y": y}})
    wanted = x + scale_unnormalised(PlainStepOps(), x * y, factor, beside=x)
    error = (run.values[ALICE] - wanted).abs().max()
    assert error < 4 * 2.0**-16 + 2.0**-9 * abs(factor) * 2


def test_without_room_the_value_is_truncated_first():
    def program(ops):
        a = ops.input("x", owner=ALICE, shape=(2,), bound=2.0**13)
        return ops.open(
            ops.add(a, scale_unnormalised(ops, ops.mul(a, a), 0.3, beside=a)),
            to=(ALICE,),
            what="it",
            why="test",
        )

    x = torch.tensor([3.0, -5000.0]).double()
    run = simulate(program, inputs={ALICE: {"x": x}})
    torch.testing.assert_close(run.values[ALICE], x + 0.3 * x * x, atol=0.0, rtol=1e-4)
