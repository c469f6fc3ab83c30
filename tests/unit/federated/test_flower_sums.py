"""Encrypted, keyed and verified rounds on Flower: every message meets a new process."""

import numpy as np
import pytest

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'tacit-ml[fl]'")

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg

from support.federated import provided
from support.flower import (
    MODEL,
    Nodes,
    add_training,
    ask,
    make_app,
    make_contexts,
    make_policy,
    train_on,
)
from tacit.errors import ConfigError, PartyError
from tacit.federated.contract import pack, unpack
from tacit.federated.flower import PrivateStrategy, client_mod
from tacit.federated.keyed.authority import RELEASE
from tacit.federated.node import flat_arrays, named_arrays
from tacit.federated.verified import CHECK

pytestmark = pytest.mark.usefixtures("as_a_server")
FIRST = named_arrays(MODEL)(np.zeros(3, np.float32))
WORDS = {
    "bfv": {"aggregator": "encrypted"},
    "threshold": {"aggregator": "encrypted", "cipher": "paillier", "threshold": 2},
    "keyed": {"aggregator": "keyed"},
    "masked, verified": {"aggregator": "masked", "verified": True},
    "keyed, verified": {"aggregator": "keyed", "verified": True},
}


def make_nodes(name, *, silent=(), **changes):
    """Make nodes that each hold a secret of their own, and the policy that they hold to."""
    policy, secrets = provided(make_policy(**WORDS[name], **changes))

    def hold(message, context, app):
        number = min(context.node_config["partition-id"], policy.federated.clients - 1)
        return client_mod(policy, secret=secrets[number])(message, context, app)

    app = add_training(ClientApp(mods=[hold]))
    extra = policy.federated.aggregator == "keyed"
    return Nodes(app, make_contexts(policy.federated.clients + extra), silent), policy


@pytest.mark.parametrize("name", WORDS)
def test_rounds_run_over_nodes_and_silent_ones_are_left_out(name):
    grid, policy = make_nodes(name, silent={102}, rounds=2)
    outcome = train_on(grid, policy, rounds=2)
    assert [one.void for one in outcome.rounds] == [None, None]
    assert outcome.rounds[0].survivors == (0, 1, 3)
    assert np.allclose(outcome.weights, 2 * 0.7 / 3, atol=1e-4)  # 0.1, 0.2 and 0.4 on average


@pytest.mark.parametrize("name", ["bfv", "keyed"])
def test_a_strategy_of_flowers_uses_them_by_one_word(name):
    grid, policy = make_nodes(name)
    strategy = FedAvg(fraction_evaluate=0.0, min_train_nodes=4, min_available_nodes=4)
    private = PrivateStrategy(strategy, policy, timeout_s=0.3)
    result = private.start(grid, FIRST, num_rounds=1)
    assert np.allclose(flat_arrays(result.arrays), 0.25, atol=1e-4)


def test_a_node_without_its_secret_is_refused_before_anything_is_sent():
    with pytest.raises(ConfigError, match="wants a secret for each client"):
        client_mod(make_policy("encrypted"))
    with pytest.raises(ConfigError, match="'masked', verified, wants a secret"):
        client_mod(make_policy("masked", verified=True))


def change_payloads(grid, kind, change):
    """Let the server change what it sends of one kind."""
    push = grid.push_messages

    def changed(messages):
        for message in messages:
            said = message.content.config_records["tacit"]
            if said.get("payload", b"")[4:5] == bytes([kind]):
                said["payload"] = change(said["payload"])
        return push(messages)

    grid.push_messages = changed


def test_a_node_that_is_shown_a_wrong_sum_ends_the_run_for_itself():
    grid, policy = make_nodes("keyed, verified", rounds=2)

    def forge(message):
        body, nonces, words = unpack(message, CHECK, "bbb", sender="server")
        return pack(CHECK, body, nonces, bytes([words[0] ^ 1]) + words[1:])

    change_payloads(grid, CHECK, forge)
    outcome = train_on(grid, policy, rounds=2)
    assert "says that the sum it was shown is wrong" in outcome.rounds[0].void
    assert len(outcome.rounds) == 1
    grid.push_messages = Nodes.push_messages.__get__(grid)
    again = train_on(grid, policy)
    assert "a run that this node has ended" in again.rounds[0].refused[0]


def test_an_authority_that_is_started_again_keeps_what_it_released(tmp_path):
    """With its key it keeps its journal, under whatever number Flower gives its node."""
    key = X25519PrivateKey.generate()
    pinned = key.public_key().public_bytes_raw()
    policy = make_policy("keyed", authority=pinned)
    asked = []
    grid = Nodes(make_app(policy, authority=key, journal=tmp_path), make_contexts(5))
    change_payloads(grid, RELEASE, lambda message: asked.append(message) or message)
    assert train_on(grid, policy).rounds[0].void is None
    other = make_contexts(6)[105]
    other.node_config["role"] = "authority"
    record = {"role": "help", "index": -1, "payload": asked[0], "bound": 0.0}
    fresh = make_app(policy, authority=key, journal=tmp_path)
    assert "answered before" in ask(fresh, other, record).content["tacit"]["reason"]


def test_a_server_that_is_its_own_authority_is_refused_where_the_job_pins_a_key():
    pinned = X25519PrivateKey.generate().public_key().public_bytes_raw()
    grid, _ = make_nodes("keyed")
    with pytest.raises(PartyError, match="its key is not the one that the job pins"):
        train_on(grid, make_policy("keyed", authority=pinned))
