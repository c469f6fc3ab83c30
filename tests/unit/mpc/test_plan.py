import dataclasses

import pytest
import torch

from support.mpc import ALICE, BOB, MEETING, PARTIES, ROLES, simulate
from tacit.errors import ConfigError, DisagreementError, InputError
from tacit.mpc import PROTOCOLS, Roles, compute, make_plan, serve
from tacit.mpc.functions.norms import RangeWatch
from tacit.party import run_threads


def program(rows=3, bound=1.0):
    def run(ops):
        x = ops.input("x", owner=ALICE, shape=(rows,), bound=bound)
        return ops.open(ops.mul(x, x), to=(BOB,), what="square", why="test")

    return run


def digest(*arguments, protocol="sealed", frac_bits=16, roles=ROLES, **changes):
    return make_plan(
        program(*arguments, **changes), PROTOCOLS[protocol], roles, frac_bits=frac_bits
    ).digest()


def test_equal_programs_have_equal_plans():
    assert digest() == digest()


@pytest.mark.parametrize(
    "change",
    [
        {"rows": 4},
        {"bound": 2.0},
        {"protocol": "permuted3"},
        {"frac_bits": 17},
        {"roles": Roles(BOB, ALICE, "carol")},
    ],
)
def test_any_public_difference_changes_the_hash_of_the_plan(change):
    assert digest(**change) != digest()


def test_a_program_that_leaves_the_plan_is_stopped():
    calls = []

    def fickle(ops):
        calls.append(ops)
        x = ops.input("x", owner=ALICE, shape=(2,), bound=1.0)
        if len(calls) > 1:  # the plan has been made
            x = ops.scale(x, 2)
        return ops.open(x, to=(BOB,), what="x", why="test")

    with pytest.raises(DisagreementError, match="step 1"):
        simulate(fickle, inputs={ALICE: {"x": torch.ones(2)}})


def test_a_product_is_truncated_only_when_its_extra_bits_are_in_the_way():
    plan = make_plan(program(), PROTOCOLS["sealed"], ROLES, frac_bits=16)
    names = [type(step.kernel).__name__ for step in plan.steps]
    assert names == ["Input", "OpenMasked", "Multiply", "Truncate", "Open"]

    def sign(ops):
        x = ops.input("x", owner=ALICE, shape=(3,), bound=1.0)
        ops.open(ops.is_positive(ops.mul(x, x)), to=(BOB,), what="sign", why="test")

    plan = make_plan(sign, PROTOCOLS["sealed"], ROLES, frac_bits=16)
    names = [type(step.kernel).__name__ for step in plan.steps]
    assert names == ["Input", "OpenMasked", "Multiply", "IsPositive", "Open"]


def test_a_dealer_who_computes_is_refused():
    with pytest.raises(ConfigError, match="three"):
        Roles("a", "b", "a")


def test_every_kernel_is_a_frozen_dataclass_so_that_plans_compare_and_hash():
    plan = make_plan(program(), PROTOCOLS["sealed"], ROLES, frac_bits=16)
    for step in plan.steps:
        assert dataclasses.is_dataclass(step.kernel)
        hash(step)


def test_a_message_that_no_link_carries_is_refused_when_planned():
    with pytest.raises(InputError, match="fewer rows"):
        digest(1 << 28)


def test_parties_that_run_different_programs_stop_before_computing():
    def party(session):
        factor = 3 if session.me == BOB else 2

        def doubled(ops):
            x = ops.input("x", owner=ALICE, shape=(2,), bound=1.0)
            return ops.open(ops.scale(x, factor), to=(BOB,), what="x", why="test")

        plan = make_plan(doubled, PROTOCOLS["sealed"], ROLES, frac_bits=16)
        if session.me in ROLES.computing:
            return compute(session, plan, doubled, inputs={"x": torch.ones(2)})
        return serve(session, plan, inputs={})

    with pytest.raises(DisagreementError, match="another plan"):
        run_threads(dict.fromkeys(PARTIES, party), MEETING)


def test_counts_of_very_many_rows_have_room():
    """28 layers of 32 heads with 64 tokens each have 57,344 rows of scores."""

    def program(ops):
        short = ops.input("short", owner=ALICE, shape=(3648,), bound=1.0, frac_bits=0)
        loud = ops.input("loud", owner=ALICE, shape=(57344,), bound=1.0, frac_bits=0)
        return ops.out_of_range(RangeWatch(short=[short], loud=[loud]))

    assert make_plan(program, PROTOCOLS["sealed"], ROLES, frac_bits=16).cost.online_rounds == 0
