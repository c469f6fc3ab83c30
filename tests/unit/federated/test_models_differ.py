"""A server that gives one client another model than the others, to read its update off the sum."""

import struct
from dataclasses import replace

import numpy as np
import pytest
import torch

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'tacit-ml[fl]'")

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from support.federated import provided
from support.flower import Nodes, make_contexts, make_policy
from tacit.errors import PartyError
from tacit.federated import Meter, VoidRound, round_config
from tacit.federated.contract import pack, unpack
from tacit.federated.flower import FlowerCarrier, client_mod, named_arrays
from tacit.federated.keyed.authority import OPEN as KEYED_OPEN
from tacit.federated.keyed.authority import UPLOAD
from tacit.federated.node import digest_of
from tacit.federated.secagg import Neighbourhood, SecAggClient, plan_secagg
from tacit.federated.secagg.messages import (
    ADVERT_BYTES,
    DELIVERY,
    INPUT,
    PARCEL_BYTES,
    ROSTER,
    SHARES,
)
from tacit.federated.secagg.messages import OPEN as MASKED_OPEN
from tacit.federated.secagg.plan import MODEL_BYTES, NONCE_BYTES
from tacit.federated.summary import claims_about_updates
from tacit.federated.training import flatten
from tacit.federated.verified import TAGGED
from tacit.ring import Prg

pytestmark = pytest.mark.usefixtures("as_a_server")
CLIENTS, VICTIM = 5, 102
WORDS = ("masked", "keyed")


def make_model():
    torch.manual_seed(1)
    return torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))


MODEL = make_model()
NAMES = [name for name, _ in MODEL.named_parameters()]


def learn(message, context):
    """One step of gradient descent on eight rows of the node's own, at the rate that is said."""
    model, given = make_model(), message.content["arrays"]
    model.load_state_dict({name: torch.from_numpy(one.numpy()) for name, one in given.items()})
    number = context.node_config["partition-id"]
    rows = torch.linspace(-1, 1, 24).reshape(8, 3) * (1 + number)
    labels = torch.arange(8) % 2
    torch.nn.functional.cross_entropy(model(rows), labels).backward()
    settings = {}  # of all records, as some apps read them: what comes last counts
    for record in message.content.config_records.values():
        settings.update(record)
    rate = settings["rate"]
    return {
        name: (one - rate * one.grad).detach().numpy() for name, one in model.named_parameters()
    }


def make_nodes(aggregator, verified):
    """The product's own nodes, under the strictest words: all keys named, the authority pinned."""
    signing = [Ed25519PrivateKey.generate() for _ in range(CLIENTS)]
    helping = X25519PrivateKey.generate()
    pinned = {"authority": helping.public_key().public_bytes_raw()} if aggregator == "keyed" else {}
    policy, secrets = provided(
        make_policy(
            aggregator,
            clients=CLIENTS,
            rounds=2,
            verified=verified,
            server="malicious",
            keys=frozenset(one.public_key().public_bytes_raw() for one in signing),
            **pinned,
        )
    )

    def hold(message, context, app):
        number = context.node_config["partition-id"]
        if number == CLIENTS:
            return client_mod(policy, authority=helping)(message, context, app)
        held = client_mod(policy, signing=signing[number], secret=secrets[number])
        return held(message, context, app)

    app = ClientApp(mods=[hold])

    @app.train()
    def train(message, context):
        after = ArrayRecord({name: Array(one) for name, one in learn(message, context).items()})
        counted = MetricRecord({"num-examples": 8})
        return Message(RecordDict({"arrays": after, "metrics": counted}), reply_to=message)

    return app, policy


