"""Shuffled, keyed, encrypted, verified and norm-checked sums: one sum of enough clients is read.

Whoever follows the protocol, and where the claim says so whoever does not, by exhaustion for a few
clients: rows are what was sent, with inputs and pads as formal variables; see `formal_sums`. Client
i trains on nothing and sends the i-th unit vector, so that a sum of words names its summands.
"""

import itertools
from collections import Counter
from dataclasses import replace
from functools import partial
from unittest.mock import patch

import numpy as np
import pytest
import torch

from support.crypto import complaints
from support.federated import Stage, make_spec
from support.formal_sums import sums
from tacit.crypto import make_key_pair
from tacit.errors import PartyError
from tacit.federated import Privacy, Update, VoidRound
from tacit.federated import encrypted as encrypted_sides
from tacit.federated.aggregators import enter_in_memory
from tacit.federated.bounded import NormCheck, send_update, sum_checked
from tacit.federated.contract import pack, records, unpack
from tacit.federated.keyed import authority as keyed_authority
from tacit.federated.keyed import sides as keyed_sides
from tacit.federated.keyed.authority import UPLOAD, release_message
from tacit.federated.secagg import client as masked_client
from tacit.federated.shuffled import (
    ShuffledClient,
    ShuffledPlan,
    ShuffledServer,
    Shuffler,
    new_session,
)
from tacit.federated.shuffled.roles import BOX_BYTES, BUNDLE, BUNDLES, RELEASED, open_box, round_of
from tacit.mpc import Roles
from tacit.party import Meeting, Session, run_threads
from tacit.ring import Prg

CLIENTS, MINIMUM = 4, 3
EVERYBODY = range(CLIENTS)
SUBSETS = [some for size in range(CLIENTS + 1) for some in itertools.combinations(EVERYBODY, size)]
WORDS = {
    "masked, verified": {"aggregator": "masked", "verified": True},
    "keyed": {"aggregator": "keyed"},
    "keyed, verified": {"aggregator": "keyed", "verified": True},
    "bfv": {"aggregator": "encrypted"},
    "bfv, verified": {"aggregator": "encrypted", "verified": True},
    "threshold": {
        "aggregator": "encrypted",
        "cipher": "paillier",
        "threshold": 2,
    },
}
NAMED = frozenset(bytes([at] * 32) for at in EVERYBODY)
AGAINST_ALL = {"keys": NAMED, "server": "malicious", "authority": bytes(32)}


def stage_of(name, **changes):
    offers = [Update(one.astype(np.float32), 1) for one in np.eye(CLIENTS)]
    settings = {"clients": CLIENTS, "rounds": 1, "minimum": MINIMUM, "drop_rate": 0.0}
    spec = make_spec(
        privacy=Privacy(clip=1.0), colluding_share=0.0, **settings, **WORDS[name], **changes
    )
    return Stage(spec, offers)


def summands(plan, total):
    """Tell how often each client is in a sum of words."""
    return tuple(int(one) for one in np.rint(total[:CLIENTS] / plan.scale).astype(int))


def indicator(some):
    return tuple(int(index in some) for index in EVERYBODY)


class Overheard:
    """Keeps the words that clients hide, and the keys of the pads that go on them."""

    def __init__(self):
        self.words, self.keys = [], []

    def hide(self, real, words, *, plus=(), minus=()):
        self.words.append(words.copy())
        self.keys.append(Counter(plus))
        self.keys[-1].subtract(minus)
        real(words, plus=plus, minus=minus)

    def at(self, module):
        return patch.object(module, "add_masks", partial(self.hide, module.add_masks))


@pytest.mark.parametrize(
    "name",
    [pytest.param(one, marks=pytest.mark.slow if one == "bfv, verified" else ()) for one in WORDS],
)
def test_what_is_opened_is_one_sum_of_all_who_stayed(name):
    """Silent before the update, or when the sum is opened; the server follows the protocol."""
    opened = 0
    for absent in SUBSETS:
        for late in SUBSETS if WORDS[name]["aggregator"] == "encrypted" else [()]:
            if set(late) & set(absent):
                continue
            stage, shown = stage_of(name), []
            honest = stage.answer

            def answer(index, message, honest=honest, absent=absent, late=late, shown=shown):
                is_opening = message[4] == encrypted_sides.DECRYPT
                if is_opening:
                    shown.append(unpack(message, message[4], "bb", sender="server")[1])
                is_silent = index in absent or (is_opening and index in late)
                return PartyError("client", "silent") if is_silent else honest(index, message)

            stage.answer = answer
            stayed = [index for index in EVERYBODY if index not in absent]
            try:
                stage.run()
            except VoidRound:
                assert len(stayed) >= MINIMUM or not shown
            else:
                opened += 1
                total = stage.server._inside.total() if "ver" in name else stage.server.total()
                plan = stage.server._inside.plan if "ver" in name else stage.server.plan
                assert summands(plan, total) == indicator(stayed)
            assert len(set(shown)) <= 1  # one ciphertext, whoever is asked to decrypt it
    assert opened


