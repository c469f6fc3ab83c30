import pytest
import torch

from harness import ALICE, MEETING, PARTIES, ROLES
from tacit import ring
from tacit.errors import TacitError
from tacit.mpc import PROTOCOLS, make_plan
from tacit.mpc.dealer import Supply, deal
from tacit.mpc.randomness import BitTriple, CompareMask, RescaleMask, Triple
from tacit.party import run_threads

NEEDS = [
    Triple("mul", (5,), (5,)),
    Triple("matmul", (2, 3), (3, 4)),
    BitTriple((7, 2)),
    RescaleMask((4, 2), 13),
    CompareMask(130),
]


def parts(need):
    """Draw both parties' parts of a need, as dealer and parties would."""
    one, two = ring.Prg(b"1" * 16), ring.Prg(b"2" * 16)
    first, second = need.first(one), need.second(two)
    correction = need.correction(first, second)
    assert tuple(tuple(part.shape) for part in correction) == need.correction_shapes()
    return first, second + correction


def test_triples_multiply():
    for need in NEEDS[:2]:
        (a0, b0, c0), (a1, b1, c1) = parts(need)
        product = (a0 + a1) * (b0 + b1) if need.product == "mul" else (a0 + a1) @ (b0 + b1)
        assert torch.equal(c0 + c1, product)


def test_bit_triples_multiply():
    (a0, b0, c0), (a1, b1, c1) = parts(NEEDS[2])
    assert torch.equal(c0 ^ c1, (a0 ^ a1) & (b0 ^ b1))


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


def test_a_compare_mask_knows_its_bits():
    (r0, planes0), (r1, planes1) = parts(NEEDS[4])
    assert torch.equal(ring.from_planes(planes0 ^ planes1, 130), r0 + r1)


def test_material_is_never_handed_out_twice():
    def program(ops):
        x = ops.input("x", owner=ALICE, shape=(3,), bound=1.0)
        ops.mul(x, x)

    plan = make_plan(program, PROTOCOLS["sealed"], ROLES, frac_bits=16)

    def party(session):
        if session.me not in ROLES.computing:
            deal(session, plan, run=0)
            return
        supply = Supply(session, plan, run=0)
        supply.take(1)
        with pytest.raises(TacitError, match="used already"):
            supply.take(1)
        with pytest.raises(TacitError, match="used already"):
            supply.take(0)

    run_threads(dict.fromkeys(PARTIES, party), MEETING)
