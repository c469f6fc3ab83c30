"""A Ray cluster of two nodes, started as a user starts it, and what is spread over it."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from sklearn.ensemble import RandomForestClassifier

from support.machine import free_port
from tacit.verify import Inquiry, from_sklearn, verify_each, verify_on_ray

pytest.importorskip("ray", reason="Ray is not installed")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning"),
    pytest.mark.filterwarnings(
        "ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
    ),
]

BIN = Path(sys.executable).parent
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}
ENVIRONMENT.pop("RAY_ADDRESS", None)
MODEL = """
from pathlib import Path

import ray
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))

    def forward(self, x):
        return self.layers(x.flatten(1))


def make():
    if ray.is_initialized():
        node = ray.get_runtime_context().get_node_id()
        Path({folder!r}, node).touch()
    return Net()
"""
JOB = """
[job]
name = "own"
kind = "audit"

[data]
set = "digits"
rows = 200

[model]
code = "my_model.py"

[train]
epochs = {epochs}

[audit]
shadows = {shadows}
threats = ["shadows"]
"""


class Cluster:
    """Nodes of one core each, as processes; the first is the head."""

    def __init__(self, folder):
        port = free_port()
        self.address = f"127.0.0.1:{port}"
        self.folder, self.nodes = folder, []
        self.add("--head", f"--port={port}", "--include-dashboard=false")
        self.add(f"--address={self.address}")

    def add(self, *how):
        log = self.folder / f"node{len(self.nodes)}.log"
        with log.open("w") as out:
            node = subprocess.Popen(
                [BIN / "ray", "start", *how, "--num-cpus=1", "--disable-usage-stats", "--block"],
                env=ENVIRONMENT, cwd=self.folder, stdout=out, stderr=subprocess.STDOUT,
                start_new_session=True,
            )  # fmt: skip
        self.nodes.append(node)
        wait_for(lambda: "Ray runtime started" in log.read_text(), f"{log}: {log.read_text()}")

    def kill(self, node):
        """Kill a node and all its processes at once, as a power failure does."""
        if node.poll() is None:
            os.killpg(node.pid, signal.SIGKILL)
        node.wait()

    def stop(self):
        for node in reversed(self.nodes):
            node.terminate()
        for node in self.nodes:
            try:
                node.wait(20)
            finally:
                self.kill(node)


def wait_for(is_done, what, seconds=90):
    end = time.monotonic() + seconds
    while not is_done():
        assert time.monotonic() < end, what
        time.sleep(0.2)


@pytest.fixture
def cluster(tmp_path):
    folder = tmp_path / "cluster"
    folder.mkdir()
    found = Cluster(folder)
    yield found
    found.stop()


@pytest.fixture
def make_job(tmp_path):
    """Write a job whose model leaves the name of the node that made it."""

    def make(*, shadows, epochs):
        (tmp_path / "seen").mkdir()
        (tmp_path / "my_model.py").write_text(MODEL.format(folder=str(tmp_path / "seen")))
        (tmp_path / "job.toml").write_text(JOB.format(shadows=shadows, epochs=epochs))
        allow = [BIN / "tacit", "allow", "my_model.py"]
        subprocess.run(allow, cwd=tmp_path, env=at_home(tmp_path), check=True)

    return make


def at_home(folder):
    """Return an environment whose user has no home but a folder."""
    return {**ENVIRONMENT, "HOME": str(folder)}


def audit(folder, *options):
    return subprocess.Popen(
        [BIN / "tacit", "audit", "job.toml", *options],
        cwd=folder,
        env=at_home(folder),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def test_shadow_models_are_trained_on_both_nodes(cluster, tmp_path, make_job):
    make_job(shadows=12, epochs=60)
    running = audit(tmp_path, "--ray", cluster.address)
    said, _ = running.communicate(timeout=240)
    assert running.returncode == 0, said
    assert "asking who was trained on: 12 of 12" in said
    assert len(list((tmp_path / "seen").iterdir())) == 2


def test_a_node_that_dies_is_done_without(cluster, tmp_path, make_job):
    make_job(shadows=16, epochs=200)
    running = audit(tmp_path, "--ray", cluster.address)
    kept = tmp_path / "out/own-shadows"
    wait_for(lambda: len(list(kept.glob("[!.]*.npz"))) >= 3, "no model was trained")
    cluster.kill(cluster.nodes[1])
    said, _ = running.communicate(timeout=400)
    assert running.returncode == 0, said
    assert "asking who was trained on: 16 of 16" in said


def test_rows_are_verified_on_a_cluster_as_they_are_here(cluster):
    x = np.random.default_rng(0).normal(size=(80, 5))
    forest = RandomForestClassifier(10, max_depth=4, random_state=0).fit(x, x[:, 0] > x[:, 1])
    ensemble, inquiry = from_sklearn(forest), Inquiry(eps=0.2)
    here = [repr(one.verdict) for one in verify_each(ensemble, x, inquiry)]
    there = verify_on_ray(ensemble, x, inquiry, address=cluster.address)
    assert [repr(one.verdict) for one in there] == here