class Crafted(Nodes):
    """Gives all but one node something else, and if it can names it to them as the round's."""

    def __init__(self, app, change, *, is_named, silent):
        super().__init__(app, make_contexts(CLIENTS + 1), silent)
        self.change, self.is_named, self.kinds = change, is_named, []
        self.true = self.config = None

    def push_messages(self, messages):
        for message in messages:
            content = message.content
            if "arrays" in content and message.metadata.dst_node_id != VICTIM:
                self.change(content)
                if self.is_named:
                    self.name(content)
        found = super().push_messages(messages)
        for said in (self.replies[one].content["tacit"] for one in found if one in self.replies):
            answer = said.get("answer", b"")
            if answer[4:5] == bytes([TAGGED]):
                _, answer = unpack(answer, TAGGED, "bb", sender="client")
            self.kinds += list(answer[4:5])
        return found

    def name(self, content):
        """Put the digest of what is really sent behind the nonce of the invitation."""
        said = content["tacit"]
        payload = said["payload"]
        wanted, true = (
            replace(self.config, model=digest_of(one, without="tacit", bound=said["bound"])).agreed
            for one in (content, self.true)
        )
        assert payload[4] in (MASKED_OPEN, KEYED_OPEN)
        assert payload.count(true) == 1
        said["payload"] = payload.replace(true, wanted)


def kill(content):
    """Let no row through the first layer: what is learned is the last bias alone."""
    arrays = {name: one.numpy().copy() for name, one in content["arrays"].items()}
    arrays["0.bias"] -= 1000
    content["arrays"] = ArrayRecord({name: Array(one) for name, one in arrays.items()})


def stop(content):
    """Let the app make no step."""
    content["config"] = ConfigRecord({"rate": 0.0})


def slip(content):
    """Say the same in the record that the mod reads, which is in no digest."""
    said = content.pop("tacit")
    content["tacit"] = ConfigRecord({**said, "rate": 0.0})


def run(aggregator, change=lambda content: None, *, verified=False, is_named=False, silent=()):
    """Run a round; return the sum that the server finds, and the victim's true update."""
    app, policy = make_nodes(aggregator, verified)
    grid = Crafted(app, change, is_named=is_named, silent=silent)
    weights, config = flatten(MODEL), ConfigRecord({"rate": 0.1})
    grid.config = round_config(policy, weights.numel())
    make = named_arrays(MODEL)
    grid.true = RecordDict({"arrays": make(weights.numpy()), "config": config})
    carrier = FlowerCarrier(grid, policy, make, timeout_s=0.3, start_s=0.3)
    carrier.find_helper(grid.get_node_ids())
    carrier.seat(grid.get_node_ids()[:CLIENTS], {"config": config})
    sent = Message(grid.true, dst_node_id=VICTIM, message_type="train")
    true = learn(sent, grid.contexts[VICTIM])
    update = np.concatenate([true[name].reshape(-1) for name in NAMES]) - weights.numpy()
    meter = Meter()
    try:
        found = carrier.carry(weights, round_config(policy, weights.numel()), meter)
    except VoidRound:
        return None, update, meter, grid.kinds
    return found.mean * len(found.survivors), update, meter, grid.kinds


@pytest.mark.parametrize("is_named", [False, True])
@pytest.mark.parametrize("change", [kill, stop])
@pytest.mark.parametrize("verified", [False, True])
@pytest.mark.parametrize("aggregator", WORDS)
def test_clients_that_were_given_different_models_have_no_sum(
    aggregator, verified, change, is_named
):
    total, _, meter, kinds = run(aggregator, change, verified=verified, is_named=is_named)
    assert total is None
    if not is_named:
        others = [str(one) for one in meter.refused if "another model, config or clip" in str(one)]
        assert len(others) == CLIENTS - 1
    if aggregator == "masked":
        assert INPUT not in kinds  # nobody has shown anything, under a mask or not
    else:
        assert kinds.count(UPLOAD) == (CLIENTS if is_named else 1)


@pytest.mark.parametrize("change", [kill, stop])
@pytest.mark.parametrize("verified", [False, True])
@pytest.mark.parametrize("aggregator", WORDS)
def test_without_the_digest_the_sum_is_one_clients_update(
    aggregator, verified, change, monkeypatch
):
    """What it is there for, and that the attack above is one."""
    for place in ("node", "strategy"):
        name = f"tacit.federated.{place}.digest_of"
        monkeypatch.setattr(name, lambda content, **given: bytes(32))
    total, update, _, _ = run(aggregator, change, verified=verified)
    learned = slice(None, -2) if change is kill else slice(None)
    assert np.abs(update[learned]).max() > 0.01
    assert np.abs(total - update)[learned].max() < 1e-6


