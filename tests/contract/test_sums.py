"""Every way to add updates up gives the sum of `masked`, bit for bit, at its declared cost."""

from dataclasses import replace

import numpy as np
import pytest

from support.federated import Stage, change_spec, make_spec, provided
from tacit.errors import ConfigError
from tacit.federated import (
    AdaptiveNoise,
    Privacy,
    Update,
    VoidRound,
    encrypted,
    keyed,
    round_config,
)
from tacit.federated.contract import HELPER
from tacit.federated.keyed import sides as keyed_sides
from tacit.federated.secagg import sides as masked_sides
from tacit.federated.secagg.plan import to_wire
from tacit.federated.spec import HELPERS
from tacit.federated.summary import claims_about_updates, leaks_of
from tacit.ring import Prg

WORDS = {
    "masked, verified": {"aggregator": "masked", "verified": True},
    "bfv": {"aggregator": "encrypted"},
    "bfv, verified": {"aggregator": "encrypted", "verified": True},
    "paillier": {"aggregator": "encrypted", "cipher": "paillier"},
    "threshold": {
        **{"aggregator": "encrypted", "cipher": "paillier", "threshold": 3},
        "colluding_share": 0.4,
    },
    "keyed": {"aggregator": "keyed"},
    "keyed, verified": {"aggregator": "keyed", "verified": True},
}
NOISE = {
    "none": {"kind": "none", "clip": 1.0},
    "central": {"kind": "central", "clip": 1.0, "epsilon": 2.0, "delta": 1e-3},
}
CLIENTS, DIMENSION = 6, 120


def policy(name, noise="none", **changes):
    settings = {
        **{"clients": CLIENTS, "rounds": 1, "minimum": 4, "drop_rate": 0.2, "colluding_share": 0.0},
        "privacy": Privacy(**NOISE[noise]),
        "largest_weight": 1 if noise == "central" else 9,
        **WORDS.get(name, {"aggregator": name}),
    }
    return make_spec(**{**settings, **changes})


def offers():
    drawn = Prg(b"sums are like it").below(2**20, (CLIENTS, DIMENSION)).numpy() / 2**20 - 0.5
    return [Update((row / 20).astype(np.float32), 1 + at) for at, row in enumerate(drawn)]


@pytest.fixture
def same_words(monkeypatch):
    """Let every aggregator draw the same roundings and the same noise for a client."""
    for module in (masked_sides, encrypted, keyed_sides):

        def draw(config, plan, update, prg, true=masked_sides.words_of):
            return true(config, plan, update, Prg(b"client %09d" % update.weight))

        monkeypatch.setattr(module, "words_of", draw)


def inner(stage):
    """Return the server's side, without the check of its sum."""
    return getattr(stage.server, "_inside", stage.server)


def total_of(stage):
    """Return the words of the sum, without tags."""
    stage.run()
    server = inner(stage)
    plan = server.plan
    return bytes(to_wire(plan, server.total()))[: plan.word_bytes * (plan.dimension + 1)]


@pytest.mark.parametrize("noise", NOISE)
@pytest.mark.parametrize("name", WORDS)
def test_sums_equal_those_of_masked_bit_for_bit(name, noise, same_words):
    same = {"silent": {2}}
    mine = total_of(Stage(policy(name, noise, colluding_share=0.0), offers(), **same))
    assert mine == total_of(Stage(policy("masked", noise), offers(), **same))
    assert len(set(mine)) > 80  # the words differ, as updates do


def declared(stage, name):
    """Return what a client declares to send, without decrypting: the aggregator's own formula."""
    room = {"encrypted": encrypted, "keyed": keyed}[stage.aggregator.name]
    return room.upload_bytes(stage.terms) + (5 + 29) * stage.terms.federated.verified


@pytest.mark.parametrize("name", list(WORDS)[1:])
def test_the_bytes_are_those_declared(name):
    stage = Stage(policy(name), offers())
    found = stage.run()
    plain = declared(stage, name)
    ups = [stage.meter.up[index] for index in found.survivors]
    rest = [up - plain for up in ups if up != plain]
    threshold = stage.terms.federated.threshold
    if name.startswith(("bfv", "paillier")):
        # One client decrypts: the sum of everyone's words.
        assert rest == [9 + inner(stage).plan.upload_bytes]
    elif threshold:
        assert len(rest) == threshold
        assert rest == [plain + 8] * threshold  # a part is as long as the ciphertext, and a point
    else:
        assert rest == []
        plan = inner(stage).plan
        assert stage.meter.up[HELPER] == 9 + plan.upload_bytes
        assert stage.meter.down[HELPER] == 5 + 8 + 109 + 133 * CLIENTS


