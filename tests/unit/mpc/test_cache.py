import pytest
import torch

from support.mpc import ALICE, BOB, MEETING, PARTIES, ROLES
from tacit import ring
from tacit.errors import ConfigError, DataError
from tacit.mpc import PROTOCOLS, OpeningCache, Share, compute, make_plan, serve
from tacit.mpc.share import Spec
from tacit.party import run_threads

ULP = 2.0**-16


def program(ops):
    w = ops.input("w", owner=BOB, shape=(6, 4), bound=1.0)
    ops.cache_openings(w)
    x = ops.input("x", owner=ALICE, shape=(2, 6), bound=1.0)
    return ops.open(ops.matmul(x, w), to=(ALICE,), what="y", why="test")


def sent_offline_by_owner(plan):
    return sum(
        entry.payload_bytes
        for entry in plan.cost.traffic
        if (entry.sender, entry.phase) == (BOB, "offline")
    )


def ask(inputs, *, runs, changed=None):
    """Run a program several times in one session; ``changed`` weights come in the last run."""
    plans = {name: [] for name in PARTIES}

    def party(session):
        cache, answers = OpeningCache(), []
        for number in range(runs):
            plan = make_plan(program, PROTOCOLS["sealed"], ROLES, frac_bits=16, cache=cache)
            plans[session.me].append(plan)
            if session.me not in ROLES.computing:
                serve(session, plan, inputs={}, cache=cache)
                continue
            w = inputs["w"] if changed is None or number < runs - 1 else changed
            mine = {"x": inputs["x"] + number / 8} if session.me == ALICE else {"w": w}
            answers.append(compute(session, plan, program, inputs=mine, cache=cache))
        return answers

    return run_threads(dict.fromkeys(PARTIES, party), MEETING), plans


def inputs():
    generator = torch.Generator().manual_seed(3)
    return {
        "w": torch.rand(6, 4, generator=generator, dtype=torch.float64) * 2 - 1,
        "x": torch.rand(2, 6, generator=generator, dtype=torch.float64) / 2,
    }


def test_weights_are_opened_in_the_first_run_of_a_session_only():
    given = inputs()
    values, plans = ask(given, runs=3)
    for number, answer in enumerate(values[ALICE]):
        assert (answer - (given["x"] + number / 8) @ given["w"]).abs().max() < 8 * ULP
    sent = [sent_offline_by_owner(plan) for plan in plans[ALICE]]
    assert sent == [8 * 6 * 4, 0, 0]
    assert len({plan.digest() for plan in plans[ALICE][1:]}) == 1


def test_weights_that_changed_are_refused_by_their_owner():
    given = inputs()
    with pytest.raises(DataError, match="'w' is not what it was"):
        ask(given, runs=2, changed=given["w"] / 2)


def test_a_cache_belongs_to_one_session():
    caches = {name: OpeningCache() for name in PARTIES}

    def party(session):
        cache = caches[session.me]
        plan = make_plan(program, PROTOCOLS["sealed"], ROLES, frac_bits=16, cache=cache)
        if session.me not in ROLES.computing:
            return serve(session, plan, inputs={}, cache=cache)
        return compute(session, plan, program, inputs=inputs(), cache=cache)

    run_threads(dict.fromkeys(PARTIES, party), MEETING)
    with pytest.raises(ConfigError, match="one session"):
        run_threads(dict.fromkeys(PARTIES, party), MEETING)


def test_shares_that_were_kept_are_opened_in_the_first_run_only_and_watched():
    prg = ring.Prg(b"k" * 16)
    w = inputs()["w"]
    words, mask = ring.encode(w, frac_bits=16), prg.words((6, 4))
    spec = Spec.of(shape=(6, 4), frac_bits=16, bound=1.0)
    shares = {ALICE: mask, BOB: words - mask}

    def answer(ops):
        opened = ops.resume("w", shape=(6, 4), bound=1.0)
        ops.cache_openings(opened)
        x = ops.input("x", owner=ALICE, shape=(2, 6), bound=1.0)
        return ops.open(ops.matmul(x, opened), to=(ALICE,), what="y", why="test")

    def party(session):
        cache, sent, answers = OpeningCache(), [], []
        for number in range(3):
            plan = make_plan(answer, PROTOCOLS["sealed"], ROLES, frac_bits=16, cache=cache)
            sent.append(sent_offline_by_owner(plan))
            if session.me not in ROLES.computing:
                serve(session, plan, inputs={}, cache=cache)
                continue
            share = shares[session.me].clone()
            if number == 2:
                share[0, 0] += session.me == BOB and changes
            mine = {"x": inputs()["x"]} if session.me == ALICE else {}
            kept = {"w": Share(share, spec)}
            answers.append(compute(session, plan, answer, inputs=mine, kept=kept, cache=cache))
        return answers, sent

    changes = False
    ends = run_threads(dict.fromkeys(PARTIES, party), MEETING)
    answers, sent = ends[ALICE]
    assert sent == [8 * 6 * 4, 0, 0]
    for one in answers:
        assert (one - inputs()["x"] @ w).abs().max() < 8 * ULP
    changes = True
    with pytest.raises(DataError, match="'w' is not what it was"):
        run_threads(dict.fromkeys(PARTIES, party), MEETING)
