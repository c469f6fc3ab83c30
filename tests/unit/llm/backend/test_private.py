"""A private backend whose sessions break: owner and dealer are threads that meet again."""

import threading
from contextlib import contextmanager
from functools import partial
from itertools import combinations

import pytest

from support.llm import ARCHITECTURES, LLAMA, make_model
from tacit.errors import PartyError, TacitError
from tacit.llm import PlainBackend, Sampling, announce, hear
from tacit.llm.backend.private import PrivateBackend
from tacit.llm.backend.programs import enter_by
from tacit.llm.backend.protocol import ChatProtocol
from tacit.llm.permuted import open_vault, serve_dealer, serve_owner
from tacit.llm.sealed import open_sealed_vault, serve_sealed_dealer, serve_sealed_owner
from tacit.party import Meeting, Progress, session_over
from tacit.transport import Meter, memory_pair

NAMES = ("owner", "user", "dealer")
LONG = 26  # more than is ordered ahead, so that a dead dealer is missed
MEETING = Meeting(parties=NAMES, job_digest=bytes(32))


KINDS = {
    "private": (
        lambda model: open_vault(model, counts=True),
        serve_owner,
        lambda session, a: serve_dealer(session, a, counts=True),
        partial(enter_by, ChatProtocol(counts=True)),
    ),
    "sealed": (
        open_sealed_vault,
        serve_sealed_owner,
        serve_sealed_dealer,
        partial(enter_by, ChatProtocol(name="sealed")),
    ),
}


class World:
    """Meetings of three parties; the test may break the one that is on."""

    def __init__(self, model, kind):
        make, self._own, self._deal, self._enter = KINDS[kind]
        self.model, self.vault = model, make(model)
        self.links, self.threads, self.meetings = {}, [], 0
        self.breaks = []

    @contextmanager
    def meet(self):
        self.meetings += 1
        meters = {name: Meter(name) for name in NAMES}
        self.links = {name: {} for name in NAMES}
        for a, b in combinations(NAMES, 2):
            ends = memory_pair(a, b, meter_a=meters[a], meter_b=meters[b])
            self.links[a][b], self.links[b][a] = ends

        def over(name):
            return session_over(
                name, MEETING, links=self.links[name], meter=meters[name], progress=Progress()
            )

        for name, program in (("owner", self.own), ("dealer", self.deal)):
            thread = threading.Thread(target=self.attend, args=(over(name), program))
            thread.start()
            self.threads.append(thread)
        with over("user") as session:
            yield session

    def attend(self, opened, program):
        try:
            with opened as session:
                program(session)
                session.finish()
        except TacitError:
            pass  # the user left in anger, or the test broke a link

    def own(self, session):
        announce(session, self.model.architecture)
        self._own(session, self.vault)

    def deal(self, session):
        self._deal(session, hear(session, "owner"))

    def kill_dealer(self):
        for link in self.links["dealer"].values():
            link.close(failure=("dealer", "it was killed"))

    def backend(self, **more):
        enter = self._enter(on_wait=lambda seconds: None)
        return PrivateBackend(self.meet, enter, on_break=self.breaks.append, **more)


@pytest.fixture
def world():
    made = []

    def make(model, kind="private"):
        made.append(World(model, kind))
        return made[-1]

    yield make
    for one in made:
        for thread in one.threads:
            thread.join(200)
            assert not thread.is_alive()


def plain(model, prompt, limit):
    return list(PlainBackend(model).speak(prompt, sampling=Sampling(), limit=limit))


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_an_answer_goes_on_after_the_dealer_was_replaced(world, name):
    here = world(make_model(ARCHITECTURES[name]))
    backend, said = here.backend(), []
    for token in backend.speak([1, 2, 3], sampling=Sampling(), limit=LONG):
        said.append(token)
        if len(said) == 4:
            here.kill_dealer()
    backend.close()
    assert said == plain(here.model, [1, 2, 3], LONG)
    assert here.meetings == 2
    assert [error.party for error in here.breaks] == ["dealer"]


def test_a_sealed_chat_goes_on_after_the_dealer_was_replaced_too(world):
    here = world(make_model(LLAMA), "sealed")
    backend, said = here.backend(), []
    for token in backend.speak([1, 2, 3], sampling=Sampling(), limit=4):
        said.append(token)
        if len(said) == 2:
            here.kill_dealer()
    backend.close()
    assert said == plain(here.model, [1, 2, 3], 4)
    assert here.meetings == 2


def test_a_penalty_outlives_a_session(world):
    here = world(make_model(LLAMA))
    backend, said, penalty = here.backend(), [], Sampling(repetition_penalty=1.7)
    for token in backend.speak([1, 2, 3], sampling=penalty, limit=LONG):
        said.append(token)
        if len(said) == 4:
            here.kill_dealer()
    backend.close()
    assert said == list(PlainBackend(here.model).speak([1, 2, 3], sampling=penalty, limit=LONG))


def test_a_break_between_answers_is_mended_at_the_next_one(world):
    here = world(make_model(LLAMA))
    backend = here.backend()
    first = list(backend.speak([1, 2], sampling=Sampling(), limit=3))
    here.kill_dealer()
    longer = [1, 2, *first, 9]
    assert list(backend.speak(longer, sampling=Sampling(), limit=3)) == plain(here.model, longer, 3)
    backend.close()


def test_an_owner_that_forgot_reads_the_text_again(world):
    here = world(make_model(LLAMA))
    backend, said = here.backend(), []
    for token in backend.speak([1, 2, 3], sampling=Sampling(), limit=LONG):
        said.append(token)
        if len(said) == 3:
            here.vault.conversations.clear()
            here.kill_dealer()
    backend.close()
    assert said == plain(here.model, [1, 2, 3], LONG)
    assert here.meetings == 3


def test_what_all_sessions_sent_is_added_up(world):
    here = world(make_model(LLAMA))
    backend, said = here.backend(), []
    for token in backend.speak([1, 2, 3], sampling=Sampling(), limit=LONG):
        said.append(token)
        if len(said) == 3:
            here.kill_dealer()
    assert here.meetings == 2
    spent = backend.take_spent()
    backend.close()
    scores = [leak.elements for leak in spent.leaks if leak.what.startswith("scores of every")]
    assert scores[0] >= LONG * LLAMA.vocab
    assert backend.take_spent().leaks == ()


def test_who_must_not_meet_again_fails_at_once(world):
    here = world(make_model(LLAMA))
    backend = here.backend(attempts=0)
    speech = backend.speak([1, 2, 3], sampling=Sampling(), limit=LONG)
    next(speech)
    here.kill_dealer()
    with pytest.raises(PartyError, match="it was killed"):
        list(speech)
    backend.fail()
    assert here.meetings == 1
