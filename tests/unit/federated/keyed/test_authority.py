"""The authority attacked: by a server that asks for more than a sum, twice, or for inventions."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from support.federated import Stage, change_spec, make_spec
from tacit.crypto import make_key_pair
from tacit.errors import ConfigError, PartyError
from tacit.federated import Privacy, Update, VoidRound
from tacit.federated.aggregators import enter_in_memory
from tacit.federated.config import round_config
from tacit.federated.contract import HELPER, pack, unpack
from tacit.federated.journal import journal_of
from tacit.federated.keyed.authority import (
    OPEN,
    RELEASE,
    RELEASED,
    UPLOAD,
    Authority,
    Summand,
    pad_key,
    release_message,
    summand_text,
)
from tacit.federated.keyed.sides import claims
from tacit.federated.secagg.plan import add_masks, centred
from tacit.federated.secagg.sides import open_sum, plan_sum

CLIENTS, SIZE = 6, 4
LAX = {
    "clients": CLIENTS,
    "rounds": 1,
    "aggregator": "keyed",
    "privacy": Privacy(clip=1.0),
    "drop_rate": 0.0,
    "colluding_share": 0.0,
}
NAMED = frozenset(bytes([at] * 32) for at in range(CLIENTS))
AGAINST_ALL = {"keys": NAMED, "server": "malicious", "authority": bytes(32)}


def policy(**changes):
    settings = {"clients": CLIENTS, "rounds": 1, "aggregator": "keyed", "minimum": 4}
    return make_spec(
        **{**settings, "privacy": Privacy(kind="none", clip=1.0), "drop_rate": 0.0, **changes}
    )


def offers():
    return [Update(np.full(SIZE, 0.1 * (1 + at), np.float32), 1) for at in range(CLIENTS)]


class Scene(Stage):
    """A round whose uploads are in, and a server that asks the authority for what it likes."""

    def __init__(self, enter=None, given=None, **changes):
        super().__init__(policy(**changes), given or offers())
        make = self.aggregator.make_helper
        self.remade = partial(make, self.terms, self.helper_keys, None)
        self.helper, self.words = self.remade(enter or enter_in_memory()), {}
        for index, message in self.server.invite().items():
            self.invitation = message
            answer = self.answer(index, message)
            self.server.accept(index, answer)
            *_, words = unpack(answer, UPLOAD, "bbbb", sender="client")
            self.words[index] = np.frombuffer(words, np.uint32)
        self.summands = dict(self.server._summands)
        self.plan = self.server.plan

    def ask(self, summands, helper=None, **changes):
        invitation = resized(self.invitation, **changes)
        return (helper or self.helper)(release_message(invitation, summands))

    def pad_key(self, index, mine=None, theirs=None):
        return pad_key(
            mine or self.helper_keys,
            theirs or self.summands[index].public,
            invitation=self.invitation,
            index=index,
        )

    def some(self, *indices, **changes):
        return [replace(self.summands[index], **changes) for index in indices]


def resized(invitation, **changes):
    """An invitation to as many words, and of as many bytes, as a server likes to ask for."""
    session, length, width, company = unpack(invitation, OPEN, "biib", sender="server")
    asked = {"length": length, "word_bytes": width, **changes}
    return pack(OPEN, session, asked["length"], asked["word_bytes"], company)


def pads_in(answer):
    (body,) = unpack(answer, RELEASED, "b", sender="authority")
    return np.frombuffer(body, np.uint32).copy()


@pytest.mark.parametrize(
    ("chosen", "why"),
    [
        (lambda s: s.some(0), "a sum of 1 clients, wanted 4"),
        (lambda s: s.some(0, 1, 2), "a sum of 3 clients, wanted 4"),
        (lambda s: s.some(0, 1, 2, 2), "one client twice"),
        (lambda s: [*s.some(0, 1, 2), *s.some(2, index=3)], "one client twice"),
        (lambda s: [*s.some(0, 1, 2), *s.some(3, index=6)], "beyond the 6 of a round"),
        (lambda s: [*s.some(1, 2, 3), *s.some(0, weight=2)], "weights other than 1"),
        (lambda s: [*s.some(1, 2, 3), *s.some(0, weight=0)], "weights other than 1"),
        (lambda s: [*s.some(1, 2, 3), *s.some(0, public=bytes(32))], "a key of no client"),
    ],
)
def test_a_sum_that_would_tell_more_is_refused_and_the_round_is_not_lost(chosen, why):
    scene = Scene()
    with pytest.raises(PartyError, match=why):
        scene.ask(chosen(scene))
    assert scene.ask(scene.some(*range(CLIENTS)))


@pytest.mark.parametrize("changes", [{"length": 0}, {"length": 1 << 40}, {"word_bytes": 9}])
def test_a_size_that_no_round_has_is_refused(changes):
    scene = Scene()
    with pytest.raises(PartyError, match="it asked for"):
        scene.ask(scene.some(*range(CLIENTS)), **changes)


@pytest.mark.parametrize("changes", [{"length": SIZE}, {"length": 1 << 28}, {"word_bytes": 8}])
def test_pads_are_worked_out_for_as_many_words_as_clients_signed(changes, monkeypatch):
    """Without the signature a message of 1 KB was gigabytes of work."""
    scene = Scene(**AGAINST_ALL)
    with monkeypatch.context() as watched:
        watched.setattr("tacit.federated.keyed.authority.add_masks", lambda *a, **b: 1 / 0)
        with pytest.raises(PartyError, match="client 0 has not signed"):
            scene.ask(scene.some(*range(CLIENTS)), **changes)
    assert scene.ask(scene.some(*range(CLIENTS)))


def weighed(scene, **changes):
    """An authority that lets clients count differently, which no job's does."""
    settings = {
        "clients": CLIENTS,
        "minimum": 4,
        "is_weighed": True,
        "enter": enter_in_memory(),
        **changes,
    }
    return Authority(scene.helper_keys, **settings).release


