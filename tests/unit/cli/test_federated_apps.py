"""The apps of a deployment: every side reads its own job file; nodes are called, not reached."""

import json

import pytest

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'tacit-ml[fl]'")
pytest.importorskip("ray", reason="Ray is not installed: pip install 'tacit-ml[fl]'")

from flwr.app import Context, RecordDict
from flwr.supercore.task_identity import TaskIdentity

from tacit.cli.federated_apps import client_app, serve
from tacit.learn.weights import read_weights

JOB = """
    [job]
    name = "own"
    kind = "federated"
    [data]
    file = "FILE"
    label = "y"
    [federated]
    clients = 3
    rounds = 1
    minimum = 2
    colluding_share = 0.0
    [privacy]
    clip = 1.0
"""


class Nodes:
    """A grid whose nodes answer when they are asked."""

    def __init__(self, contexts):
        self.contexts, self.replies, self.sent = contexts, {}, 0

    def get_node_ids(self):
        return list(self.contexts)

    def push_messages(self, messages):
        found = []
        for message in messages:
            self.sent += 1
            found.append(f"message {self.sent}")
            message.metadata.__dict__["_message_id"] = found[-1]
            self.replies[found[-1]] = client_app(
                message, self.contexts[message.metadata.dst_node_id]
            )
        return found

    def pull_messages(self, identities):
        return [self.replies.pop(one) for one in identities if one in self.replies]


def make_context(node, *, node_config, run_config):
    return Context(
        run_id=1, node_id=node, node_config=node_config, state=RecordDict(), run_config=run_config
    )


def test_nodes_with_files_of_their_own_train_together(tmp_path, monkeypatch):
    for name in ("_run_id", "_node_id", "_task_id"):
        monkeypatch.setattr(TaskIdentity, name, 1)
    jobs = []
    for number in range(3):
        rows = "\n".join(f"{i % 5},{(i + number) % 3},{int(i % 5 > 2)}" for i in range(60))
        (tmp_path / f"{number}.csv").write_text(f"a,b,y\n{rows}\n")
        jobs.append(tmp_path / f"{number}.toml")
        jobs[-1].write_text(JOB.replace("FILE", str(tmp_path / f"{number}.csv")))
    nodes = {
        10 + number: make_context(
            10 + number,
            node_config={"job": str(job), "diary": str(tmp_path / "diary")},
            run_config={},
        )
        for number, job in enumerate(jobs)
    }
    out = tmp_path / "out"
    config = {"job": str(jobs[0]), "out": str(out)}
    serve(Nodes(nodes), make_context(1, node_config={}, run_config=config))
    (report,) = json.loads((out / "rounds.json").read_text())
    assert report["void"] is None
    assert report["survivors"] == [0, 1, 2]
    assert sum(one.numel() for one in read_weights(out / "weights.safetensors").values()) == 6
    assert len(list((tmp_path / "diary").iterdir())) == 3
