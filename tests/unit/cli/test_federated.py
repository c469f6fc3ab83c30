"""Federated jobs: what is read, what is promised before the run, and what the result says."""

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from tacit.cli.federated import LEDGER, ROUNDS, WEIGHTS, check_inputs, run
from tacit.cli.federated_job import FederatedJob
from tacit.cli.toml import read_record, read_toml
from tacit.dp import epsilon, ledger_from_record
from tacit.errors import ConfigError, DataError

EXAMPLES = sorted((Path(__file__).parents[3] / "examples" / "jobs").glob("fl-*.toml"))


def make_job(**tables):
    raw = {
        "job": {"name": "small", "kind": "federated"},
        "data": {"set": "digits", "rows": 200},
        "federated": {"clients": 6, "rounds": 2, "colluding_share": 0.0},
        "privacy": {"kind": "none", "clip": 2.0},
        "train": {"steps": 3, "batch": 16, "rate": 0.5},
    }
    for name, table in tables.items():
        raw[name] = {**raw.get(name, {}), **table}
    return read_record(raw, FederatedJob, source="job.toml")


def run_job(job):
    out = io.StringIO()
    part = run(job, Console(file=out, width=200), ())
    return part, out.getvalue()


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_the_examples_are_valid_and_their_promise_can_be_kept(path):
    job = read_record(read_toml(path), FederatedJob, source=str(path))
    claim = job.policy(largest_weight=1).terms(650).promise.claim
    assert claim.epsilon <= job.privacy.target_epsilon
    check_inputs(job, ())


def test_a_run_reports_accuracy_cost_and_what_was_shown():
    part, said = run_job(make_job())
    result = part.result
    assert result.kind == "federated"
    assert "no guarantee" in said.splitlines()[0]
    assert result.utility[0].name == "accuracy"
    assert {curve.title for curve in result.curves} >= {"Accuracy", "Upload of a client"}
    assert any("sum of the updates" in leak.what for leak in result.leakage)
    assert result.metered.traffic[0].payload_bytes > 0
    assert set(part.files) == {LEDGER, ROUNDS, WEIGHTS}


def test_the_epsilon_of_the_result_follows_from_its_ledger():
    job = make_job(privacy={"kind": "central", "target_epsilon": 40.0, "delta": 1e-3})
    part, said = run_job(job)
    claim = part.result.claims[0]
    ledger = ledger_from_record(json.loads(part.files[LEDGER]))
    again = epsilon(ledger, delta=1e-3, accountant=claim.accountant)
    assert claim.epsilon == pytest.approx(again.epsilon)
    assert claim.epsilon <= 40.0
    assert "ε = " in said.splitlines()[0]
    assert any(curve.title == "Accuracy against ε" for curve in part.result.curves)


def test_a_target_out_of_reach_stops_before_the_data_is_read():
    job = make_job(
        data={"set": "no-such-set"},
        federated={"aggregator": "shuffled", "rounds": 5000},
        privacy={"kind": "shuffle", "target_epsilon": 1e-4, "delta": 1e-9},
    )
    with pytest.raises(ConfigError, match="the best this plan reaches"):
        run_job(job)


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        ({"federated": {"aggregator": "shuffled"}}, "goes with privacy shuffle"),
        ({"privacy": {"kind": "central"}}, "wants target_epsilon and clip"),
        ({"data": {"file": "rows.csv"}}, "either 'set' or 'file'"),
        ({"federated": {"clients": 1}}, "at least 2"),
        ({"privacy": {"kind": "cental"}}, "did you mean 'central'"),
        ({"parties": {"a": {}}}, "names no parties"),
        ({"train": {"rate": -1.0}}, "rate must be positive"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(tables, message):
    with pytest.raises(ConfigError, match=message):
        make_job(**tables)


def test_a_file_that_is_not_there_is_named():
    raw = {
        "job": {"name": "own", "kind": "federated"},
        "data": {"file": "nowhere.csv", "label": "y"},
        "federated": {"clients": 3, "rounds": 1},
        "privacy": {"clip": 1.0},
    }
    with pytest.raises(DataError, match=r"nowhere\.csv"):
        check_inputs(read_record(raw, FederatedJob, source="job.toml"), ())


def test_own_rows_from_a_file_are_learned(tmp_path):
    lines = [f"{i % 7},{i % 3},{int(i % 7 > 3)}" for i in range(120)]
    path = tmp_path / "rows.csv"
    path.write_text("\n".join(["a,b,y", *lines]) + "\n")
    raw = {
        "job": {"name": "own", "kind": "federated"},
        "data": {"file": str(path), "label": "y", "partition": "dirichlet", "alpha": 5.0},
        "federated": {"clients": 3, "rounds": 2, "aggregator": "plain", "minimum": 2},
    }
    part, _ = run_job(read_record(raw, FederatedJob, source="job.toml"))
    assert part.result.utility[0].value >= 0.5
