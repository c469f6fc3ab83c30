"""A masked round shows the server the sum and of a single update nothing.

Two worlds: in the first client 0 holds x and client 1 holds y, in the second they hold x + δ and
y − δ, so that the sum is the same. Everything that the server receives is looked at over many
rounds: inputs must be uniform in both worlds and unrelated to each other, what it recovers must not
unmask a single client, and the sum must be the same.
"""

import numpy as np
import pytest
import torch

from support.crypto import complaints, related
from support.federated import Cast
from tacit.federated.secagg import STAGES, Neighbourhood, plan_secagg
from tacit.federated.secagg.messages import self_key
from tacit.federated.secagg.plan import add_masks, from_wire
from tacit.federated.secagg.server import _recover_seeds

ROUNDS, CLIENTS, WORDS = 60, 4, 40


def run_rounds(words, silent=None, rounds=ROUNDS):
    casts = []
    for _ in range(rounds):
        near = Neighbourhood(neighbours=3, threshold=3)
        plan = plan_secagg(
            CLIENTS, WORDS - 1, bound=1.0, neighbourhood=near, minimum=2, word_bytes=8
        )
        cast = Cast(plan, words)
        cast.run(silent)
        casts.append(cast)
    return casts


def inputs(casts, index):
    """Collect a client's masked inputs as the server received them: (rounds, words)."""
    rows = [from_wire(cast.plan, cast.view["mask"][index][9:]) for cast in casts]
    return torch.from_numpy(np.stack(rows).view(np.int64))


def worlds():
    first = np.zeros((CLIENTS, WORDS), np.uint64)
    second = first.copy()
    second[0] += np.uint64(12345)
    second[1] -= np.uint64(12345)
    return first, second


@pytest.mark.parametrize("world", [0, 1])
def test_masked_inputs_are_uniform_and_unrelated_in_both_worlds(world):
    casts = run_rounds(worlds()[world])
    seen = [(f"client {index}", inputs(casts, index)) for index in range(CLIENTS)]
    for name, words in seen:
        # Masks of different words are independent: all are samples of one word.
        assert complaints(words.reshape(-1, 1)) == [], name
    assert related([(name, words.reshape(-1, 1)) for name, words in seen]) == []


def test_the_sum_is_all_that_differs_by_nothing():
    first, second = (run_rounds(words, rounds=1)[0].server.total() for words in worlds())
    assert np.array_equal(first, second)


def test_taking_off_the_own_masks_leaves_every_input_uniform():
    casts = run_rounds(worlds()[1])
    bare = []
    for cast in casts:
        server = cast.server
        seeds = _recover_seeds(server._roster, server._held, server._alive)
        row = from_wire(cast.plan, cast.view["mask"][0][9:]).copy()
        add_masks(row, minus=[self_key(seeds[0], cast.plan.session)])
        bare.append(row)
    words = torch.from_numpy(np.stack(bare).view(np.int64))
    assert complaints(words.reshape(-1, 1)) == []


def test_shares_of_one_secret_only_reach_the_server():
    cast = run_rounds(worlds()[0], silent={"mask": {2}}, rounds=1)[0]
    for answer in cast.view["unmask"].values():
        owners = [answer[9 + at : 9 + at + 4] for at in range(0, len(answer) - 9, 28)]
        assert len(set(owners)) == len(owners) == CLIENTS
    assert set(cast.view) == set(STAGES)


def test_the_test_would_see_a_missing_mask(monkeypatch):
    monkeypatch.setattr("tacit.federated.secagg.client.add_masks", lambda words, plus, minus: None)
    monkeypatch.setattr("tacit.federated.secagg.server.add_masks", lambda words, plus, minus: None)
    casts = run_rounds(worlds()[1])
    assert complaints(inputs(casts, 0).reshape(-1, 1)) != []
