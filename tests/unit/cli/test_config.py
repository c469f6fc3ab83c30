"""Job files: what is read, what is refused and how."""

import copy
import tomllib
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import get_args, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tacit
from support.jobs import changed as change
from tacit.errors import ConfigError
from tacit.jobs.config import PartyEntry, parse_address, with_parties
from tacit.jobs.infer import InferJob as Job
from tacit.jobs.kinds import load_job, read_job

ROOT = Path(tacit.__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples" / "jobs").glob("*.toml"))
KEY = "sha256:" + "ab" * 32

GOOD = {
    "job": {"name": "demo", "kind": "infer"},
    "parties": {"hospital": {}, "lab": {}, "dealer": {}},
    "data": {"owner": "hospital", "set": "breast-cancer"},
    "model": {"owner": "lab", "file": "model.npz"},
    "protocol": {"kind": "sealed", "dealer": "dealer"},
}


def changed(**changes):
    """Return the good job with dotted keys set, or removed where the value is None."""
    return change(GOOD, changes)


def read(raw):
    return read_job(raw, source="job.toml")


def complaint(**changes):
    with pytest.raises(ConfigError) as caught:
        read(changed(**changes))
    return str(caught.value)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_every_example_is_a_good_job(path):
    job = load_job(path)
    assert all(job.role(party) for party in job.parties)


def test_the_packaged_demo_is_the_first_example():
    packaged = ROOT / "src" / "tacit" / "cli" / "demo.toml"
    example = ROOT / "examples" / "jobs" / "predict-breast-cancer.toml"
    assert packaged.read_text() == example.read_text()


def test_every_example_is_listed_in_the_readme():
    listed = (ROOT / "examples" / "jobs" / "README.md").read_text()
    assert [path.name for path in EXAMPLES if path.name not in listed] == []


def test_what_is_left_out_has_a_default():
    job = read(GOOD)
    assert (job.out, job.frac_bits, job.protocol.reveal) == (Path("out/demo"), 20, "class")
    assert job.roles.computing == ("hospital", "lab")


def test_a_role_says_what_a_party_does():
    job = read(GOOD)
    assert {name: job.role(name) for name in job.parties} == {
        "hospital": "data owner, computes",
        "lab": "model owner, computes",
        "dealer": "dealer",
    }


def test_a_dealer_that_helps_online_is_called_so():
    assert read(changed(protocol__kind="permuted3")).role("dealer") == "dealer, helper"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"job__name": "A b"}, ["job.name", "a-z", "'A b'"]),
        ({"job__kind": "infr"}, ["job.kind", "'infer'", "did you mean 'infer'?"]),
        ({"job": None}, ["job", "missing"]),
        ({"parties__Lab": {}}, ["parties", "'Lab'"]),
        ({"parties": {"hospital": {}}}, ["parties", "two parties or more"]),
        ({"parties__lab__address": "h:99999"}, ["parties.lab.address", "host:port"]),
        ({"parties__lab__key": "sha256:12"}, ["parties.lab.key", "fingerprint", "'sha256:12'"]),
        ({"parties__lab__port": 1}, ["parties.lab.port", "unknown key"]),
        ({"parties__spare": {}}, ["parties.spare", "no part"]),
        ({"data__owner": "hospitl"}, ["data.owner", "did you mean 'hospital'?"]),
        ({"model__owner": "x"}, ["model.owner", "hospital, lab, dealer", "'x'"]),
        ({"protocol__dealer": "deeler"}, ["protocol.dealer", "did you mean 'dealer'?"]),
        ({"protocol__compute": ["lab", "nobody"]}, ["protocol.compute[1]", "'nobody'"]),
        ({"protocol__compute": ["lab"]}, ["protocol.compute", "two parties"]),
        ({"protocol__compute": ["lab", "lab"]}, ["must be three", "lab, lab, dealer"]),
        ({"protocol__compute": ["lab", "dealer"]}, ["protocol.dealer", "could read the inputs"]),
        (
            {"protocol__compute": ["hospital", "lab"], "protocol__dealer": "lab"},
            ["protocol.dealer: 'lab' computes", "parties.dealer: has no part"],
        ),
        ({"protocol__reveal": "all"}, ["protocol.reveal", "'class', 'score'", "'all'"]),
        ({"data__owner": "lab"}, ["job.toml"]),
        ({"data__bound": 0}, ["data.bound", "greater than 0"]),
        ({"data__bound": "1"}, ["data.bound", "number", "'1'"]),
        ({"data__prepare": {"a": {"divide": 0}}}, ["data.prepare.a.divide", "greater than 0"]),
        ({"model__bound": -1}, ["model.bound", "greater than 0"]),
        ({"model__train": {"sett": "iris"}}, ["model.train.sett", "did you mean 'set'?"]),
        ({"model__bound": 1e18}, ["1e+18", "frac_bits or the bounds"]),
        ({"model__bound": 1e300}, ["1e+300", "frac_bits or the bounds"]),
        ({"data__bound": 1e9, "model__bound": 1e9}, ["frac_bits or the bounds"]),
        ({"data__bound": 1e300, "protocol__reveal": "score"}, ["frac_bits or the bounds"]),
        ({"ring__frac_bits": 63}, ["ring.frac_bits", "62"]),
        ({"privacy__epsilon": 1.0}, ["privacy.epsilon", "no settings in this version"]),
        ({"report__html": "yes"}, ["report.html", "true or false"]),
    ],
)
def test_a_wrong_key_is_named_with_what_was_wanted(changes, words):
    message = complaint(**changes)
    assert message.startswith("job.toml: ")
    for word in words:
        assert word in message


