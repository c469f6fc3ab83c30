"""A party's worker as a process of its own: used when it is right, named when it lies."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

import tacit
from support.machine import free_port
from support.processes import Program
from tacit.crypto import make_identity

JOB = Path(tacit.__file__).parents[2] / "examples" / "jobs" / "predict-breast-cancer.toml"
LIAR = """
import sys
from pathlib import Path
from tacit.cli.launch import worker

honest = worker._on
worker._on = lambda device: lambda left, right: honest(device)(left, right) + (-1 << 63)
key, keys, at = sys.argv[1:]
worker.run_worker(
    key=key, name="worker", keys=Path(keys), at=at, device="cpu", is_once=True, tell=print
)
"""


def run_with_worker(folder, *, is_lying, on_failure):
    """Run the demo with a worker for the lab; return how both ended and what was written."""
    keys, at = folder / "keys", f"127.0.0.1:{free_port()}"
    lab, worker = (make_identity(name, keys).fingerprint for name in ("lab", "worker"))
    text = JOB.read_text()
    assert "[parties.lab]\n" in text
    table = f'[parties.lab]\nkey = "{lab}"\n[parties.lab.worker]\naddress = "{at}"\n'
    table += f'key = "{worker}"\non_failure = "{on_failure}"\nleast_terms = 1\n'
    (folder / "job.toml").write_text(text.replace("[parties.lab]\n", table))
    command = ["-c", LIAR, lab, str(keys), at]
    if not is_lying:
        command = ["-m", "tacit", "worker", "--for", lab, "--keys", str(keys)]
        command += ["--listen", at, "--once"]
    beside = subprocess.Popen([sys.executable, *command], stderr=subprocess.PIPE, text=True)
    try:
        out, err = (run := Program("run", "job.toml", folder=folder)).communicate(timeout=120)
        said = beside.communicate(timeout=30)[1]
    finally:
        beside.kill()
        beside.wait()
    result = folder / "out" / "demo" / "result.json"
    written = json.loads(result.read_text()) if result.exists() else None
    return run.returncode, " ".join((out + err).split()), written, (beside.returncode, said)


def claims(written):
    return [one["guarantee"] for one in written["claims"] if "worker" in one["subject"]]


@pytest.mark.slow
def test_a_worker_multiplies_for_a_party_and_the_report_says_what_holds(tmp_path):
    code, said, written, (ended, told) = run_with_worker(
        tmp_path, is_lying=False, on_failure="stop"
    )
    assert (code, ended) == (0, 0), said + told
    assert "1 products made" in told
    assert claims(written) == [
        "1 products, each checked before it was used: a wrong one passed with a probability of at "
        "most 1 · 2^-40"
    ]


@pytest.mark.parametrize("on_failure", ["stop", pytest.param("local", marks=pytest.mark.slow)])
def test_a_worker_that_lies_is_named_and_nothing_of_it_is_used(tmp_path, on_failure):
    code, said, written, _ = run_with_worker(tmp_path, is_lying=True, on_failure=on_failure)
    if on_failure == "stop":
        assert code == 4
        assert "worker of lab" in said
        assert "product 1 (" in said
        assert written is None
        return
    assert code == 0
    assert claims(written)[0].startswith("0 products")
    (note,) = (one for one in written["notes"] if "worker" in one)
    assert "its answer is not the product" in note
    (accuracy,) = (one for one in written["utility"] if one["name"] == "accuracy")
    assert accuracy["value"] == accuracy["reference"]  # that of the plaintext model
