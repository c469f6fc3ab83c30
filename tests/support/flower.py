"""A Flower grid whose nodes are called instead of reached, and small apps for it."""

import tempfile

import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.supercore.task_identity import TaskIdentity

from support.federated import make_spec
from tacit.federated import Privacy, run_rounds
from tacit.federated.flower import FlowerCarrier, client_mod, named_arrays

MODEL = torch.nn.Linear(2, 1)


def stand_in(monkeypatch, folder):
    """Stand in for the process that Flower would have started, with temporary files of its own."""
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    for name in ("_run_id", "_node_id", "_task_id"):
        monkeypatch.setattr(TaskIdentity, name, 1)


class Nodes:
    """A grid whose nodes answer when they are asked; some are silent."""

    def __init__(self, app, contexts, silent=()):
        self.app, self.contexts, self.silent = app, contexts, silent
        self.replies, self.sent = {}, 0

    def get_node_ids(self):
        return list(self.contexts)

    def push_messages(self, messages):
        found = []
        for message in messages:
            self.sent += 1
            message.metadata.__dict__["_message_id"] = f"message {self.sent}"
            node = message.metadata.dst_node_id
            found.append(f"message {self.sent}")
            if node not in self.silent:
                self.replies[found[-1]] = self.app(message, self.contexts[node])
        return found

    def pull_messages(self, identities):
        return [self.replies.pop(one) for one in identities if one in self.replies]

    def send_and_receive(self, messages, *, timeout=None):
        return self.pull_messages(self.push_messages(messages))


def add_training(app, step=0.1):
    """Let an app train: every node adds so much more than the one before it."""

    @app.train()
    def train(message, context):
        size = step * (1 + context.node_config["partition-id"])
        given = message.content["arrays"]
        arrays = ArrayRecord({name: Array(one.numpy() + size) for name, one in given.items()})
        metrics = MetricRecord({"num-examples": 3})
        return Message(RecordDict({"arrays": arrays, "m": metrics}), reply_to=message)

    return app


def make_app(policy, step=0.1, **options):
    return add_training(ClientApp(mods=[client_mod(policy, **options)]), step)


def ask(app, context, record, kind="train", **more):
    """Send a node one message with this record of ours; return its reply."""
    content = RecordDict({"tacit": ConfigRecord(record), **more})
    message = Message(content=content, dst_node_id=context.node_id, message_type=kind)
    message.metadata.__dict__["_message_id"] = "one"
    return app(message, context)


def make_policy(aggregator="masked", kind="none", rounds=1, **changes):
    epsilon = None if kind == "none" else 1e4
    settings = {
        "clients": 4,
        "rounds": rounds,
        "aggregator": aggregator,
        "privacy": Privacy(
            kind=kind, clip=1.0, epsilon=epsilon, accountant="basic" if epsilon else None
        ),
        "minimum": 3,
        "drop_rate": 0.25,
        "colluding_share": 0.0,
    }
    return make_spec(**{**settings, **changes})


def make_contexts(count):
    return {
        100 + number: Context(
            run_id=1,
            node_id=100 + number,
            node_config={"partition-id": number},
            state=RecordDict(),
            run_config={},
        )
        for number in range(count)
    }


def train_on(grid, policy, rounds=1, *, timeout_s=0.3):
    carrier = FlowerCarrier(
        grid, policy, named_arrays(MODEL), timeout_s=timeout_s, start_s=timeout_s
    )
    carrier.meet()
    return run_rounds(
        carrier,
        torch.zeros(3),
        policy,
        rounds=rounds,
        judge=lambda weights: (),
        on_round=lambda report: None,
    )
