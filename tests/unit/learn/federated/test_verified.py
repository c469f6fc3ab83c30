"""Sums that clients check, against a server that does anything: forged, old, of another set."""

from dataclasses import replace

import numpy as np
import pytest

from aggregated import Stage
from tacit.errors import PartyError
from tacit.learn.federated import FederatedSpec, PrivacySpec, Update
from tacit.learn.federated.contract import RunOver, VoidRound, kind_of, pack, run_round, unpack
from tacit.learn.federated.promises import promises
from tacit.learn.federated.secagg.plan import to_wire
from tacit.learn.federated.shuffled.roles import COMPLAINED, CONFIRMED
from tacit.learn.federated.sums import plan_sum, write_survivors
from tacit.learn.federated.verified import CHECK, is_right, make_tag, tags_of
from tacit.ring import Prg

CLIENTS, SIZE = 5, 40
KEY = bytes(range(32))


def policy(aggregator="keyed", **changes):
    settings = {"clients": CLIENTS, "rounds": 1, "minimum": 3, "colluding_share": 0.0}
    return FederatedSpec(
        aggregator=aggregator,
        verified=True,
        privacy=PrivacySpec(kind="none", clip=1.0),
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
            body, words = unpack(message, CHECK, "bb", sender="server")
            message = pack(CHECK, *self.lie(index, body, np.frombuffer(words, np.uint32).copy()))
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
        stage.clients[0].answer(pack(CHECK, b"", b""), None)


def test_the_sum_of_an_old_round_is_found_out():
    """A replay: the sum, its tags and its list are right, and of another session."""
    kept = {}

    def keep(index, body, words):
        kept.update(body=body, words=words.tobytes())
        return body, words.tobytes()

    Liar(keep, policy(), offers()).run()
    with pytest.raises(RunOver):
        Liar(lambda *_: (kept["body"], kept["words"]), policy(), offers(sign=-1)).run()


def test_a_session_is_used_once_though_the_server_chooses_it():
    """With one session for two rounds the sum of the first would pass for that of the second."""
    first = Stage(policy(), offers())
    first.run()
    second = Stage(policy(), offers(sign=-1))
    second.seats = [
        replace(seat, enter=old.enter) for seat, old in zip(second.seats, first.seats, strict=True)
    ]
    second.clients = [
        second.aggregator.make_client(second.terms, seat, Prg.from_os()) for seat in second.seats
    ]
    second.server._inside._invitation = first.server._inside._invitation
    second.server._inside.plan = first.server._inside.plan
    with pytest.raises(VoidRound, match="0 updates"):
        second.run()
    assert "answered before" in str(second.meter.refused[0])


def test_nobody_left_to_check_voids_the_round():
    class Gone(Stage):
        def exchange(self, messages):
            for index, message in messages.items():
                if message[4] != CHECK:
                    yield index, self.answer(index, message)

    with pytest.raises(VoidRound, match="no client confirmed"):
        Gone(policy(), offers()).run()


def make_sum(**changes):
    stage = Stage(policy(), offers())
    plan = replace(plan_sum(stage.terms), **changes)
    words = []
    for index in range(CLIENTS):
        drawn = Prg(b"words of clients").fork(str(index)).below(2**20, plan.length).numpy()
        words.append((drawn - 2**19).astype(plan.dtype))
        words[-1][plan.dimension :] = 7  # the weight; tags come behind it
        make_tag(KEY, index, lambda session: None)(plan, words[-1])
    return plan, words, sum(words[1:], words[0].copy())


@pytest.mark.parametrize("word_bytes", [4, 5])
def test_every_single_change_is_noticed_and_the_true_sum_is_not(word_bytes):
    """Powers of two are the changes that a tag modulo 2^64 sees least of: all of them."""
    plan, _, total = make_sum(word_bytes=word_bytes)
    everyone = tuple(range(CLIENTS))
    assert is_right(plan, total, everyone, KEY)
    assert not is_right(plan, total, everyone[1:], KEY)
    assert not is_right(plan, total, everyone, bytes(32))
    assert not is_right(replace(plan, session=bytes(16)), total, everyone, KEY)
    for bit in range(8 * word_bytes):
        forged = total.copy()
        forged[7:8] += plan.dtype.type(1 << bit)
        assert not is_right(plan, forged, everyone, KEY), bit


def test_without_pads_the_sum_of_another_set_would_pass():
    """The mutation: the part of a tag that belongs to one client is what binds the list."""
    plan, words, _ = make_sum()
    fewer = sum(words[2:], words[1].copy())
    assert is_right(plan, fewer, (1, 2, 3, 4), KEY)
    assert not is_right(plan, fewer, (0, 1, 2, 3), KEY)
    twice = fewer + words[1]
    assert not is_right(plan, twice, (1, 2, 3, 4), KEY)
    assert not is_right(plan, twice, (0, 1, 2, 3, 4), KEY)


def test_tags_of_one_vector_differ_in_every_session():
    plan, words, _ = make_sum()
    other = replace(plan, session=bytes(16))
    assert not set(tags_of(plan, words[0], KEY)) & set(tags_of(other, words[0], KEY))


def test_one_client_that_works_with_the_server_forges_and_the_claim_says_so():
    """What is left open is shown to be open."""
    plan, _, total = make_sum()
    everyone, at = tuple(range(CLIENTS)), plan.dimension + plan.weight_words
    forged = total.copy()
    forged[3] += 5
    change = np.zeros_like(total)
    change[3] = 5
    for place, tag in enumerate(tags_of(plan, change, KEY)):  # whoever has the key can
        for digit in range(plan.tag_words):
            part = (tag >> (digit * plan.digit_bits)) & (2**plan.digit_bits - 1)
            forged[at + place * plan.tag_words + digit] += part
    assert is_right(plan, forged, everyone, KEY)
    assert "no client works with it" in promises(policy())[-1].assumptions[0]


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
