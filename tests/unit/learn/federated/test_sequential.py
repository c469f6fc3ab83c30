"""Cyclic weight transfer: who sees what, and that it promises nothing."""

import numpy as np
import pytest
import torch

from aggregated import Stage
from tacit.errors import PartyError
from tacit.learn.federated import FederatedSpec, PrivacySpec, Update, VoidRound, fit
from tacit.learn.federated.contract import pack, unpack
from tacit.learn.federated.sequential import PASS, REVEAL, REVEALED

CLIENTS, SIZE = 4, 6


def policy(**changes):
    settings = {"clients": CLIENTS, "rounds": 1, "aggregator": "sequential", "minimum": 3}
    privacy = PrivacySpec(kind="none", clip=1.0)
    return FederatedSpec(**{**settings, "privacy": privacy, "colluding_share": 0.0, **changes})


class Walk(Stage):
    """Clients that note with what change they were given the model."""

    def __init__(self, **more):
        values = [np.full(SIZE, 0.1 * (1 + at), np.float32) for at in range(CLIENTS)]
        super().__init__(policy(), [Update(one, 1) for one in values], **more)
        self.begun, self.passed = [], []

    def answer(self, index, message):
        self.passed.append(message)

        def train(after):
            self.begun.append(after.copy())
            return self.offers[index]

        try:
            return self.clients[index].answer(message, train)
        except PartyError as error:
            return error


def test_every_client_goes_on_from_the_one_before():
    walk = Walk(silent={1})
    found = walk.run()
    changes = [walk.offers[index].values for index in (0, 2, 3)]
    assert found.survivors == (0, 2, 3)
    assert np.allclose(found.mean, np.sum(changes, axis=0))
    assert np.allclose(walk.begun, [np.zeros(SIZE), changes[0], changes[0] + changes[1]])


def test_the_server_passes_ciphertexts_on_and_is_shown_the_last_model_alone():
    walk = Walk()
    walk.run()
    sealed = [unpack(one, PASS, "bbb", sender="server")[2] for one in walk.passed[:-1]]
    assert sealed[0] == b""
    assert all(len(one) == 4 + 4 * SIZE + 28 for one in sealed[1:])
    for body in sealed[1:]:
        assert not any(one.values.astype("<f4").tobytes() in body for one in walk.offers)


def test_a_client_and_the_second_one_after_it_know_the_update_between():
    """Why there is no guarantee."""
    walk = Walk()
    walk.run()
    assert np.allclose(walk.begun[2] - walk.begun[1], walk.offers[1].values, atol=1e-6)


def test_a_model_that_too_few_have_trained_is_not_opened():
    with pytest.raises(VoidRound, match="2 clients trained the model, the plan wants 3"):
        Walk(silent={0, 1}).run()
    walk = Walk()
    first = walk.answer(0, walk.server.invite()[0])
    (body,) = unpack(first, 97, "b", sender="client")
    session = unpack(walk.passed[0], PASS, "bbb", sender="server")[0]
    said = walk.answer(0, pack(REVEAL, session, body))
    assert "1 clients trained this model" in str(said)


def test_a_model_of_another_round_or_a_changed_one_is_not_trained():
    old, new = Walk(), Walk()
    old.run()
    session, facts, _ = unpack(new.server.invite()[0], PASS, "bbb", sender="server")
    sealed = unpack(old.passed[2], PASS, "bbb", sender="server")[2]
    for body in (sealed, sealed[:-1] + bytes([sealed[-1] ^ 1]), b"short"):
        assert "no model of this round" in str(new.answer(1, pack(PASS, session, facts, body)))


def test_a_client_trains_and_opens_once():
    walk = Walk()
    walk.run()
    assert "a second time" in str(walk.answer(0, walk.passed[0]))
    assert "another round" in str(walk.answer(3, walk.passed[CLIENTS]))


def test_models_that_are_not_finite_are_refused_by_name():
    walk = Walk()
    walk.tamper = lambda index, answer: (
        pack(REVEALED, np.full(SIZE, np.nan, "<f4").tobytes()) if answer[4] == REVEALED else answer
    )
    with pytest.raises(VoidRound, match="none of the clients opened"):
        walk.run()
    assert len(walk.meter.refused) == CLIENTS


def test_a_model_learns_by_being_passed_on():
    rows = [(torch.eye(4).numpy(), np.arange(4)) for _ in range(3)]
    found = fit(
        torch.nn.Linear(4, 4),
        rows,
        rounds=6,
        aggregation="sequential",
        test=rows[0],
        privacy=PrivacySpec(clip=10.0),
    )
    assert found.rounds[-1].accuracy == 1.0
    assert found.claims[-1].guarantee == "no guarantee"