def test_what_is_in_no_digest_reaches_no_app():
    total, update, meter, _ = run("masked", slip)
    assert meter.refused == []
    assert np.abs(total - update).max() > 0.01  # that of all: the rate of nobody was 0


@pytest.mark.parametrize("aggregator", WORDS)
def test_one_model_twice_differs_by_the_client_that_is_left_out_and_the_claim_says_so(aggregator):
    """What is left open is shown to be open: a digest of the model does not help against it."""
    total, update, meter, _ = run(aggregator)
    assert meter.refused == []
    fewer, *_ = run(aggregator, silent={VICTIM})
    assert np.abs(total - fewer - update).max() < 1e-6
    (claim,) = claims_about_updates(make_nodes(aggregator, verified=False)[1])
    assert any("differ by its update" in text for text in claim.assumptions)
    assert any("only noise" in text for text in claim.assumptions)


def test_where_no_keys_are_named_parcels_of_another_model_do_not_open():
    """Nothing is signed there that others look at: a server can list clients of both models."""
    plan = plan_secagg(
        4, 3, bound=1.0, neighbourhood=Neighbourhood(neighbours=3, threshold=3), minimum=3
    )
    other = replace(plan, session=plan.session[:NONCE_BYTES] + bytes([1] * MODEL_BYTES))
    clients = [
        SecAggClient(
            other if at == 3 else plan, at, signing=Ed25519PrivateKey.generate(), prg=Prg.from_os()
        )
        for at in range(4)
    ]
    roster = pack(ROSTER, b"".join(one.advertise()[-ADVERT_BYTES:] for one in clients))
    parcels = [
        [body[at : at + PARCEL_BYTES] for at in range(0, len(body), PARCEL_BYTES)]
        for body in (unpack(one.share(roster), SHARES, "bb", sender="client")[1] for one in clients)
    ]
    for at, client in enumerate(clients):
        # Holders are listed from the owner on, round the ring of the complete graph.
        given = [
            struct.pack("<I", owner) + parcels[owner][(at - owner) % 4]
            for owner in range(4)
            if owner != at
        ]
        with pytest.raises(PartyError, match="its sealed share does not open"):
            client.mask(pack(DELIVERY, b"".join(given)), np.zeros(plan.length, plan.dtype))


def content(**changes):
    arrays = {"a": np.zeros((2, 3), np.float32), "b": np.ones(2, np.float32)}
    given = {"arrays": arrays, "config": {"rate": 0.1, "names": ["x", "y"]}, **changes}
    return RecordDict(
        {
            "arrays": ArrayRecord({name: Array(one) for name, one in given["arrays"].items()}),
            "config": ConfigRecord(given["config"]),
            "metrics": MetricRecord(given.get("metrics", {})),
            "tacit": ConfigRecord({"index": given.get("index", 0)}),
        }
    )


def digest(one, bound=0.5):
    return digest_of(one, without="tacit", bound=bound)


A, B = np.zeros((2, 3), np.float32), np.ones(2, np.float32)


@pytest.mark.parametrize(
    "other",
    [
        content(arrays={"a": A, "b": B + np.float32(1e-7)}),
        content(arrays={"a": A.reshape(3, 2), "b": B}),
        content(arrays={"a": A.astype(np.float64), "b": B}),
        content(arrays={"b": B, "a": A}),
        content(arrays={"a": A, "c": B}),
        content(config={"rate": 0.1}),
        content(config={"rate": 0.1, "names": ["x", "z"]}),
        content(config={"rate": 1, "names": ["x", "y"]}),
        content(config={"names": ["x", "y"], "rate": 0.1}),
        content(metrics={"rate": 0.1}),
        RecordDict(dict(reversed(content().items()))),
    ],
)
def test_a_digest_is_of_all_that_an_app_is_given(other):
    assert digest(content()) == digest(content(index=3))
    assert digest(other) != digest(content())
    assert digest(content(), bound=0.25) != digest(content())
