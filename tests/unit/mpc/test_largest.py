"""The largest of groups, whatever their width: values, ties, places and what it costs."""

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support.mpc import ALICE, BOB, CAROL, ROLES, simulate
from tacit.mpc import PROTOCOLS, PlanOps
from tacit.mpc.functions.ordering import Heat
from tacit.mpc.protocols.sealed.largest import heats

ULP = 2.0**-16
BOUND = 64.0


def found(x, work, *, protocol="sealed", owner=ALICE):
    """Run a function of a tensor and open what it gives; what is declared is what is sent."""

    def program(ops):
        secret = ops.input("x", owner=owner, shape=tuple(x.shape), bound=BOUND)
        return [ops.open(one, to=(ALICE,), what="y", why="test") for one in work(ops, secret)]

    run = simulate(program, protocol=protocol, inputs={owner: {"x": x.double()}})
    assert run.metered == run.plan.cost
    return run.values[ALICE]


def both(dim):
    return lambda ops, x: (ops.max(x, dim=dim), ops.argmax(x, dim=dim))


def first_of_largest(x, dim):
    """Say where the largest is, the first of equal ones: torch promises no order."""
    return (x == x.amax(dim, keepdim=True)).double().argmax(dim).double()


def drawn(seed, *shape, kinds=None):
    """Draw numbers of the grid, or of so few kinds that many are equal."""
    generator = torch.Generator().manual_seed(seed)
    if kinds is not None:
        return torch.randint(-kinds, kinds + 1, shape, generator=generator) * ULP
    return torch.randint(-(1 << 22), 1 << 22, shape, generator=generator) * ULP


@pytest.mark.parametrize("is_direct", [True, False])
@pytest.mark.parametrize("size", [2, 3, 4, 7, 10])
def test_the_first_largest_of_a_group_takes_what_belongs_to_it_along(size, is_direct):
    keys, moved = drawn(size, 9, size, kinds=1), drawn(size + 1, 9, size)

    def work(ops, x):
        groups = ops.apply(ops.make("largest", BOUND, True, is_direct), x)
        return [ops.part(groups, at) for at in range(3)]

    key, other, place = found(torch.stack((keys, moved)), work)
    at = first_of_largest(keys, 1)
    assert torch.equal(key, keys.amax(1).double())
    assert torch.equal(place, at)
    assert torch.equal(other, moved.gather(1, at.long()[:, None])[:, 0].double())


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    seed=st.integers(0, 2**31),
    rows=st.sampled_from([1, 2, 65]),
    length=st.integers(1, 40),
    kinds=st.sampled_from([None, 0, 1, 3]),
)
def test_rows_of_any_length_have_their_largest_and_its_first_place(seed, rows, length, kinds):
    x = drawn(seed, rows, length, kinds=kinds)
    top, place = found(x, both(1))
    assert torch.equal(top, x.amax(1).double())
    assert torch.equal(place, first_of_largest(x, 1))


@pytest.mark.parametrize(
    "row",
    [
        [-BOUND, BOUND, -BOUND, BOUND],
        [-BOUND] * 5,
        [BOUND] * 3,
        [0.0, -ULP, 0.0],
        [-3 * ULP, -2 * ULP],
        [5.0],
    ],
)
@pytest.mark.parametrize("owner", [ALICE, BOB, CAROL])
def test_edges_are_exact(row, owner):
    x = torch.tensor([row], dtype=torch.float64)
    top, place = found(x, both(1), owner=owner)
    assert top.item() == max(row)
    assert place.item() == row.index(max(row))


@pytest.mark.parametrize("dim", [0, 1, 2, -1, -2])
def test_any_dimension_disappears(dim):
    x = drawn(3, 5, 6, 7)
    top, place = found(x, both(dim))
    assert torch.equal(top, x.amax(dim).double())
    assert torch.equal(place, first_of_largest(x, dim))


def test_the_choice_among_a_vocabulary_is_right_and_takes_few_rounds():
    x = drawn(7, 1, 6400)
    x[0, 6399] = x[0, 17] = BOUND
    (place,) = found(x, lambda ops, x: (ops.argmax(x, dim=1),))
    assert place.item() == 17


def declared(length, work, rows=1):
    ops = PlanOps(PROTOCOLS["sealed"], ROLES, frac_bits=16)
    work(ops, ops.input("x", owner=ALICE, shape=(rows, length), bound=576.0))
    cost = ops.plan().cost
    sent = {(one.sender, one.phase): one.payload_bytes for one in cost.traffic}
    return cost.online_rounds, sent[ALICE, "online"], sent[CAROL, "offline"]


def test_what_a_choice_costs():
    rounds, sent, dealt = declared(6400, lambda ops, x: ops.argmax(x, dim=1))
    assert rounds == 16
    assert sent < 120_000
    assert dealt < 900_000
    assert declared(65_000, lambda ops, x: ops.argmax(x, dim=1))[0] <= 25


def test_groups_are_wide_where_numbers_are_few_and_pairs_where_they_are_many():
    def widths(rows, length):
        return [one.size for one in heats(rows, length, 16, BOUND, is_placed=False)]

    assert widths(1, 9) == [9]
    assert widths(1, 1) == []
    assert heats(1 << 17, 2, 16, BOUND, is_placed=False) == (Heat(2, by_relu=True),)
    assert heats(1 << 17, 4, 16, BOUND, is_placed=False) == (Heat(2, by_relu=True),) * 2