def test_a_weighted_sum_is_released_where_clients_may_count_differently():
    scene = Scene()
    chosen = [*scene.some(0, 1, 2, weight=2), *scene.some(3, 4)]
    found = pads_in(scene.ask(chosen, weighed(scene)))
    wanted = np.zeros(scene.plan.length, np.uint32)
    for index, weight in enumerate([2, 2, 2, 1, 1]):
        pad = np.zeros_like(wanted)
        add_masks(pad, plus=[scene.pad_key(index)])
        wanted += weight * pad
    assert (found == wanted).all()
    with pytest.raises(PartyError, match="more than 1/4"):
        scene.ask([*scene.some(1, 2, 3), *scene.some(0, weight=2)], weighed(scene))


def test_weights_of_the_servers_choice_read_one_client_and_jobs_have_none():
    """One client at 1 and all others at 255: how many rows it has is the rest modulo 255."""
    rows = [17, 40, 3, 99, 120, 64]
    given = [replace(one, weight=count) for one, count in zip(offers(), rows, strict=True)]
    scene = Scene(given=given, largest_weight=200)
    chosen = [*scene.some(0), *scene.some(*range(1, CLIENTS), weight=255)]
    total = -pads_in(scene.ask(chosen, weighed(scene)))
    for one in chosen:
        total += np.uint32(one.weight) * scene.words[one.index]
    assert total[SIZE] % 255 == rows[0]
    with pytest.raises(PartyError, match="weights other than 1 to 1"):
        scene.ask(chosen)


