"""The parts of `checked`: wide numbers, tags of whatever is linear, parties outside, refusals."""

import pytest
import torch

from support.mpc import ALICE, BOB, CAROL, MEETING, ROLES, simulate
from tacit.errors import CheatingError, ConfigError, InputError, PartyError
from tacit.mpc import PROTOCOLS, compute, find_protocol, make_plan, serve
from tacit.mpc.material.randomness import OpeningMask
from tacit.mpc.protocols.checked import boundary, proofs, wide
from tacit.mpc.protocols.checked.tags import KEY, MINE, TAG, PartPair, Tagged, draw_keys
from tacit.party import Meeting, run_threads
from tacit.party.session import as_heard
from tacit.ring import Prg

MODULUS = 1 << 108
PRG = Prg(bytes(range(16)))


def integers(limbs):
    flat = limbs.reshape(2, -1)
    return [(int(low) + (int(high) << 54)) % MODULUS for low, high in flat.T]


def unsigned(words):
    return [int(word) % 2**64 for word in words.reshape(-1)]


def numbers(*shape):
    return wide.from_pairs(PRG.words((2, *shape)))


def test_wide_numbers_are_integers_modulo_2_to_the_108():
    x, w = numbers(40), PRG.words((40,))
    ints = integers(x)
    assert integers(wide.split(w)) == unsigned(w)
    assert integers(wide.multiply(x, w)) == [
        a * b % MODULUS for a, b in zip(ints, unsigned(w), strict=True)
    ]
    assert unsigned(wide.low_words(x)) == [a % 2**64 for a in ints]
    assert wide.high_words(x).tolist() == [a >> 64 for a in ints]
    assert integers(wide.lift_words(w)) == [(a << 64) % MODULUS for a in unsigned(w)]
    assert integers(wide.from_pairs(wide.to_pairs(x, PRG.words((2, 40))))) == ints


@pytest.mark.parametrize("inner", [1, 5, 200, 5_000])
def test_products_with_public_words_are_exact(inner):
    words, right = PRG.words((2, inner)), numbers(3, inner, 2)
    got = wide.map_bilinear(torch.matmul, words, right, terms=inner)
    for c in range(3):
        left, b = unsigned(words), integers(right[:, c])
        wanted = [
            sum(left[i * inner + k] * b[2 * k + j] for k in range(inner)) % MODULUS
            for i in range(2)
            for j in range(2)
        ]
        assert integers(got[:, c]) == wanted
    assert torch.equal(wide.matmul(words, right, is_public_left=True), got)
    turned = wide.matmul(words.T, right.transpose(-1, -2), is_public_left=False)
    assert torch.equal(turned.transpose(-1, -2), got)
    bits = words & 1
    chosen = wide.map_bilinear(torch.matmul, bits, right, terms=inner)
    assert torch.equal(wide.add_rows(bits, right), chosen)
    turned = wide.add_columns(right.transpose(-1, -2), bits.T)
    assert torch.equal(turned.transpose(-1, -2), chosen)


@pytest.mark.parametrize("factor", [3, -(1 << 30), (1 << 40) + 5, -(1 << 50), 1 << 58])
def test_a_linear_function_of_words_is_the_same_function_of_wide_numbers(factor):
    x, y = numbers(3, 6), numbers(3, 6)
    got = wide.map_linear(lambda a, b: a * factor - b, (x, y), largest=abs(factor) + 1)
    pairs = zip(integers(x), integers(y), strict=True)
    assert integers(got) == [(a * factor - b) % MODULUS for a, b in pairs]


def test_tags_fit_and_a_party_cannot_find_the_tag_of_another_word():
    need = Tagged(OpeningMask(0, (64,), None), (PartPair(0, 0, (64,)),))
    keys = draw_keys(Prg(bytes(16)), is_first=True), draw_keys(Prg(bytes([1] * 16)), is_first=False)
    first, second = need.first(Prg(bytes([2] * 16))), need.second(Prg(bytes([3] * 16)))
    sent = need.correct(first, second, (), keys)
    (_, (p0,)), (_, (p1,)) = (
        need.read(first, is_first=True),
        need.read((*second, *sent), is_first=False),
    )
    for own, other, key in ((p0, p1, keys[1]), (p1, p0, keys[0])):
        tags = integers(own.wide()[:, TAG])
        expected = [
            (key.words * word + k) % MODULUS
            for word, k in zip(
                integers(own.wide()[:, MINE]), integers(other.wide()[:, KEY]), strict=True
            )
        ]
        assert tags == expected


@pytest.mark.parametrize("power", [*range(0, 64, 7), 63])
def test_one_wrong_word_among_many_is_found_whatever_the_error(power):
    """A sum with uniform factors would miss an error of 2^63 half of the time."""
    count = 20_000
    need = Tagged(OpeningMask(0, (count,), None), (PartPair(0, 0, (count,)),))
    mask = Tagged(OpeningMask(0, (proofs.SUMS,), None), (PartPair(0, 0, (proofs.SUMS,)),))
    keys = draw_keys(Prg(bytes(16)), is_first=True), draw_keys(Prg(bytes([1] * 16)), is_first=False)
    sides = []
    for one in (need, mask):
        first, second = one.first(Prg(bytes([2] * 16))), one.second(Prg(bytes([3] * 16)))
        parts = (*second, *one.correct(first, second, (), keys))
        sides.append((one.read(first, is_first=True)[1][0], one.read(parts, is_first=False)[1][0]))
    (words0, words1), (mask0, mask1) = sides
    for error, is_right in ((0, True), (power, False)):
        prover, checker = proofs.Proofs(keys[0]), proofs.Proofs(keys[1])
        told = words0.part.clone()
        if not is_right:
            told[777] += -(1 << 63) if error == 63 else 1 << error
        prover.sent(words0.wide())
        checker.received(words1.wide(), told)
        answer = prover.answer(b"s" * 16, mask0.wide())
        assert checker.accepts(b"s" * 16, mask1.wide(), answer) == is_right


