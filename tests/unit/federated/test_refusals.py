"""What a node behind the mod refuses: all that is not a step of its own policy's aggregation."""

import logging
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'tacit-ml[fl]'")

from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg

from support.flower import MODEL, Nodes, ask, make_app, make_contexts, make_policy, train_on
from tacit.crypto import make_key_pair
from tacit.errors import ConfigError, InputError, PartyError
from tacit.federated import Privacy, Training, round_config
from tacit.federated.contract import kind_of, pack, unpack
from tacit.federated.flower import client_mod
from tacit.federated.journal import Silo
from tacit.federated.node import named_arrays
from tacit.federated.shuffled.roles import (
    BUNDLE,
    COMPLAINED,
    RECEIPT,
    open_box,
    open_message,
    plan_from,
    receipt_tag,
    round_of,
)

pytestmark = pytest.mark.usefixtures("as_a_server")
WEIGHTS = named_arrays(MODEL)(np.zeros(3, np.float32))
KEYS = frozenset(bytes([one] * 32) for one in range(4))
POLICIES = {
    "plain": make_policy("plain"),
    "local": make_policy("plain", "local"),
    "masked": make_policy(),
    "malicious": make_policy(server="malicious", keys=KEYS, drop_rate=0.0),
    "shuffled": make_policy("shuffled", "shuffle"),
}


def make_open_app(policy, called):
    """Make an app with the documented two lines that would answer everything."""
    app = ClientApp(mods=[client_mod(policy)])

    def answer(message, context):
        called.append(message.metadata.message_type)
        metrics = MetricRecord({"num-examples": 3, "accuracy": 0.5})
        return Message(
            RecordDict({"arrays": message.content["arrays"], "m": metrics}), reply_to=message
        )

    for register in (app.train(), app.train("more"), app.evaluate(), app.query()):
        register(answer)
    return app


@pytest.mark.parametrize("name", POLICIES)
def test_a_server_with_plain_fedavg_gets_nothing(name, caplog):
    called = []
    grid = Nodes(make_open_app(POLICIES[name], called), make_contexts(4))
    with caplog.at_level(logging.WARNING):
        result = FedAvg().start(grid, WEIGHTS, num_rounds=2)
    assert called == []
    assert not result.train_metrics_clientapp
    assert not result.evaluate_metrics_clientapp
    assert all(array.numpy().any() == 0 for array in result.arrays.values())
    refused = [one for one in caplog.messages if "refused a message" in one]
    assert len(refused) == 2 * 2 * 4
    assert "put PrivateStrategy in front of the strategy" in refused[0]


def test_a_server_with_plain_fedavg_gets_nothing_after_the_last_round_either():
    policy, contexts = make_policy(), make_contexts(4)
    train_on(Nodes(make_app(policy), contexts), policy)
    called = []
    FedAvg().start(Nodes(make_open_app(policy, called), contexts), WEIGHTS, num_rounds=1)
    assert called == []


@pytest.mark.parametrize("kind", ["evaluate", "query", "train.more"])
def test_other_types_of_messages_are_refused_with_a_record_too(kind):
    called = []
    app = make_open_app(make_policy(), called)
    record = {"role": "client", "index": 0, "payload": pack(48)}
    reply = ask(app, make_contexts(1)[100], record, kind, arrays=WEIGHTS)
    assert reply.has_error()
    assert "this node answers 'train' alone" in reply.error.reason
    assert called == []


@pytest.mark.parametrize(
    "record",
    [
        {},
        {"role": "trainer"},
        {"role": ["client"]},
        {"role": "client", "index": "0"},
        {"role": "client", "payload": "text"},
        {"role": "client", "bound": 1},
        {"role": "client", "helper": 7},
    ],
    ids=str,
)
def test_a_record_that_is_none_of_ours_is_refused(record):
    called = []
    app = make_open_app(make_policy(), called)
    reply = ask(app, make_contexts(1)[100], record, arrays=WEIGHTS)
    assert reply.has_error()
    assert called == []


def test_a_node_has_one_role():
    policy, contexts = make_policy("shuffled", "shuffle"), make_contexts(5)
    app = make_app(policy)
    for node, role in ((100, "help"), (104, "client")):
        record = {"role": role, "payload": pack(34, b"", b"")}
        said = ask(app, contexts[node], record).content["tacit"]
        assert f"the role '{role}' of another" in said["reason"]