@pytest.mark.parametrize("width", [5, 8])
def test_pads_that_are_added_up_in_wider_words_are_no_pads_of_the_clients(width):
    """Their low halves were those of the sum, and the high ones had its carries, client by client.

    A carry tells how many clients' words wrapped around, which the sum does not.
    """
    scene = Scene()
    everyone = scene.some(*range(CLIENTS))
    true = pads_in(scene.ask(everyone))[::2][: scene.plan.length // 2]
    asked = {"length": len(true), "word_bytes": width}
    (body,) = unpack(
        scene.ask(everyone, scene.remade(enter_in_memory()), **asked),
        RELEASED,
        "b",
        sender="authority",
    )
    octets = np.frombuffer(body, np.uint8).reshape(-1, width)
    low = np.ascontiguousarray(octets[:, :4]).view(np.uint32).reshape(-1)
    assert not (low == true).any()


def test_a_second_sum_of_a_session_is_refused_after_a_restart_too(tmp_path):
    scene = Scene(enter=partial(journal_of(tmp_path, b"authority").enter, 0))
    everyone, fewer = scene.some(*range(CLIENTS)), scene.some(*range(CLIENTS - 1))
    first = pads_in(scene.ask(everyone))
    restarted = scene.remade(partial(journal_of(tmp_path, b"authority").enter, 0))
    for helper in (scene.helper, restarted):
        for wanted in (fewer, everyone):
            with pytest.raises(PartyError, match="answered before"):
                scene.ask(wanted, helper)
    # Why it is written down: one that forgets opens the client by which the sums differ.
    second = pads_in(scene.ask(fewer, scene.remade(enter_in_memory())))
    pad = np.zeros_like(first)
    add_masks(pad, plus=[scene.pad_key(5)])
    assert (first - second == pad).all()
    assert any("keeps what it has released" in text for text in claims(policy())[0].assumptions)


def test_the_session_is_on_disk_before_an_answer_leaves(tmp_path, monkeypatch):
    scene = Scene(enter=partial(journal_of(tmp_path, b"authority").enter, 0))
    monkeypatch.setattr("tacit.federated.keyed.authority.add_masks", lambda *a, **b: 1 / 0)
    with pytest.raises(ZeroDivisionError):  # the process dies while it works
        scene.ask(scene.some(*range(CLIENTS)))
    monkeypatch.undo()
    restarted = scene.remade(partial(journal_of(tmp_path, b"authority").enter, 0))
    with pytest.raises(PartyError, match="answered before"):
        scene.ask(scene.some(*range(CLIENTS)), restarted)


def invented(scene, index, signing=None):
    """A client that the server makes up, with a key of its own."""
    pair = make_key_pair()
    if signing is None:
        return pair, Summand(index=index, public=pair.public)
    text = summand_text(scene.invitation, index, pair.public)
    identity = signing.public_key().public_bytes_raw()
    return pair, Summand(
        index=index, public=pair.public, identity=identity, signature=signing.sign(text)
    )


def test_invented_clients_open_an_update_unless_the_job_names_keys():
    """What is left open is shown to be open; with keys it is not."""
    scene = Scene()
    made = [invented(scene, at) for at in range(1, 4)]
    pads = pads_in(scene.ask([*scene.some(0), *(one for _, one in made)]))
    for at, (pair, _) in enumerate(made, start=1):
        add_masks(pads, minus=[scene.pad_key(at, pair, scene.helper_keys.public)])
    alone = np.zeros_like(pads)
    add_masks(alone, plus=[scene.pad_key(0)])
    assert (pads == alone).all()
    assert any("invents no clients" in text for text in claims(policy())[0].assumptions)

    named = Scene(**AGAINST_ALL)
    assert claims(policy(**AGAINST_ALL))[0].assumptions[0].startswith("malicious")
    for forged in (
        [one for _, one in (invented(named, at) for at in range(1, 4))],
        [
            one
            for _, one in (invented(named, at, Ed25519PrivateKey.generate()) for at in range(1, 4))
        ],
        named.some(1, 2, 2),
        [*named.some(1, 2), replace(named.summands[3], index=4)],  # a signature moved elsewhere
    ):
        with pytest.raises(PartyError, match=r"has not signed|one client twice"):
            named.ask([*named.some(0), *forged])
    assert named.ask(named.some(*range(CLIENTS)))


@pytest.mark.parametrize(
    ("changes", "is_named"),
    [({"clients": 2, "minimum": 2}, False), ({"minimum": 2}, True), ({"clients": 7}, True)],
)
def test_an_authority_of_another_job_too_holds_each_to_its_own(changes, is_named):
    """Its key serves two jobs. By the terms of the lax one a client of the other was read."""
    scene = Scene(**AGAINST_ALL)
    lax = make_spec(**{**LAX, **changes})
    spare = tuple(f"{99 + at:064x}" for at in range(lax.federated.clients - CLIENTS))
    keys = (*scene.terms.federated.keys, *spare) if is_named else ()
    config = round_config(change_spec(lax, keys=keys), 1)  # as a node makes it, who knows no model
    other = scene.aggregator.make_helper(config, scene.helper_keys, None, enter_in_memory())
    pair, made = invented(scene, 1)
    asked = scene.some(0, 1) if is_named else [*scene.some(0), made]
    with pytest.raises(PartyError, match="a round of another job"):
        scene.ask(asked, other)
    # As it was: whatever is asked for is held to be of the authority's own job.
    with pytest.MonkeyPatch.context() as blind:
        blind.setattr(
            "tacit.federated.keyed.authority.company_of",
            lambda *facts: unpack(scene.invitation, OPEN, "biib", sender="server")[3],
        )
        pads = pads_in(scene.ask(asked, other)) if lax.federated.minimum == 2 else None
    if not is_named:
        add_masks(pads, minus=[scene.pad_key(1, pair, scene.helper_keys.public)])
        alone = centred(scene.plan, scene.words[0] - pads)[:SIZE] / scene.plan.scale
        assert np.abs(alone - offers()[0].values).max() < 1e-6
    assert scene.ask(scene.some(*range(CLIENTS)))  # the job's own goes on


def test_one_client_cannot_stand_for_two_where_keys_are_named():
    """A server that works with one client of the job gets one place in a sum for it."""
    scene = Scene(**AGAINST_ALL)
    mine = scene.seats[1].signing
    made = [invented(scene, at, mine)[1] for at in (1, 2, 3)]
    with pytest.raises(PartyError, match="one client twice"):
        scene.ask([*scene.some(0), *made])


def test_keys_of_one_round_are_of_no_use_in_another():
    """A replay: the uploads of an old session in a new one, and the other way round."""
    scene = Scene()
    old = release_message(
        open_sum(
            OPEN, plan_sum(scene.terms), scene.terms.federated.identities
        ),  # another session, same keys
        scene.some(*range(CLIENTS)),
    )
    other = pads_in(scene.helper(old))
    assert not (other == pads_in(scene.ask(scene.some(*range(CLIENTS))))).any()


def test_a_client_sends_once_and_nothing_after_it_was_resumed():
    scene = Scene()
    with pytest.raises(PartyError, match="a second time"):
        scene.clients[0].answer(scene.invitation, lambda: offers()[0])
    scene.invitations = dict.fromkeys(range(CLIENTS), scene.invitation)
    scene.resume(0)
    with pytest.raises(PartyError, match="a second time"):
        scene.clients[0].answer(scene.invitation, lambda: offers()[0])


@pytest.mark.parametrize("said", ["refuses", "is silent", "sends too little"])
def test_a_round_without_the_authority_is_void_and_names_it(said):
    stage = Stage(policy(), offers())
    helper = stage.helper

    def fail(message):
        if said == "refuses":
            raise PartyError("server", "no")
        return helper(message)[: 9 if said == "sends too little" else None]

    stage.helper = fail
    stage.silent = {HELPER} if said == "is silent" else ()
    with pytest.raises((VoidRound, PartyError), match="authority"):
        stage.run()


def test_without_a_pinned_key_the_claim_says_that_a_server_may_be_the_authority():
    assert any("puts in its own opens every update" in t for t in claims(policy())[0].assumptions)
    with pytest.raises(ConfigError, match="wants the authority's key"):
        policy(**{**AGAINST_ALL, "authority": None})
    pinned = claims(policy(authority=bytes(32)))[0].assumptions
    assert any("the one that the job pins" in text for text in pinned)


def test_the_authority_is_sent_keys_and_no_words():
    """As the authority: what it is sent does not depend on any update, and is none."""
    sent = {}

    class Watched(Stage):
        def answer(self, index, message):
            answer = super().answer(index, message)
            sent[index] = (message, answer)
            return answer

    Watched(policy(), offers()).run()
    asked = sent[HELPER][0]
    assert len(unpack(asked, RELEASE, "bb", sender="server")[1]) == 133 * CLIENTS
    for index in range(CLIENTS):
        *_, words = unpack(sent[index][1], UPLOAD, "bbbb", sender="client")
        assert words[:8] not in asked


def test_clients_that_are_invited_apart_give_no_sum_of_fewer():
    """A server that shows two halves two invitations: neither half may be added up alone."""
    stage = Stage(policy(), offers())
    other = open_sum(OPEN, plan_sum(stage.terms), stage.terms.federated.identities)
    shown = {index: stage.server.invite()[0] if index < 3 else other for index in range(CLIENTS)}
    summands = {}
    for index, invitation in shown.items():
        public, identity, signature, _ = unpack(
            stage.answer(index, invitation), UPLOAD, "bbbb", sender="client"
        )
        summands[index] = Summand(
            index=index, public=public, identity=identity, signature=signature
        )
    for invitation, mine in ((shown[0], (0, 1, 2)), (other, (3, 4, 5))):
        with pytest.raises(PartyError, match="a sum of 3 clients, wanted 4"):
            stage.helper(release_message(invitation, [summands[at] for at in mine]))
    # All of them under one invitation: the pads of the others are not what they used.
    pads = pads_in(stage.helper(release_message(shown[0], list(summands.values()))))
    true = np.zeros_like(pads)
    for at in range(CLIENTS):
        public = summands[at].public
        key = pad_key(stage.helper_keys, public, invitation=shown[at], index=at)
        add_masks(true, plus=[key])
    assert not (pads == true).any()