@pytest.mark.parametrize("name", WORDS)
def test_a_client_that_is_killed_after_every_answer_goes_on_from_what_it_saved(name):
    found = Stage(policy(name), offers(), is_resumed=True).run()
    assert found.survivors == tuple(range(CLIENTS))


@pytest.mark.parametrize("name", ["bfv", "threshold"])
def test_clients_that_fall_silent_when_the_sum_is_opened_are_replaced(name):
    """Their updates stay in the sum: others open it."""

    def fall_silent(stage):
        def exchange(messages):
            for index, message in messages.items():
                is_opening = message[4] == encrypted.DECRYPT
                if not (is_opening and index in lost):
                    yield index, stage.answer(index, message)

        return exchange

    lost = {0, 1, 5}
    stage = Stage(policy(name), offers())
    stage.exchange = fall_silent(stage)
    assert stage.run().survivors == tuple(range(CLIENTS))
    lost = set(range(4))  # with three shares wanted there are too few
    stage = Stage(policy(name), offers())
    stage.exchange = fall_silent(stage)
    if name == "threshold":
        with pytest.raises(VoidRound, match="2 clients decrypted the sum, the key wants 3"):
            stage.run()
    else:
        stage.run()


def test_keyed_rounds_survive_any_drop_out():
    stage = Stage(policy("keyed", minimum=2, drop_rate=0.6), offers(), silent={0, 1, 3, 5})
    found = stage.run()
    assert found.survivors == (2, 4)
    assert {
        index: one for index, one in stage.meter.down.items() if index != HELPER
    } == dict.fromkeys(range(CLIENTS), 109)  # an invitation, and nothing more


@pytest.mark.parametrize(
    ("name", "changes", "why"),
    [
        ("bfv", {"colluding_share": 0.2}, "one that works with the server opens every update"),
        ("bfv", {"threshold": 3}, "a threshold wants cipher 'paillier'"),
        ("paillier", {"threshold": 5}, "at most the minimum of 4"),
        ("threshold", {"colluding_share": 0.5}, "above the 3 clients that may work"),
        ("threshold", {"threshold": 1, "colluding_share": 0.0}, "2 at least"),
        ("keyed", {"threshold": 3}, "go with aggregator 'encrypted'"),
        ("keyed", {"authority": bytes(31)}, "authority: wanted 64 hexadecimal digits"),
        ("masked", {"authority": bytes(32)}, "goes with aggregator 'keyed'"),
        ("plain", {"verified": True}, "verified goes with aggregator masked, encrypted"),
        (
            "bfv",
            {"server": "malicious", "keys": frozenset(bytes([i] * 32) for i in range(6))},
            "take 'masked' or 'keyed'",
        ),
    ],
)
def test_keys_that_cannot_keep_what_is_assumed_are_refused(name, changes, why):
    with pytest.raises(ConfigError, match=why):
        policy(name, **changes)


def test_a_server_without_the_public_key_says_what_is_missing():
    config = round_config(policy("bfv"), DIMENSION)
    with pytest.raises(ConfigError, match="wants the public key of its clients"):
        encrypted.EncryptedServerSide(config)
    with pytest.raises(ConfigError, match="public key of the job cannot be used"):
        encrypted.EncryptedServerSide(replace(config, public_key=b"no key at all"))


def test_bfv_says_when_it_has_no_room():
    spec, _ = provided(policy("bfv"))
    config = round_config(change_spec(spec, clients=9000), DIMENSION)
    with pytest.raises(ConfigError, match="of at most 8192 clients"):
        encrypted.EncryptedServerSide(config)


