import pytest
import torch

from support.mpc import ALICE, BOB, ROLES, simulate
from tacit.mpc import PROTOCOLS, make_plan

FRAC_BITS = 10


def words(count, largest, seed):
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.randint(-largest, largest + 1, (count,), generator=generator)
    drawn[:6] = torch.tensor([largest, -largest, 0, 1, -1, largest])
    return drawn


@pytest.mark.parametrize("bound", [0.5, 40.0, 2.0**20])
@pytest.mark.parametrize(("name", "plain"), [("relu", torch.relu), ("abs", torch.abs)])
def test_the_result_is_within_one_unit_of_the_exact_one_always(name, plain, bound):
    largest = int(bound * 2**FRAC_BITS)
    x, y = words(3000, largest, 1), words(3000, largest, 2)

    def program(ops):
        left = ops.input("x", owner=ALICE, shape=(3000,), bound=bound)
        right = ops.input("y", owner=BOB, shape=(3000,), bound=bound)
        result = ops.elementwise(name, ops.mul(left, right))
        return ops.open(result, to=(ALICE,), what="y", why="test")

    unit = 2.0**-FRAC_BITS
    inputs = {ALICE: {"x": x.double() * unit}, BOB: {"y": y.double() * unit}}
    run = simulate(program, inputs=inputs, frac_bits=FRAC_BITS)
    assert "FusedTruncateCompare" in [type(step.kernel).__name__ for step in run.plan.steps]
    assert run.metered == run.plan.cost
    exact = plain(x * y)  # 2 · FRAC_BITS fraction bits
    got = torch.round(run.values[ALICE] / unit).to(torch.int64) << FRAC_BITS
    assert (got - exact).abs().max() < 1 << FRAC_BITS
    if name == "relu":
        assert (got[exact == 0] == 0).all()
        assert (got >= 0).all()


def test_a_relu_of_a_product_takes_one_round_less_than_truncation_first():
    def fused(ops):
        x = ops.input("x", owner=ALICE, shape=(9000,), bound=8.0)
        ops.relu(ops.mul(x, x))

    def apart(ops):
        x = ops.input("x", owner=ALICE, shape=(9000,), bound=8.0)
        ops.relu(ops.normalise_scale(ops.mul(x, x)))

    one, two = (
        make_plan(program, PROTOCOLS["sealed"], ROLES, frac_bits=16).cost
        for program in (fused, apart)
    )
    assert one.online_rounds == two.online_rounds - 1


def test_a_value_that_was_truncated_already_is_not_opened_again_for_it():
    def program(ops):
        x = ops.input("x", owner=ALICE, shape=(3,), bound=8.0)
        product = ops.mul(x, x)
        ops.mul(product, x)
        ops.relu(product)

    plan = make_plan(program, PROTOCOLS["sealed"], ROLES, frac_bits=16)
    names = [type(step.kernel).__name__ for step in plan.steps]
    assert names.count("Truncate") == 1
    assert "FusedTruncateCompare" not in names
