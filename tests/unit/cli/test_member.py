"""One party: what it reports, and what it checks before it connects."""

import json
import os

import pytest

from tacit.cli import member
from tacit.cli.config import Job, PartyEntry
from tacit.cli.toml import read_record
from tacit.crypto import make_identity
from tacit.errors import ConfigError
from tacit.party import StatusPipe

RAW = {
    "job": {"name": "j", "kind": "predict"},
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
    listener = member._report_on(pipe)
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
        member._own_identity(job, "lab", tmp_path)