@pytest.mark.parametrize(
    ("name", "module"),
    [("masked, verified", masked_client), ("keyed, verified", keyed_sides)],
)
def test_tags_are_hidden_and_added_up_as_the_words_are(name, module):
    heard, stage = Overheard(), stage_of(name)
    with heard.at(module):
        stage.run()
    plan, total = stage.server._inside.plan, stage.server._inside.total()
    at = plan.dimension + plan.weight_words
    assert [words.size for words in heard.words] == [plan.length] * CLIENTS
    assert all(words[at:].any() for words in heard.words)
    assert all(heard.keys)
    assert np.array_equal(sum(heard.words[1:], heard.words[0]), total)


class Keyed:
    """Uploads of a round, and a server that asks the authority for what it likes."""

    def __init__(self, *, friends=(), **changes):
        self.heard, self.stage, self.friends = Overheard(), stage_of("keyed", **changes), friends
        self.rows = []
        with self.heard.at(keyed_sides):
            for index, message in self.stage.server.invite().items():
                self.invitation = message
                answer = self.stage.answer(index, message)
                unpack(answer, UPLOAD, "bbbb", sender="client")
                self.stage.server.accept(index, answer)
                self.rows.append({("input", index): 1, **self.heard.keys[-1]})
        self.summands = self.stage.server._summands
        self.make = partial(self.stage.aggregator.make_helper, self.stage.terms)

    def read(self, requests, enter):
        """Ask one authority after another, all with one journal, and read off the answers."""
        rows = [row for index, row in enumerate(self.rows) if index not in self.friends]
        known = {key for index in self.friends for key in self.rows[index]}
        for request in requests:
            heard, helper = Overheard(), self.make(self.stage.helper_keys, None, enter)
            with heard.at(keyed_authority):
                try:
                    helper(release_message(self.invitation, request))
                except PartyError:
                    continue
            weights = dict.fromkeys(one.weight for one in request)
            row = {}
            for keys, weight in zip(heard.keys, weights, strict=True):
                row |= {key: weight * one for key, one in keys.items() if key not in known}
            rows.append(row)
        return sums(rows, [index for index in EVERYBODY if index not in self.friends])


def requests_of(scene):
    """List all sums that can be asked for: of some, one twice, one more often than others."""
    every = [[scene.summands[index] for index in some] for some in SUBSETS if some]
    for weights in itertools.product((1, 2), repeat=CLIENTS):
        every.append([replace(scene.summands[at], weight=weights[at]) for at in EVERYBODY])
    for one in scene.summands.values():
        rest = [other for other in scene.summands.values() if other is not one]
        every.append([one, one, *rest[:2]])
        every.append([one, replace(one, index=rest[0].index), *rest[1:]])
    return every


@pytest.mark.parametrize("changes", [{}, AGAINST_ALL], ids=["curious", "malicious"])
@pytest.mark.parametrize("friends", [(), (0,)])
def test_an_authority_shows_one_sum_of_enough_clients_whatever_it_is_asked(friends, changes):
    scene = Keyed(friends=friends, **changes)
    every, found = requests_of(scene), set()
    for first, second in itertools.product(every, repeat=2):
        read = scene.read([first, second], enter_in_memory())
        assert len(read) <= 1
        assert "more than sums" not in read
        assert all(len(some) >= MINIMUM - len(friends) for some in read)
        found |= read
    assert frozenset(EVERYBODY) - set(friends) in found


def test_an_authority_that_keeps_no_journal_shows_single_clients():
    scene = Keyed()
    some = [[scene.summands[index] for index in listed] for listed in ((0, 1, 2), (0, 1, 2, 3))]
    assert frozenset([3]) in scene.read(some, lambda session: None)


