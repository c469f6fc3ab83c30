"""Hiring a worker: what a job file may say, and a worker that is not there."""

import socket
import threading
from pathlib import Path

import pytest
import torch

from support.machine import free_port
from tacit import ring
from tacit.cli.launch import worker as worker_module
from tacit.cli.launch.worker import hired, run_worker
from tacit.crypto import make_identity
from tacit.errors import ConfigError, PartyError
from tacit.jobs.config import PartyEntry, WorkerTable, job_digest, parse_address, with_parties
from tacit.jobs.kinds import read_job
from tacit.mpc.outsource import RemoteWorker
from tacit.party import Progress, joined
from tacit.spec import read_record
from tacit.transport import Patience, Peer

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


class Enough(Exception):
    """Ends a worker that would go on."""


def hands_on_too_much(session):
    session.send("worker", "product/1.shape", torch.tensor([100_000, 1, 1, 100_000, 0]))
    for shape in ((100_000, 1), (1, 100_000)):
        session.send("worker", "product/1.operand", torch.zeros(shape).long())
    session.recv("worker", "product/1.answer", (100_000, 100_000))


def makes_it_stumble(session):
    RemoteWorker(session, "worker").multiply(torch.ones((2, 2)).long(), torch.ones((2, 2)).long())


def test_a_worker_outlives_what_one_job_brings(tmp_path, monkeypatch):
    monkeypatch.setattr(worker_module, "free_memory_bytes", lambda: 1 << 30)
    keys = {name: make_identity(name, tmp_path) for name in ("party", "worker")}
    at, told = f"127.0.0.1:{free_port()}", []

    def stumble(device):
        def multiply(left, right):
            if len(told) == 2:
                raise KeyError("words of the party")
            return ring.matmul(left, right)

        return multiply

    monkeypatch.setattr(worker_module, "_on", stumble)

    def tell(text):
        told.append(text)
        if len(told) == 4:
            raise Enough

    def work():
        with pytest.raises(Enough):
            run_worker(
                key=keys["party"].fingerprint,
                name="worker",
                keys=Path(tmp_path),
                at=at,
                device="cpu",
                is_once=False,
                tell=tell,
            )

    working = threading.Thread(target=work, daemon=True)  # it would wait for a month
    working.start()
    for job in (hands_on_too_much, makes_it_stumble):
        with pytest.raises(PartyError), as_party(keys, at) as session:
            job(session)
    with as_party(keys, at) as session:
        worker = RemoteWorker(session, "worker")
        found = worker.multiply(torch.ones((2, 2)).long(), torch.ones((2, 2)).long())
        worker.release()
    working.join(60)
    assert torch.equal(found, torch.full((2, 2), 2))
    assert "announced a product of 100000 × 1 by 1 × 100000" in told[1]
    assert told[2:] == [
        "party 'worker' failed: internal error (KeyError)", "1 products made"
    ]  # fmt: skip


def as_party(keys, at):
    meeting = worker_module._meeting(Patience(connect_s=30))
    peers = {"worker": Peer(parse_address(at), keys["worker"].fingerprint)}
    return joined(
        "party", meeting, peers=peers, identity=keys["party"], listener=None, progress=Progress()
    )
