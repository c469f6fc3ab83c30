import pytest
import torch

from support.mpc import ALICE, BOB, CAROL, MEETING, PARTIES, ROLES
from tacit.errors import DisagreementError, InputError, RangeError
from tacit.mpc.walker import Walker
from tacit.party import merge_costs, run_threads, without_setup

X = torch.tensor([[1.0, -2.0], [0.5, 3.0]], dtype=torch.float64)


def enter(ops, values):
    return {"x": ops.input("x", owner=ALICE, shape=(2, 2), bound=4.0)}


def square(ops, values, *, times):
    found = values["x"]
    ops.cache_openings(found)
    for _ in range(times):
        found = ops.restate(ops.normalise_scale(ops.mul(values["x"], found)), bound=40.0)
    return {"out": found}


def walk(walker):
    walker.run(enter, inputs={"x": X} if walker.me == ALICE else {})
    for times in (1, 1, 2, 1):
        walker.run(square, uses={"x": "x"}, times=times)
    return walker.open(["out"], to=(BOB, CAROL), why="a test")


def walker(session=None, **options):
    return Walker(ROLES, protocol="sealed", frac_bits=16, session=session, **options)


def in_threads(work):
    return run_threads(dict.fromkeys(PARTIES, work), MEETING)


def test_a_walk_that_is_planned_alone_says_what_the_walk_of_all_parties_sends():
    planned = walker()
    assert walk(planned) == {}

    def party(session):
        mine = walker(session)
        return walk(mine), mine.runs, session.cost()

    found = in_threads(party)
    digests = [[(plan.digest(), times) for plan, times in found[me][1]] for me in PARTIES]
    assert digests == [[(plan.digest(), times) for plan, times in planned.runs]] * 3
    metered = merge_costs({me: cost for me, (_, _, cost) in found.items()})
    assert without_setup(metered) == planned.forecast().cost
    assert found[ALICE][0] == {}
    for me in (BOB, CAROL):
        assert torch.allclose(found[me][0]["out"], X * X, atol=1e-3)


def test_what_was_opened_under_a_mask_is_another_plan_and_the_rest_is_planned_once():
    planned = walker()
    walk(planned)
    # One that opens x, then one for each number of times, with x open; entering and opening.
    assert [times for _, times in planned.runs] == [1, 1, 1, 1, 1, 1]
    assert len(planned.plans) == 5
    assert planned.runs[2][0] is planned.runs[4][0]


def test_an_endless_walk_counts_runs_of_one_plan_together():
    planned = walker(is_endless=True)
    walk(planned)
    assert [times for _, times in planned.runs] == [1, 1, 2, 1, 1]


def test_who_plans_alone_has_nobody_to_talk_to():
    planned = walker()
    assert planned.me == ""
    assert not planned.is_computing
    with pytest.raises(InputError, match="planned alone"):
        _ = planned.session
    with pytest.raises(InputError, match="nothing was planned"):
        planned.forecast()


def test_plans_that_all_agreed_on_together_are_not_compared_again():
    def party(session):
        mine = walker(session)
        mine.plans.update(ahead.plans)
        mine.agree()
        sent = session.cost().traffic
        mine.run(enter, inputs={"x": X} if mine.me == ALICE else {})
        return [one.messages for one in session.cost().traffic if one.phase == "setup"] == [
            one.messages for one in sent if one.phase == "setup"
        ]

    ahead = walker()
    walk(ahead)
    assert all(in_threads(party).values())


def test_a_party_that_planned_something_else_is_named_before_anything_is_sent():
    def party(session):
        mine = walker(session)
        mine.run(enter, inputs={"x": X} if mine.me == ALICE else {})
        mine.run(square, uses={"x": "x"}, times=2 if mine.me == CAROL else 1)

    with pytest.raises(DisagreementError, match="another plan"):
        in_threads(party)


def test_runs_that_an_earlier_start_made_are_left_out_but_inputs_come_in_again():
    def begun(session):
        mine = walker(session)
        walk(mine)
        return mine.shares()

    kept = in_threads(begun)

    def again(session):
        mine = walker(session)
        mine.go_on(4, kept[mine.me])
        seen = []
        mine.look = lambda passed, plan: seen.append((passed, plan is None))
        return walk(mine), seen

    found = in_threads(again)
    for opened, seen in (found[me] for me in (BOB, CAROL)):
        assert torch.allclose(opened["out"], X * X, atol=1e-3)
        assert seen == [(1, False), (2, True), (3, True), (4, True), (5, False), (6, False)]


def test_a_program_whose_numbers_do_not_fit_is_refused_while_it_is_planned():
    planned = walker()
    with pytest.raises(RangeError):
        planned.plan(lambda ops: ops.input("x", owner=ALICE, shape=(1,), bound=2.0**60))
