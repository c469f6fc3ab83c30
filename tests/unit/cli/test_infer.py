"""Jobs of kind "infer": what is read, what is refused, and a whole run between threads."""

import hashlib

import numpy as np
import pytest
import torch

from tacit.cli import folder, infer
from tacit.cli.kind import Place
from tacit.cli.kinds import find_kind
from tacit.cli.toml import read_record
from tacit.errors import ConfigError, DataError
from tacit.learn.private import merge_results
from tacit.learn.training import parse_layers
from tacit.party import Meeting, Usage, run_threads

LAYERS = ["dense 8", "relu", "dense 10"]


@pytest.fixture
def weights(tmp_path):
    module = parse_layers(LAYERS, (64,), seed=3)
    arrays = {name.replace(".", "/"): one.numpy() for name, one in module.state_dict().items()}
    path = tmp_path / "model.npz"
    np.savez(path, **arrays)
    return path


@pytest.fixture
def make_job(weights):
    def make(**changes):
        raw = {
            "job": {"name": "j", "kind": "infer"},
            "parties": {"clinic": {}, "lab": {}, "dealer": {}},
            "data": {"owner": "clinic", "set": "digits", "rows": [0, 12]},
            "model": {"owner": "lab", "layers": LAYERS, "inputs": [64], "file": str(weights)},
            "protocol": {"kind": "sealed", "dealer": "dealer"},
        }
        for dotted, value in changes.items():
            table, key = dotted.split("__")
            raw[table].pop(key, None)
            if value is not None:
                raw[table][key] = value
        return read_record(raw, find_kind(raw, "job.toml").record, source="job.toml")

    return make


@pytest.mark.parametrize("protocol", ["sealed", "permuted3", "permuted2"])
@pytest.mark.parametrize("reveal", ["class", "output"])
def test_the_classes_are_those_of_the_network_in_the_clear(make_job, tmp_path, protocol, reveal):
    job = make_job(protocol__kind=protocol, protocol__reveal=reveal)

    def party(session):
        place = Place(
            search=(),
            launched="threads",
            report=lambda: Usage().report(name=session.me, role="", progress=session.progress),
            out=tmp_path,
        )
        return infer.take_part(session, job, place)

    meeting = Meeting(parties=tuple(job.parties), job_digest=hashlib.sha256(b"j").digest())
    parts = run_threads(dict.fromkeys(job.parties, party), meeting)
    assert parts["lab"].files == parts["dealer"].files == {}
    (tmp_path / folder.PREDICTIONS).write_text(parts["clinic"].files[folder.PREDICTIONS])
    merged = merge_results(tuple(parts[name].result for name in job.parties))
    whole = infer.complete(job, merged, tmp_path, ())
    found = {metric.name: metric for metric in whole.utility}
    assert found["classes equal to plaintext"].value == 1.0
    assert found["accuracy"].value == found["accuracy"].reference


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"protocol__kind": "seald"}, "did you mean 'sealed'"),
        ({"protocol__dealer": "lab"}, "another party for each"),
        ({"data__rows": [3, 3]}, "first < end"),
        ({"data__bound": -1.0}, "greater than 0"),
        ({"model__inputs": None}, "model.inputs: missing"),
    ],
)
def test_a_wrong_key_is_named_with_what_was_wanted(make_job, changes, words):
    with pytest.raises(ConfigError, match=words):
        make_job(**changes)


def test_owners_without_inputs_are_told_before_anyone_connects(make_job):
    with pytest.raises(ConfigError, match=r"model\.file: missing"):
        infer.check_inputs(make_job(model__file=None), ["lab"])
    with pytest.raises(DataError, match="no such file"):
        infer.check_inputs(make_job(model__file="nowhere.npz"), ["lab"])
    infer.check_inputs(make_job(model__file=None), ["clinic"])


def test_weights_of_other_layers_are_refused(make_job):
    job = make_job(model__layers=["dense 9", "relu", "dense 10"])
    with pytest.raises(DataError, match="does not hold the weights of these layers"):
        infer.load_weights(parse_layers(job.model.layers, (64,), seed=0), job)


def test_a_file_that_is_no_archive_is_refused(make_job, tmp_path):
    path = tmp_path / "noise.npz"
    path.write_bytes(b"noise")
    with pytest.raises(DataError, match="does not hold"):
        infer.load_weights(torch.nn.Linear(2, 2), make_job(model__file=str(path)))
