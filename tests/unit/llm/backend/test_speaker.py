"""What a user's session says, pass by pass or ahead of need, beside the plain backend."""

import time

import pytest

from support.llm import ARCHITECTURES, LLAMA, MEETING, make_model, talk_over
from tacit.errors import ConfigError
from tacit.llm import ChatProtocol, PlainBackend, Sampling, announce, hear
from tacit.llm.backend.programs import enter_by
from tacit.llm.permuted import open_vault, serve_dealer, serve_owner
from tacit.llm.sealed import (
    SealedClient,
    open_sealed_vault,
    serve_sealed_dealer,
    serve_sealed_owner,
)
from tacit.party import run_threads


def as_user(model, talk, *, sealed=False, counts=True, waits=None):
    """Run a function of a private backend, with an owner and a dealer beside it."""
    waits = [] if waits is None else waits
    protocol = ChatProtocol(name="sealed") if sealed else ChatProtocol(counts=counts)

    def own(session):
        announce(session, model.architecture)
        if sealed:
            serve_sealed_owner(session, open_sealed_vault(model))
        else:
            serve_owner(session, open_vault(model, counts=counts))

    def deal(session):
        a = hear(session, "owner")
        if sealed:
            serve_sealed_dealer(session, a)
        else:
            serve_dealer(session, a, counts=counts)

    def use(session):
        return talk_over(session, enter_by(protocol, waits.append), talk)

    return run_threads({"owner": own, "user": use, "dealer": deal}, MEETING)["user"]


def say(backend, prompt, limit=5, **sampling):
    return list(backend.speak(prompt, sampling=Sampling(**sampling), limit=limit))


@pytest.mark.parametrize(
    ("name", "sealed"), [*((name, False) for name in ARCHITECTURES), ("qwen2", True)]
)
def test_turn_after_turn_it_says_what_the_plain_backend_says(name, sealed):
    model, limit = make_model(ARCHITECTURES[name]), 2 if sealed else 5

    def talk(backend):
        first = say(backend, [1, 2, 3], limit)
        return [first, say(backend, [1, 2, 3, *first, 7], limit), say(backend, [9, 8], limit)]

    assert as_user(model, talk, sealed=sealed) == talk(PlainBackend(model))


def test_a_listener_who_leaves_early_can_come_back():
    model = make_model(LLAMA)

    def talk(backend):
        speech = backend.speak([1, 2, 3], sampling=Sampling(), limit=9)
        some = [next(speech) for _ in range(3)]
        speech.close()
        return some, say(backend, [1, 2, 3, *some, 5])

    assert as_user(model, talk) == talk(PlainBackend(model))


@pytest.mark.parametrize("sealed", [False, True])
def test_what_was_read_is_not_read_again(sealed):
    def talk(backend):
        prompt = [1, 2, 3, 4, 5, 6, 7, 8]
        first = say(backend, prompt, 1)
        whole = backend.take_spent()
        say(backend, [*prompt, *first], 1)
        return whole, backend.take_spent()

    whole, rest = as_user(make_model(LLAMA), talk, sealed=sealed)
    assert 0 < rest.payload_bytes < whole.payload_bytes / (1 if sealed else 2)
    assert {leak.to for leak in rest.leaks} == {"owner", "user", "dealer"}


def test_a_conversation_is_kept_while_others_speak():
    def talk(backend):
        prompts = [[start] * 8 for start in (1, 2, 3)]
        firsts = [say(backend, prompt, 1) for prompt in prompts]
        backend.take_spent()
        again = say(backend, [*prompts[0], *firsts[0]], 2)
        return again, backend.take_spent()

    model = make_model(LLAMA)
    again, spent = as_user(model, talk)
    assert again == say(PlainBackend(model), [*[1] * 8, *say(PlainBackend(model), [1] * 8, 1)], 2)
    read = [leak.elements for leak in spent.leaks if leak.to == "owner"]
    assert read == [2]


def test_the_conversation_least_used_makes_room():
    model = make_model(LLAMA)
    prompts = [[start] * 4 for start in (1, 2, 3, 4, 5, 6)]

    def talk(backend):
        return [say(backend, prompt, 2) for prompt in [*prompts, prompts[0]]]

    assert as_user(model, talk) == talk(PlainBackend(model))


def test_it_says_what_was_sent_and_who_learned_what():
    def talk(backend):
        say(backend, [1, 2, 3], 2)
        return backend.take_spent(), backend.take_spent()

    spent, nothing = as_user(make_model(LLAMA), talk)
    assert spent.payload_bytes > 0
    assert spent.round_trips > 2 * LLAMA.layers
    learned = {(leak.to, leak.kind) for leak in spent.leaks}
    sizes = {("owner", "size"), ("dealer", "size"), ("user", "size")}  # and an architecture
    assert learned == {("user", "protocol"), ("dealer", "protocol")} | sizes
    told = [leak.to for leak in spent.leaks if "six powers of two" in leak.what]
    assert told == ["user", "dealer"]
    assert nothing.payload_bytes == nothing.round_trips == 0
    assert nothing.leaks == ()


def test_a_seed_draws_alike_whether_the_order_of_the_scores_is_hidden_or_not():
    model = make_model(LLAMA)

    def talk(backend):
        return say(backend, [1, 2, 3], 6, temperature=0.9, top_k=10, seed=5)

    assert as_user(model, talk) == talk(PlainBackend(model))


DRAW = {"temperature": 0.8, "top_p": 0.9, "seed": 3}


@pytest.mark.parametrize(
    ("name", "draw"), [*((name, {}) for name in ARCHITECTURES), ("chatglm", DRAW)]
)
def test_a_penalty_works_as_it_does_in_the_clear(name, draw):
    model = make_model(ARCHITECTURES[name])

    def talk(backend):
        first = say(backend, [1, 2, 3], 12, repetition_penalty=1.7, **draw)
        # A second turn, and one that takes the conversation back: other tokens came before.
        second = say(backend, [1, 2, 3, *first, 7], 5, repetition_penalty=1.7, **draw)
        return first, second, say(backend, [1, 2, 4], 5, repetition_penalty=1.7, **draw)

    spoken = as_user(model, talk)
    assert spoken == talk(PlainBackend(model))
    assert spoken[0] != as_user(model, lambda backend: say(backend, [1, 2, 3], 12, **draw))


def test_the_ledger_says_that_a_penalty_shows_where_earlier_tokens_stand():
    def talk(backend):
        say(backend, [1, 2, 3], 4)
        return backend.take_spent()

    shown = [leak for leak in as_user(make_model(LLAMA), talk).leaks if "came before" in leak.what]
    assert [(leak.to, leak.elements) for leak in shown] == [("user", 4 * LLAMA.vocab)]


def test_a_penalty_without_counts_is_refused():
    def talk(backend):
        with pytest.raises(ConfigError, match="ask for counts"):
            say(backend, [1, 2], repetition_penalty=2.0)

    as_user(make_model(LLAMA), talk, counts=False)


def test_a_slow_token_is_waited_for_and_told_of(monkeypatch):
    model, waits, read = make_model(LLAMA), [], SealedClient._next

    def slowly(self, *arguments, **named):
        limit = time.monotonic() + 100
        while not waits and time.monotonic() < limit:
            time.sleep(0.01)
        return read(self, *arguments, **named)

    monkeypatch.setattr(SealedClient, "_next", slowly)
    said = as_user(model, lambda backend: say(backend, [1, 2], 1), sealed=True, waits=waits)
    assert said == say(PlainBackend(model), [1, 2], 1)
    assert waits
    assert min(waits) >= 1
