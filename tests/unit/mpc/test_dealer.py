import threading

import pytest
import torch

from harness import ALICE, MEETING, PARTIES, ROLES
from tacit import ring
from tacit.errors import TacitError
from tacit.mpc import PROTOCOLS, make_plan
from tacit.mpc.additive2.compare import CompareMask
from tacit.mpc.additive2.conjunction import ConjunctionMask, Group
from tacit.mpc.dealer import AHEAD_BYTES, Pace, Supply, deal
from tacit.mpc.products import Conv2d, Elementwise, MatMul
from tacit.mpc.randomness import RescaleMask, Triple
from tacit.party import run_threads

NEEDS = [
    Triple(Elementwise(), (5,), (5,)),
    Triple(MatMul(), (2, 3), (3, 4)),
    Triple(Conv2d((2, 1), (1, 0)), (2, 3, 7, 6), (4, 3, 3, 2)),
    RescaleMask((4, 2), 13),
    CompareMask(130, 23),
    ConjunctionMask(Group(4, is_last=False), (3, 2)),
    ConjunctionMask(Group(2, is_last=True), (1, 5)),
]


def parts(need):
    """Draw both parties' parts of a need, as dealer and parties would."""
    one, two = ring.Prg(b"1" * 16), ring.Prg(b"2" * 16)
    first, second = need.first(one), need.second(two)
    correction = need.correction(first, second)
    assert tuple(tuple(part.shape) for part in correction) == need.correction_shapes()
    return first, second + correction


def test_triples_multiply():
    for need in NEEDS[:3]:
        (a0, b0, c0), (a1, b1, c1) = parts(need)
        assert torch.equal(c0 + c1, need.product.multiply(a0 + a1, b0 + b1))


def test_a_rescale_mask_knows_its_shifted_value_and_top_bit():
    (r0, shifted0, top0), (r1, shifted1, top1) = parts(NEEDS[3])
    for r, shifted, top in zip(
        (r0 + r1).flatten().tolist(),
        (shifted0 + shifted1).flatten().tolist(),
        (top0 + top1).flatten().tolist(),
        strict=True,
    ):
        assert shifted == (r % 2**64) >> 13
        assert top == (r % 2**64) >> 63


def test_a_compare_mask_knows_how_its_blocks_compare_with_every_digit():
    (r0, bits0), (r1, bits1) = parts(NEEDS[4])
    planes = [ring.unpack_bits(plane.view(torch.uint8), 130) for plane in bits0 ^ bits1]
    for element, r in enumerate((r0 + r1).tolist()):
        wanted = []
        for shift, width in ((0, 4), (4, 4), (8, 4), (12, 4), (16, 4), (20, 2)):
            digit = (r >> shift) & ((1 << width) - 1)
            wanted += [int(digit > v) for v in range((1 << width) - 1)]
        wanted.append((r >> 22) & 1)
        assert [int(plane[element]) for plane in planes] == wanted


@pytest.mark.parametrize("need", NEEDS[5:])
def test_a_conjunction_mask_knows_the_products_of_its_masks(need):
    (masks0, products0), (masks1, products1) = parts(need)
    masks = dict(zip(need.group.variables(), masks0 ^ masks1, strict=True))
    for monomial, product in zip(need.group.products(), products0 ^ products1, strict=True):
        wanted = torch.full_like(product, -1)
        for variable in monomial:
            wanted &= masks[variable]
        assert torch.equal(product, wanted)


def test_material_is_never_handed_out_twice():
    def program(ops):
        x = ops.input("x", owner=ALICE, shape=(3,), bound=1.0)
        ops.mul(x, x)

    plan = make_plan(program, PROTOCOLS["sealed"], ROLES, frac_bits=16)

    def party(session):
        if session.me not in ROLES.computing:
            deal(session, plan, run=0, pace=Pace())
            return
        supply = Supply(session, plan, run=0)
        supply.take(1)
        with pytest.raises(TacitError, match="used already"):
            supply.take(1)
        with pytest.raises(TacitError, match="used already"):
            supply.take(0)

    run_threads(dict.fromkeys(PARTIES, party), MEETING)


def test_a_dealer_stays_a_bounded_amount_ahead_of_the_step_it_waits_in():
    pace = Pace()
    assert pace.admits(5, AHEAD_BYTES)
    assert pace.admits(6, 1)
    admitted = []
    thread = threading.Thread(target=lambda: admitted.append(pace.admits(7, 1)))
    thread.start()
    thread.join(0.2)
    assert thread.is_alive(), "more than the allowance is dealt ahead"
    pace.reach(5)
    thread.join(5)
    assert admitted == [True]


def test_a_dealer_that_is_stopped_stops_at_once():
    pace = Pace()
    pace.admits(5, AHEAD_BYTES + 1)
    pace.stop()
    assert not pace.admits(6, 1)
