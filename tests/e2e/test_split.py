"""A split job as a user runs it: processes, a kill in the middle, and the same command again."""

import json
import os
import signal
import time
from pathlib import Path

import pytest

from support.processes import Program

ROOT = Path(__file__).parents[2]
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
batch = 32
in_flight = 2
checkpoint_every = 20

[report]
compare = "none"
"""


def start(folder, job):
    return Program("run", job, folder=folder, is_leader=True)


def have_checkpoints(folder, *parties):
    """Say whether all parties have written one: alone, a party cannot go on from its own."""
    steps = [
        {path.name for path in folder.glob(f"out/.split-{name}.state/*/step-*.npz")}
        for name in parties
    ]
    return bool(set.intersection(*steps))


@pytest.mark.slow
def test_a_killed_split_job_goes_on_where_it_was(tmp_path):
    job = tmp_path / "job.toml"
    job.write_text(JOB.format(epochs=30))
    process = start(tmp_path, job)
    deadline = time.monotonic() + 200
    while not have_checkpoints(tmp_path, "lab", "clinic"):
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
    assert not list((tmp_path / "out").glob(".split-*.state"))


MATCHED = """
[job]
name = "matched"
kind = "split"
out = "out/matched"

[parties.lab]
[parties.clinic]

[data]
features = ["clinic"]
labels = "lab"
files = { clinic = "clinic.csv", lab = "lab.csv" }
match = "patient"
label = "sick"
classes = 2

[model]
width = 8

[train]
epochs = 15
batch = 16
rate = 0.01
"""


def write_matched(folder, *, lab_from):
    """Write a clinic's rows of patients 0 to 99 and a lab's of others, in orders of their own."""
    clinic = [
        f"{p},{(p % 3 == 0) * 4 - 2 + (p * 7 % 11 - 5) / 9},{p % 5}" for p in range(99, -1, -1)
    ]
    (folder / "clinic.csv").write_text("\n".join(["patient,pressure,ward", *clinic]) + "\n")
    lab = [f"{int(p % 3 == 0)},{p}" for p in range(lab_from, lab_from + 100)]
    (folder / "lab.csv").write_text("\n".join(["sick,patient", *lab]) + "\n")
    (folder / "job.toml").write_text(MATCHED)


def test_processes_match_their_rows_before_they_train(tmp_path):
    write_matched(tmp_path, lab_from=20)
    process = start(tmp_path, tmp_path / "job.toml")
    _, errors = process.communicate(timeout=200)
    assert process.returncode == 0, errors
    folder = tmp_path / "out" / "matched"
    result = json.loads((folder / "result.json").read_text())
    utility = {metric["name"]: metric["value"] for metric in result["utility"]}
    assert utility["accuracy"] > 0.9
    ids = [int(line.split(",")[0]) for line in (folder / "predictions.csv").read_text().split()[1:]]
    assert len(ids) == 24
    assert all(20 <= one < 100 for one in ids)
    sent = [
        sum(one["payload_bytes"] for one in cost["traffic"] if one["phase"] == "online")
        for cost in (result["metered"], result["forecast"]["cost"])
    ]
    assert sent[0] == sent[1]


@pytest.mark.slow
def test_processes_without_a_common_row_say_so(tmp_path):
    write_matched(tmp_path, lab_from=500)
    process = start(tmp_path, tmp_path / "job.toml")
    _, errors = process.communicate(timeout=200)
    assert process.returncode != 0
    assert "no id in common" in errors
    assert not (tmp_path / "out" / "matched").exists()
