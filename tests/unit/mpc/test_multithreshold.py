from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from support.mpc import ALICE, ROLES, simulate
from tacit import ring
from tacit.mpc.protocols.sealed.compare import CompareMask
from tacit.mpc.protocols.sealed.multithreshold import (
    FEW_ELEMENTS,
    MultiThreshold,
    fits_multi_threshold,
)
from tacit.ring import Prg

ULP = 2.0**-16


class Pipe:
    """What a comparison uses of a channel, between two threads."""

    def __init__(self, is_first, outgoing, incoming):
        self.is_first, self._outgoing, self._incoming = is_first, outgoing, incoming

    def exchange_bits(self, mine, count):
        self._outgoing.put(mine.clone())
        return self._incoming.get(timeout=200)


def answers(comparison, x, thresholds):
    """Compare as both parties do, with fresh masks, and put the shares of the answers together."""
    mask = CompareMask(comparison.elements, comparison.blocks)
    firsts, seconds = [], []
    for number, need in enumerate((mask, *comparison.needs())):
        first = need.first(Prg(bytes([number]) * 16))
        second = need.second(Prg(bytes([number + 100]) * 16))
        firsts.append(first)
        seconds.append((*second, *need.correction(first, second)))
    r = firsts[0][0] + seconds[0][0]
    there, back = SimpleQueue(), SimpleQueue()
    pipes = Pipe(True, there, back), Pipe(False, back, there)

    def side(pipe, parts):
        return comparison.run(pipe, x + r, torch.tensor(thresholds), parts[0][1], tuple(parts[1:]))

    with ThreadPoolExecutor(2) as pool:
        shares = list(pool.map(side, pipes, (firsts, seconds)))
    bits = ring.unpack_bits((shares[0] ^ shares[1]).view(torch.uint8), 64 * shares[0].numel())
    return bits.view(len(thresholds), -1)[:, : comparison.elements].bool()


@given(
    seed=st.integers(0, 2**31),
    elements=st.sampled_from([1, 5, 64, 65, 130]),
    bits=st.integers(6, 41),
    sharp=st.integers(0, 38),
)
def test_a_threshold_is_never_missed_and_never_early_by_more_than_its_slack(
    seed, elements, bits, sharp
):
    generator = torch.Generator().manual_seed(seed)
    reach, widest = 1 << (bits - 3), max(0, bits - 3 - sharp)
    thresholds = torch.randint(-reach + 1, reach, (9,), generator=generator).tolist()
    slack = torch.randint(0, widest + 1, (9,), generator=generator).sort().values.tolist()
    x = torch.randint(-reach + 1, reach, (elements,), generator=generator)
    x[0] = thresholds[seed % 9] - seed % 2  # at a threshold, or just below it
    got = answers(MultiThreshold(elements, bits, tuple(slack)), x, thresholds)
    apart = x - torch.tensor(thresholds)[:, None]
    room = -(1 << torch.tensor(slack))[:, None]
    assert bool(got[apart >= 0].all())
    assert not bool(got[apart <= room].any())


def test_a_threshold_with_slack_costs_fewer_bits():
    def size(slack):
        ((message, _),) = MultiThreshold(64, 29, (slack,) * 8).rounds(ROLES)
        return message.payload_bytes

    assert [size(slack) for slack in (0, 6, 7, 14, 21)] == [8 * 8 * n for n in (6, 6, 4, 2, 0)]


@pytest.mark.parametrize("elements", [1, 33, FEW_ELEMENTS])
def test_steps_are_counted_exactly_at_their_edges(elements):
    """A function of whole constants says how many breakpoints are not above its argument."""
    breaks = [-3.0 + 0.5 * k for k in range(13)]
    x = torch.tensor([edge + side * ULP for edge in breaks for side in (-1, 0, 1)])
    x = x.repeat(-(-elements // len(x)))[:elements].double()

    def program(ops):
        secret = ops.input("x", owner=ALICE, shape=(elements,), bound=4.0)
        steps = ops.piecewise(secret, breaks, [[float(k)] for k in range(14)])
        return ops.open(steps, to=(ALICE,), what="steps", why="test")

    run = simulate(program, inputs={ALICE: {"x": x}})
    counted = (x[:, None] >= torch.tensor(breaks).double()).sum(1).double()
    assert torch.equal(run.values[ALICE], counted)
    assert run.metered == run.plan.cost


def test_many_numbers_or_few_thresholds_or_too_many_bits_are_compared_one_by_one():
    assert fits_multi_threshold(FEW_ELEMENTS, 29, 8)
    assert not fits_multi_threshold(FEW_ELEMENTS + 1, 29, 8)
    assert not fits_multi_threshold(FEW_ELEMENTS, 29, 7)
    assert not fits_multi_threshold(FEW_ELEMENTS, 42, 8)
