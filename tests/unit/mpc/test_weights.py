"""Weights that are opened once: right to the last bit, in panels, and kept in few bytes."""

import pytest
import torch

from support.mpc import ALICE, BOB, CAROL, MEETING, PARTIES, ROLES, simulate
from tacit import ring
from tacit.errors import DataError, InputError, RangeError
from tacit.mpc import PROTOCOLS, EncodedInput, OpeningCache, cache, compute, make_plan, serve
from tacit.mpc.arithmetic import weights
from tacit.mpc.material import dealer
from tacit.party import run_threads

SHAPE = (60, 5)


def program(owner=ALICE, *, elementwise=False, shape=SHAPE):
    """Multiply whole numbers with a weight: nothing is rounded, so the result is exact."""

    def work(ops):
        w = ops.weight("w", owner=owner, shape=shape, bound=1.0)
        other = BOB if owner == ALICE else ALICE
        rows = shape if elementwise else (3, shape[0])
        x = ops.input("x", owner=other, shape=rows, bound=8.0, frac_bits=0)
        y = ops.mul(x, w) if elementwise else ops.matmul(x, w)
        return ops.open(y, to=(BOB,), what="y", why="test")

    return work


def given(*, elementwise=False):
    generator = torch.Generator().manual_seed(1)
    w = torch.rand(*SHAPE, generator=generator, dtype=torch.float64) * 2 - 1
    rows = SHAPE if elementwise else (3, SHAPE[0])
    x = torch.randint(-8, 8, rows, generator=generator).double()
    return x, w, EncodedInput(ring.narrowed(ring.encode(w, frac_bits=16)), 16)


@pytest.mark.parametrize("protocol", sorted(set(PROTOCOLS) - {"checked"}))
@pytest.mark.parametrize("owner", [ALICE, BOB])
@pytest.mark.parametrize("is_encoded", [True, False])
def test_products_are_exact_and_cost_what_the_plan_says(monkeypatch, protocol, owner, is_encoded):
    monkeypatch.setattr(weights, "MESSAGE_BYTES", 8 * SHAPE[1] * 16)
    monkeypatch.setattr(dealer, "_LARGE_BYTES", 0)
    x, w, words = given()
    other = BOB if owner == ALICE else ALICE
    inputs = {owner: {"w": words if is_encoded else w}, other: {"x": x}}
    run = simulate(program(owner), inputs=inputs, protocol=protocol)
    assert torch.equal(run.values[BOB], x @ (words.words.double() * 2.0**-16))
    assert run.metered == run.plan.cost
    found = [one for one in run.plan.cost.traffic if (one.sender, one.receiver) == (owner, other)]
    (sent,) = [one for one in found if one.phase == "offline"] or [None]
    if PROTOCOLS[protocol].has_dealer:
        assert (sent.messages, sent.payload_bytes) == (4, 8 * 60 * 5)


def test_a_weight_may_be_multiplied_element_by_element():
    x, _, words = given(elementwise=True)
    run = simulate(program(elementwise=True), inputs={ALICE: {"w": words}, BOB: {"x": x}})
    assert torch.equal(run.values[BOB], x * (words.words.double() * 2.0**-16))


@pytest.mark.parametrize("remembered", [0, 8 * 60 * 5, 1 << 29])
def test_in_a_session_nobody_keeps_a_weight_twice_or_wide(monkeypatch, remembered):
    monkeypatch.setattr(cache, "REMEMBERED_BYTES", remembered)
    monkeypatch.setattr(cache, "ALL_WEIGHTS_BYTES", 0)
    monkeypatch.setattr(dealer, "_LARGE_BYTES", 0)
    monkeypatch.setattr(ring.narrow, "PANEL_BYTES", 8 * SHAPE[1] * 7)
    x, _, words = given()
    caches = {name: OpeningCache() for name in PARTIES}

    def party(session):
        mine, answers = caches[session.me], []
        for _ in range(3):
            plan = make_plan(program(), PROTOCOLS["sealed"], ROLES, frac_bits=16, cache=mine)
            if session.me not in ROLES.computing:
                serve(session, plan, inputs={}, cache=mine)
                continue
            inputs = {"w": words} if session.me == ALICE else {"x": x}
            answers.append(compute(session, plan, program(), inputs=inputs, cache=mine))
        return answers

    answers = run_threads(dict.fromkeys(PARTIES, party), MEETING)[BOB]
    wanted = x @ (words.words.double() * 2.0**-16)
    assert len(answers) == 3
    assert all(torch.equal(one, wanted) for one in answers)
    own, others = (caches[name].opening("w") for name in (ALICE, BOB))
    assert own.clear is own.opened is words.words
    assert own.clear.dtype == torch.int32
    assert own.mask_share is None
    assert others.opened.nbytes == 8 * 60 * 5
    assert others.mask_share is None
    assert others.clear is None
    assert caches[CAROL]._mask_bytes == (8 * 60 * 5 if remembered else 0)


@pytest.mark.parametrize(
    ("words", "frac_bits", "kind", "message"),
    [
        (torch.zeros(60, 4).int(), 16, DataError, "announced as"),
        (torch.zeros(60, 5).int(), 15, DataError, "15"),
        (torch.full((60, 5), 65537).int(), 16, RangeError, "exceeds the bound"),
        (torch.full((60, 5), -128).char(), 0, DataError, "fraction bits"),
    ],
)
def test_what_was_not_announced_is_refused(words, frac_bits, kind, message):
    x, _, _ = given()
    with pytest.raises(kind, match=message):
        simulate(program(), inputs={ALICE: {"w": EncodedInput(words, frac_bits)}, BOB: {"x": x}})


def test_who_does_not_compute_has_no_weights():
    with pytest.raises(InputError, match="does not compute"):
        make_plan(program(CAROL), PROTOCOLS["sealed"], ROLES, frac_bits=16)


def test_under_checked_a_weight_is_refused():
    with pytest.raises(InputError, match="checked"):
        make_plan(program(), PROTOCOLS["checked"], ROLES, frac_bits=16)


def test_words_are_no_input():
    def work(ops):
        ops.input("w", owner=ALICE, shape=SHAPE, bound=1.0)

    with pytest.raises(InputError, match=r"`ops\.weight`"):
        simulate(work, inputs={ALICE: {"w": given()[2]}})
