"""The user of one of an owner's jobs who deals for another: what it can put together."""

import threading

import pytest
import torch

from support.llm import MEETING, write_model
from tacit.errors import PartyError
from tacit.llm import ChatProtocol, hear
from tacit.llm.backend.programs import owner_program
from tacit.llm.permuted import Account, Seats
from tacit.llm.permuted.setup import agree_on, learn_precision, recv_key, take_weights
from tacit.llm.permuted.weights import Weights, drawn_masks
from tacit.llm.permuted.weights import matrices as private_matrices
from tacit.party import run_threads

SEATS = Seats()


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return write_model(tmp_path_factory.mktemp("models") / "tiny")


def programs(model, protocol):
    make = owner_program(model, protocol, None)
    return [make(Account()) for _ in range(2)]


def set_up(program, protocol, hold_key, hold_weights):
    """Run the setup of one session with a user and a dealer who keep what they get."""
    both = threading.Barrier(2)

    def party(keep):
        def run(session):
            protocol.agree(session)
            keep(session, hear(session, "owner"))
            both.wait(60)
            raise PartyError(session.me, "has what it wanted")

        return run

    with pytest.raises(PartyError):
        run_threads(
            {"owner": program.serve, "user": party(hold_weights), "dealer": party(hold_key)},
            MEETING,
        )


def met(session, a):
    agree_on(session, a, learn_precision(session, "owner"), counts=False)


def recovered(model, jobs):
    """Return which share of all weights comes out if a user holds what the dealer of a job knows.

    Both jobs are set up; the user's part is taken from the first of ``jobs``, the dealer's from the
    second.
    """
    protocol, got = ChatProtocol(), {"masked": [], "key": []}
    owners = programs(model, protocol)

    def hold_weights(session, a):
        met(session, a)
        got["masked"].append(take_weights(session, SEATS, a, None, "cpu").weights)
        got["shape"] = a

    def hold_key(session, a):
        met(session, a)
        got["key"].append(recv_key(session, "owner", "setup/masks"))

    for owner in owners:
        set_up(owner, protocol, hold_key, hold_weights)
    masked, truth = got["masked"][jobs[0]], owners[0].vault.weights
    masks = Weights(drawn_masks(got["shape"], got["key"][jobs[1]]))
    same = total = 0
    for matrix in private_matrices(got["shape"]):
        one_by_one = torch.eye(matrix.shape[0], dtype=torch.int64)
        found = masked.apply(matrix.name, one_by_one) + masks.apply(matrix.name, one_by_one)
        same += int((found == truth.apply(matrix.name, one_by_one)).sum())
        total += found.numel()
    return same / total


def test_a_user_with_the_dealer_of_its_own_job_has_every_weight(model):
    # What the claim excludes, and the proof that the attack below is computed rightly.
    assert recovered(model, (0, 0)) == 1.0


def test_a_user_of_one_job_who_deals_for_another_has_no_weight(model):
    # A word of 64 bits is right by chance with 2^-64.
    assert recovered(model, (0, 1)) == 0.0


def test_what_is_kept_for_one_user_is_not_found_by_another(model):
    first, second = (one.vault for one in programs(model, ChatProtocol()))
    assert first.key != second.key
    assert first.weights is second.weights
    assert first.conversations is not second.conversations
    assert first.account is not second.account
