"""Split jobs whose parties have their own rows, matched by id in private."""

from dataclasses import replace

import numpy as np
import pytest

from support.split import run_job
from tacit.errors import ConfigError, DataError, TacitError
from tacit.jobs.split import SplitJob, check_inputs, models_folder
from tacit.spec import read_record
from tacit.split.rows import load_own
from tacit.split.spec import ServeSpec

LABELS = {name: name % 2 for name in range(1000)}


def write(path, columns):
    lines = [",".join(columns)]
    lines += [",".join(map(str, row)) for row in zip(*columns.values(), strict=True)]
    path.write_text("\n".join(lines) + "\n")


def measurements(ids, *, seed):
    """Return two columns that tell the label of every id, each row noisy in its own way."""
    generator = np.random.default_rng(seed)
    signs = np.array([LABELS.get(name, 0) for name in ids]) * 4.0 - 2
    return {
        "id": ids,
        "a": signs + generator.normal(size=len(ids)),
        "b": generator.normal(size=len(ids)),
    }


def outcomes(ids):
    return {"id": ids, "sick": [LABELS.get(name, 0) for name in ids]}


def make(tmp_path, tables, **data):
    for name, columns in tables.items():
        write(tmp_path / f"{name}.csv", columns)
    raw = {
        "job": {"name": "test", "kind": "split", "out": str(tmp_path / "out")},
        "parties": {name: {} for name in tables},
        "data": {
            "features": [name for name in tables if name != "lab"],
            "labels": "lab",
            "files": {name: str(tmp_path / f"{name}.csv") for name in tables},
            "match": "id",
            "label": "sick",
            "classes": 2,
            **data,
        },
        "model": {"kind": "mlp", "width": 8},
        "train": {"epochs": 12, "batch": 10, "rate": 0.01},
    }
    return read_record(raw, SplitJob, source="test")


def online(cost, name):
    return sorted(
        (one.sender, one.receiver, one.messages, one.payload_bytes)
        for one in cost.traffic
        if one.phase == "online" and name in (one.sender, one.receiver)
    )


def shuffled(start, stop, seed):
    return np.random.default_rng(seed).permutation(np.arange(start, stop)).tolist()


def test_parties_train_on_the_rows_that_all_of_them_have(tmp_path):
    tables = {
        "lab": outcomes(shuffled(20, 110, 1)),
        "clinic": measurements(shuffled(0, 90, 2), seed=3),
    }
    parts = run_job(make(tmp_path, tables))
    lab = parts["lab"].result
    assert lab.utility[0].value > 0.8
    assert lab.utility[0].samples == 21  # of the 70 rows in common, three tenths
    lines = parts["clinic"].files["predictions.csv"].splitlines()
    assert lines[0] == "id,prediction"
    asked = [int(line.split(",")[0]) for line in lines[1:]]
    assert set(asked) <= set(range(20, 90))
    right = [
        int(line.split(",")[1]) == LABELS[name] for name, line in zip(asked, lines[1:], strict=True)
    ]
    assert np.mean(right) == lab.utility[0].value
    assert any(leak.what == "which of its ids all owners have" for leak in lab.leakage)
    assert lab.claims[0].subject.startswith("ids that not all parties have")


