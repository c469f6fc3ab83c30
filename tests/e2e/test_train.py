"""A training between real processes: it ends, resumes after a kill, and leaves nothing behind."""

import json
import os
import shutil
import signal
import time
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from support.processes import Program

JOBS = Path(__file__).parents[2] / "examples" / "jobs"


@pytest.fixture
def job(tmp_path):
    text = (JOBS / "train-digits.toml").read_text()
    text = text.replace('"out/train-digits"', f'"{tmp_path / "out"}"')
    text = text.replace("[0, 900]", "[0, 200]").replace("[900, 1797]", "[200, 400]")
    text = text.replace("look_every = 12", "look_every = 4")
    path = tmp_path / "job.toml"
    path.write_text(text)
    return path


def run(job, *options):
    process = Program("run", job, *options, folder=job.parent)
    _, errors = process.communicate()
    return process.returncode, errors


def test_a_training_ends_with_a_model_for_who_may_have_it(job, tmp_path):
    code, said = run(job)
    assert code == 0, said
    result = json.loads((tmp_path / "out" / "result.json").read_text())
    accuracy = next(one for one in result["utility"] if one["name"] == "accuracy")
    assert accuracy["value"] > 0.6
    assert abs(accuracy["value"] - accuracy["reference"]) <= 0.04
    files = {path.name for path in (tmp_path / "out").iterdir()}
    assert files == {
        *("result.json", "report.html", "job.toml", "model.safetensors"),
        *("half-north.npz", "half-south.npz"),
    }
    opened = load_file(tmp_path / "out" / "model.safetensors")
    halves = [np.load(tmp_path / "out" / f"half-{name}.npz") for name in ("north", "south")]
    for name, value in opened.items():
        first, second = (half[name.replace(".", "/")] for half in halves)
        assert np.array_equal((first + second) / 2.0**16, value)
    assert not list(tmp_path.glob(".out-*.state"))


def have_checkpoints(folder):
    """Say whether both computing parties have written one: neither can go on alone."""
    return all(any(folder.glob(f".out-{name}.state/step-*.npz")) for name in ("north", "south"))


def test_a_training_that_was_killed_goes_on_where_it_was(job, tmp_path):
    # Long enough to be killed well before its end.
    text = job.read_text().replace("epochs = 3", "epochs = 10")
    job.write_text(text.replace("[0, 200]", "[0, 100]").replace("[200, 400]", "[100, 200]"))
    process = Program("run", job, folder=tmp_path, is_leader=True)
    try:
        deadline = time.monotonic() + 200
        while not have_checkpoints(tmp_path):
            assert time.monotonic() < deadline
            assert process.poll() is None, process.communicate()
            time.sleep(0.02)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    assert not (tmp_path / "out").exists()
    corrected = tmp_path / "corrected.toml"
    corrected.write_text(job.read_text().replace("epochs = 10", "epochs = 1"))
    code, said = run(corrected)
    assert code == 2
    assert "--fresh" in said
    for state in tmp_path.glob(".out-*.state"):
        shutil.copytree(state, tmp_path / "copies" / state.name)
    code, said = run(job)
    assert code == 0, said
    assert "resumed at step" in said
    assert "Taken up again after step" in (tmp_path / "out" / "report.html").read_text()
    for state in (tmp_path / "copies").iterdir():
        state.rename(tmp_path / state.name)
    code, said = run(corrected, "--fresh")
    assert code == 0, said
    assert not list(tmp_path.glob(".out-*.state"))


@pytest.fixture
def private_job(tmp_path):
    text = (JOBS / "train-private.toml").read_text()
    text = text.replace('"out/train-private"', f'"{tmp_path / "out"}"')
    book = f'book = "{tmp_path / "north.book"}"\nmost_epsilon = 2.5'
    for old, new in (("[0, 600]", f"[0, 100]\n{book}"), ("[600, 1200]", "[100, 200]")):
        text = text.replace(old, new)
    text = text.replace("[1200, 1797]", "[200, 300]").replace("delta = 1e-5", "delta = 1e-4")
    job = tmp_path / "job.toml"
    job.write_text(text)
    return job


@pytest.mark.slow
def test_a_private_training_whose_result_finds_no_place_is_paid_for_once(private_job, tmp_path):
    process = Program("run", private_job, folder=tmp_path, is_leader=True)
    try:
        deadline = time.monotonic() + 200
        while not have_checkpoints(tmp_path):
            assert time.monotonic() < deadline
            assert process.poll() is None, process.communicate()
            time.sleep(0.02)
        second, told = run(private_job)
        (tmp_path / "out").write_text("somebody else's")  # in the way of the result
        _, said = process.communicate()
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    assert second == 2
    assert f"runs already, as process {process.pid} on" in " ".join(told.split())
    assert process.returncode == 2, said
    assert len(list(tmp_path.glob(".out-*.state"))) == 4
    (tmp_path / "out").unlink()
    code, said = run(private_job)
    assert code == 0, said
    assert "resumed at step 30 of 30" in said
    assert len(json.loads((tmp_path / "north.book").read_text())["tacit book"]) == 1
    assert not list(tmp_path.glob(".out-*"))


@pytest.mark.slow
def test_a_private_training_that_was_killed_goes_on_and_keeps_its_promise(private_job, tmp_path):
    process = Program("run", private_job, folder=tmp_path, is_leader=True)
    try:
        deadline = time.monotonic() + 200
        while not have_checkpoints(tmp_path):
            assert time.monotonic() < deadline
            assert process.poll() is None, process.communicate()
            time.sleep(0.02)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    code, said = run(private_job)
    assert code == 0, said
    assert "resumed at step" in said
    assert "privacy: ε = 2.000 at δ = 0.0001" in said
    result = json.loads((tmp_path / "out" / "result.json").read_text())
    claim = next(one for one in result["claims"] if one["epsilon"])
    assert 1.99 < claim["epsilon"] <= 2.0
    looks = [one["elements"] for one in result["leakage"] if "with noise" in one["what"]]
    assert sum(looks) < 3  # those that were taken before the kill are not taken again
    assert not list(tmp_path.glob(".out-*.state"))
