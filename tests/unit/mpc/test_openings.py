import pytest
import torch

from support.mpc import ALICE, BOB, CAROL, ROLES, simulate
from tacit.mpc import PROTOCOLS, make_plan
from tacit.mpc.arithmetic.opening import OpenMasked

ULP = 2.0**-16


def opened(plan):
    return [step for step in plan.steps if isinstance(step.kernel, OpenMasked)]


def values(*shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(*shape, generator=generator, dtype=torch.float64) * 2 - 1


def online_bytes(plan):
    return sum(one.payload_bytes for one in plan.cost.traffic if one.phase == "online")


@pytest.mark.parametrize("x_owner", [ALICE, BOB, CAROL])
@pytest.mark.parametrize("y_owner", [ALICE, BOB, CAROL])
def test_products_are_right_whoever_owns_the_operands(x_owner, y_owner):
    x, y = values(3, 4), values(4, 5, seed=1)

    def program(ops):
        left = ops.input("x", owner=x_owner, shape=(3, 4), bound=1.0)
        right = ops.input("y", owner=y_owner, shape=(4, 5), bound=1.0)
        results = ops.matmul(left, right), ops.mul(left, left), ops.square(ops.mul(left, left))
        return [ops.open(one, to=(ALICE,), what="z", why="test") for one in results]

    inputs = {ALICE: {}, BOB: {}, CAROL: {}}
    inputs[x_owner]["x"] = x
    inputs[y_owner]["y"] = y
    run = simulate(program, inputs=inputs)
    for got, wanted in zip(run.values[ALICE], (x @ y, x * x, x**4), strict=True):
        assert (got - wanted).abs().max() < 10 * ULP
    assert run.metered == run.plan.cost


def batches(ops, *, is_ahead):
    w = ops.input("w", owner=BOB, shape=(5, 4), bound=1.0)
    k = ops.input("k", owner=CAROL, shape=(2, 1, 3, 3), bound=1.0)
    if is_ahead:
        ops.cache_openings(w, k)
    opened = []
    for at in range(3):
        x = ops.input(f"x{at}", owner=ALICE, shape=(2, 4), bound=1.0)
        image = ops.input(f"i{at}", owner=ALICE, shape=(1, 1, 6, 6), bound=1.0)
        hidden = ops.matmul(x, ops.transpose(w, 0, 1))
        maps = ops.conv2d(image, k, stride=(1, 1), padding=(0, 0))
        opened.append(ops.open(hidden, to=(ALICE,), what="y", why="test"))
        opened.append(ops.open(maps, to=(ALICE,), what="y", why="test"))
    return opened


@pytest.mark.parametrize("is_ahead", [True, False])
def test_weights_are_opened_once_for_many_batches(is_ahead):
    def program(ops):
        return batches(ops, is_ahead=is_ahead)

    data = {f"x{at}": values(2, 4, seed=at) for at in range(3)}
    data |= {f"i{at}": values(1, 1, 6, 6, seed=9 + at) for at in range(3)}
    w, k = values(5, 4, seed=5), values(2, 1, 3, 3, seed=6)
    run = simulate(program, inputs={ALICE: data, BOB: {"w": w}, CAROL: {"k": k}})
    for at in range(3):
        hidden, maps = run.values[ALICE][2 * at : 2 * at + 2]
        assert (hidden - data[f"x{at}"] @ w.T).abs().max() < 10 * ULP
        wanted = torch.nn.functional.conv2d(data[f"i{at}"], k)
        assert (maps - wanted).abs().max() < 10 * ULP
    weights = [s for step in opened(run.plan) for s in step.operands if s.shape[0] not in (1, 2)]
    assert len(weights) == 1
    assert run.metered == run.plan.cost


def test_weights_that_are_held_ahead_cost_nothing_online():
    """Online there are only the activations, one way, and a bit per result, both ways."""

    def program(ops):
        w = ops.input("w", owner=BOB, shape=(50, 4), bound=1.0)
        ops.cache_openings(w)
        x = ops.input("x", owner=ALICE, shape=(2, 50), bound=1.0)
        ops.normalise_scale(ops.matmul(x, w))

    plan = make_plan(program, PROTOCOLS["sealed"], ROLES, frac_bits=16)
    assert online_bytes(plan) == 8 * (2 * 50) + 2 * (2 * 4) // 8
    ahead = [one for one in plan.cost.traffic if (one.sender, one.phase) == (BOB, "offline")]
    assert [one.payload_bytes for one in ahead] == [8 * 50 * 4]


def test_an_activation_that_several_products_read_is_opened_and_truncated_once():
    def program(ops):
        x = ops.input("x", owner=CAROL, shape=(2, 4), bound=1.0)
        activation = ops.mul(x, x)
        for name in ("q", "k", "v"):
            weight = ops.input(name, owner=BOB, shape=(4, 4), bound=1.0)
            ops.matmul(activation, weight)

    plan = make_plan(program, PROTOCOLS["sealed"], ROLES, frac_bits=16)
    shapes = [spec.shape for step in opened(plan) for spec in step.operands]
    assert shapes.count((2, 4)) == 2  # x itself, and its square
    assert [type(step.kernel).__name__ for step in plan.steps].count("Truncate") == 1


def test_two_secrets_with_equal_facts_do_not_share_a_mask():
    def program(ops):
        x = ops.input("x", owner=ALICE, shape=(3,), bound=1.0)
        y = ops.input("x2", owner=ALICE, shape=(3,), bound=1.0)
        return ops.open(ops.mul(x, y), to=(BOB,), what="z", why="test")

    x, y = values(3), values(3, seed=4)
    run = simulate(program, inputs={ALICE: {"x": x, "x2": y}})
    assert (run.values[BOB] - x * y).abs().max() < 2 * ULP
    (step,) = opened(run.plan)
    assert len(step.operands) == len({need.place for need in step.needs}) == 2