@pytest.mark.parametrize("what", ["address", "key"])
def test_two_parties_cannot_share_an_address_or_a_key(what):
    value = {"address": "host:7001", "key": KEY}[what]
    message = complaint(**{f"parties__lab__{what}": value, f"parties__hospital__{what}": value})
    assert f"parties.lab.{what}" in message
    assert "'hospital'" in message


def tables(record=Job, path=()):
    """Yield the path of every table of a job, and the keys it knows."""
    hints = get_type_hints(record)
    yield path, set(hints)
    for name, hint in hints.items():
        for inner in (hint, *get_args(hint)):
            if isinstance(inner, type) and is_dataclass(inner):
                below = (*path, name, "lab") if name == "parties" else (*path, name)
                yield from tables(inner, below)


TABLES = list(tables())


@given(st.sampled_from(TABLES), st.text("abcdefghijklmnopqrstuvwxyz_", min_size=1), st.integers())
def test_an_unknown_key_in_any_table_is_refused_by_name(table, key, value):
    path, known = table
    if key in known:
        return
    raw = copy.deepcopy(GOOD)
    place = raw
    for name in path:
        place = place.setdefault(name, {})
    place[key] = value
    with pytest.raises(ConfigError) as caught:
        read(raw)
    assert ".".join([*path, key]) + ":" in str(caught.value)


def test_the_commented_job_in_the_reference_is_a_good_job():
    text = (ROOT / "docs" / "reference" / "job-file.md").read_text()
    block = text.split("```toml\n")[1].split("```")[0]
    assert read(tomllib.loads(block)).job.kind == "infer"


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("10.0.0.5:7001", ("10.0.0.5", 7001)),
        ("lab.example:1", ("lab.example", 1)),
        ("[::1]:7001", ("::1", 7001)),
    ],
)
def test_an_address_is_taken_apart(text, wanted):
    assert parse_address(text) == wanted


@pytest.mark.parametrize("text", ["", "host", "host:", ":1", "::1:7001", "h:0", "h:65536", "h h:1"])
def test_what_is_no_address_is_refused(text):
    with pytest.raises(ConfigError, match="host:port"):
        parse_address(text)


def test_other_addresses_and_keys_can_be_put_in():
    entries = {name: PartyEntry(address=f"h:{i}") for i, name in enumerate(GOOD["parties"], 1)}
    assert with_parties(read(GOOD), entries).parties == entries


def test_entries_for_other_parties_are_refused():
    with pytest.raises(ConfigError, match="hospital, lab, dealer"):
        with_parties(read(GOOD), {"hospital": PartyEntry()})


def test_every_table_is_frozen():
    for field in fields(Job):
        hint = get_type_hints(Job)[field.name]
        if isinstance(hint, type) and is_dataclass(hint):
            assert hint.__dataclass_params__.frozen
