"""Whole numbers on shares: inputs without fraction bits, their products, and running sums."""

import pytest
import torch

from tacit.errors import InputError
from tacit.mpc import PROTOCOLS, Roles, compute, find_protocol, make_plan, serve
from tacit.party import Meeting, run_threads

ROLES = Roles("ann", "bob", "deb")
BITS = torch.tensor([[1.0, 0.0, 1.0], [0.0, 1.0, 1.0]])
NUMBERS = torch.tensor([[0.5, -2.0, 3.25], [4.0, 0.125, -1.0]])


def program(ops):
    bits = ops.input("bits", owner="ann", shape=(2, 3), bound=1.0, frac_bits=0)
    numbers = ops.input("numbers", owner="bob", shape=(2, 3), bound=8.0)
    across = ops.transpose(bits, 0, 1)
    found = {
        "both": ops.mul_whole(bits, bits),
        "counts": ops.matmul_whole(bits, across),
        "picked": ops.pick(across, numbers),
        "running": ops.cumsum(numbers, dim=1),
        "stretch": ops.take(numbers, range(1, 3), dim=1),
    }
    return {
        name: ops.open(value, to=("ann",), what=name, why="a test") for name, value in found.items()
    }


@pytest.mark.parametrize("protocol", sorted(PROTOCOLS))
def test_whole_numbers_give_what_plain_numbers_give_and_the_plan_says_the_cost(protocol):
    plan = make_plan(program, find_protocol(protocol), ROLES, frac_bits=16)

    def party(session):
        inputs = {"ann": {"bits": BITS}, "bob": {"numbers": NUMBERS}}.get(session.me, {})
        if session.me == "deb":
            return serve(session, plan, inputs=inputs), session.cost()
        return compute(session, plan, program, inputs=inputs), session.cost()

    meeting = Meeting(parties=("ann", "bob", "deb"), job_digest=bytes(32))
    found = run_threads(dict.fromkeys(meeting.parties, party), meeting)
    values, cost = found["ann"]
    wanted = {
        "both": BITS,
        "counts": BITS @ BITS.T,
        "picked": BITS.T @ NUMBERS,
        "running": NUMBERS.cumsum(1),
        "stretch": NUMBERS[:, 1:],
    }
    for name, value in wanted.items():
        assert torch.allclose(values[name].float(), value, atol=2.0**-15), name
    assert cost.online_rounds == plan.cost.online_rounds


def test_a_stretch_beyond_the_end_is_refused():
    def beyond(ops):
        numbers = ops.input("numbers", owner="bob", shape=(2, 3), bound=8.0)
        ops.take(numbers, range(2, 5), dim=1)

    with pytest.raises(InputError, match="no position 4"):
        make_plan(beyond, find_protocol("sealed"), ROLES, frac_bits=16)
