"""Hiring a worker: what a job file may say, and a worker that is not there."""

import socket

import pytest

from tacit.cli.jobs.config import PartyEntry, WorkerTable, with_parties
from tacit.cli.jobs.digest import job_digest
from tacit.cli.jobs.kinds import read_job
from tacit.cli.launch.worker import hired
from tacit.cli.toml import read_record
from tacit.crypto import make_identity
from tacit.errors import ConfigError, PartyError
from tacit.transport import Patience

KEY = "sha256:" + "0" * 64
WRONG = {
    "neither": ({}, "either 'device' or 'address'"),
    "both": ({"device": "cuda", "address": "a:1", "key": KEY}, "either 'device' or 'address'"),
    "no key": ({"address": "gpu:7300"}, "goes with 'address'"),
    "no such word": ({"device": "cuda", "on_failure": "pray"}, "on_failure"),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_table_that_makes_no_sense_is_refused(what):
    table, words = WRONG[what]
    with pytest.raises(ConfigError, match=words):
        read_record(table, WorkerTable, source="job.toml")


def test_a_worker_is_its_party_s_own_business_and_survives_new_addresses():
    raw = {
        "job": {"name": "demo", "kind": "infer"},
        "parties": {"hospital": {}, "lab": {}, "dealer": {}},
        "data": {"owner": "hospital", "set": "breast-cancer"},
        "model": {"owner": "lab", "train": {"set": "breast-cancer", "part": "train"}},
        "protocol": {"kind": "sealed", "dealer": "dealer", "reveal": "class"},
    }
    without = read_job(raw, source="job.toml")
    raw["parties"]["lab"] = {"worker": {"device": "cuda"}}
    job = read_job(raw, source="job.toml")
    assert job_digest(job) == job_digest(without)
    entries = {name: PartyEntry(address=f"{name}:1") for name in job.parties}
    moved = with_parties(job, entries)
    assert moved.parties["lab"] == PartyEntry(address="lab:1", worker=WorkerTable(device="cuda"))


def test_a_device_that_is_not_there_is_refused_in_words(tmp_path):
    identity = make_identity("lab", tmp_path)
    table = WorkerTable(device="cuda:99")
    with (
        pytest.raises(ConfigError, match=r"worker.device: 'cuda:99' cannot be used"),
        hired(table, me="lab", identity=identity, patience=Patience()),
    ):
        pass


@pytest.mark.parametrize("on_failure", ["stop", "local"])
def test_a_worker_that_is_not_there_ends_the_job_or_is_done_without(tmp_path, on_failure):
    identity = make_identity("lab", tmp_path)
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # bound, not listening
        address = f"127.0.0.1:{closed.getsockname()[1]}"
        table = WorkerTable(address=address, key=KEY, on_failure=on_failure)
        patience = Patience(connect_s=0.2)
        if on_failure == "stop":
            with (
                pytest.raises(PartyError, match="worker of lab") as caught,
                hired(table, me="lab", identity=identity, patience=patience),
            ):
                pass
            assert caught.value.exit_code == 4
            return
        with hired(table, me="lab", identity=identity, patience=patience) as outsourcing:
            assert "before the first product" in outsourcing.failure
