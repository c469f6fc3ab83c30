"""A party that cheats under `checked` is caught, whatever it changes; under `sealed` it is not."""

from contextlib import suppress
from threading import Event

import pytest
import torch

from support.cheating import ALICE, BOB, CAROL, PARTIES, ROLES, Liar, W, X, Z, program, run, wanted
from support.crypto import complaints
from support.mpc import MEETING, simulate
from tacit import ring
from tacit.errors import CheatingError, PartyError, RangeError, TacitError
from tacit.mpc import boundary, compute, find_protocol, make_plan, serve
from tacit.mpc.protocols.checked import boundary as checked_boundary
from tacit.party import run_threads

HONEST = {ALICE: BOB, BOB: ALICE}
KEYS = {
    frozenset(pair): bytes([at]) * 16
    for at, pair in enumerate(((ALICE, BOB), (ALICE, CAROL), (BOB, CAROL)))
}


def all_messages(protocol="checked"):
    """List every message that P0 or P1 sends: (sender, tag, receiver, words)."""
    honest = run(None, protocol=protocol)
    assert not honest.errors
    return [(me, *note) for me in (ALICE, BOB) for note in honest.sent[me]]


def is_right(outcome, party):
    """Tell whether a party's outputs are what they should be."""
    got = outcome.values[party]
    pairs = zip(got[:1] if party != ALICE else got, wanted(), strict=False)
    return all((a - b).abs().max() < 2e-3 for a, b in pairs if a is not None)


def assert_caught_or_harmless(liar, outcome):
    """Whoever did not lie has the right result, or stopped; and then blames the liar."""
    assert liar.did
    for party in (HONEST[liar.name], CAROL):
        error = outcome.errors.get(party)
        if error is None:
            assert party not in outcome.values or is_right(outcome, party)
            continue
        assert isinstance(error, PartyError)
        assert error.exit_code == 4
        if isinstance(error, CheatingError):
            assert liar.name in error.party, "an honest party names the liar"
            named = error.party.removesuffix(" or an owner")  # who told both what they entered
            if party == CAROL:
                assert ALICE in named, "others cannot know which"
                assert BOB in named
            else:
                assert named == liar.name


