"""One party: what it reports, and what it checks before it connects."""

import json
import os
import socket
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from tacit.cli.launch import member
from tacit.crypto import load_pinned, make_identity
from tacit.errors import ConfigError, PartyError
from tacit.inference import save_logistic
from tacit.inference.answers import AnsweredRows
from tacit.jobs.config import PartyEntry, with_parties
from tacit.jobs.infer import InferJob as Job
from tacit.party import StatusPipe
from tacit.spec import read_record

RAW = {
    "job": {"name": "j", "kind": "infer"},
    "parties": {"hospital": {}, "lab": {}, "dealer": {}},
    "data": {"owner": "hospital", "set": "iris"},
    "model": {"owner": "lab", "file": "m.npz"},
    "protocol": {"kind": "sealed", "dealer": "dealer"},
}


def test_entries_survive_their_file(tmp_path):
    entries = {"lab": PartyEntry(address="127.0.0.1:7", key="sha256:" + "0" * 64)}
    member.write_entries(tmp_path / "peers.json", entries)
    assert member.read_entries(tmp_path / "peers.json") == entries


def reported(events):
    reader, writer = os.pipe()
    pipe = StatusPipe(writer)
    listener = member.Reporter(pipe.send)
    for event in events:
        listener(*event)
    pipe.close()
    with os.fdopen(reader, "rb") as stream:
        return [json.loads(line) for line in stream]


def test_stages_are_reported_at_once_and_steps_now_and_then():
    events = [("plan", 0, 0), *(("compute", done, 1000) for done in range(1001))]
    seen = reported(events)
    stages = [event["stage"] for event in seen]
    assert stages[:2] == ["plan", "compute"]
    assert seen[-1] == {"event": "stage", "stage": "compute", "done": 1000, "total": 1000}
    assert len(seen) < 100


def test_a_key_that_the_job_does_not_know_is_refused(tmp_path):
    make_identity("lab", tmp_path)
    job = read_record(RAW, Job, source="job.toml")
    with pytest.raises(ConfigError, match=r"knows 'lab' by the key None.*--keys"):
        load_pinned(tmp_path, "lab", job.parties["lab"].key)


@pytest.fixture
def seats(tmp_path):
    """Three parties of one job, ready to sit down in threads of one process."""
    (tmp_path / "rows.csv").write_text("a,b\n1,0\n-1,1\n")
    weights = {"weight": torch.tensor([[1.0], [0.5]]), "bias": torch.zeros(1)}
    save_logistic(tmp_path / "m.npz", weights)
    raw = {
        **RAW,
        "data": {"owner": "hospital", "file": str(tmp_path / "rows.csv")},
        "model": {"owner": "lab", "file": str(tmp_path / "m.npz")},
    }
    listeners = {name: socket.create_server(("127.0.0.1", 0)) for name in RAW["parties"]}
    identities = {name: make_identity(name, tmp_path) for name in listeners}
    entries = {
        name: PartyEntry(
            address=f"127.0.0.1:{listener.getsockname()[1]}", key=identities[name].fingerprint
        )
        for name, listener in listeners.items()
    }
    job = with_parties(read_record(raw, Job, source="job.toml"), entries)
    yield {
        name: member.Seat(
            job=job,
            me=name,
            identity=identities[name],
            listener=listener,
            launched="processes",
            search=(),
        )
        for name, listener in listeners.items()
    }
    for listener in listeners.values():
        listener.close()


def sit(seats):
    with ThreadPoolExecutor(len(seats)) as pool:
        started = {
            name: pool.submit(
                member.take_seat, seat, member.Reporter(lambda **_: None), lambda part: None
            )
            for name, seat in seats.items()
        }
        return {name: one.exception() or one.result() for name, one in started.items()}


def test_only_the_receiver_has_answers_and_the_end_is_metered_and_timed(seats):
    finished = sit(seats)
    files = {name: dict(one.files) for name, one in finished.items()}
    answers = {"predictions.csv": "row,prediction\n1,1\n2,0\n"}
    assert files == {"hospital": answers, "lab": {}, "dealer": {}}
    for one in finished.values():
        (party,) = one.result.parties
        assert party.spans[-1].name == "finish"
    assert finished["lab"].result.forecast == finished["hospital"].result.forecast


def test_a_bug_in_what_a_party_makes_of_its_answers_is_told_to_the_others(seats, monkeypatch):
    def broken(answers):
        return () if answers is None else 1 / 0

    monkeypatch.setattr(AnsweredRows, "measure", broken)
    ends = sit(seats)
    assert isinstance(ends["hospital"], ZeroDivisionError)
    for name in ("lab", "dealer"):
        assert isinstance(ends[name], PartyError)
        assert ends[name].party == "hospital"
        assert "internal error (ZeroDivisionError)" in ends[name].reason
