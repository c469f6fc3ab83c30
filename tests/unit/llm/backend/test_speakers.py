"""A speaker that goes pass by pass, against the plain backend."""

import time

import pytest

from support.llm import ARCHITECTURES, LLAMA, MEETING, make_model, talk_over
from tacit.llm import ChatProtocol, PlainBackend, Sampling, announce, hear
from tacit.llm.backend.speakers import enter_sealed
from tacit.llm.sealed import (
    open_sealed_vault,
    serve_sealed_dealer,
    serve_sealed_owner,
)
from tacit.party import run_threads


def as_user(model, talk, waits=None):
    """Run a function of a backend, with an owner and a dealer beside it."""
    waits = [] if waits is None else waits

    def owner(session):
        announce(session, model.architecture)
        serve_sealed_owner(session, open_sealed_vault(model))

    def user(session):
        enter = enter_sealed(ChatProtocol(name="sealed"), on_wait=waits.append)
        return talk_over(session, enter, talk)

    def dealer(session):
        serve_sealed_dealer(session, hear(session, "owner"))

    return run_threads({"owner": owner, "user": user, "dealer": dealer}, MEETING)["user"]


def say(backend, prompt, limit):
    return list(backend.speak(prompt, sampling=Sampling(), limit=limit))


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_turn_after_turn_it_says_what_the_plain_backend_says(name):
    model = make_model(ARCHITECTURES[name])

    def talk(backend):
        first = say(backend, [1, 2, 3], 2)
        return [first, say(backend, [1, 2, 3, *first, 7], 1), say(backend, [9, 8], 1)]

    assert as_user(model, talk) == talk(PlainBackend(model))


def test_what_was_read_is_not_read_again():
    def talk(backend):
        first = say(backend, list(range(1, 9)), 1)
        cold = backend.take_spent()
        say(backend, [*range(1, 9), *first], 1)
        return cold, backend.take_spent()

    cold, warm = as_user(make_model(LLAMA), talk)
    assert 0 < warm.payload_bytes < cold.payload_bytes
    assert {leak.to for leak in warm.leaks} == {"owner", "user", "dealer"}


class Slow:
    """A client whose tokens come when somebody has been told that they are waited for."""

    def __init__(self, inner, waits):
        self._inner, self._waits = inner, waits
        self.session, self.architecture = inner.session, inner.architecture

    def generate(self, *arguments, **named):
        for token in self._inner.generate(*arguments, **named):
            limit = time.monotonic() + 100
            while not self._waits and time.monotonic() < limit:
                time.sleep(0.01)
            yield token

    def leave(self):
        self._inner.leave()


def test_a_slow_token_is_waited_for_and_told_of():
    model, waits = make_model(LLAMA), []

    def talk(backend):
        backend._speaker._client = Slow(backend._speaker._client, waits)
        return say(backend, [1, 2], 1)

    assert as_user(model, talk, waits) == say(PlainBackend(model), [1, 2], 1)
    assert waits
    assert min(waits) >= 1
