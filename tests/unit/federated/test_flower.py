"""The Flower mod and carrier, with nodes that are called instead of reached."""

import copy
import threading

import numpy as np
import pytest

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'tacit-ml[fl]'")

from flwr.app import ConfigRecord

from support.flower import Nodes, ask, make_app, make_contexts, make_policy, train_on
from tacit.errors import ConfigError, PartyError
from tacit.federated import AdaptiveNoise, Privacy
from tacit.federated.contract import pack
from tacit.federated.flower import client_mod

pytestmark = pytest.mark.usefixtures("as_a_server")


class Twins(Nodes):
    """A grid that delivers every message twice at once, each with a copy of the node's state.

    This is what Flower does with a server that sends twice. The state that comes back last stays;
    here that of the answer that was let go, as the worst case wants it.
    """

    def __init__(self, app, contexts):
        super().__init__(app, contexts)
        self.answers = []

    def push_messages(self, messages):
        found = []
        for message in messages:
            self.sent += 1
            message.metadata.__dict__["_message_id"] = f"message {self.sent}"
            found.append(f"message {self.sent}")
            said = self.deliver(message, message.metadata.dst_node_id)
            given = [one for one in said if "answer" in one[0].content["tacit"]]
            if message.content["tacit"]["role"] != "hello":
                self.answers.append(len(given))
            reply, context = (given or said)[0]
            self.replies[found[-1]] = reply
            self.contexts[message.metadata.dst_node_id] = context
        return found

    def deliver(self, message, node):
        said, gate = [], threading.Barrier(2)

        def answer():
            context = copy.deepcopy(self.contexts[node])
            gate.wait()
            said.append((self.app(message, context), context))

        workers = [threading.Thread(target=answer) for _ in range(2)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        return said


def train(policy, contexts, *, app=None, silent=(), rounds=1):
    return train_on(Nodes(app or make_app(policy), contexts, silent), policy, rounds)


@pytest.mark.parametrize("aggregator", ["plain", "masked"])
def test_an_app_with_the_mod_is_aggregated(aggregator):
    outcome = train(make_policy(aggregator), make_contexts(4))
    assert np.allclose(outcome.weights, 0.25, atol=1e-5)
    assert outcome.rounds[0].survivors == (0, 1, 2, 3)


@pytest.mark.parametrize("aggregator", ["plain", "masked"])
def test_an_answer_that_is_there_counts_although_the_time_is_up(aggregator):
    policy = make_policy(aggregator)
    outcome = train_on(Nodes(make_app(policy), make_contexts(4)), policy, timeout_s=0.0)
    assert outcome.rounds[0].survivors == (0, 1, 2, 3)


def test_another_run_is_counted_anew_as_the_claim_says():
    policy = make_policy("plain", "local")
    app, outcomes = make_app(policy), []
    for run in (1, 2):
        contexts = make_contexts(4)
        for context in contexts.values():
            context.run_id = run
        outcomes.append(train(policy, contexts, app=app))
    assert [one.rounds[0].survivors for one in outcomes] == [(0, 1, 2, 3)] * 2
    assert any("about one run" in one for one in outcomes[0].rounds[0].claim.assumptions)


@pytest.mark.parametrize("answer", [5, 0.5, "x", [b"x"], b"x"])
def test_a_node_that_answers_with_anything_else_falls_out_and_the_round_goes_on(answer):
    """A number where bytes are wanted ended the run of everybody."""
    app = make_app(make_policy())

    def lie(message, context):
        said = app(message, context)
        if context.node_id == 103 and "answer" in said.content["tacit"]:
            said.content["tacit"] = ConfigRecord({"answer": answer})
        return said

    outcome = train(make_policy(), make_contexts(4), app=lie)
    assert outcome.rounds[0].dropped == (3,)
    assert np.allclose(outcome.weights, 0.2, atol=1e-5)


def test_a_silent_node_is_left_out():
    outcome = train(make_policy(), make_contexts(4), silent={103})
    assert outcome.rounds[0].dropped == (3,)
    assert np.allclose(outcome.weights, 0.2, atol=1e-5)


def test_a_node_of_its_own_shuffles():
    policy = make_policy("shuffled", "shuffle")
    outcome = train(policy, make_contexts(5))
    assert outcome.rounds[0].void is None
    assert outcome.rounds[0].survivors == (0, 1, 2, 3)


def test_adaptive_noise_travels_too():
    outcome = train(make_policy("plain", "local-adaptive"), make_contexts(4))
    assert outcome.rounds[0].survivors == (0, 1, 2, 3)
    assert np.allclose(outcome.weights, 0.25, atol=0.08)  # eight deviations of the noise


@pytest.mark.parametrize("aggregator", ["plain", "masked"])
def test_a_clip_that_follows_a_quantile_travels_too(aggregator):
    asked = Privacy(kind="central", clip=1.0, epsilon=1e4, accountant="basic", quantile=0.5)
    policy = make_policy(aggregator, privacy=asked, rounds=2)
    outcome = train(policy, make_contexts(4), rounds=2)
    # Every round adds a quarter on average: all updates lie within the clip, which then shrinks.
    assert np.allclose(outcome.weights, 0.5, atol=0.1)
    assert all(report.void is None for report in outcome.rounds)


def test_a_server_without_a_clip_for_the_round_is_refused():
    plain = make_policy("plain", "central")
    asked = Privacy(kind="central", clip=1.0, epsilon=1e4, accountant="basic", quantile=0.5)
    app = make_app(make_policy("plain", privacy=asked))
    outcome = train(plain, make_contexts(4), app=app)
    assert "wanted a clip above 0 for the round" in outcome.rounds[0].refused[0]


def test_what_nodes_cannot_do_is_refused_when_the_app_is_made():
    adaptive = AdaptiveNoise(by="layers")
    asked = Privacy(kind="local-adaptive", clip=1.0, epsilon=1.0, adaptive=adaptive)
    with pytest.raises(ConfigError, match="run on the engine 'local'"):
        client_mod(make_policy("plain", privacy=asked))


def test_a_client_refuses_more_rounds_than_its_policy_has():
    contexts = make_contexts(4)
    client = make_app(make_policy(rounds=1))
    outcome = train(make_policy(rounds=1), contexts, app=client, rounds=2)
    assert outcome.rounds[0].void is None
    assert "more than the 1 rounds of the spec" in outcome.rounds[1].refused[0]
    assert outcome.rounds[1].void is not None


@pytest.mark.parametrize("aggregator", ["plain", "masked"])
def test_of_two_messages_at_once_one_is_answered(aggregator):
    policy = make_policy(aggregator)
    grid = Twins(make_app(policy), make_contexts(4))
    outcome = train_on(grid, policy)
    assert set(grid.answers) == {1}
    assert np.allclose(outcome.weights, 0.25, atol=1e-5)


def test_a_shuffler_asked_twice_at_once_shuffles_once():
    policy = make_policy("shuffled", "shuffle")
    grid = Twins(make_app(policy), make_contexts(5))
    outcome = train_on(grid, policy)
    assert outcome.rounds[0].void is None
    assert set(grid.answers) == {1}


def test_rounds_that_begin_at_once_are_both_counted():
    policy = make_policy("plain", rounds=2)
    grid = Twins(make_app(policy), make_contexts(4))
    outcome = train_on(grid, policy, rounds=2)
    assert grid.answers == [2] * 4 + [0] * 4
    assert "more than the 2 rounds of the spec" in outcome.rounds[1].refused[0]


def step_of(kind, *fields):
    return {"role": "client", "index": 0, "payload": pack(kind, *fields)}


def test_an_update_is_not_sent_again_under_new_noise():
    policy = make_policy("plain", "local")
    contexts = make_contexts(4)
    grid = Nodes(make_app(policy), contexts)
    train_on(grid, policy)
    said = ask(grid.app, contexts[100], step_of(48)).content["tacit"]
    assert "answered before" in said["reason"]


def test_a_round_of_one_run_is_not_gone_on_with_in_another():
    """A journal is of one run; a state may outlive it."""
    policy, contexts = make_policy(), make_contexts(4)
    grid = Nodes(make_app(policy), contexts)
    train_on(grid, policy)
    contexts[100].run_id = 2
    said = ask(grid.app, contexts[100], step_of(6, b"")).content["tacit"]
    assert "a round that has not begun" in said["reason"]


def test_a_step_of_a_round_that_never_began_is_refused():
    said = ask(make_app(make_policy()), make_contexts(1)[100], step_of(48)).content["tacit"]
    assert "a round that has not begun" in said["reason"]


def test_a_client_refuses_a_server_with_weaker_terms():
    outcome = train(make_policy(minimum=2), make_contexts(4), app=make_app(make_policy(minimum=4)))
    assert outcome.rounds[0].void is not None
    assert "its plan of the round is not the one" in outcome.rounds[0].refused[0]


def test_clients_whose_keys_the_policy_does_not_name_are_refused():
    policy = make_policy(keys=frozenset(bytes([one] * 32) for one in range(4)))
    outcome = train(policy, make_contexts(4))
    assert outcome.rounds[0].void is not None
    assert "its key is not one that the job names" in outcome.rounds[0].refused[0]


def test_too_few_nodes_are_waited_for_and_named():
    with pytest.raises(PartyError, match="2 nodes came, the job wants 4"):
        train(make_policy(), make_contexts(2))
