"""Sums that clients check, against a server that does anything: forged, old, of another set."""

from dataclasses import replace

import numpy as np
import pytest

from support.federated import Stage, make_spec
from tacit.errors import PartyError
from tacit.federated import Privacy, Update, verified
from tacit.federated.contract import RunOver, VoidRound, kind_of, pack, run_round, unpack
from tacit.federated.secagg.plan import SESSION_BYTES, to_wire
from tacit.federated.secagg.sides import plan_sum, write_survivors
from tacit.federated.shuffled.roles import COMPLAINED, CONFIRMED
from tacit.federated.summary import claims_about_updates
from tacit.federated.verified import CHECK, TAGGED, is_right, tags_of, write_tags
from tacit.ring import Prg

CLIENTS, SIZE = 5, 40
KEY = bytes(range(32))


def policy(aggregator="keyed", **changes):
    settings = {"clients": CLIENTS, "rounds": 1, "minimum": 3, "colluding_share": 0.0}
    return make_spec(
        aggregator=aggregator,
        verified=True,
        privacy=Privacy(kind="none", clip=1.0),
        drop_rate=0.2,
        **{**settings, **changes},
    )


def offers(sign=1):
    return [Update(np.full(SIZE, sign * 0.01 * (1 + at), np.float32), 1) for at in range(CLIENTS)]


class Liar(Stage):
    """A server that changes the sum before it is checked, for all clients or for some."""

    def __init__(self, lie, *args, **more):
        super().__init__(*args, **more)
        self.lie = lie

    def answer(self, index, message):
        if message[4] == CHECK:
            body, nonces, words = unpack(message, CHECK, "bbb", sender="server")
            found = self.lie(index, body, np.frombuffer(words, np.uint32).copy())
            message = pack(CHECK, found[0], found[2] if len(found) > 2 else nonces, found[1])
            self.seen = nonces
        return super().answer(index, message)


def add_one(place):
    def lie(index, body, words):
        words[place] += 1
        return body, words.tobytes()

    return lie


@pytest.mark.parametrize("aggregator", ["masked", "encrypted", "keyed"])
@pytest.mark.parametrize("place", [0, SIZE - 1, SIZE, SIZE + 1, -1])
def test_a_sum_that_is_off_by_one_anywhere_ends_the_run(aggregator, place):
    """In a number, in the weight, or in a tag."""
    with pytest.raises(RunOver, match="client 0 says that the sum it was shown is wrong"):
        Liar(add_one(place), policy(aggregator), offers()).run()


def test_a_lie_to_one_client_is_enough():
    def lie(index, body, words):
        return add_one(3)(index, body, words) if index == 4 else (body, words.tobytes())

    with pytest.raises(RunOver, match="client 4"):
        Liar(lie, policy(), offers()).run()


def test_a_sum_of_another_set_is_no_sum_of_this_one():
    def lie(index, body, words):
        return body[:-4], words.tobytes()  # says that the last client is not in it

    with pytest.raises(RunOver, match="client 0"):
        Liar(lie, policy(), offers()).run()


@pytest.mark.parametrize(
    ("survivors", "why"),
    [((0, 1), "of 2 clients"), ((1, 2, 3), "not me"), ((0, 1, 1, 2), "one twice"), ((0, 1, 9), "")],
)
def test_a_list_that_no_honest_server_shows_is_refused(survivors, why):
    def lie(index, body, words):
        return write_survivors(survivors), words.tobytes()

    stage = Liar(lie, policy(), offers())
    with pytest.raises((VoidRound, RunOver)):
        stage.run()
    assert why in str(stage.meter.refused[0])


def test_a_client_checks_one_sum_of_a_round():
    stage = Stage(policy(), offers())
    stage.run()
    with pytest.raises(PartyError, match="without an update, or again"):
        stage.clients[0].answer(pack(CHECK, b"", b"", b""), None)


