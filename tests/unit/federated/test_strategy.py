"""A strategy of Flower's over private rounds: it learns the same, and fails closed."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'tacit-ml[fl]'")

from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.client import NumPyClient
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import (
    FedAdam,
    FedAvg,
    FedAvgM,
    FedMedian,
    FedProx,
    FedTrimmedAvg,
    Krum,
    MultiKrum,
    QFedAvg,
)

from support.flower import MODEL, Nodes, add_training, make_app, make_contexts, make_policy
from tacit.errors import ConfigError, PartyError
from tacit.federated.flower import PrivateStrategy, client_mod
from tacit.federated.node import flat_arrays, named_arrays

pytestmark = pytest.mark.usefixtures("as_a_server")
FIRST = named_arrays(MODEL)(np.zeros(3, np.float32))
SETTINGS = {"fraction_evaluate": 0.0, "min_train_nodes": 4, "min_available_nodes": 4}


def start(strategy, policy, *, contexts=None, app=None, rounds=None, **more):
    grid = Nodes(app or make_app(policy), contexts or make_contexts(4))
    private = PrivateStrategy(strategy, policy, timeout_s=0.3)
    result = private.start(grid, FIRST, num_rounds=rounds or policy.federated.rounds, **more)
    return private, result, grid


@pytest.mark.parametrize("kind", [FedAvg, FedAvgM, FedAdam, FedProx])
@pytest.mark.parametrize("aggregator", ["plain", "masked"])
def test_what_is_learned_is_what_the_strategy_learns_alone(kind, aggregator):
    policy = make_policy(aggregator, rounds=2)
    own = {"proximal_mu": 0.5} if kind is FedProx else {}
    own = {"server_momentum": 0.5} if kind is FedAvgM else own
    alone = kind(**SETTINGS, **own).start(
        Nodes(add_training(ClientApp()), make_contexts(4)), FIRST, num_rounds=2
    )
    _, result, _ = start(kind(**SETTINGS, **own), policy)
    assert np.allclose(flat_arrays(result.arrays), flat_arrays(alone.arrays), atol=1e-4)
    assert result.train_metrics_clientapp[2]["clients"] == 4


def test_the_config_of_the_strategy_reaches_the_apps():
    policy, seen = make_policy(), []
    app = ClientApp(mods=[client_mod(policy)])

    @app.train()
    def train(message, context):
        seen.append(dict(message.content["config"]))
        content = {"arrays": message.content["arrays"], "m": MetricRecord({"num-examples": 1})}
        return Message(RecordDict(content), reply_to=message)

    config = ConfigRecord({"rate": 0.25})
    start(FedProx(**SETTINGS, proximal_mu=0.5), policy, app=app, train_config=config)
    assert seen == [{"rate": 0.25, "proximal-mu": 0.5, "server-round": 1}] * 4


def test_the_ledger_counts_every_round_and_its_epsilon_is_in_the_metrics():
    policy = make_policy("masked", "central", rounds=2)
    private, result, _ = start(FedAvg(**SETTINGS), policy)
    assert len(private.ledger) == 2
    assert result.train_metrics_clientapp[2]["epsilon"] == private.claim.epsilon
    assert private.claim.epsilon <= 1e4
    assert private.claim.relation == "replacing one client"
    with pytest.raises(ConfigError, match="for 2 rounds, got 3"):
        private.start(Nodes(make_app(policy), make_contexts(4)), FIRST, num_rounds=1)


def test_nodes_are_sampled_and_counted_each_under_its_own_name():
    policy = make_policy("plain", "local", rounds=6)
    sampling = {**SETTINGS, "fraction_train": 0.5, "min_available_nodes": 8}
    private, _, _ = start(FedAvg(**sampling), policy, contexts=make_contexts(8))
    assert len(private.ledger.clients) > 4  # others were chosen in other rounds
    asked = [len(private.ledger.events_of(name)) for name in private.ledger.clients]
    assert sum(asked) == 6 * 4


def test_silence_does_not_hide_behind_another_place():
    """A node in two rounds, in two places, of which each was silent once, has two events."""
    policy = make_policy("plain", "local", rounds=2)
    grid = Nodes(make_app(policy), make_contexts(5))
    chosen = [[100, 101, 102, 103], [101, 102, 103, 104]]
    strategy = FedAvg(**SETTINGS)
    private = PrivateStrategy(strategy, policy, timeout_s=0.3, start_s=0.3)

    def choose(number, arrays, config, _):
        grid.silent = {100} if number == 1 else {104}
        return [Message(RecordDict(), dst_node_id=one, message_type="train") for one in
                chosen[number - 1]]  # fmt: skip

    strategy.configure_train = choose
    private.start(grid, FIRST, num_rounds=2)
    assert private.ledger.clients == ("node 101", "node 102", "node 103")
    assert all(len(private.ledger.events_of(name)) == 2 for name in private.ledger.clients)


def test_a_void_round_leaves_the_model_as_it_was():
    policy = make_policy(rounds=2)
    grid = Nodes(make_app(policy), make_contexts(4), silent={100, 101})
    private = PrivateStrategy(FedAvg(**SETTINGS), policy, timeout_s=0.1, start_s=0.1)

    def wake(number, arrays):
        grid.silent = set() if number else {100, 101}

    result = private.start(grid, FIRST, num_rounds=2, evaluate_fn=wake)
    assert list(result.train_metrics_clientapp) == [2]
    assert np.allclose(flat_arrays(result.arrays), 0.25, atol=1e-4)  # of one round, not of two


def test_a_run_without_any_round_ends_with_the_reason_and_not_as_finished():
    policy = make_policy(rounds=2)
    grid = Nodes(make_app(policy), make_contexts(4), silent={100, 101})
    private = PrivateStrategy(FedAvg(**SETTINGS), policy, timeout_s=0.1, start_s=0.1)
    with pytest.raises(PartyError, match="none of 2 rounds gave a model; the last was void"):
        private.start(grid, FIRST, num_rounds=2)


class Old(NumPyClient):
    def fit(self, parameters, config):
        return parameters, 3, {}


def test_a_client_of_the_old_interface_is_named_as_that():
    policy = make_policy()
    app = ClientApp(lambda context: Old().to_client(), mods=[client_mod(policy)])
    with pytest.raises(PartyError, match=r"old interface.*write its fit .* under @app\.train"):
        start(FedAvg(**SETTINGS), policy, app=app)


class Slow(Nodes):
    """Nodes that are asked for their first answer ten times before it is there."""

    def __init__(self, app, contexts):
        super().__init__(app, contexts)
        self.looks = 0

    def pull_messages(self, identities):
        self.looks += 1
        return super().pull_messages(identities) if self.looks > 10 else []


def test_the_time_of_a_stage_begins_once_nodes_have_started():
    policy = make_policy()
    private = PrivateStrategy(FedAvg(**SETTINGS), policy, timeout_s=0.05)
    result = private.start(Slow(make_app(policy), make_contexts(4)), FIRST, num_rounds=1)
    assert result.train_metrics_clientapp[1]["clients"] == 4


@pytest.mark.parametrize("kind", [FedMedian, FedTrimmedAvg, Krum, MultiKrum, QFedAvg])
def test_strategies_that_want_single_updates_are_refused(kind):
    own = {"client_learning_rate": 0.1} if kind is QFedAvg else {}
    strategy = kind(fraction_evaluate=0.0, **own)
    with pytest.raises(ConfigError, match=f"mean of the updates.*got {kind.__name__}"):
        PrivateStrategy(strategy, make_policy())


def count_metrics(contents, key):
    return MetricRecord({"count": len(contents)})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"fraction_evaluate": 1.0}, "scores on the nodes' rows would leave without noise"),
        ({"train_metrics_aggr_fn": count_metrics}, "metrics of apps do not leave"),
        ({"arrayrecord_key": "weights"}, "nodes look for 'arrays'"),
    ],
)
def test_what_would_get_round_the_policy_is_refused(changes, message):
    with pytest.raises(ConfigError, match=message):
        PrivateStrategy(FedAvg(**{**SETTINGS, **changes}), make_policy())


def test_nothing_is_sent_where_the_plan_does_not_fit():
    policy = make_policy()
    grid = Nodes(make_app(policy), make_contexts(4))
    private = PrivateStrategy(FedAvg(**SETTINGS), policy, timeout_s=0.1)
    with pytest.raises(ConfigError, match="for 1 rounds, got 2"):
        private.start(grid, FIRST, num_rounds=2)
    with pytest.raises(ConfigError, match="scores on the nodes' rows"):
        private.start(grid, FIRST, num_rounds=1, evaluate_config=ConfigRecord())
    counts = ArrayRecord({"steps": Array(np.zeros(1, np.int64))})
    with pytest.raises(ConfigError, match="steps: wanted floating-point numbers"):
        private.start(grid, counts, num_rounds=1)
    few = PrivateStrategy(FedAvg(fraction_evaluate=0.0, fraction_train=0.5), policy)
    with pytest.raises(ConfigError, match="chose 2 nodes for a round, the spec has 4"):
        few.start(grid, FIRST, num_rounds=1)
    assert grid.sent == 0


@pytest.mark.slow
def test_the_example_learns_within_its_budget(capsys):
    file = Path(__file__).parents[3] / "examples" / "flower_strategy.py"
    assert len(file.read_text().splitlines()) <= 60
    spec = importlib.util.spec_from_file_location("flower_strategy", file)
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    example.main(Nodes(example.client_app, make_contexts(example.NODES)), None)
    printed = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    # Noise is fresh in every run: twelve runs had 0.02 to 0.23, of 0.67.
    assert float(printed["after"]) < 0.8 * float(printed["before"])
    assert printed["epsilon"].endswith("for replacing one client")
    assert float(printed["epsilon"].split()[0]) <= 8.0