def add(power):
    def change(words):
        flat = words.view(-1)
        amount = torch.tensor(-(1 << 63) if power == 63 else 1 << power)
        flat[len(flat) // 2] += amount.to(words.dtype)
        return words

    return change


def flip(generator):
    def change(words):
        octets = words.view(-1).view(torch.uint8)
        at = int(torch.randint(len(octets), (), generator=generator))
        octets[at] ^= 1 << int(torch.randint(8, (), generator=generator))
        return words

    return change


def put(other):
    return lambda words: other.clone()


def changes(messages, at, generator):
    """List ways to change a message: bits, powers of two, an earlier message, a swap, noise."""
    _, _, _, words = messages[at]
    width = 8 * words.element_size()
    yield flip(generator)
    yield add(int(torch.randint(width, (), generator=generator)))
    yield add(width - 1)
    alike = [w for _, _, _, w in messages if w.shape == words.shape and w.dtype == words.dtype]
    yield put(alike[int(torch.randint(len(alike), (), generator=generator))])  # of another run
    if words.numel() > 1:
        yield lambda words: words.flip(0)
    yield lambda words: torch.zeros_like(words)


def test_every_message_of_a_checked_run_can_be_changed_and_no_wrong_result_is_accepted():
    generator = torch.Generator().manual_seed(23)
    messages, caught = all_messages(), 0
    for at, (sender, tag, receiver, _) in enumerate(messages):
        ways = list(changes(messages, at, generator))
        chosen = int(torch.randint(len(ways), (), generator=generator))
        liar = Liar(sender, tag, receiver, ways[chosen], steady=at % 2 == 0)
        outcome = run(liar)
        assert_caught_or_harmless(liar, outcome)
        caught += any(isinstance(e, CheatingError) for e in outcome.errors.values())
    assert caught > 0.9 * len(messages)


@pytest.mark.slow
@pytest.mark.parametrize("steady", [False, True])
def test_every_way_to_change_every_message_of_a_checked_run(steady):
    generator = torch.Generator().manual_seed(24)
    messages = all_messages()
    for at, (sender, tag, receiver, words) in enumerate(messages):
        powers = [add(power) for power in range(8 * words.element_size())]
        for change in (*changes(messages, at, generator), *powers):
            liar = Liar(sender, tag, receiver, change, steady=steady)
            assert_caught_or_harmless(liar, run(liar))


def test_a_message_that_never_comes_ends_the_run_in_time():
    for sender, tag, receiver, _ in all_messages()[8:44:12]:
        liar = Liar(sender, tag, receiver, lambda words: None)
        outcome = run(liar, stall_s=4)
        for party in (HONEST[sender], CAROL):
            assert isinstance(outcome.errors[party], PartyError)
            assert party not in outcome.values


def test_nothing_is_revealed_after_a_lie():
    """The honest party sends nothing of an output if a message before it was wrong."""
    messages = all_messages()
    first_output = min(
        int(tag.split(".")[1]) for me, tag, to, w in messages if w.shape == (2, 2) and to != CAROL
    )
    for sender, tag, receiver, _ in messages:
        step = int(tag.split(".")[1])
        if receiver == CAROL or step >= first_output - 1:
            continue
        outcome = run(Liar(sender, tag, receiver, add(0), steady=True))
        later = [
            tag
            for tag, _, _ in outcome.sent[HONEST[sender]]
            if int(tag.split(".")[1]) >= first_output
        ]
        assert later == []
        if step > 8:
            break  # an opening, a comparison and an input are enough for every day


def test_whether_a_lie_is_caught_does_not_depend_on_the_inputs():
    """Selective failure: an abort that depended on a secret bit would tell that bit."""
    generator = torch.Generator().manual_seed(5)
    some = [one for one in all_messages() if one[2] != CAROL][3:30:4]
    for sender, tag, receiver, _ in some:
        ends = set()
        for scale in (0.0, 1.0, -1.0):
            inputs = {
                ALICE: {"x": scale * torch.full((2, 3), 3.0, dtype=torch.float64)},
                BOB: {"w": scale * torch.rand(3, 2, generator=generator, dtype=torch.float64)},
                CAROL: {"z": torch.full((2, 2), scale, dtype=torch.float64)},
            }
            outcome = run(
                Liar(sender, tag, receiver, add(0), steady=True), inputs=inputs, keys=KEYS
            )
            error = outcome.errors.get(HONEST[sender])
            ends.add(error is not None)  # which of the two notices first is a matter of time
        assert ends == {True}


def test_an_owner_may_choose_its_input_and_nothing_else():
    """What P1 sends of its own input is its input: a lie in it is another input, consistently."""
    plan = make_plan(_reading, find_protocol("checked"), ROLES, frac_bits=16)
    step = next(
        at for at, one in enumerate(plan.steps) if type(one.kernel).__name__ == "OpenTagged"
    )
    liar = Liar(BOB, f"run/0.{step}.0", ALICE, add(17))
    values = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)
    outcome = run(liar, work=_reading, inputs={BOB: {"w": values}})
    assert isinstance(outcome.errors[ALICE], CheatingError), "it computed on another input itself"
    assert outcome.errors[ALICE].party == BOB


def _reading(ops):
    w = ops.input("w", owner=BOB, shape=(3,), bound=64.0)
    return ops.open(ops.mul(w, w), to=(ALICE,), what="w²", why="test")


@pytest.mark.parametrize("steady", [False, True])
def test_under_sealed_the_same_lies_give_wrong_results_unnoticed(steady):
    """What `sealed` says of itself: a malicious party is not noticed."""
    wrong = 0
    messages = [one for one in all_messages("sealed") if one[2] != CAROL]
    for sender, tag, receiver, words in messages:
        power = 40 if words.dtype == torch.int64 else 1
        outcome = run(Liar(sender, tag, receiver, add(power), steady=steady), protocol="sealed")
        assert not outcome.errors, "nothing is noticed"
        wrong += not all(is_right(outcome, party) for party in PARTIES)
    assert wrong >= len(messages) // 3


