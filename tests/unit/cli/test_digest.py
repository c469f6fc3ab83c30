"""The hash of a job: equal for what is one's own business, different for all that is shared."""

import copy

import pytest

from tacit.jobs.config import job_digest, shared_content
from tacit.jobs.infer import InferJob as Job
from tacit.spec import read_record

KEY = "sha256:" + "ab" * 32
OTHER_KEY = "sha256:" + "cd" * 32

JOB = {
    "job": {"name": "demo", "kind": "infer", "out": "here"},
    "parties": {"hospital": {"address": "a:1", "key": KEY}, "lab": {}, "dealer": {}},
    "data": {"owner": "hospital", "file": "x.csv", "label": "y", "prepare": {"a": {"divide": 2.0}}},
    "model": {"owner": "lab", "train": {"file": "t.csv"}},
    "protocol": {"kind": "sealed", "dealer": "dealer"},
    "ring": {"frac_bits": 20},
    "report": {"html": True},
}


def digest(*changes):
    raw = copy.deepcopy(JOB)
    for dotted, value in changes:
        *tables, key = dotted.split(".")
        table = raw
        for name in tables:
            table = table.setdefault(name, {})
        table[key] = value
    return job_digest(read_record(raw, Job, source="job.toml"))


def test_a_digest_is_a_sha256():
    assert len(digest()) == 32


@pytest.mark.parametrize(
    "change",
    [
        ("job.out", "there"),
        ("data.file", "elsewhere.csv"),
        ("model.train.file", "mine.csv"),
        ("parties.hospital.address", "b:2"),
        ("report.html", False),
        ("report.compare", "none"),
        ("protocol.compute", ["hospital", "lab"]),
        ("ring.frac_bits", 20),
        ("network.connect_s", 30),
        ("privacy", {}),
    ],
)
def test_what_is_local_or_a_written_out_default_does_not_count(change):
    assert digest(change) == digest()


@pytest.mark.parametrize(
    "change",
    [
        ("job.name", "other"),
        ("parties.hospital.key", OTHER_KEY),
        ("parties.lab.key", OTHER_KEY),
        ("data.owner", "lab"),
        ("data.bound", 2.0),
        ("data.prepare", {"a": {"divide": 4.0}}),
        ("data.label", "z"),
        ("data.part", "test"),
        ("model.bound", 2.0),
        ("model.train", {"set": "iris"}),
        ("protocol.kind", "permuted3"),
        ("protocol.reveal", "score"),
        ("protocol.compute", ["lab", "hospital"]),
        ("ring.frac_bits", 21),
        ("network.stall_s", 1000),
    ],
)
def test_what_is_shared_counts(change):
    extra = [("model.owner", "hospital")] if change == ("data.owner", "lab") else []
    assert digest(change, *extra) != digest()


def test_another_set_of_parties_counts():
    parties = {"hospital": {"key": KEY}, "lab": {}, "helper": {}}
    assert digest(("parties", parties), ("protocol.dealer", "helper")) != digest()


def test_the_order_of_parties_does_not_count():
    assert digest(("parties", dict(reversed(JOB["parties"].items())))) == digest()


def test_no_path_enters_the_digest():
    content = repr(shared_content(read_record(JOB, Job, source="job.toml")))
    assert not any(path in content for path in ("x.csv", "t.csv", "here", "a:1"))
