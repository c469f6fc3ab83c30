"""The apps of a deployment: every side reads its own job file; nodes are called, not reached."""

import json

import numpy as np
import pytest
import torch

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'tacit-ml[fl]'")
pytest.importorskip("ray", reason="Ray is not installed: pip install 'tacit-ml[fl]'")

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from flwr.app import Context, RecordDict
from flwr.serverapp.strategy import FedAvg

from support.flower import Nodes, stand_in
from tacit.cli.flower import client_app, server_app
from tacit.federated.node import named_arrays
from tacit.nn import read_weights

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
SHUFFLE = """kind = "shuffle"
    epsilon = 1e4
    accountant = "basic"
    clip = 1.0
"""


def make_context(node, *, node_config, run_config):
    return Context(
        run_id=1, node_id=node, node_config=node_config, state=RecordDict(), run_config=run_config
    )


@pytest.fixture
def nodes(tmp_path, monkeypatch):
    """Three nodes with job files and rows of their own."""
    stand_in(monkeypatch, tmp_path)
    found = {}
    for number in range(3):
        rows = "\n".join(f"{i % 5},{(i + number) % 3},{int(i % 5 > 2)}" for i in range(60))
        (tmp_path / f"{number}.csv").write_text(f"a,b,y\n{rows}\n")
        job = tmp_path / f"{number}.toml"
        job.write_text(JOB.replace("FILE", str(tmp_path / f"{number}.csv")))
        config = {"job": str(job), "journal": str(tmp_path / "journal")}
        found[10 + number] = make_context(10 + number, node_config=config, run_config={})
    return found


def test_nodes_with_files_of_their_own_train_together(tmp_path, nodes):
    out = tmp_path / "out"
    config = {"job": str(tmp_path / "0.toml"), "out": str(out)}
    server_app(Nodes(client_app, nodes), make_context(1, node_config={}, run_config=config))
    (report,) = json.loads((out / "rounds.json").read_text())
    assert report["void"] is None
    assert report["survivors"] == [0, 1, 2]
    assert sum(one.numel() for one in read_weights(out / "weights.safetensors").values()) == 6
    assert len(list((tmp_path / "journal").glob("*.journal"))) == 3


def test_a_deployed_node_gives_a_server_with_plain_fedavg_nothing(nodes):
    weights = named_arrays(torch.nn.Linear(2, 2))(np.zeros(6, np.float32))
    grid = Nodes(client_app, nodes)
    replies = []
    pull = grid.pull_messages
    grid.pull_messages = lambda names: replies.extend(pull(names)) or replies
    result = FedAvg(fraction_evaluate=0.0).start(grid, weights, num_rounds=1)
    assert [one.has_error() for one in replies] == [True] * 3
    assert not result.train_metrics_clientapp


def test_a_shuffler_holds_the_key_that_the_job_pins(tmp_path, nodes):
    private = X25519PrivateKey.generate()
    pem, raw = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    key = tmp_path / "shuffler.key"
    key.write_bytes(private.private_bytes(pem, raw, serialization.NoEncryption()))
    pinned = private.public_key().public_bytes_raw().hex()
    for number in range(3):
        job = tmp_path / f"{number}.toml"
        text = job.read_text().replace(
            "colluding_share = 0.0", f'aggregator = "shuffled"\n    shuffler = "{pinned}"'
        )
        text = text.replace("minimum = 2", "minimum = 3").replace("clip = 1.0", SHUFFLE)
        job.write_text(text)
    config = {"job": str(tmp_path / "0.toml"), "role": "shuffler", "shuffling": str(key)}
    nodes[20] = make_context(20, node_config=config, run_config={})
    out = tmp_path / "out"
    run = {"job": str(tmp_path / "0.toml"), "out": str(out)}
    server_app(Nodes(client_app, nodes), make_context(1, node_config={}, run_config=run))
    (report,) = json.loads((out / "rounds.json").read_text())
    assert report["void"] is None
    assert "the shuffler's key is the one that the job pins" in report["claim"]["assumptions"]


RECORD = """kind = "record"
    epsilon = 8.0
    delta = 1e-4
    records = 40
    clip = 1.0
    [train]
    steps = 2
    batch = 10
"""


def set_record(folder, nodes):
    for number in range(len(nodes)):
        job = folder / f"{number}.toml"
        job.write_text(job.read_text().replace("clip = 1.0", RECORD))


def serve_once(folder, nodes, run_id=1):
    for context in nodes.values():
        context.run_id, context.state = run_id, RecordDict()
    out = folder / f"out{run_id}"
    run = {"job": str(folder / "0.toml"), "out": str(out)}
    grid = Nodes(client_app, nodes)
    server_app(grid, make_context(1, node_config={}, run_config=run))
    (report,) = json.loads((out / "rounds.json").read_text())
    return report


def test_a_hospital_that_is_asked_again_in_a_new_run_has_nothing_left(tmp_path, nodes):
    set_record(tmp_path, nodes)
    first = serve_once(tmp_path, nodes)
    assert first["void"] is None
    assert first["claim"]["relation"] == "adding or removing one record"
    for number in range(3):
        assert len((tmp_path / f"{number}.csv.ledger").read_text().splitlines()) == 1
    # The server starts another run, and the nodes come back under other numbers.
    again = {50 + node: context for node, context in nodes.items()}
    for node, context in again.items():
        context.node_id = node
    second = serve_once(tmp_path, again, run_id=2)
    assert second["void"] is not None
    assert "its ledger has no room" in second["refused"][0]
    for number in range(3):
        assert len((tmp_path / f"{number}.csv.ledger").read_text().splitlines()) == 1


def test_a_node_takes_rows_of_its_own_and_no_list_of_files(tmp_path, nodes):
    job = tmp_path / "0.toml"
    files = json.dumps([str(tmp_path / f"{number}.csv") for number in range(3)])
    job.write_text(job.read_text().replace(f'file = "{tmp_path}/0.csv"', f"files = {files}"))
    report = serve_once(tmp_path, nodes)
    assert report["survivors"] == [1, 2]


def test_what_a_hospital_cannot_read_stays_with_it(tmp_path, nodes, caplog):
    set_record(tmp_path, nodes)
    (tmp_path / "2.csv").write_text("a,b,y\n1,Jane,0\n")
    report = serve_once(tmp_path, nodes)
    assert report["survivors"] == [0, 1]
    (reason,) = report["refused"]
    assert reason.endswith("its training failed; the log of its node says where")
    assert "Jane" not in json.dumps(report) + caplog.text