def test_what_an_app_says_when_it_fails_stays_on_the_node(caplog):
    app = ClientApp(mods=[client_mod(make_policy())])

    @app.train()
    def train(message, context):
        raise ValueError(f"row {17}: {bytes([74, 97, 110, 101]).decode()}")

    outcome = train_on(Nodes(app, make_contexts(4)), make_policy())
    assert "its app failed" in outcome.rounds[0].refused[0]
    assert "Jane" not in str(outcome.rounds) + caplog.text
    assert "in train" in caplog.text


class Shuffled:
    """A client's node, and a test that is its shuffler and its server, which lies about the key."""

    def __init__(self, is_pinned=True):
        self.shuffler, self.server = make_key_pair(), make_key_pair()
        pinned = self.shuffler.public if is_pinned else None
        self.policy = make_policy("shuffled", "shuffle", rounds=2, shuffler=pinned)
        self.app, self.context = make_app(self.policy), make_contexts(1)[100]

    def say(self, payload, **more):
        record = {"role": "client", "index": 0, "payload": payload, "bound": 0.0}
        record |= {"helper": self.server.public}
        said = ask(self.app, self.context, record, **more).content["tacit"]
        return said.get("answer") or said["reason"]

    def invite(self, opens_with=None):
        """Begin a round; return its name and the client's key."""
        plan = plan_from(round_config(self.policy, 3))
        invitation = open_message(plan, self.server.public)
        said = self.say(invitation, arrays=WEIGHTS)
        if isinstance(said, str):
            return said
        (bundle,) = unpack(said, BUNDLE, "b", sender="client")
        name = round_of(invitation)
        return name, open_box(opens_with or self.shuffler, bundle, associated=name)[:16]


def test_a_receipt_is_answered_once_whatever_it_says():
    scene = Shuffled()
    name, key = scene.invite()
    assert "not one that the shuffler vouches for" in scene.say(pack(RECEIPT, b"", bytes(16)))
    true = pack(RECEIPT, b"", receipt_tag(key, name, b""))
    assert "answered before" in scene.say(true)
    assert isinstance(scene.invite(), tuple)  # no complaint was made: the run goes on


def test_a_complaint_is_one_bit_and_ends_the_run():
    scene = Shuffled()
    name, key = scene.invite()
    receipt = pack(RECEIPT, b"", receipt_tag(key, name, b""))
    assert kind_of(scene.say(receipt), sender="client") == COMPLAINED
    assert "a run that this node has ended" in scene.say(receipt)
    assert "a run that this node has ended" in scene.invite()


def test_rounds_begun_at_once_bring_one_complaint():
    scene = Shuffled()
    said = []
    for _ in range(2):
        name, key = scene.invite()
        said.append((dict(scene.context.state.config_records), name, key))
    answers = []
    for state, name, key in said:
        scene.context.state.config_records["tacit-state"] = state["tacit-state"]
        answers.append(scene.say(pack(RECEIPT, b"", receipt_tag(key, name, b""))))
    assert kind_of(answers[0], sender="client") == COMPLAINED
    assert "a run that this node has ended" in answers[1]


def test_without_a_pinned_key_a_server_opens_the_first_envelope_and_the_claim_says_so():
    """What is left open is shown to be open: no guarantee means none."""
    scene = Shuffled(is_pinned=False)
    scene.invite(opens_with=scene.server)
    claim = round_config(scene.policy, 3).mechanism.claim
    assert any("a server that puts in its own reads every report" in x for x in claim.assumptions)
    with pytest.raises(InputError):
        Shuffled().invite(opens_with=scene.server)


def test_a_pinned_shuffler_is_the_only_one():
    mine = make_key_pair()
    policy = make_policy("shuffled", "shuffle", shuffler=mine.public)
    app = make_app(policy, shuffling=mine.private)
    assert train_on(Nodes(app, make_contexts(5)), policy).rounds[0].void is None
    with pytest.raises(PartyError, match="no node has the role of the shuffler"):
        train_on(Nodes(make_app(policy), make_contexts(5)), policy)
    other = make_policy("shuffled", "shuffle")
    with pytest.raises(PartyError, match="its key is not the one that the job pins"):
        train_on(Nodes(make_app(other), make_contexts(5)), policy)