class Shuffled:
    """Bundles of a round, and a server that has the shuffler shuffle what it likes."""

    def __init__(self, friends=()):
        self.friends = friends
        plan = ShuffledPlan(
            clients=CLIENTS,
            minimum=MINIMUM,
            dimension=2,
            l2_bound=1.0,
            method="direction",
            reports=2,
            steps=1,
            local_epsilon=1.0,
            session=new_session(),
        )
        self.keys, self.other = make_key_pair(), make_key_pair()
        server = ShuffledServer(plan, make_key_pair())
        self.invitation = server.invite()[0]
        again = replace(plan, session=new_session())
        self.another = ShuffledServer(again, make_key_pair()).invite()[0]
        self.bundles, self.owner = [], {}
        for index in EVERYBODY:
            one = ShuffledClient(self.invitation, shuffler=self.keys.public, prg=Prg.from_os())
            (bundle,) = unpack(one.report(None), BUNDLE, "b", sender="client")
            self.bundles.append(bundle)
            inside = open_box(self.keys, bundle, associated=round_of(self.invitation))
            self.owner |= dict.fromkeys(records(inside[16:], BOX_BYTES, sender="client"), index)

    def read(self, requests):
        """Shuffle; a crowd is the sum of its clients' reports, as their order says nothing."""
        shuffler = Shuffler(self.keys, minimum=MINIMUM, reports=2, prg=Prg.from_os())
        rows = []
        for invitation, some in requests:
            body = b"".join(self.bundles[index] for index in some)
            try:
                said = shuffler.shuffle(pack(BUNDLES, invitation, body))
            except PartyError:
                continue
            boxes = unpack(said, RELEASED, "bb", sender="shuffler")[0]
            owners = [self.owner[box] for box in records(boxes, BOX_BYTES, sender="shuffler")]
            counts = {("input", index): owners.count(index) // 2 for index in set(owners)}
            rows.append({name: n for name, n in counts.items() if name[1] not in self.friends})
        return sums(rows, [index for index in EVERYBODY if index not in self.friends])


@pytest.mark.parametrize("friends", [(), (0,)])
def test_a_shuffler_shows_one_crowd_whatever_it_is_asked(friends):
    scene, found = Shuffled(friends), set()
    doubled = [(*some, some[0]) for some in SUBSETS if some]
    every = [
        (invitation, some)
        for invitation in (scene.invitation, scene.another)
        for some in (*SUBSETS, *doubled)
    ]
    for requests in itertools.product(every, repeat=2):
        read = scene.read(requests)
        assert len(read) <= 1
        assert "more than sums" not in read
        assert all(len(some) >= MINIMUM - len(friends) for some in read)
        found |= read
    assert frozenset(EVERYBODY) - set(friends) in found


CHECK = NormCheck(
    clients=("a", "b", "c"),
    roles=Roles("server", "checker", "dealer"),
    dimension=3,
    clip=1.0,
    scale=4096.0,
)


def run_check(kinds):
    """Run a sum with checked clips: (what came to whom, what the servers return).

    Kinds: 0 for a client that both servers hear, 1 for one beyond the clip, 2 for a silent one.
    """
    came, recv = [], Session.recv

    def overhear(session, sender, tag, *rest, **more):
        words = recv(session, sender, tag, *rest, **more)
        came.append((session.me, sender, tag, words.clone()))
        return words

    def party(session):
        if session.me not in CHECK.clients:
            return sum_checked(session, CHECK)
        at = CHECK.clients.index(session.me)
        unit = np.eye(3)[at]
        if kinds[at] == 0:
            send_update(session, CHECK, unit, Prg.from_os())
        else:
            words = torch.from_numpy((2 * CHECK.scale * unit).astype(np.int64))
            seed, short = bytearray(Prg.from_os().bytes(16)), kinds[at] == 2
            share = words - Prg(bytes(seed)).words((3,))
            session.send("server", "update/seed", torch.frombuffer(seed, dtype=torch.uint8))
            session.send("checker", "update/words", share[:1] if short else share)
        return None

    parties = (*CHECK.clients, *CHECK.roles.computing, CHECK.roles.dealer)
    with patch.object(Session, "recv", overhear):
        try:
            found = run_threads(
                dict.fromkeys(parties, party), Meeting(parties=parties, job_digest=bytes(32))
            )
        except VoidRound:
            found = None
    return came, found


@pytest.mark.parametrize("kinds", list(itertools.product(range(3), repeat=3)))
def test_the_first_server_of_checked_clips_reads_the_sum_of_those_within_them(kinds):
    came, found = run_check(kinds)
    good = [at for at, kind in enumerate(kinds) if kind == 0]
    sums_sent = [words for me, _, tag, words in came if tag.endswith("sum")]
    if len(good) < 2:
        assert found is None
        assert sums_sent == []
        return
    (theirs,) = sums_sent
    seeds = {sender: words for me, sender, tag, words in came if tag.endswith("update/seed")}
    mine = [Prg(seeds[CHECK.clients[at]].numpy().tobytes()).words((3,)) for at in good]
    total = (theirs + torch.stack(mine).sum(dim=0)).tolist()
    one = int(CHECK.scale) - 1  # of 1.0: rounded towards zero
    assert total == [one * (at in good) for at in range(3)]


def test_what_the_two_servers_of_checked_clips_hear_else_is_uniform():
    heard = {}
    for came, _ in (run_check((0, 1, 0)) for _ in range(60)):
        for me, sender, tag, words in came:
            if me in CHECK.roles.computing and "setup/" not in tag:
                heard.setdefault((me, sender, tag), []).append(words.reshape(-1))
    assert len(heard) > 40
    for name, parts in heard.items():
        words = torch.stack(parts)
        if words.dtype == torch.int64:
            assert complaints(words.reshape(-1, 1)) == [], name
        else:  # bits in bytes, of which those that fill up are 0
            ones = torch.stack([(words >> bit) & 1 for bit in range(8)]).double().mean(dim=1)
            assert bool(((ones == 0) | ((ones > 0.1) & (ones < 0.9))).all()), name
