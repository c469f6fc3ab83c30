"""Federated jobs with privacy of single records: one file and one ledger per client."""

import io
import json
from collections import Counter

import numpy as np
import pytest
from rich.console import Console

from tacit.cli.commands.examples import copy_example
from tacit.cli.screen import OnConsole
from tacit.dp import epsilon, ledger_from_record, unroll
from tacit.errors import ConfigError, DataError, InputError
from tacit.federated.data import load_shards
from tacit.jobs.federated import LEDGER, FederatedJob, check_inputs, run
from tacit.jobs.toml import read_toml
from tacit.spec import read_record

HEAD = "age,ward,y"


def write_files(folder, count=3, head=HEAD, rows=80):
    for number in range(count):
        source = np.random.default_rng(number)
        ages, wards = source.random(rows), source.integers(0, 2, rows)
        lines = [f"{a:.2f},{w},{int(a + w > 1)}" for a, w in zip(ages, wards, strict=True)]
        (folder / f"{number}.csv").write_text("\n".join([head, *lines]) + "\n")
    return [str(folder / f"{number}.csv") for number in range(count)]


def make_job(files, **tables):
    raw = {
        "job": {"name": "hospitals", "kind": "federated"},
        "data": {"files": files, "label": "y"},
        "federated": {
            "clients": 3,
            "rounds": 2,
            "minimum": 3,
            "colluding_share": 0.0,
            "drop_rate": 0.0,
        },
        "privacy": {
            "kind": "record",
            "epsilon": 8.0,
            "delta": 1e-4,
            "clip": 1.0,
            "records": 50,
        },
        "train": {"steps": 2, "batch": 10, "rate": 0.5},
    }
    for name, table in tables.items():
        raw[name] = {**raw.get(name, {}), **table}
    return read_record(raw, FederatedJob, source="job.toml")


def run_job(job):
    out = io.StringIO()
    part = run(job, OnConsole(Console(file=out, width=200)), ())
    return part, out.getvalue()


def test_every_hospital_has_a_file_and_a_ledger_of_its_own(tmp_path):
    files = write_files(tmp_path)
    part, said = run_job(make_job(files))
    claim = part.result.claims[0]
    assert claim.relation == "adding or removing one record"
    assert said.startswith("After 2 rounds: ε = ")
    assert "for adding or removing one record" in said.splitlines()[0]
    assert "can name up to" in said.splitlines()[1]  # ε in one sentence
    whole = ledger_from_record(json.loads(part.files[LEDGER]))
    for client in range(3):
        own = ledger_from_record(json.loads(part.files[f"ledger-client-{client}.json"]))
        assert own.clients == (f"client {client}",)
        assert sum(unroll(own.events_of(f"client {client}")).values()) == 4  # 2 rounds of 2 steps
        again = epsilon(own, delta=1e-4, accountant=claim.accountant)
        assert again.epsilon == pytest.approx(claim.epsilon)
    assert whole.clients == tuple(f"client {client}" for client in range(3))
    (sheet,) = [one for one in part.result.sheets if "own ledger" in one.title]
    assert [row[1] for row in sheet.rows] == files


def test_files_are_the_clients_rows(tmp_path):
    job = make_job(write_files(tmp_path), data={"test_share": 0.25})
    shards = load_shards(job.data, 3, ())
    sizes = [len(part) for part in shards.parts]
    assert all(45 <= size <= 75 for size in sizes)  # of 80; rows are put aside each by itself
    assert sorted(np.concatenate(shards.parts)) == list(range(sum(sizes)))
    assert len(shards.test_labels) == 240 - sum(sizes)


@pytest.mark.parametrize("where", ["first", "last"])
def test_a_patient_more_moves_no_other_between_training_and_test(tmp_path, where):
    """The claim is about one row of a file: a split that a row upsets would break it."""
    files = write_files(tmp_path)
    before = training_rows(files)
    path = tmp_path / "0.csv"
    head, *lines = path.read_text().splitlines()
    extra = ["0.33,1,1", "0.44,0,0"]
    path.write_text("\n".join([head, *(extra + lines if where == "first" else lines + extra)]))
    load_shards.cache_clear()
    after = training_rows(files)
    assert not before - after
    assert set(after - before) <= {(0.33, 1.0, 1), (0.44, 0.0, 0)}


def training_rows(files):
    shards = load_shards(make_job(files).data, 3, ())
    own = shards.parts[0]
    pairs = zip(shards.features[own].tolist(), shards.labels[own].tolist(), strict=True)
    return Counter((round(x[0], 2), x[1], y) for x, y in pairs)


def test_descriptions_stand_for_files(tmp_path):
    files = []
    for number, path in enumerate(write_files(tmp_path)):
        about = tmp_path / f"{number}.toml"
        columns = 'ward = ["0", "1"]\ny = ["0", "1"]\n'
        about.write_text(f'file = "{path}"\n[columns]\n{columns}')
        files.append(str(about))
    assert load_shards(make_job(files).data, 3, ()).features.shape[1:] == (3,)


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        ({"federated": {"clients": 4}}, "one for each of 4 clients, got 3"),
        ({"data": {"set": "digits"}}, "either 'set' or 'file' or 'files'"),
        ({"data": {"rows": 5}}, "divided already"),
        ({"data": {"partition": "dirichlet"}}, "divided already"),
        ({"model": {"stack": ["linear", "mlp"]}}, "does not account for a stack"),
        ({"privacy": {"kind": "central"}}, "goes with privacy 'record'"),
        ({"federated": {"aggregator": "shuffled"}}, "goes with privacy shuffle"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(tmp_path, tables, message):
    with pytest.raises(ConfigError, match=message):
        make_job(write_files(tmp_path), **tables)


def test_files_that_are_missing_or_differ_are_named(tmp_path):
    files = write_files(tmp_path)
    with pytest.raises(DataError, match=r"nowhere\.csv"):
        check_inputs(make_job([*files[:2], "nowhere.csv"]), ())
    (tmp_path / "2.csv").write_text("weight,ward,y\n1,1,1\n0,0,0\n")
    with pytest.raises(DataError, match=r"2\.csv: its columns or classes are others than those of"):
        run_job(make_job(files))


def test_the_example_is_copied_with_its_files_and_can_be_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    copied = copy_example("fl-hospitals", None)
    job = read_record(read_toml(copied), FederatedJob, source=str(copied))
    check_inputs(job, ())
    shards = load_shards(job.data, 5, ())
    assert len(shards.parts) == 5
    with pytest.raises(InputError, match="is not written over"):
        copy_example("fl-hospitals", tmp_path / "other.toml")
