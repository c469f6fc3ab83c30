"""What the permuted protocols show: to whoever looks the declared values in an order it cannot
know, to everyone else nothing.

As in `test_transcripts`, a corrupt party knows all its generators: they give zeros. What is left
must hide everything but the declared leak.
"""

from collections import Counter
from itertools import product

import pytest
import torch

from support.crypto import complaints, related
from support.mpc import ALICE, BOB, CAROL, simulate
from tacit.mpc import PROTOCOLS, narrow
from tacit.mpc.permuted.protocol import SeenKernel
from tacit.mpc.protocols.permuted2 import SeenBySecond
from transcript.test_transcripts import (
    SAMPLES,
    assert_carries_nothing,
    columns,
    elementwise,
    pieces,
    secrets,
    single,
)

VIEWERS = {
    name: BOB if "second" in protocol.shows_to else CAROL
    for name, protocol in PROTOCOLS.items()
    if protocol.shows_to
}
HELPED = [name for name, viewer in VIEWERS.items() if viewer == CAROL]
SECONDED = [name for name, viewer in VIEWERS.items() if viewer == BOB]
PROTOCOLS_WITH_DUMMIES = [f"{protocol} flips dummies=64" for protocol in VIEWERS]
ROWS = 8


def rowwise(op):
    """Use a function of rows on constant secrets; nothing is opened."""

    def program(ops):
        x = ops.input("x", owner=ALICE, shape=(SAMPLES // ROWS, ROWS), bound=64.0)
        op(ops, x)

    return program


ROW_KERNELS = {
    "softmax": lambda ops, x: ops.softmax(x),
    "softmax along the first dimension": lambda ops, x: ops.softmax(x, dim=0),
    "log softmax": lambda ops, x: ops.log_softmax(x),
    "layer norm": lambda ops, x: ops.layer_norm(x),
    "rms norm": lambda ops, x: ops.rms_norm(x),
    "maximum": lambda ops, x: ops.max(x, dim=-1),
    "sort": lambda ops, x: ops.sort(x),
}
KERNELS = {
    "relu": lambda ops, x, y, z: ops.relu(x),
    "gelu of a product": lambda ops, x, y, z: ops.gelu(ops.mul(x, y)),
    "two functions": lambda ops, x, y, z: ops.tanh(ops.sigmoid(y)),
    "sign": lambda ops, x, y, z: ops.is_positive(z),
}


def row_secrets():
    return {ALICE: {"x": torch.full((SAMPLES // ROWS, ROWS), 2.5, dtype=torch.float64)}}


@pytest.mark.parametrize("corrupt", [ALICE, BOB])
@pytest.mark.parametrize("kernel", ROW_KERNELS)
@pytest.mark.parametrize("protocol", HELPED)
def test_the_computing_parties_beside_a_helper_learn_nothing_from_functions_of_rows(
    protocol, kernel, corrupt
):
    program = rowwise(ROW_KERNELS[kernel])
    run = simulate(program, protocol=protocol, inputs=row_secrets(), corrupt=corrupt)
    assert_carries_nothing(run, corrupt)


@pytest.mark.parametrize("kernel", [*KERNELS, *ROW_KERNELS])
@pytest.mark.parametrize("protocol", SECONDED)
def test_the_first_party_receives_uniform_words(protocol, kernel):
    run = simulate(**program_of(kernel), protocol=protocol, corrupt=ALICE)
    assert_uniform(list(pieces(run, ALICE)))


@pytest.mark.parametrize("kernel", [*KERNELS, *ROW_KERNELS])
@pytest.mark.parametrize("protocol", SECONDED)
def test_the_second_party_receives_uniform_words_but_for_what_it_may_see(protocol, kernel):
    """What P0 sends is what P1 may see less a mask that P1 was dealt; all else is unrelated."""
    run = simulate(**program_of(kernel), protocol=protocol, corrupt=BOB)
    shown = {f"run/0.{step}.0 from {ALICE}" for step, *_ in viewed_steps(run, SeenBySecond)}
    assert_uniform(list(pieces(run, BOB)), except_in_pairs=shown)


def assert_uniform(messages, except_in_pairs=()):
    """Check every message, and every pair but those that are meant to be put together."""
    for tag, words in messages:
        assert complaints(words) == [], tag
    assert related(single([one for one in messages if one[0] not in except_in_pairs])) == []


@pytest.mark.parametrize("kernel", [*KERNELS, *ROW_KERNELS])
@pytest.mark.parametrize("protocol", SECONDED)
def test_a_dealer_who_does_not_help_receives_nothing(protocol, kernel):
    run = simulate(**program_of(kernel), protocol=protocol)
    assert run.received[CAROL] == []


def program_of(kernel):
    """Return a program and its inputs, by the names they have for `simulate`."""
    if kernel in KERNELS:
        return {"program": elementwise(KERNELS[kernel]), "inputs": secrets()}
    return {"program": rowwise(ROW_KERNELS[kernel]), "inputs": row_secrets()}


def viewed_steps(run, kind):
    for number, step in enumerate(run.plan.steps):
        if isinstance(step.kernel, kind):
            (x,) = step.operands
            yield number, step, x


def views(run, protocol):
    """Put together what the viewer, who must be the corrupt party, saw in every step."""
    is_helped = protocol.split()[0] in HELPED
    notes = dict(run.received[VIEWERS[protocol.split()[0]]])
    for number, step, x in viewed_steps(run, SeenKernel):
        size = narrow.size_of(x)
        shown = narrow.uncut(notes[f"run/0.{number}.0 from {ALICE}"], size)
        if is_helped:
            rest = narrow.uncut(notes[f"run/0.{number}.0 from {BOB}"], size)
        else:
            rest = notes[f"deal/0.{number} from {CAROL}"][: step.needs[0].instance.layout.elements]
        yield narrow.sign_extend(shown + rest, size)


@pytest.mark.parametrize("protocol", VIEWERS)
def test_the_viewer_sees_the_declared_values_and_every_order_is_equally_likely(protocol):
    """Many calls on three values each: six orders, each of them as often as any other."""
    calls = 240

    def program(ops):
        x = ops.input("x", owner=ALICE, shape=(3,), bound=64.0)
        for _ in range(calls):
            ops.tanh(x)

    inputs = {ALICE: {"x": torch.tensor([1.0, -2.0, 5.0], dtype=torch.float64)}}
    run = simulate(
        program, protocol=protocol, inputs=inputs, frac_bits=0, corrupt=VIEWERS[protocol]
    )
    orders = Counter(tuple(seen.tolist()) for seen in views(run, protocol))
    assert all(sorted(order) == [-2, 1, 5] for order in orders), "the multiset, as declared"
    # Chi-square with 5 degrees of freedom: above 66 with a chance below 1e-12.
    expected = calls / 6
    counts = [orders[order] for order in orders] + [0] * (6 - len(orders))
    assert sum((count - expected) ** 2 / expected for count in counts) < 66


@pytest.mark.parametrize("protocol", VIEWERS)
def test_the_viewer_of_rows_sees_rows_in_random_order_and_their_values_too(protocol):
    """Two rows of two values: eight orders, each of them as often as any other."""
    calls = 160

    def program(ops):
        x = ops.input("x", owner=ALICE, shape=(2, 2), bound=64.0)
        for _ in range(calls):
            ops.layer_norm(x)

    inputs = {ALICE: {"x": torch.tensor([[1.0, 2.0], [3.0, 4.0]], dtype=torch.float64)}}
    run = simulate(
        program, protocol=protocol, inputs=inputs, frac_bits=0, corrupt=VIEWERS[protocol]
    )
    orders = Counter(tuple(seen.tolist()) for seen in views(run, protocol))
    for order in orders:
        assert sorted(map(sorted, (order[:2], order[2:]))) == [[1, 2], [3, 4]], "rows, as declared"
    # Chi-square with 7 degrees of freedom: above 72 with a chance below 1e-12.
    expected = calls / 8
    counts = [orders[order] for order in orders] + [0] * (8 - len(orders))
    assert sum((count - expected) ** 2 / expected for count in counts) < 72


@pytest.mark.parametrize("protocol", VIEWERS)
def test_what_the_viewer_sees_of_a_large_call_is_the_multiset_and_nothing_in_place(protocol):
    values = torch.arange(SAMPLES, dtype=torch.float64)

    def program(ops):
        ops.relu(ops.input("x", owner=ALICE, shape=(SAMPLES,), bound=float(SAMPLES)))

    inputs = {ALICE: {"x": values}}
    run = simulate(
        program, protocol=protocol, inputs=inputs, frac_bits=0, corrupt=VIEWERS[protocol]
    )
    (seen,) = views(run, protocol)
    assert seen.sort().values.tolist() == values.tolist()
    # One value in its own place is to be expected; 25 have a chance below 1e-20.
    assert int((seen == values).sum()) < 25


@pytest.mark.parametrize("protocol", HELPED)
def test_shares_that_the_helper_receives_are_uniform_one_by_one(protocol):
    """The dealer knows the triple behind a product: only the common mask hides its shares."""
    run = simulate(**program_of("gelu of a product"), protocol=protocol, corrupt=CAROL)
    shown = [words for tag, words in run.received[CAROL] if tag.startswith("run/")]
    assert len(shown) == 2
    for share in shown:
        assert complaints(columns(share)) == []


@pytest.mark.parametrize("corrupt", [ALICE, BOB])
@pytest.mark.parametrize("protocol", PROTOCOLS_WITH_DUMMIES)
def test_the_computing_parties_receive_uniform_words_under_flips_and_dummies(protocol, corrupt):
    program = elementwise(lambda ops, x, y, z: (ops.tanh(x), ops.gelu(y), ops.sigmoid(z)))
    run = simulate(program, protocol=protocol, inputs=secrets(), corrupt=corrupt)
    for tag, words in pieces(run, corrupt):
        assert complaints(words) == [], tag


@pytest.mark.parametrize("viewer", VIEWERS)
def test_flipped_signs_hide_the_sign_from_the_viewer(viewer):
    protocol, corrupt = f"{viewer} flips", VIEWERS[viewer]
    program = elementwise(lambda ops, x, y, z: (ops.tanh(x), ops.gelu(y), ops.abs(x)))
    run = simulate(program, protocol=protocol, inputs=secrets(), frac_bits=16, corrupt=corrupt)
    for seen in views(run, protocol):
        assert len(seen.abs().unique()) == 1, "the size leaks, as declared"
        # 4096 fair coins are 7 deviations off with chance below 1e-11.
        assert abs(int(seen.sign().sum())) < 7 * SAMPLES**0.5


@pytest.mark.parametrize("viewer", VIEWERS)
def test_flipped_rows_hide_their_sign_from_the_viewer(viewer):
    protocol, corrupt = f"{viewer} flips", VIEWERS[viewer]
    program = rowwise(lambda ops, x: (ops.layer_norm(x), ops.rms_norm(x)))
    run = simulate(program, protocol=protocol, inputs=row_secrets(), corrupt=corrupt)
    for seen in views(run, protocol):
        rows = seen.view(-1, ROWS).sign()
        assert bool((rows == rows[:, :1]).all())
        assert abs(int(rows[:, 0].sum())) < 7 * len(rows) ** 0.5


@pytest.mark.parametrize("viewer", VIEWERS)
def test_dummies_are_uniform_within_their_reach_and_anywhere_among_the_values(viewer):
    protocol, corrupt = f"{viewer} dummies={SAMPLES} reach=2", VIEWERS[viewer]

    def program(ops):
        ops.tanh(ops.input("x", owner=ALICE, shape=(SAMPLES,), bound=64.0))

    inputs = {ALICE: {"x": torch.full((SAMPLES,), 60.0, dtype=torch.float64)}}
    run = simulate(program, protocol=protocol, inputs=inputs, frac_bits=16, corrupt=corrupt)
    (seen,) = views(run, protocol)
    is_dummy = seen != 60 << 16
    assert int(is_dummy.sum()) == SAMPLES
    # A hypergeometric count of half the places: 7 deviations of 45.
    assert abs(int(is_dummy[:SAMPLES].sum()) - SAMPLES // 2) < 7 * 32
    # A reach of 2 is 2^17 words: the lowest 16 bits are uniform, and the sign is a coin.
    low = seen[is_dummy] & 0xFFFF
    assert complaints(low | low << 16 | low << 32 | low << 48) == []
    assert int(seen[is_dummy].abs().max()) <= 2 << 16
    assert abs(int(seen[is_dummy].sign().sum())) < 7 * SAMPLES**0.5


@pytest.mark.parametrize("viewer", VIEWERS)
def test_dummy_rows_are_rows_of_their_own(viewer):
    protocol, corrupt = f"{viewer} dummies=100 reach=1", VIEWERS[viewer]

    def program(ops):
        ops.softmax(ops.input("x", owner=ALICE, shape=(100, 4), bound=64.0))

    inputs = {ALICE: {"x": torch.full((100, 4), 60.0, dtype=torch.float64)}}
    run = simulate(program, protocol=protocol, inputs=inputs, frac_bits=16, corrupt=corrupt)
    (seen,) = views(run, protocol)
    rows = (seen.view(-1, 4) == 60 << 16).sum(1)
    assert sorted(rows.tolist()) == [0] * 100 + [4] * 100
    assert rows.tolist() != [4] * 100 + [0] * 100


def carry_nothing():
    """Run the checks of this file that notice a missing mask or order, quick ones first."""
    test_flipped_signs_hide_the_sign_from_the_viewer("permuted3")
    test_dummies_are_uniform_within_their_reach_and_anywhere_among_the_values("permuted3")
    for protocol in VIEWERS:
        test_what_the_viewer_sees_of_a_large_call_is_the_multiset_and_nothing_in_place(protocol)
    for protocol, kernel in product(SECONDED, ("relu", "softmax")):
        test_the_first_party_receives_uniform_words(protocol, kernel)
        test_the_second_party_receives_uniform_words_but_for_what_it_may_see(protocol, kernel)
    for protocol, corrupt in product(HELPED, (ALICE, BOB)):
        test_the_computing_parties_beside_a_helper_learn_nothing_from_functions_of_rows(
            protocol, "softmax", corrupt
        )
    for protocol in HELPED:
        test_shares_that_the_helper_receives_are_uniform_one_by_one(protocol)
    for protocol in VIEWERS:
        test_the_viewer_of_rows_sees_rows_in_random_order_and_their_values_too(protocol)
