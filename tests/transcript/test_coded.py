"""An owner's matrix of zeros and ones: products are right, cost what was said, and show nothing."""

import pytest
import torch

from support.mpc import ALICE, BOB, CAROL, ROLES, simulate
from tacit.errors import DataError, InputError
from tacit.learners.bins import unary_codes
from tacit.mpc import PROTOCOLS, make_plan
from tacit.mpc.arithmetic import coded
from tacit.mpc.arithmetic.coded import Codes
from transcript.test_transcripts import SAMPLES, assert_carries_nothing

ULP = 2.0**-16


def codes_of(rows, columns=3, cuts=4, seed=0):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, columns, generator=generator, dtype=torch.float64)
    edges = torch.randn(columns, cuts, generator=generator, dtype=torch.float64)
    return unary_codes(x, edges=edges, categories=()), (x.unsqueeze(2) <= edges).reshape(rows, -1)


def products(owner, rows, width):
    def program(ops):
        bits = ops.coded("bits", owner=owner, shape=(rows, width))
        x = ops.input("x", owner=CAROL, shape=(rows, 2), bound=1.0)
        hot = ops.input("hot", owner=CAROL, shape=(width, 2), bound=1.0, frac_bits=0)
        found = ops.sum_coded(bits, x), ops.look_up_coded(bits, hot)
        return [ops.open(one, to=(ALICE,), what="z", why="test") for one in found]

    return program


@pytest.mark.parametrize("protocol", sorted(set(PROTOCOLS) - {"checked"}))
@pytest.mark.parametrize("owner", [ALICE, BOB])
def test_sums_and_look_ups_are_those_of_the_matrix(owner, protocol):
    codes, bits = codes_of(300)
    assert torch.equal(codes.matrix(0, 300), bits.long())
    x = torch.linspace(-1, 1, 600, dtype=torch.float64).view(300, 2)
    hot = torch.zeros(12, 2, dtype=torch.float64)
    hot[3, 0] = hot[7, 1] = 1
    inputs = {ALICE: {}, BOB: {}, CAROL: {"x": x, "hot": hot}}
    inputs[owner]["bits"] = codes
    run = simulate(products(owner, 300, 12), inputs=inputs, protocol=protocol)
    summed, looked_up = run.values[ALICE]
    assert (summed - bits.double().T @ x).abs().max() < 300 * ULP
    assert torch.equal(looked_up, bits.double() @ hot)
    assert run.metered == run.plan.cost
    (offline,) = [
        one for one in run.plan.cost.traffic if one.phase == "offline" and one.sender == owner
    ]
    assert offline.payload_bytes == 8 * 300 * 12


def constant(owner):
    """Give rows that are all alike, so that only masks can make messages look random."""
    codes = Codes(torch.ones(SAMPLES, 1, dtype=torch.int16), torch.ones(1, 2, 1).long())
    ones = torch.ones(SAMPLES, 1, dtype=torch.float64)
    inputs = {ALICE: {}, BOB: {}, CAROL: {"x": ones}}
    inputs[owner]["bits"] = codes

    def program(ops):
        bits = ops.coded("bits", owner=owner, shape=(SAMPLES, 1))
        x = ops.input("x", owner=CAROL, shape=(SAMPLES, 1), bound=1.0)
        one = ops.sum_coded(bits, x)
        ops.look_up_coded(bits, ops.normalise_scale(one))

    return program, inputs


@pytest.mark.parametrize("corrupt", [ALICE, BOB])
@pytest.mark.parametrize("owner", [ALICE, BOB])
def test_what_a_party_receives_is_uniform(owner, corrupt):
    program, inputs = constant(owner)
    assert_carries_nothing(simulate(program, inputs=inputs, corrupt=corrupt), corrupt)


def test_a_matrix_that_is_sent_without_its_mask_is_noticed(monkeypatch):
    monkeypatch.setattr(Codes, "masked", lambda self, mask: self.matrix(0, len(mask)))
    program, inputs = constant(ALICE)
    with pytest.raises(AssertionError):
        assert_carries_nothing(simulate(program, inputs=inputs, corrupt=BOB), BOB)


def test_many_words_are_kept_in_a_file_and_stay_what_they_are(monkeypatch):
    words = torch.arange(1 << 12).view(-1, 4)
    monkeypatch.setattr(coded, "SPILLED_BYTES", 64)
    kept = coded._spilled(words)
    assert kept is not words
    assert torch.equal(kept, words)


def test_who_cannot_count_and_what_is_no_code_is_refused():
    def by(owner):
        return lambda ops: ops.coded("bits", owner=owner, shape=(4, 2))

    with pytest.raises(InputError, match="does not compute"):
        make_plan(by(CAROL), PROTOCOLS["sealed"], ROLES, frac_bits=16)
    with pytest.raises(InputError, match="no coded matrices"):
        make_plan(by(ALICE), PROTOCOLS["checked"], ROLES, frac_bits=16)
    with pytest.raises(Exception, match="announced as codes") as caught:
        simulate(by(ALICE), inputs={ALICE: {"bits": torch.ones(4, 2)}, BOB: {}, CAROL: {}})
    assert isinstance(caught.value, DataError) or "DataError" in repr(caught.value)