class Renumbered(Nodes):
    """Asks every client under the number of another once it has been invited under its own."""

    def push_messages(self, messages):
        for message in messages:
            if message.content["tacit"]["role"] == "client" and "arrays" not in message.content:
                message.content["tacit"]["index"] = (message.content["tacit"]["index"] + 1) % 4
        return super().push_messages(messages)


def test_a_client_keeps_the_number_that_it_was_invited_under():
    """Else it vouches for a list without itself, as long as the other one is there."""
    policy = make_policy()
    (report,) = train_on(Renumbered(make_app(policy), make_contexts(4)), policy).rounds
    assert report.void is None
    assert report.survivors == (0, 1, 2, 3)


@pytest.mark.parametrize("examples", [0, -1000, 7])
@pytest.mark.parametrize("aggregator", ["plain", "masked"])
def test_how_many_examples_a_node_has_does_not_leave_it_under_a_promise(aggregator, examples):
    policy, contexts = make_policy(aggregator, "central"), make_contexts(4)
    app = ClientApp(mods=[client_mod(policy)])

    @app.train()
    def train(message, context):
        count = examples if context.node_id == 100 else 3
        content = {"arrays": message.content["arrays"], "m": MetricRecord({"num-examples": count})}
        return Message(RecordDict(content), reply_to=message)

    outcome = train_on(Nodes(app, contexts), policy)
    assert outcome.rounds[0].survivors == (0, 1, 2, 3)


@pytest.mark.parametrize(
    ("examples", "more", "why"),
    [(0, 0, "num-examples 0, wanted at least 1"), (3, 1, "numbers, got")],
)
def test_an_app_that_returns_another_model_or_nobody_s_is_left_out(examples, more, why):
    policy, contexts = make_policy("plain", kind="none"), make_contexts(5)
    app = ClientApp(mods=[client_mod(policy)])

    @app.train()
    def train(message, context):
        is_odd = context.node_id == 100
        arrays = dict(message.content["arrays"])
        if is_odd and more:
            arrays["more"] = Array(np.zeros(more, np.float32))
        count = MetricRecord({"num-examples": examples if is_odd else 3})
        content = {"arrays": ArrayRecord(arrays), "m": count}
        return Message(RecordDict(content), reply_to=message)

    one = train_on(Nodes(app, contexts), policy).rounds[0]
    assert 0 not in one.survivors
    assert why in str(one.refused[0])


@pytest.mark.parametrize("data", [b"", b"xx", b"\x93NUMPY\x01\x00"])
def test_arrays_that_cannot_be_read_are_the_servers_fault(data):
    called = []
    broken = Array(dtype="float32", shape=(3,), stype="numpy.ndarray", data=data)
    said = {"role": "client", "index": 0, "payload": pack(48), "helper": b"", "bound": 0.0}
    for record in (ArrayRecord({"w": broken}), ArrayRecord()):
        app = make_open_app(make_policy("plain", rounds=9), called)
        reply = ask(app, make_contexts(1)[100], said, arrays=record).content["tacit"]
        assert reply["party"] == "server"
        assert "not numbers that can be read" in reply["reason"]
    assert called == []


def test_no_app_is_taken_to_train_with_privacy_for_records():
    """A mod sees what an app returns, and not how it came to be: there it refuses to begin."""
    asked = Privacy(kind="record", clip=1.0, epsilon=4.0, delta=1e-3, records=50)
    with pytest.raises(ConfigError, match="'record' without a silo"):
        client_mod(make_policy(privacy=asked, train=Training(batch=10)))
    silo = Silo(lambda: None, 0, book=Path("never"))
    with pytest.raises(ConfigError, match="'central' with a silo"):
        client_mod(make_policy(kind="central"), silo=silo)


def test_a_node_without_the_mod_gets_no_weights():
    """Its app would train on them, and answer with the update as it is."""
    called = []
    app = ClientApp()

    @app.train()
    def train(message, context):
        called.append(list(message.content.array_records))
        return Message(RecordDict({"arrays": WEIGHTS}), reply_to=message)

    assert train_on(Nodes(app, make_contexts(4)), make_policy()).rounds[0].void is not None
    assert called == [[]] * 4  # the greeting alone