@pytest.mark.parametrize("owners", [("clinic",), ("clinic", "bank", "shop")])
def test_the_forecast_counts_the_matching_too(tmp_path, owners):
    tables = {"lab": outcomes(shuffled(0, 40, 1))}
    for number, owner in enumerate(owners):
        tables[owner] = measurements(shuffled(number, 45, 2 + number), seed=number)
    for name, part in run_job(make(tmp_path, tables)).items():
        result = part.result
        assert online(result.metered, name) == online(result.forecast.cost, name)


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        ({"clinic": measurements([1, 2, 2, 3], seed=0)}, "id in row 3 occurs before"),
        ({"clinic": measurements([901, 902, 903], seed=0)}, "no id in common"),
        ({"clinic": measurements([1, 900, 901], seed=0)}, "rows to test on, got 1 in all"),
        (
            {"clinic": {"id": [1, ""], "a": [0.5, 0.1]}},
            "line 3, column 'id': wanted an id, the cell is",
        ),
        ({"clinic": {"id": [1, 2], "a": [0.5, "nan"]}}, "column 'a': wanted a finite number"),
        ({"clinic": {"id": [1, 2], "a": ["", 0.1]}}, "column 'a': wanted a number"),
        ({"clinic": {"a": [1, 2], "b": [0.5, 0.1]}}, "no column 'id' to match rows by; it has a"),
        ({"clinic": {"id": [1, 2]}}, "wanted a column besides 'id'"),
        ({"clinic": {"id": [1, 2.0**60], "a": [0, 1]}}, "column 'id': a number that has lost"),
        ({"clinic": {"id": [], "a": []}}, "at least one row"),
        ({"lab": {"id": [1, 2, 3], "sick": [0, 1, 2]}}, "a label is 2, wanted labels below"),
        ({"lab": {"id": [1, 2, 2], "sick": [0, 1, 1]}}, "id in row 3 occurs before"),
    ],
)
def test_rows_that_cannot_be_matched_are_refused(tmp_path, tables, message):
    usual = {"lab": outcomes([1, 2, 3, 4]), "clinic": measurements([1, 2, 3, 4], seed=0)}
    job = make(tmp_path, {**usual, **tables})
    with pytest.raises(TacitError, match=message):
        run_job(job)


def test_pictures_have_no_ids(tmp_path):
    job = make(tmp_path, {"lab": outcomes([1, 2]), "clinic": measurements([1, 2], seed=0)})
    np.savez(tmp_path / "clinic.npz", features=np.zeros((2, 4, 4)))
    job.data.files["clinic"] = tmp_path / "clinic.npz"
    with pytest.raises(DataError, match="it has pictures"):
        load_own(job, "clinic")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"match": "sick"}, "'sick' is the column of the labels"),
        ({"set": "iris", "files": {}}, "rows of a known set are in order"),
    ],
)
def test_a_match_that_makes_no_sense_is_refused_by_key(tmp_path, data, message):
    tables = {"lab": outcomes([1, 2]), "clinic": measurements([1, 2], seed=0)}
    with pytest.raises(ConfigError, match=message):
        make(tmp_path, tables, **data)


def with_columns(ids, *, seed):
    """Return a label owner's table that has a telling column of its own beside the labels."""
    return {**measurements(ids, seed=seed), "sick": [LABELS.get(name, 0) for name in ids]}


def test_a_label_owner_brings_columns_of_its_own_and_serves_with_them(tmp_path):
    tables = {
        "lab": with_columns(shuffled(20, 110, 1), seed=7),
        "clinic": {"id": shuffled(0, 90, 2), "noise": [float(at % 7) for at in range(90)]},
    }
    job = make(tmp_path, tables, features=["lab", "clinic"])
    assert job.role("lab") == "label owner, with features"
    parts = run_job(job)
    lab = parts["lab"].result
    assert lab.utility[0].value > 0.9  # the clinic's column tells nothing
    # What a label owner computes from its own columns is shown to nobody.
    assert not [one for one in lab.leakage if "cut layer of lab" in one.what]
    assert online(lab.metered, "lab") == online(lab.forecast.cost, "lab")
    kept = sorted(one.name for one in models_folder(job.out).iterdir())
    assert kept == [
        *("clinic-columns.npz", "clinic.npz"),
        *("lab-bottom-columns.npz", "lab-bottom.npz", "lab.npz"),
    ]
    asked = shuffled(0, 30, 5)
    write(tmp_path / "clinic.csv", {"noise": [1.0] * 30})
    mine = {key: value for key, value in measurements(asked, seed=9).items() if key != "id"}
    write(tmp_path / "lab.csv", mine)
    serving = replace(
        job,
        serve=ServeSpec(models=models_folder(job.out)),
        data=replace(job.data, match=None),
        job=replace(job.job, out=job.out.with_name("asked")),
    )
    check_inputs(serving, ["clinic", "lab"])
    lines = run_job(serving)["clinic"].files["predictions.csv"].splitlines()[1:]
    right = [
        int(line.split(",")[1]) == LABELS[name] for name, line in zip(asked, lines, strict=True)
    ]
    assert np.mean(right) > 0.9
    write(tmp_path / "lab.csv", {key: value[:20] for key, value in mine.items()})
    with pytest.raises(TacitError, match="has its own columns of 20"):
        run_job(serving)
