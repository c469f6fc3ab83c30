"""What saturates is counted: on shares as in the clear, and shown only to those who see losses."""

import numpy as np
import pytest
import torch
from torch import nn

import tacit
from support.mpc import ALICE, simulate
from tacit.training import Privacy
from tacit.training.ops import Counting
from tacit.training.summary import describe_saturation

BOUND = 2.0
UNIT = 2.0**-16


def test_elements_beyond_the_bound_are_counted_and_those_at_it_are_not():
    x = torch.tensor([0.0, BOUND, -BOUND, BOUND + UNIT, -BOUND - UNIT, 50.0, -50.0, 1.0]).double()
    seen = []

    def program(ops):
        given = ops.input("x", owner=ALICE, shape=(2, 4), bound=64.0)
        counting = Counting(ops)
        capped = counting.cap(given, bound=BOUND)
        counting.cap(capped, bound=8.0)  # cannot be beyond: is not counted among the elements
        seen.append(counting.elements)
        return (
            ops.open(counting.total(), to=(ALICE,), what="count", why="test"),
            ops.open(capped, to=(ALICE,), what="capped", why="test"),
        )

    run = simulate(program, inputs={ALICE: {"x": x.reshape(2, 4)}})
    count, capped = run.values[ALICE]
    assert int(count) == 4
    assert set(seen) == {8}
    assert torch.equal(capped.flatten(), x.clamp(-BOUND, BOUND))


@pytest.mark.parametrize(("cap", "some"), [(0.25, True), (8.0, False)])
def test_a_training_shows_how_much_saturates(cap, some):
    coins = np.random.default_rng(0)
    rows = {name: coins.normal(size=(40, 6)).clip(-1, 1) for name in ("bank", "shop")}
    owners = {name: (x, (x[:, 0] > 0).astype(int)) for name, x in rows.items()}
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 2)
    )
    found = tacit.train(model, owners, epochs=1, cap=cap, batch=36, protocol="permuted3")
    count, of = found.saturated
    assert of > 0
    assert (count > 0.01 * of) == some
    notes = [note for note in found.result.notes if "saturated at" in note]
    assert len(notes) == 1
    assert ("choose a larger" in notes[0]) == some
    (leak,) = [leak for leak in found.ledger if "saturate" in leak.what]
    assert leak.to == "bank"
    promise = Privacy(epsilon=8.0, delta=1e-3, looks="noisy")
    private = tacit.train(model, owners, epochs=1, cap=cap, privacy=promise)
    assert private.saturated is None  # an exact count would be outside ε
    assert describe_saturation(3, 0, 10, None).endswith("(0 %).")