@pytest.mark.parametrize("shape", [(64, 64), (70, 300), (1, 4096)])
def test_a_large_product_is_checked_by_projections(shape):
    height, width = shape
    inner = max(64, (1 << 18) // (height * width) + 1)

    def program(ops):
        x = ops.input("x", owner=ALICE, shape=(height, inner), bound=1.0)
        w = ops.input("w", owner=BOB, shape=(inner, width), bound=1.0)
        b = ops.input("b", owner=BOB, shape=(width,), bound=1.0)
        y = ops.add(ops.matmul(x, w), b)
        return ops.open(ops.matmul(y, ops.transpose(w, 0, 1)), to=(ALICE,), what="y", why="test")

    generator = torch.Generator().manual_seed(1)
    x, w, b = (
        torch.rand(one, generator=generator, dtype=torch.float64) / inner
        for one in ((height, inner), (inner, width), (width,))
    )
    run = simulate(program, protocol="checked", inputs={ALICE: {"x": x}, BOB: {"w": w, "b": b}})
    assert (run.values[ALICE] - (x @ w + b) @ w.T).abs().max() < 1e-2
    assert run.metered == run.plan.cost


def test_an_owner_and_a_receiver_may_be_neither_dealer_nor_computing():
    parties = (ALICE, BOB, CAROL, "dora")
    meeting = Meeting(parties=parties, job_digest=MEETING.job_digest, patience=MEETING.patience)
    value = torch.tensor([1.5, -2.0, 3.0], dtype=torch.float64)

    def program(ops):
        x = ops.input("x", owner="dora", shape=(3,), bound=4.0)
        return ops.open(ops.square(x), to=("dora", ALICE), what="x²", why="test")

    plan = make_plan(program, find_protocol("checked"), ROLES, frac_bits=16)
    costs = {}

    def party(session):
        inputs = {"x": value} if session.me == "dora" else {}
        if session.me in ROLES.computing:
            got = compute(session, plan, program, inputs=inputs)
        else:
            got = serve(session, plan, inputs=inputs)
        costs[session.me] = session.cost()
        return got

    got = run_threads(dict.fromkeys(parties, party), meeting)
    for one in (got[ALICE], got["dora"][0]):
        assert torch.allclose(one, value.square(), atol=1e-3)
    assert got[CAROL] == ()


def test_an_owner_that_tells_the_two_different_things_is_noticed(monkeypatch):
    told = boundary.told_mask
    calls = []

    def twisted(channel, shape):
        mask = told(channel, shape)
        send = channel.send

        def lie(to, words):
            calls.append(to)
            send(to, words + (to == BOB))

        channel.send = lie
        return mask

    monkeypatch.setattr(boundary, "told_mask", twisted)

    def program(ops):
        x = ops.input("x", owner=CAROL, shape=(3,), bound=4.0)
        return ops.open(x, to=(ALICE,), what="x", why="test")

    with pytest.raises(CheatingError, match="told different inputs") as caught:
        simulate(program, protocol="checked", inputs={CAROL: {"x": torch.ones(3)}})
    # Neither of the two cheated, and neither is accused alone.
    assert caught.value.party.endswith(" or an owner")
    assert calls == [ALICE, BOB]


def test_what_has_no_tags_is_refused_when_planned():
    with pytest.raises(InputError, match="no tensors that grow"):
        make_plan(
            lambda ops: ops.grow(
                {"k": ops.input("k", owner=ALICE, shape=(1,), bound=1)}, length=1, dim=0
            ),
            find_protocol("checked"),
            ROLES,
            frac_bits=16,
        )
    with pytest.raises(ConfigError, match="goes with no other protocol"):
        find_protocol("checked; activations: permuted3")


def test_the_claims_name_the_honest_dealer_first():
    for claim in PROTOCOLS["checked"].claims:
        assert claim.assumptions[0].startswith("the dealer is honest")
    assert "2^-40" in PROTOCOLS["checked"].claims[0].guarantee


def test_whoever_hears_of_cheating_believes_no_more_than_it_can_know():
    heard = PartyError(ALICE, "cheated: its messages are wrong")

    pair = ROLES.computing
    assert as_heard(heard, CAROL, pair).party == f"{ALICE} or {BOB}"
    assert as_heard(heard, ALICE, pair).party == BOB
    other = PartyError(ALICE, "went away")
    assert as_heard(other, CAROL, pair) is other
    lie = PartyError(ALICE, heard.reason, said_by="dora")  # who said it is whom the link leads to
    assert as_heard(lie, ALICE, pair).party == "dora"
    assert as_heard(lie, BOB, pair).party == f"{ALICE} or dora"
    owner = PartyError("dora", "cheated: its input is beyond its bound")
    assert as_heard(owner, ALICE, pair).party == f"{BOB} or dora"
    assert as_heard(owner, "dora", pair).party == f"{ALICE} or {BOB}"
    told = PartyError(f"{ALICE} or an owner", "cheated: told different inputs")
    assert as_heard(told, ALICE, pair).party == f"{BOB} or an owner"
    assert as_heard(told, CAROL, pair).party == f"{ALICE}, {BOB} or an owner"
