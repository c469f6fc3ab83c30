"""What a computing party gets beyond its outputs: each test proves a sentence of our claims."""

import pytest
import torch

from support.mpc import ALICE, BOB, simulate
from tacit import ring
from tacit.mpc import find_protocol
from tacit.mpc.arithmetic.local import numeric_share
from tacit.mpc.arithmetic.truncation import Truncate
from tacit.mpc.protocols import permuted2

FRAC_BITS = 16


def test_a_second_party_that_cheats_undoes_the_order_of_permuted2_unnoticed(monkeypatch):
    """It hands over its share with tags on every element, and reads the tags that come back."""
    count, caught = 200, {}
    tag = 1 << 20  # beyond values of at most ±4, and within the 4 bytes in which they travel
    hand, see = permuted2.SeenBySecond.hand, permuted2._see

    def tagged(self, channel, drawn, operand):
        if channel.is_first:
            return hand(self, channel, drawn, operand)
        own = numeric_share(operand)
        words = own.words.reshape(-1) + torch.arange(count) * tag
        return hand(self, channel, drawn, type(own)(words, own.spec))

    def read(channel, instance, material):
        evaluate, view = instance.view.evaluate, instance.view

        def untagged(seen, x):
            places = (seen + tag // 2) >> 20
            caught["values"] = torch.zeros(count, dtype=torch.int64)
            caught["values"][places] = seen - places * tag
            return evaluate(seen - places * tag, x)

        monkeypatch.setattr(type(view), "evaluate", lambda self, seen, x: untagged(seen, x))
        return see(channel, instance, material)

    monkeypatch.setattr(permuted2.SeenBySecond, "hand", tagged)
    monkeypatch.setattr(permuted2, "_see", read)
    shuffled = torch.randperm(count, generator=torch.Generator().manual_seed(0))
    secret = torch.linspace(-4, 4, count, dtype=torch.float64)[shuffled]

    def program(ops):
        x = ops.input("x", owner=ALICE, shape=(count,), bound=4.0)
        return ops.open(ops.relu(x), to=(ALICE,), what="y", why="test")

    run = simulate(program, protocol="permuted2", inputs={ALICE: {"x": secret}})
    assert torch.equal(caught["values"], ring.encode(secret, frac_bits=FRAC_BITS))
    # Its victim gets the right result: nothing is noticed.
    torch.testing.assert_close(run.values[ALICE], secret.relu(), atol=2.0**-15, rtol=0.0)


def test_the_claim_of_permuted2_says_that_a_cheating_second_party_undoes_the_order():
    *_, towards_second = find_protocol("permuted2").claims
    assert towards_second.guarantee == "no guarantee"
    assert any("undoes the orders" in words for words in towards_second.assumptions)


def test_a_receiver_that_computes_reads_digits_below_the_last_one_from_outputs_that_come_again(
    monkeypatch,
):
    """A result is rounded by its own low bits, which it knows: a comparison with each of them."""
    times, shares = 512, []
    truncate = Truncate.run

    def noting(self, channel, material, *operands):
        if channel.me == BOB:
            shares.append(numeric_share(operands[0]).words.clone())
        return truncate(self, channel, material, *operands)

    monkeypatch.setattr(Truncate, "run", noting)
    x, y = 1.2345, -2.3456

    def program(ops):
        one, two = (ops.input(n, owner=ALICE, shape=(times,), bound=4.0) for n in ("x", "y"))
        return ops.open(ops.mul(one, two), to=(BOB,), what="z", why="test")

    factors = {"x": torch.full((times,), x).double(), "y": torch.full((times,), y).double()}
    run = simulate(program, inputs={ALICE: factors})
    (mine,) = shares
    opened = ring.encode(run.values[BOB], frac_bits=FRAC_BITS)
    # z + r carries into z' exactly where the low bits of z and of r do; r is minus bob's share.
    low = (-mine) & ((1 << FRAC_BITS) - 1)
    floor, ceiling = (opened << FRAC_BITS) - low, ((opened + 1) << FRAC_BITS) - low
    exact = int(ring.encode(factors["x"], frac_bits=FRAC_BITS)[0]) * int(
        ring.encode(factors["y"], frac_bits=FRAC_BITS)[0]
    )
    assert int(floor.max()) <= exact < int(ceiling.min())
    # Declared is a number of 16 fraction bits; what it has are 5 bits more, from 512 copies. Masks
    # are not seeded: the interval is wider with a probability of less than e^-15.
    assert int(ceiling.min() - floor.max()) < 1 << (FRAC_BITS - 5)


@pytest.mark.parametrize("name", ["sealed", "permuted2", "permuted3"])
def test_every_claim_towards_computing_parties_states_how_results_are_rounded(name):
    stated = " ".join(words for claim in find_protocol(name).claims for words in claim.assumptions)
    assert "rounded" in stated
