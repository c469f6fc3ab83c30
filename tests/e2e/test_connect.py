"""`tacit.connect`: parties in Python, also between parties that are `tacit party`."""

import socket

import numpy as np
import pytest
import torch

import tacit
from support.parties import read_party, start_party
from support.processes import start
from tacit.crypto import load_identity, make_identity
from tacit.errors import ConfigError, DataError
from tacit.inference import save_logistic

LOGISTIC = """
[job]
name = "asked"
kind = "infer"
[data]
owner = "clinic"
bound = 4.0
prepare = {{ age = {{ divide = 2.0 }}, dose = {{}}, weight = {{}} }}
[model]
owner = "lab"
file = "{folder}/model.npz"
[protocol]
kind = "sealed"
dealer = "dealer"
reveal = "score"
"""
TRAINING = """
[job]
name = "trained"
kind = "train"
out = "{folder}/out/trained"
[data]
split = "rows"
[data.owners.clinic]
[data.owners.lab]
[model]
layers = ["dense 2"]
[training]
batch = 20
epochs = 6
rate = 1.0
[protocol]
kind = "sealed"
dealer = "dealer"
"""
ASKING = """
[job]
name = "asked"
kind = "infer"
[data]
owner = "clinic"
[model]
layers = ["dense 2"]
inputs = [3]
[protocol]
kind = "sealed"
compute = ["clinic", "lab"]
dealer = "dealer"
"""


@pytest.fixture
def make_job(tmp_path):
    """Write a job of three parties, and their keys."""

    def make(text):
        lines = [text.format(folder=tmp_path)]
        for name in ("clinic", "lab", "dealer"):
            with socket.create_server(("127.0.0.1", 0)) as sock:
                port = sock.getsockname()[1]
            if not (tmp_path / "keys" / f"{name}.key").exists():
                make_identity(name, tmp_path / "keys")
            fingerprint = load_identity(tmp_path / "keys", name).fingerprint
            lines.append(f'[parties.{name}]\nkey = "{fingerprint}"\naddress = "127.0.0.1:{port}"')
        path = tmp_path / "job.toml"
        path.write_text("\n".join(lines))
        return path

    return make


@pytest.fixture
def party(tmp_path):
    """Start `tacit party` processes, and see them end."""
    started = []

    def begin(job, name):
        arguments = ["party", str(job), "--as", name, "--keys", str(tmp_path / "keys")]
        arguments += ["--out", str(tmp_path / f"out-{name}")]
        started.append(start(arguments, tmp_path / f"{name}.log"))
        return started[-1]

    yield begin
    for process in started:
        process.join(120)
        assert process.exitcode is not None
        process.close()


@pytest.fixture
def rows():
    return np.random.default_rng(3).uniform(-2, 2, (12, 3))


def test_an_array_among_processes_gives_the_scores_of_the_plain_model(
    make_job, party, rows, tmp_path
):
    weights = {"weight": torch.tensor([[1.0], [-0.5], [0.25]]).double(), "bias": torch.ones(1)}
    save_logistic(tmp_path / "model.npz", weights)
    job = make_job(LOGISTIC)
    others = [party(job, name) for name in ("lab", "dealer")]
    frame = {"age": rows[:, 0], "dose": rows[:, 1], "weight": rows[:, 2]}
    with tacit.connect(job, "clinic", keys=tmp_path / "keys") as member:
        answer = member.run(frame)
        with pytest.raises(ConfigError, match="once"):
            member.run(frame)
    scaled = torch.from_numpy(rows / np.array([2.0, 1.0, 1.0]))
    plain = torch.sigmoid(scaled @ weights["weight"].squeeze(1) + 1)
    assert float((answer.values - plain).abs().max()) < 1e-3
    assert [leak.to for leak in answer.result.leakage if leak.kind == "output"] == ["clinic"]
    assert "values" in repr(answer)
    assert "<table>" in answer._repr_html_()
    for process in others:
        process.join(120)
        assert process.exitcode == 0
    assert (tmp_path / "out-lab" / "result.json").exists()


def test_the_others_learn_who_failed_and_not_what_was_in_its_rows(make_job, party, rows, tmp_path):
    save_logistic(tmp_path / "model.npz", {"weight": torch.ones(3, 1), "bias": torch.ones(1)})
    job = make_job(LOGISTIC)
    others = {name: party(job, name) for name in ("lab", "dealer")}
    rows[5, 1] = np.nan
    with (
        pytest.raises(DataError, match="row 6, column 'dose': the value is missing"),
        tacit.connect(job, "clinic", keys=tmp_path / "keys") as member,
    ):
        member.run(dict(zip(("age", "dose", "weight"), rows.T, strict=True)))
    for name, process in others.items():
        process.join(120)
        assert process.exitcode == 4
        said = (tmp_path / f"{name}.log").read_text()
        assert "party 'clinic'" in said
        assert "row 6" not in said


def test_shares_of_a_training_in_python_answer_in_python(make_job, rows, tmp_path):
    generator = np.random.default_rng(4)
    x = {name: generator.uniform(-1, 1, (60, 3)) for name in ("clinic", "lab")}
    y = {name: (one.sum(1) > 0).astype(int) for name, one in x.items()}
    job = make_job(TRAINING)
    started = [start_party(job, name, tmp_path, x=x[name], y=y[name]) for name in x]
    started.append(start_party(job, "dealer", tmp_path))
    ends = []
    for process in started:
        process.join(200)
        ends.append(process.exitcode)
    assert ends == [0, 0, 0]
    got = {name: read_party(name, tmp_path) for name in ("clinic", "lab", "dealer")}
    assert got["dealer"] == {}
    # Nobody has a weight: the two shares of each add up to one, and either alone is any word.
    assert not [name for one in got.values() for name in one if name.startswith("weights.")]
    added = {name: got["clinic"][name] + got["lab"][name] for name in got["clinic"]}
    assert max(np.abs(one).max() for one in added.values()) < 2**20
    assert min(np.abs(got["lab"][name]).max() for name in added) > 2**50

    rows = rows / 2
    job = make_job(ASKING)
    started = [
        start_party(job, "clinic", tmp_path, x=rows, **got["clinic"]),
        start_party(job, "lab", tmp_path, **got["lab"]),
        start_party(job, "dealer", tmp_path),
    ]
    for process in started:
        process.join(200)
    found = read_party("clinic", tmp_path)["values"]
    assert (found == (rows.sum(1) > 0)).mean() > 0.8


def test_a_name_that_the_job_does_not_know_is_refused(make_job, tmp_path):
    job = make_job(LOGISTIC)
    with pytest.raises(ConfigError, match="no party 'lap'; wanted one of"):
        tacit.connect(job, "lap", keys=tmp_path / "keys").__enter__()
