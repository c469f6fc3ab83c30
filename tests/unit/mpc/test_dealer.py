import threading

import pytest
import torch

from support.mpc import ALICE, CAROL, MEETING, PARTIES, ROLES
from tacit import ring
from tacit.errors import TacitError
from tacit.mpc import PROTOCOLS, make_plan
from tacit.mpc.material.dealer import AHEAD_BYTES, DealingPace, deal
from tacit.mpc.material.randomness import BorrowMask, OpeningTriple, read_lanes
from tacit.mpc.material.supply import FromDealer, Supply
from tacit.mpc.products import MatMul
from tacit.mpc.protocols.sealed.compare import CompareMask
from tacit.mpc.protocols.sealed.conjunction import ConjunctionMask, Group
from tacit.mpc.protocols.sealed.unary import FEW, Blocks
from tacit.mpc.share import Mask
from tacit.party import run_threads

NEEDS = [
    BorrowMask(70, 13),
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


@pytest.mark.parametrize("bits", [1, 8, 13, 16, 17, 32, 39, 50])
@pytest.mark.parametrize("elements", [1, 64, 70, 0])
def test_a_borrow_mask_shares_the_product_of_both_parties_bits(elements, bits):
    (alpha, s0), (beta, s1) = parts(BorrowMask(elements, bits))
    both = ring.unpack_bits((alpha & beta).view(torch.uint8), elements)
    shares = [read_lanes(words, bits, elements).to(torch.int64) for words in (s0, s1)]
    assert torch.equal((shares[0] + shares[1]) % 2**bits, both.to(torch.int64))


@pytest.mark.parametrize("left", [None, "first", "second"])
@pytest.mark.parametrize("right", [None, "first", "second"])
def test_a_held_triple_shares_what_the_holders_do_not_add_themselves(left, right):
    prg = ring.Prg(b"3" * 16)
    draws = {
        None: lambda shape: (prg.words(shape), prg.words(shape)),
        "first": lambda shape: (prg.words(shape), None),
        "second": lambda shape: (None, prg.words(shape)),
    }
    a, b = draws[left]((2, 3)), draws[right]((3, 4))
    masks = [
        Mask(step=0, place=at, shape=shape, holder=holder)
        for at, (shape, holder) in enumerate((((2, 3), left), ((3, 4), right)))
    ]
    need = OpeningTriple(MatMul(), *masks, (2, 4))
    first = need.first(prg)
    (c1,) = need.correct(first, a, b)

    def share(shares, holder):
        wanted = [one for at, one in zip(("first", "second"), shares, strict=True) if at != holder]
        return sum((one for one in wanted if one is not None), torch.zeros((), dtype=torch.int64))

    if right is not None:
        a0, b0 = share(a, right), share(b, None)
    else:
        a0, b0 = share(a, None), share(b, left)
    wanted = ring.matmul(a0, b0) if a0.dim() and b0.dim() else torch.zeros(2, 4, dtype=torch.int64)
    assert torch.equal(first[0] + c1, wanted)


@pytest.mark.parametrize(
    ("elements", "cuts"),
    [
        (130, ((0, 6), (6, 6), (12, 6), (18, 4))),
        (FEW + 1, ((0, 4), (4, 4), (8, 4), (12, 4), (16, 4), (20, 2))),
    ],
)
def test_a_compare_mask_knows_how_its_blocks_compare_with_every_digit(elements, cuts):
    (r0, bits0), (r1, bits1) = parts(CompareMask(elements, Blocks.of(22, lanes=elements)))
    planes = [ring.unpack_bits(plane.view(torch.uint8), elements) for plane in bits0 ^ bits1]
    for element, r in enumerate((r0 + r1).tolist()[:130]):
        wanted = []
        for shift, width in cuts:
            digit = (r >> shift) & ((1 << width) - 1)
            wanted += [int(digit > v) for v in range((1 << width) - 1)]
        wanted.append((r >> 22) & 1)
        assert [int(plane[element]) for plane in planes] == wanted


@pytest.mark.parametrize("need", NEEDS[1:])
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
            deal(session, plan, run=0, pace=DealingPace())
            return
        source = FromDealer(session, CAROL, 0)
        supply = Supply(source, plan, is_first=session.me == ALICE)
        supply.take(1)
        supply.take(2)
        with pytest.raises(TacitError, match="used already"):
            supply.take(2)
        with pytest.raises(TacitError, match="used already"):
            supply.take(0)

    run_threads(dict.fromkeys(PARTIES, party), MEETING)


def test_a_dealer_stays_a_bounded_amount_ahead_of_the_step_it_waits_in():
    pace = DealingPace()
    assert pace.admits(5, AHEAD_BYTES)
    assert pace.admits(6, 1)
    admitted = []
    thread = threading.Thread(target=lambda: admitted.append(pace.admits(7, 1)))
    thread.start()
    thread.join(0.2)
    assert thread.is_alive(), "more than the allowance is dealt ahead"
    pace.reach(5)
    thread.join(200)
    assert admitted == [True]


def test_a_dealer_that_is_stopped_stops_at_once():
    pace = DealingPace()
    pace.admits(5, AHEAD_BYTES + 1)
    pace.stop()
    assert not pace.admits(6, 1)
