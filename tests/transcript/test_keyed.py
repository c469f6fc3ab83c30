"""What a server sees of a client under a pad is uniform, and no pad is used twice."""

import numpy as np
import pytest
import torch

from support.crypto import complaints, related
from support.federated import Stage, make_spec
from tacit.crypto import make_key_pair
from tacit.federated import Privacy, Update
from tacit.federated.contract import HELPER, unpack
from tacit.federated.keyed import sides
from tacit.federated.keyed.authority import RELEASED, UPLOAD
from tacit.federated.verified import TAGGED

SIZE = 4000


def policy(**changes):
    return make_spec(
        clients=3,
        rounds=1,
        aggregator="keyed",
        minimum=2,
        privacy=Privacy(kind="none", clip=1.0),
        **changes,
    )


def view_of_rounds(**changes):
    """Return all words that a server gets from the clients and the authority in two rounds."""
    found = []
    for _ in range(2):
        offers = [Update(np.full(SIZE, 0.01, np.float32), 1) for _ in range(3)]

        def keep(index, answer):
            kind, layout = (RELEASED, "b") if index == HELPER else (UPLOAD, "bbbb")
            sent = answer
            if isinstance(answer, bytes) and answer[4] == TAGGED:
                _, sent = unpack(answer, TAGGED, "bb", sender="client")
            if isinstance(sent, bytes) and sent[4] == kind:
                body = unpack(sent, kind, layout, sender="client")[-1]
                words = np.frombuffer(body, np.int32)[:SIZE].copy()
                found.append((f"{index}", torch.from_numpy(words)))
            return answer

        Stage(policy(**changes), offers, tamper=keep).run()
    return found


def problems(view):
    return [*(one for _, words in view for one in complaints(words)), *related(view)]


@pytest.mark.parametrize("verified", [False, True])
def test_words_under_pads_are_uniform_in_every_round(verified):
    view = view_of_rounds(verified=verified, colluding_share=0.0)
    assert len(view) == 8
    assert problems(view) == []


def test_a_missing_pad_is_noticed(monkeypatch):
    monkeypatch.setattr(sides, "add_masks", lambda words, plus: None)
    assert problems(view_of_rounds())


def test_a_pad_that_is_used_twice_is_noticed(monkeypatch):
    """A derivation that forgets round and client: the sum is wrong, but that is not the point."""
    monkeypatch.setattr(sides, "pad_key", lambda *a, **b: b"always this key.")
    assert problems(view_of_rounds())


def test_a_key_pair_that_is_used_twice_gives_other_pads_in_another_round(monkeypatch):
    """The second line of defence: a client that would begin again with its old key."""
    pair = make_key_pair()
    monkeypatch.setattr(sides, "make_key_pair", lambda: pair)
    monkeypatch.setattr(
        "tacit.federated.keyed.authority.Authority._check", lambda self, summands: None
    )
    assert problems(view_of_rounds()) == []