@pytest.mark.slow
@pytest.mark.parametrize("power", [0, 40, 63])
def test_where_any_lie_is_caught_does_not_depend_on_the_inputs(power):
    """Every message, changed by its sender who goes on consistently: what the other does is fixed.

    Whether it stops, and with which words: these name the step of the check that failed.
    """
    generator = torch.Generator().manual_seed(6)
    for sender, tag, receiver, words in all_messages():
        if receiver == CAROL or words.shape == (ring.KEY_BYTES,):
            continue  # another seed is a seed; whether its sender then gives up in time is chance
        ends = set()
        for scale in (0.0, 1.0, -1.0):
            inputs = {
                ALICE: {"x": scale * torch.full((2, 3), 3.0, dtype=torch.float64)},
                BOB: {"w": scale * torch.rand(3, 2, generator=generator, dtype=torch.float64)},
                CAROL: {"z": torch.full((2, 2), scale, dtype=torch.float64)},
            }
            lie = add(power % (8 * words.element_size()))
            outcome = run(Liar(sender, tag, receiver, lie, steady=True), inputs=inputs, keys=KEYS)
            error = outcome.errors.get(HONEST[sender])
            said = None if error is None else str(error).partition(" messages up to ")[2]
            ends.add((error is not None, said))
        assert len({stopped for stopped, _ in ends}) == 1
        # An honest party whose own check is refused by the liar first says another thing.
        assert len({said for _, said in ends if said}) <= 1


@pytest.mark.parametrize("bit", [0, 3, 9])
def test_an_owner_beyond_its_bound_reads_what_the_ring_makes_of_it(bit, monkeypatch):
    """What `checked` does not promise: that an input is within its bound.

    A sign is all that an honest ALICE learns of BOB's number. Beyond her bound she shifts another
    bit of it to where the sign is read: any one bit in a run, and no check fails.
    """

    def work(ops):
        x = ops.input("x", owner=ALICE, shape=(2,), bound=4.0)
        w = ops.input("w", owner=BOB, shape=(2,), bound=4.0)
        return ops.open(ops.is_positive(ops.mul(x, w)), to=(ALICE,), what="sign", why="test")

    plan = make_plan(work, find_protocol("checked"), ROLES, frac_bits=16)
    kernel = next(one for one in plan.steps if type(one.kernel).__name__ == "PiecewiseTagged")
    seen = kernel.kernel._comparison(kernel.operands[0]).bits  # bits of the product that are read
    unchecked = torch.tensor([1 << (seen - 1 - bit)] * 2)
    encode = boundary.encode_input

    def boundless(step, values):
        return unchecked if step.owner == ALICE else encode(step, values)

    monkeypatch.setattr(boundary, "encode_input", boundless)
    words = torch.tensor([0x2A4F1, 0x15B0E])  # whose bits 0, 3 and 9 are 1, 0, 0 and 0, 1, 1
    given = {ALICE: {"x": torch.zeros(2)}, BOB: {"w": words.double() / 2**16}}
    outcome = run(None, work=work, inputs=given)
    assert not outcome.errors
    got = outcome.values[ALICE]
    assert [1 - int(one) for one in got] == [int(one) >> bit & 1 for one in words]


