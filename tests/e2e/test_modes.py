"""One job, three ways to run it — threads, processes, two network namespaces — and one result."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tacit.learn import load_dataset, split_dataset
from tacit.learn.private import PredictTask, predict, scaled_features, train_logistic
from tacit.mpc import Roles
from tacit.party import Meeting, run_threads
from tacit.report import load

NAMES = ("hospital", "lab", "dealer")
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}
TACIT = [sys.executable, "-m", "tacit"]


def in_threads(*, protocol, reveal):
    data = load_dataset("breast-cancer", ())
    features = scaled_features(split_dataset(data, part="test", seed=0))
    weights = train_logistic(split_dataset(data, part="train", seed=0))
    task = PredictTask(
        data_owner="hospital",
        model_owner="lab",
        protocol=protocol,
        roles=Roles(*NAMES),
        reveal=reveal,
        frac_bits=20,
        feature_bound=1.0,
        weight_bound=256.0,
    )

    def party(session):
        return predict(
            session,
            task,
            features=features if session.me == "hospital" else None,
            weights=weights if session.me == "lab" else None,
        )

    meeting = Meeting(parties=NAMES, job_digest=b"d" * 32)
    return run_threads(dict.fromkeys(NAMES, party), meeting)["hospital"].values.tolist()


def answers(folder):
    lines = (folder / "predictions.csv").read_text().splitlines()
    return [float(line.split(",")[1]) for line in lines[1:]]


def in_processes(job, protocol, reveal):
    subprocess.run([*TACIT, "run", str(job)], check=True, env=ENVIRONMENT, capture_output=True)
    return answers(job.parent / "out")


@pytest.mark.parametrize(
    ("protocol", "reveal"),
    [("sealed", "class"), pytest.param("permuted3", "score", marks=pytest.mark.slow)],
)
def test_threads_and_processes_give_the_same_answers(make_job, protocol, reveal):
    job = make_job(protocol=protocol, reveal=reveal)
    keyless = "\n".join(
        line for line in job.read_text().splitlines() if not line.startswith(("key =", "address ="))
    )
    job.write_text(keyless)
    private = in_processes(job, protocol, reveal)
    # Rescaling may round either way by one unit in the last place, so scores agree that far.
    assert private == pytest.approx(in_threads(protocol=protocol, reveal=reveal), abs=1e-5)


@pytest.fixture
def two_hosts():
    """Make two network namespaces joined by a cable; yields their names and addresses."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("network namespaces need root and iproute2 (Debian: apt-get install iproute2)")
    north, south = f"tacit-n{os.getpid()}", f"tacit-s{os.getpid()}"

    def ip(*arguments):
        subprocess.run(["ip", *arguments], check=True, capture_output=True)

    try:
        try:
            ip("netns", "add", north)
            ip("netns", "add", south)
        except subprocess.CalledProcessError as error:
            pytest.skip(f"cannot make network namespaces here: {error.stderr.decode().strip()}")
        ip("link", "add", "veth0", "netns", north, "type", "veth", "peer", "veth0", "netns", south)
        for name, address in ((north, "10.77.0.1"), (south, "10.77.0.2")):
            ip("-n", name, "addr", "add", f"{address}/24", "dev", "veth0")
            ip("-n", name, "link", "set", "veth0", "up")
            ip("-n", name, "link", "set", "lo", "up")
        yield {
            "hospital": (north, "10.77.0.1"),
            "lab": (south, "10.77.0.2"),
            "dealer": (south, "10.77.0.2"),
        }
    finally:
        for name in (north, south):
            subprocess.run(["ip", "netns", "delete", name], check=False, capture_output=True)


@pytest.mark.netns
def test_two_hosts_with_keys_give_the_answers_of_one_process(make_job, two_hosts):
    job = make_job(hosts=tuple(two_hosts[name][1] for name in NAMES))
    folder = job.parent
    processes = {
        name: subprocess.Popen(
            [
                *("ip", "netns", "exec", two_hosts[name][0]),
                *(*TACIT, "party", str(job), "--as", name, "--keys", str(folder / "keys")),
            ],
            env=ENVIRONMENT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        for name in NAMES
    }
    output = {
        name: process.communicate(timeout=240)[0].decode() for name, process in processes.items()
    }
    assert {name: process.returncode for name, process in processes.items()} == dict.fromkeys(
        NAMES, 0
    ), output
    assert answers(folder / "out-hospital") == in_threads(protocol="sealed", reveal="class")
    for name in NAMES:
        assert load(folder / f"out-{name}" / "result.json").launched == "remote"
    assert not Path(folder / "out-lab" / "predictions.csv").exists()
