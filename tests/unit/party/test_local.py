"""Parties in processes of their own: what they give, what went wrong, and who cannot be sent."""

import os

import pytest
import torch

from tacit.errors import ConfigError, DataError, PartyError
from tacit.party import Meeting, run_processes

MEETING = Meeting(parties=("a", "b"), job_digest=b"j" * 32)


def greet(session):
    """Send a number to the other party, and return who we are with what it sent."""
    (peer,) = session.peers
    session.send(peer, "n", torch.tensor([len(session.me) + ord(session.me)]))
    return os.getpid(), session.me, int(session.recv(peer, "n", (1,))[0])


def refuse(session):
    raise DataError("row 3 is empty")


def vanish(session):
    os._exit(9)


@pytest.mark.slow
def test_every_party_has_a_process_and_its_value_comes_back():
    found = run_processes({"a": greet, "b": greet}, MEETING)
    assert found["a"][1:] == ("a", 1 + ord("b"))
    assert found["b"][1:] == ("b", 1 + ord("a"))
    assert len({os.getpid(), found["a"][0], found["b"][0]}) == 3


@pytest.mark.parametrize(
    ("program", "error", "text"),
    [
        (refuse, DataError, "row 3 is empty"),
        pytest.param(vanish, PartyError, "'b'", marks=pytest.mark.slow),
    ],
)
def test_what_goes_wrong_at_one_party_is_raised_here(program, error, text):
    with pytest.raises(error, match=text):
        run_processes({"a": greet, "b": program}, MEETING)


def test_a_program_that_cannot_be_sent_is_refused_before_anything_starts():
    with pytest.raises(ConfigError, match="the program of 'a' cannot be sent"):
        run_processes({"a": lambda session: None, "b": greet}, MEETING)