def test_after_a_cheat_the_session_is_over_at_all_parties():
    """The keys of the tags are those of the session: each further run would be another guess."""
    plan = make_plan(program, find_protocol("checked"), ROLES, frac_bits=16)
    given = {ALICE: {"x": X}, BOB: {"w": W}, CAROL: {"z": Z}}
    tags = [tag for me, tag, receiver, _ in all_messages() if (me, receiver) == (BOB, ALICE)]
    lie = Liar(BOB, tags[len(tags) // 2], ALICE, add(5))
    ended, later, waited = {name: Event() for name in PARTIES}, {}, {}

    def party(session):
        me = session.me
        try:
            if me in ROLES.computing:
                return compute(session, plan, program, inputs=given[me])
            return serve(session, plan, inputs=given[me])
        except TacitError:
            ended[me].set()
            # Nobody has left: the others know it from whoever caught the cheat.
            waited[me] = all(one.wait(20) for one in ended.values())
            try:
                later[me] = session.begin_run()
            except TacitError as error:
                later[me] = error
            raise

    with suppress(TacitError):
        run_threads(dict.fromkeys(PARTIES, party), MEETING, wrap=lie.wrap)
    assert lie.did
    assert waited == dict.fromkeys(PARTIES, True)
    for one in PARTIES:
        assert isinstance(later[one], CheatingError)
        assert "session is over" in str(later[one])


SAMPLES = 1024
EDGES = (4.0, 4.0 + 2**-16, -4.0, -4.0 - 2**-16, 2.0**30, 2.0**46, -(2.0**47), 2.0**47 - 2**-5)


@pytest.mark.parametrize("owner", [ALICE, BOB, CAROL])
@pytest.mark.parametrize("value", EDGES)
def test_with_bounds_no_owner_gets_past_its_bound(owner, value, monkeypatch):
    """At the bound, one unit beyond it, and where a difference to it wraps around."""

    def work(ops):
        x = ops.input("x", owner=owner, shape=(3,), bound=4.0)
        return ops.open(ops.mul(x, x), to=(ALICE,), what="x²", why="test")

    monkeypatch.setattr(
        boundary, "encode_input", lambda step, values: (values * 2**16).to(torch.int64)
    )
    monkeypatch.setattr(checked_boundary, "encode_input", boundary.encode_input)
    x = torch.tensor([1.0, value, -2.0], dtype=torch.float64)
    outcome = run(None, work=work, inputs={owner: {"x": x}}, protocol="checked bounds")
    if abs(value) <= 4.0:
        assert not outcome.errors
        assert torch.allclose(outcome.values[ALICE], x.square(), atol=1e-3)
        return
    for party in {ALICE, BOB} - {owner}:
        assert isinstance(outcome.errors[party], CheatingError)
        assert party not in outcome.values
        if owner == CAROL:
            assert owner in outcome.errors[party].party


@pytest.mark.parametrize("owner", [ALICE, CAROL])
@pytest.mark.parametrize(
    ("value", "dtype", "bound", "frac_bits"),
    [
        (0.7, torch.float16, 0.7, 16),
        (999.0, torch.bfloat16, 999.0, 16),
        (0.1, torch.float32, 0.1, 30),
        (-128, torch.int8, 100.0, 16),
    ],
)
def test_a_number_that_its_type_shows_as_the_bound_is_refused_by_its_owner(
    owner, value, dtype, bound, frac_bits
):
    """Compared in its own type it would pass, and its honest owner be named a cheat."""

    def work(ops):
        x = ops.input("x", owner=owner, shape=(2,), bound=bound, frac_bits=frac_bits)
        return ops.open(ops.sum(x, dim=0), to=(ALICE,), what="sum", why="test")

    x = torch.full((2,), value, dtype=dtype)
    outcome = run(None, work=work, inputs={owner: {"x": x}}, protocol="checked bounds")
    with pytest.raises(RangeError, match="'x': 2 of 2 values exceed the bound"):
        raise outcome.errors[owner]
    assert {ALICE, BOB} <= set(outcome.errors)  # the dealer may be through before it is told
    for party in set(outcome.errors) - {owner}:
        assert not isinstance(outcome.errors[party], CheatingError)
        assert outcome.errors[party].party == owner


def test_with_bounds_the_cost_is_what_was_planned_and_messages_carry_nothing():
    def program(ops):
        x = ops.input("x", owner=ALICE, shape=(SAMPLES,), bound=4.0)
        ops.open(ops.sum(x, dim=0), to=(BOB,), what="sum", why="test")

    inputs = {ALICE: {"x": torch.full((SAMPLES,), 3.25, dtype=torch.float64)}}
    found = simulate(program, protocol="checked bounds", inputs=inputs, corrupt=BOB)
    assert found.metered == found.plan.cost
    words = [w for _, w in found.received[BOB] if w.numel() == SAMPLES and w.dtype == torch.int64]
    assert words
    assert [complaints(one.reshape(-1)) for one in words] == [[]] * len(words)
