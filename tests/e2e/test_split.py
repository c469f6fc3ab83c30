"""A split job as a user runs it: processes, a kill in the middle, and the same command again."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}
JOB = """
[job]
name = "split"
kind = "split"
out = "out/split"

[parties.lab]
[parties.clinic]

[data]
set = "digits"
features = ["clinic"]
labels = "lab"

[model]
width = 32

[split]
compress = {{ kind = "randtopk", k = 4 }}

[train]
epochs = {epochs}
batch_rows = 32
in_flight = 2
checkpoint_every = 20

[report]
compare = "none"
"""


def start(folder, job):
    return subprocess.Popen(
        [sys.executable, "-m", "tacit", "run", str(job)],
        cwd=folder,
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def test_a_killed_split_job_goes_on_where_it_was(tmp_path):
    job = tmp_path / "job.toml"
    job.write_text(JOB.format(epochs=30))
    process = start(tmp_path, job)
    deadline = time.monotonic() + 100
    while not list(tmp_path.glob("out/split-state/*/*/step-*.npz")):
        assert process.poll() is None, process.stderr.read()
        assert time.monotonic() < deadline, "no checkpoint was written"
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    assert not (tmp_path / "out" / "split").exists()

    second = start(tmp_path, job)
    _, errors = second.communicate(timeout=200)
    assert second.returncode == 0, errors
    result = json.loads((tmp_path / "out" / "split" / "result.json").read_text())
    utility = {metric["name"]: metric["value"] for metric in result["utility"]}
    assert utility["accuracy"] > 0.85
    titles = {curve["title"] for curve in result["curves"]}
    assert {"Accuracy against bytes", "The cut layer, PCA"} <= titles
    # Steps that were done before the kill were not done again.
    steps = 30 * -(-1258 // 32)
    messages = sum(
        one["messages"] for one in result["metered"]["traffic"] if one["phase"] == "online"
    )
    assert messages < 2 * steps
    assert not (tmp_path / "out" / "split-state").exists()
