"""Split models that were trained before: asked from a file, or about a known set's test rows."""

import csv
import io
from dataclasses import replace

import numpy as np
import pytest

from support.split import run_job
from tacit.errors import ConfigError, DataError
from tacit.jobs.split import SplitJob, check_inputs, models_folder
from tacit.spec import read_record
from tacit.split.rows import load_part
from tacit.split.spec import ServeSpec

OWNERS = ["clinic", "bank"]


def write_rows(folder, count, seed=0):
    """Write two owners' columns and a lab's labels for the same people."""
    generator = np.random.default_rng(seed)
    sick = np.arange(count) % 2
    for owner in OWNERS:
        columns = generator.normal(size=(count, 2)) * 5 + 7 + 12 * sick[:, None]
        lines = [f"{i},{a},{b}" for i, (a, b) in enumerate(columns.tolist())]
        (folder / f"{owner}.csv").write_text("\n".join(["person,a,b", *lines]) + "\n")
    lines = [f"{i},{y}" for i, y in enumerate(sick)]
    (folder / "lab.csv").write_text("\n".join(["person,sick", *lines]) + "\n")


def make(folder, owners, **changes):
    data = {
        "features": owners,
        "labels": "lab",
        "files": {party: str(folder / f"{party}.csv") for party in ("lab", *owners)},
        "label": "sick",
        "classes": 2,
    }
    raw = {
        "job": {"name": "test", "kind": "split", "out": str(folder / "out")},
        "parties": {party: {} for party in ("lab", *owners)},
        "data": data | changes.pop("data", {}),
        "model": {"kind": "mlp", "width": 8},
        "split": {"compress": {"kind": "randtopk", "k": 3}},
        "train": {"epochs": 15, "batch": 16, "rate": 0.01},
        **changes,
    }
    return read_record(raw, SplitJob, source="test")


def predictions(part):
    return {row[0]: row[1] for row in list(csv.reader(io.StringIO(part.files["predictions.csv"])))}


def serving(job, **data):
    return replace(
        job,
        serve=ServeSpec(models=models_folder(job.out)),
        data=replace(job.data, **data),
        job=replace(job.job, out=job.out.with_name("asked")),
    )


def test_a_trained_model_answers_about_rows_of_a_file_as_it_did_after_training(tmp_path):
    write_rows(tmp_path, 90)
    job = make(tmp_path, ["clinic"], data={"match": "person"})
    tested = predictions(run_job(job)["clinic"])
    files = {"clinic": tmp_path / "clinic.csv"}  # whoever serves needs no labels
    asked = serving(job, files=files)
    check_inputs(asked, ["clinic", "lab"])
    parts = run_job(asked)
    answers = predictions(parts["clinic"])
    assert len(answers) == 1 + 90
    assert tested.items() <= answers.items()
    result = parts["lab"].result
    assert set(result.forecast.cost.traffic) == {
        one for one in result.metered.traffic if one.phase == "online"
    }
    assert not [leak for leak in result.leakage if "gradients" in leak.what]


def test_several_owners_ask_about_the_same_rows(tmp_path):
    write_rows(tmp_path, 90)
    job = make(tmp_path, OWNERS)
    run_job(job)
    write_rows(tmp_path, 30, seed=5)
    answers = predictions(run_job(serving(job))["clinic"])
    right = sum(answers[str(row + 1)] == str(row % 2) for row in range(30))
    assert right > 25
    with pytest.raises(ConfigError, match="the same rows in the same order"):
        serving(job, match="person")


def test_a_known_set_is_asked_about_its_test_rows(tmp_path):
    job = make(tmp_path, ["clinic"], data={"set": "iris", "files": {}})
    assert predictions(run_job(job)["clinic"]) == predictions(run_job(serving(job))["clinic"])


def test_a_part_that_was_never_trained_is_missed_before_anyone_connects(tmp_path):
    write_rows(tmp_path, 30)
    job = serving(make(tmp_path, ["clinic"]))
    with pytest.raises(DataError, match="no trained part of 'lab'"):
        check_inputs(job, ["lab"])


@pytest.mark.parametrize("kind", ["textcnn", "gru4rec"])
def test_a_model_that_reads_tokens_trains_and_serves_from_files(tmp_path, kind):
    write_rows(tmp_path, 80)  # the labels
    generator, sick = np.random.default_rng(0), np.arange(80)[:, None] % 2
    words = generator.integers(1, 5, (80, 6)) + 4 * sick
    lines = [",".join(map(str, row)) for row in words.tolist()]
    (tmp_path / "clinic.csv").write_text("\n".join(["a,b,c,d,e,f", *lines]) + "\n")
    model = {"kind": kind, "width": 9, "vocabulary": 9}
    job = make(tmp_path, ["clinic"], model=model, split={})
    parts = run_job(job)
    assert parts["lab"].result.utility[0].value > 0.9
    answers = predictions(run_job(serving(job))["clinic"])
    assert sum(answers[str(row + 1)] == str(row % 2) for row in range(80)) > 75
    few = replace(job, model=replace(job.model, vocabulary=8))
    with pytest.raises(DataError, match="wanted tokens from 0 to 7"):
        load_part(few, "clinic", ())


@pytest.mark.parametrize(
    ("model", "data", "message"),
    [
        ({"kind": "textcnn", "width": 9}, {}, "reads tokens"),
        ({"kind": "mlp", "vocabulary": 9}, {}, "reads no tokens"),
        ({"kind": "gru4rec", "vocabulary": 1}, {}, "wanted a whole number from 2 to"),
        ({"kind": "gru4rec", "vocabulary": 9}, {"set": "iris", "files": {}}, "known sets"),
    ],
)
def test_a_vocabulary_that_makes_no_sense_is_refused(tmp_path, model, data, message):
    with pytest.raises(ConfigError, match=message):
        make(tmp_path, ["clinic"], model=model, data=data)