def shown(stage):
    """Run a round and return its check as the clients saw it."""
    kept = []
    stage.lie = lambda index, body, words: kept.append((body, words.tobytes())) or kept[-1]
    stage.run()
    return (*kept[-1], stage.seen)


def with_session_of(first, second):
    """Let a server open a second round under the session of the first."""
    if hasattr(first.server._inside, "_invitation"):  # of `keyed`; others make it of the plan
        second.server._inside._invitation = first.server._inside._invitation
    second.server._inside.plan = first.server._inside.plan
    return second


@pytest.mark.parametrize("nonces", ["old", "new"])
@pytest.mark.parametrize("session", ["old", "new"])
def test_the_sum_of_an_old_round_is_found_out(session, nonces):
    """A replay, to the same clients or to others of the job, under a session the server chooses."""
    first = Liar(None, policy(), offers())
    body, words, old = shown(first)
    second = Liar(None, policy(), offers(sign=-1))
    if session == "old":
        with_session_of(first, second)
    second.lie = lambda *_: (body, words, old) if nonces == "old" else (body, words)
    with pytest.raises(RunOver, match="client 0 says"):
        second.run()


def test_two_rounds_of_one_session_do_not_give_a_third_sum():
    """What a server learns of r from two sums is hidden by the fresh pads of both."""
    first = Liar(None, policy(), offers())
    _, one, _ = shown(first)
    second = with_session_of(first, Liar(None, policy(), offers(sign=-1)))

    def lie(index, body, words):
        return body, (words + words - np.frombuffer(one, np.uint32)).tobytes()

    second.lie = lie
    with pytest.raises(RunOver):
        second.run()


def test_a_list_says_who_and_not_when_and_the_claim_says_so():
    """What is left open is shown to be open: two rounds of other clients under one session."""
    half = CLIENTS - 2
    spec, given = policy("encrypted", clients=2 * half), [*offers(), *offers(-1)][: 2 * half]
    first = Liar(None, spec, given, silent=set(range(half, 2 * half)))
    _, old, nonces = shown(first)
    second = with_session_of(first, Liar(None, spec, given, silent=set(range(half))))
    said = []

    def lie(index, body, words):
        joined = words + np.frombuffer(old, np.uint32)
        return write_survivors(tuple(range(2 * half))), joined.tobytes(), nonces + second.now

    def answer(index, message):
        if message[4] == CHECK:
            second.now = unpack(message, CHECK, "bbb", sender="server")[1]
        said.append(Liar.answer(second, index, message))
        return said[-1]

    second.lie, second.answer = lie, answer
    second.run()
    assert [kind_of(one, sender="client") for one in said[-half:]] == [CONFIRMED] * half
    assert any("in which round" in text for text in claims_about_updates(spec)[-1].assumptions)


def test_nobody_left_to_check_voids_the_round():
    class Gone(Stage):
        def exchange(self, messages):
            for index, message in messages.items():
                if message[4] != CHECK:
                    yield index, self.answer(index, message)

    with pytest.raises(VoidRound, match="no client confirmed"):
        Gone(policy(), offers()).run()


NONCES = {index: bytes([index] * 16) for index in range(CLIENTS)}


def without(*indices):
    return {index: nonce for index, nonce in NONCES.items() if index not in indices}


def make_sum(**changes):
    stage = Stage(policy(), offers())
    plan = replace(plan_sum(stage.terms), **changes)
    words = []
    for index in range(CLIENTS):
        drawn = Prg(b"words of clients").fork(str(index)).below(2**20, plan.length).numpy()
        words.append((drawn - 2**19).astype(plan.dtype))
        words[-1][plan.dimension :] = 7  # the weight; tags come behind it
        write_tags(plan, words[-1], KEY, index, NONCES[index])
    return plan, words, sum(words[1:], words[0].copy())


