"""Entries of a growing tensor are opened once each, under masks that mask nothing else."""

from dataclasses import replace

import pytest
import torch

from support.crypto import complaints, related
from support.mpc import ALICE, BOB, MEETING, PARTIES, ROLES, Wiretap, _generators
from tacit.mpc import PROTOCOLS, OpeningCache, compute, make_plan, serve
from tacit.mpc.material import randomness
from tacit.party import merge_costs, run_threads, without_setup
from tacit.party.cost import cost_in_a_row

ROWS, WIDTH, RUNS = 2, 256, 3
ULP = 2.0**-16


def program_of(past):
    """Write two rows behind the first ``past``, and ask for their products with a query."""

    def program(ops):
        fresh = ops.input("rows", owner=ALICE, shape=(ROWS, WIDTH), bound=1.0)
        query = ops.input("query", owner=BOB, shape=(1, WIDTH), bound=1.0)
        # Sums of two inputs: nobody's own, so that both parties send.
        fresh, query = ops.add(fresh, ops.scale(fresh, 0.0)), ops.add(query, ops.scale(query, 0.0))
        (whole,) = ops.grow({"rows": fresh}, length=past + ROWS, dim=0, beside=(query,))
        scores = ops.matmul(query, ops.transpose(whole, 0, 1))
        return ops.open(scores, to=(BOB,), what="scores", why="test")

    return program


def grown(pasts, *, corrupt=None):
    """Run the program after so many kept rows each, in one session, with the same inputs."""
    rows = (torch.arange(ROWS * WIDTH).view(ROWS, WIDTH) % 17 - 8).double() / 16
    query = torch.ones(1, WIDTH, dtype=torch.float64) / 4
    notes, costs, plans = {name: [] for name in PARTIES}, {}, []

    def party(session):
        session = replace(session, generators=_generators(session, corrupt, {}))
        cache, shown, me = OpeningCache(), [], session.me
        for number, past in enumerate(pasts):
            notes[me].append(("run", torch.zeros(0)))
            program = program_of(past)
            cache.place(0, past)
            plan = make_plan(program, PROTOCOLS["sealed"], ROLES, frac_bits=16, cache=cache)
            if me == ALICE:
                plans.append(plan)
            if me not in ROLES.computing:
                serve(session, plan, inputs={}, cache=cache)
                continue
            mine = {"rows": rows * 0.5**number} if me == ALICE else {"query": query}
            shown.append(compute(session, plan, program, inputs=mine, cache=cache))
        costs[me] = session.cost()
        return shown

    values = run_threads(
        dict.fromkeys(PARTIES, party), MEETING, wrap=lambda me, link: Wiretap(link, notes[me])
    )
    wanted, known = [], torch.zeros(0, WIDTH, dtype=torch.float64)
    for number, past in enumerate(pasts):
        known = torch.cat((known[:past], rows * 0.5**number))
        wanted.append(query @ known.T)
    return values[BOB], wanted, notes, plans, without_setup(merge_costs(costs))


def openings(notes, party, other):
    """Return what one party received of the other in each run: rows and query, masked."""
    found = []
    for tag, words in notes[party]:
        if tag == "run":
            found.append([])
        elif tag.endswith(f"from {other}") and words.numel() == (ROWS + 1) * WIDTH:
            found[-1].append(words)
    return [words for run in found for words in run]


def test_products_read_all_entries_and_only_new_ones_are_sent():
    shown, wanted, _, plans, metered = grown((0, 2, 4))
    for one, other in zip(shown, wanted, strict=True):
        assert (one - other).abs().max() < 2 * WIDTH * ULP
    assert metered == cost_in_a_row(plan.flow for plan in plans)
    sizes = [sum(one.payload_bytes for one in plan.cost.traffic) for plan in plans]
    assert max(sizes) - min(sizes) < 8 * WIDTH  # more scores, but not one row once more


def test_entries_that_are_taken_back_are_gone():
    shown, wanted, *_ = grown((0, 2, 2, 3))
    for one, other in zip(shown, wanted, strict=True):
        assert one.shape == other.shape
        assert (one - other).abs().max() < 2 * WIDTH * ULP


def noticed(corrupt):
    """List what is not uniform in the openings that a corrupt party receives in three runs."""
    other = BOB if corrupt == ALICE else ALICE
    _, _, notes, *_ = grown((0, 2, 4), corrupt=corrupt)
    received = openings(notes, corrupt, other)
    assert len(received) == RUNS
    alone = [one for words in received for one in complaints(words.reshape(-1, 1))]
    numbered = [(str(at), words.reshape(-1, 1)) for at, words in enumerate(received)]
    return alone + related(numbered)


@pytest.mark.parametrize("corrupt", [ALICE, BOB])
def test_openings_of_all_runs_are_uniform_also_beside_each_other(corrupt):
    assert noticed(corrupt) == []


@pytest.mark.parametrize("corrupt", [ALICE, BOB])
def test_a_mask_that_is_drawn_again_in_the_next_run_is_noticed(corrupt, monkeypatch):
    """Entries of the cache, and what meets them, must not get the masks of the run before."""
    for module in ("dealer", "supply"):
        monkeypatch.setattr(f"tacit.mpc.material.{module}.step_stream", _without_run)
    monkeypatch.setattr(randomness.OpeningMask, "_draw", _same_mask)
    assert noticed(corrupt)


def _without_run(shared, run, step):
    return shared.fork(f"deal {step}")


def _same_mask(need, prg):
    return prg.fork(f"mask {need.place}").words(need.shape)