def test_noise_is_divided_by_the_clients_that_stay_but_one():
    """Truex: of t clients that stay, t − 1 add noise that nobody else knows; the claim says so."""
    spec = policy("threshold", "central", colluding_share=0.0, minimum=5)
    mechanism = round_config(spec, DIMENSION).mechanism
    assert mechanism.grid.parts == 4
    assert mechanism.claim.epsilon <= 2.0
    alone = round_config(policy("threshold", "central", minimum=4), DIMENSION).mechanism
    assert alone.grid.parts == 4 - 2  # two of six may work with the server
    assert alone.grid.sigma2 > mechanism.grid.sigma2
    assert mechanism.claim.assumptions[0].startswith("at least 4 of the clients that stay follow")


@pytest.mark.parametrize("name", WORDS)
def test_every_claim_says_first_who_may_do_what(name):
    claims = claims_about_updates(policy(name))
    if name.startswith("masked"):  # whose claim begins with what the server does
        claims = claims[1:]
    assert all(one.assumptions[0].split(":")[0] in ("semi-honest", "malicious") for one in claims)
    said = " ".join(one.assumptions[0] for one in claims)
    if name.startswith(("bfv", "paillier")):
        assert "one that does opens everybody's updates" in said
    if name == "threshold":
        assert "up to 2 of the 6 clients" in said
    if name.startswith("keyed"):
        assert "and the authority does not" in said


BLANK = {
    *(("clients", kind) for kind in (48, 0, 4, 8, 80, 88, 32)),
    *(("server", kind) for kind in (1, 3, 5, 7, 9, 81, 84, 89, 33, 35, 91, 105, 37)),
}
"""Kinds of messages that are plans, keys, signatures, masks, ciphertexts, or a word of assent."""
SAID = {
    ("server", 49): "every update as the client sends it",
    ("clients", 2): "who takes part in a round",
    ("clients", 6): "who takes part in a round and who drops out",
    ("clients", 82): "who is in the sum of a round, those who decrypt it",
    ("server", 83): "the sum of the updates",
    ("clients", 104): "the sum of a round and who is in it",
    ("authority", 90): "who is in the sum of a round",
    ("shuffler", 34): "how many clients report in a round",
    ("clients", 36): "how many reports a round has",
}
"""What the other kinds of messages say, in the words of the ledger."""
SHUFFLED = {
    "privacy": Privacy(kind="shuffle", clip=1.0, epsilon=8.0, delta=1e-3),
    "largest_weight": 1,
}


@pytest.mark.parametrize("name", ["plain", "masked", *WORDS, "shuffled"])
def test_every_message_of_a_round_is_blank_or_in_the_ledger(name):
    spec = policy(name, **(SHUFFLED if name == "shuffled" else {}))
    stage, seen = Stage(spec, offers(), silent={2}), set()

    def exchange(messages, true=stage.exchange):
        helper = HELPERS.get(spec.federated.aggregator)
        seen.update((helper if i == HELPER else "clients", m[4]) for i, m in messages.items())
        for index, answer in true(messages):
            seen.add(("server", answer[4]))
            yield index, answer

    stage.exchange = exchange
    stage.run()
    listed = {(one.to, one.what) for one in leaks_of(spec, DIMENSION)}
    assert not seen - BLANK - SAID.keys()
    for to, kind in seen & SAID.keys():
        assert any(to == who and SAID[to, kind] in what for who, what in listed), SAID[to, kind]


@pytest.mark.parametrize("name", ["plain", "masked", "bfv", "keyed"])
def test_a_server_that_weighs_by_examples_is_said_to_learn_how_many(name):
    found = Stage(policy(name), offers(), silent={2}).run()
    assert found.weight == sum(one.weight for i, one in enumerate(offers()) if i != 2)
    words = "every client has" if name == "plain" else "the clients of a round have together"
    listed = [one.what for one in leaks_of(policy(name), 7) if one.to == "server"]
    assert f"how many examples {words}" in listed
    assert not any("examples" in one.what for one in leaks_of(policy(name, largest_weight=1), 7))


def test_clients_that_are_asked_what_contributes_are_said_to_answer():
    asked = AdaptiveNoise(by="layers", relevance="clients", relevance_epsilon=1.0)
    privacy = Privacy(kind="local-adaptive", clip=1.0, epsilon=8.0, delta=1e-3, adaptive=asked)
    leaks = leaks_of(policy("plain", privacy=privacy, largest_weight=1), 7)
    assert any(one.to == "server" and "contribute" in one.what for one in leaks)