@pytest.mark.parametrize("word_bytes", [4, 5])
def test_every_single_change_is_noticed_and_the_true_sum_is_not(word_bytes):
    """Powers of two are the changes that a tag modulo 2^64 sees least of: all of them."""
    plan, _, total = make_sum(word_bytes=word_bytes)
    assert is_right(plan, total, NONCES, KEY)
    assert not is_right(plan, total, without(0), KEY)
    assert not is_right(plan, total, {**NONCES, 0: bytes(16)[:-1] + b"!"}, KEY)
    assert not is_right(plan, total, NONCES, bytes(32))
    assert not is_right(replace(plan, session=bytes(SESSION_BYTES)), total, NONCES, KEY)
    for bit in range(8 * word_bytes):
        forged = total.copy()
        forged[7:8] += plan.dtype.type(1 << bit)
        assert not is_right(plan, forged, NONCES, KEY), bit


def test_a_sum_goes_with_its_own_list_alone():
    """The part of a tag that belongs to one client is what binds the list."""
    plan, words, _ = make_sum()
    fewer = sum(words[2:], words[1].copy())
    assert is_right(plan, fewer, without(0), KEY)
    assert not is_right(plan, fewer, without(4), KEY)
    twice = fewer + words[1]
    assert not is_right(plan, twice, without(0), KEY)
    assert not is_right(plan, twice, NONCES, KEY)


@pytest.mark.parametrize("missing", ["pads", "vector"])
def test_a_missing_mask_is_noticed(missing, monkeypatch):
    """Without pads a sum passes for that of another list; without r a change passes."""
    if missing == "pads":
        monkeypatch.setattr(verified, "_pads", lambda plan, key, index, nonce: [0, 0])
        plan, words, _ = make_sum()
        assert is_right(plan, sum(words[2:], words[1].copy()), without(4), KEY)
    else:
        monkeypatch.setattr(verified, "tags_of", lambda plan, words, key: [0, 0])
        plan, _, total = make_sum()
        total[3] += 1
        assert is_right(plan, total, NONCES, KEY)


def test_tags_of_one_vector_differ_in_every_session():
    plan, words, _ = make_sum()
    other = replace(plan, session=bytes(SESSION_BYTES))
    assert not set(tags_of(plan, words[0], KEY)) & set(tags_of(other, words[0], KEY))


def test_one_client_that_works_with_the_server_forges_and_the_claim_says_so():
    """What is left open is shown to be open."""
    plan, _, total = make_sum()
    at = plan.dimension + plan.weight_words
    forged = total.copy()
    forged[3] += 5
    change = np.zeros_like(total)
    change[3] = 5
    for place, tag in enumerate(tags_of(plan, change, KEY)):  # whoever has the key can
        for digit in range(plan.tag_words):
            part = (tag >> (digit * plan.digit_bits)) & (2**plan.digit_bits - 1)
            forged[at + place * plan.tag_words + digit] += part
    assert is_right(plan, forged, NONCES, KEY)
    assert "no client works with it" in claims_about_updates(policy())[-1].assumptions[0]


def test_an_honest_sum_is_confirmed_by_everyone():
    said = []

    class Listening(Stage):
        def answer(self, index, message):
            answer = super().answer(index, message)
            said.append(kind_of(answer, sender="client"))
            return answer

    stage = Listening(policy(), offers(), silent={2})
    found = run_round(stage.server, stage.exchange, stage.meter)
    assert said.count(CONFIRMED) == 4
    assert COMPLAINED not in said
    assert len(to_wire(stage.server._inside.plan, stage.server._inside.total())) > 4 * SIZE
    assert found.survivors == (0, 1, 3, 4)


def test_an_update_without_tags_is_in_no_sum():
    """Else a client of other code could be in a sum that nobody can check for its part."""

    def bare(index, answer):
        if index == 1 and kind_of(answer, sender="x") == TAGGED:
            return unpack(answer, TAGGED, "bb", sender="x")[1]
        return answer

    with pytest.raises(VoidRound, match="'client 1' failed: it has tagged nothing"):
        Stage(policy(), offers(), tamper=bare).run()
