"""One job on two hosts of its own, which are network namespaces: the answers of one process."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from support.parties import NAMES, predict_in_threads
from tacit.report import load

ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}
TACIT = [sys.executable, "-m", "tacit"]


def answers(folder):
    lines = (folder / "predictions.csv").read_text().splitlines()
    return [float(line.split(",")[1]) for line in lines[1:]]


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
    hosts = tuple(two_hosts[name][1] for name in NAMES)
    job = make_job(hosts=hosts, inputs="breast-cancer")
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
    assert answers(folder / "out-hospital") == predict_in_threads(protocol="sealed", reveal="class")
    for name in NAMES:
        assert load(folder / f"out-{name}" / "result.json").launched == "remote"
    assert not Path(folder / "out-lab" / "predictions.csv").exists()
