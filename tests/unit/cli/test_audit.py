"""`tacit audit`: what is read, found and refused, and the exit code of a broken claim."""

from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from rich.console import Console
from safetensors.torch import save_file

from tacit import report
from tacit.audit.target import fresh
from tacit.cli.audit import audit_job, check_inputs, run
from tacit.cli.audit_command import audit
from tacit.cli.audit_job import AuditJob
from tacit.cli.audit_target import Build, load_module, load_sides, make_target
from tacit.cli.commands import Edge
from tacit.cli.federated_job import FederatedJob
from tacit.cli.split_job import SplitJob
from tacit.cli.toml import read_record, read_toml
from tacit.errors import ClaimError, ConfigError, DataError

JOBS = Path(__file__).parents[3] / "examples" / "jobs"
EXAMPLES = sorted(JOBS.glob("audit-*.toml"))
SILENT = Console(quiet=True)


def raw_job(tmp_path, **tables):
    raw = {
        "job": {"name": "small", "kind": "audit", "out": str(tmp_path / "out")},
        "data": {"set": "digits", "rows": 120},
        "model": {"name": "linear"},
        "train": {"epochs": 3, "rate": 0.5},
        "audit": {"shadows": 4, "threats": ["scores", "shadows"]},
    }
    for name, table in tables.items():
        raw[name] = {**raw.get(name, {}), **table}
    return raw


def make_job(tmp_path, **tables):
    return read_record(raw_job(tmp_path, **tables), AuditJob, source="job.toml")


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_the_examples_are_valid_and_can_be_quickened(path):
    job = read_record(read_toml(path), AuditJob, source=str(path))
    check_inputs(job, ())
    quick = job.quickened()
    assert quick.audit.shadows <= 8
    assert quick.audit.rounds <= 100
    assert quick.data.rows <= 1000


def test_a_job_is_attacked_and_its_result_can_be_repeated(tmp_path):
    first = run(make_job(tmp_path), SILENT, ()).result
    again = run(make_job(tmp_path), SILENT, ()).result  # shadow models come from the cache
    assert first.utility == again.utility
    assert first.sheets == again.sheets
    assert [sheet.title for sheet in first.sheets][:3] == [
        *("Threats", "Most exposed records", "Leakage by group"),
    ]
    assert first.claims[0].guarantee == "no guarantee"
    assert len(list((tmp_path / "out-shadows").glob("*.npz"))) == 4
    assert report.from_json(report.to_json(first), source="test") == first


def test_members_and_strangers_are_different_rows_in_the_wanted_numbers(tmp_path):
    members, others, classes = load_sides(make_job(tmp_path, data={"test_share": 0.25}), ())
    assert (len(members[1]), len(others[1]), classes) == (90, 30, 10)
    both = {row.numpy().tobytes() for row in members[0]} & {
        row.numpy().tobytes() for row in others[0]
    }
    assert not both


PRIVATE = {
    "privacy": {"steps": 2, "sample_rate": 1.0, "clip": 1.0, "multiplier": 1.0},
    "audit": {"threats": ["scores"], "canaries": 60, "rounds": 20},
}


def test_an_honest_claim_stands(tmp_path):
    result, verdicts = audit_job(make_job(tmp_path, **PRIVATE), SILENT, ())
    assert [one.is_contradicted for one in verdicts] == [False] * 3
    assert [sheet.title for sheet in result.sheets][1] == "Claims and measurements"
    assert result.claims[0].epsilon > 1
    # Three verdicts share 5 %.
    assert verdicts[0].confidence == pytest.approx(1 - 0.05 / 3)


class Shell(CliRunner):
    """Calls the command as `tacit audit` does."""

    def call(self, *arguments):
        edge = Edge(out=SILENT, err=SILENT)
        return self.invoke(audit, [str(one) for one in arguments], obj=edge)


def write_toml(path, raw):
    lines = []
    for table, keys in raw.items():
        lines.append(f"[{table}]")
        lines += [f"{key} = {value!r}".replace("'", '"') for key, value in keys.items()]
    path.write_text("\n".join(lines))
    return path


def test_a_claim_that_is_too_good_ends_in_a_claim_error_after_the_report(tmp_path):
    lie = {**PRIVATE, "privacy": {**PRIVATE["privacy"], "multiplier": 0.3}}
    lie["privacy"]["claimed_epsilon"] = 0.5
    path = write_toml(tmp_path / "job.toml", raw_job(tmp_path, **lie))
    done = Shell().call(path, "--html", tmp_path / "page.html")
    assert isinstance(done.exception, ClaimError)
    assert done.exception.exit_code == 3
    assert "claimed ε ≤ 0.5" in str(done.exception)
    assert "contradicted" in (tmp_path / "page.html").read_text()
    assert (tmp_path / "out" / "result.json").exists()


def test_weights_of_a_user_are_loaded_and_wrong_ones_are_named(tmp_path):
    build = Build("linear", (8, 8), 10)
    weights = fresh(build, 3).state_dict()
    save_file(weights, tmp_path / "w.safetensors")
    np.savez(tmp_path / "w.npz", **{name: value.numpy() for name, value in weights.items()})
    for name in ("w.safetensors", "w.npz"):
        loaded = load_module(build, tmp_path / name).state_dict()
        assert all(torch.equal(loaded[key], value) for key, value in weights.items())
    with pytest.raises(DataError, match="do not fit"):
        load_module(Build("mlp", (8, 8), 10), tmp_path / "w.npz")
    (tmp_path / "bad.npz").write_text("no")
    with pytest.raises(DataError, match="wanted weights"):
        load_module(build, tmp_path / "bad.npz")


def test_a_federated_job_is_audited_as_it_is(tmp_path):
    raw = {
        "job": {"name": "fl", "kind": "federated", "out": str(tmp_path / "fl")},
        "data": {"set": "digits", "rows": 80},
        "federated": {"clients": 4, "rounds": 2, "aggregator": "plain", "server": "curious"},
        "train": {"steps": 3, "batch": 16, "rate": 0.5},
        "privacy": {"kind": "none", "clip": 2.0},
    }
    job = read_record(raw, FederatedJob, source="job.toml")
    result, verdicts = audit_job(job, SILENT, (), is_quick=True)
    assert verdicts == ()
    assert len(result.sheets[0].rows) == 4
    assert result.claims[0].guarantee == "no guarantee"


def test_a_defence_is_swept_into_a_frontier(tmp_path):
    swept = {"audit": {"threats": ["scores"], "sweep": [1, 20], "sweep_setting": "epochs"}}
    result, _ = audit_job(make_job(tmp_path, **swept), SILENT, ())
    (curve,) = (one for one in result.curves if one.title == "Privacy against utility")
    assert len(curve.points) == 2
    (sheet,) = (one for one in result.sheets if one.title == "Defence sweep")
    assert [row[0] for row in sheet.rows] == ["epochs 1", "epochs 20"]
    with pytest.raises(ConfigError, match="multiplier"):
        make_job(tmp_path, audit={"sweep": [1.0], "sweep_setting": "multiplier"})


def test_other_kinds_of_jobs_are_refused():
    path = JOBS / "split.toml"
    job = read_record(read_toml(path), SplitJob, source=str(path))
    with pytest.raises(ConfigError, match="wanted a job of kind 'audit' or 'federated'"):
        make_target(job, ())


@pytest.mark.parametrize(
    ("tables", "text"),
    [
        ({"audit": {"shadows": 5}}, "even number"),
        ({"audit": {"threats": ["x"]}}, "wanted some of"),
        ({"audit": {"confidence": 1.0}}, "below 1"),
        ({"data": {"file": "x.csv"}}, "either 'set' or 'file'"),
        ({"data": {"test_share": 1.5}}, "between 0 and 1"),
        ({"parties": {"a": {}}}, "no parties"),
        ({"train": {"epochs": 0}}, "must be positive"),
        ({"privacy": {"steps": 1, "sample_rate": 0.5, "clip": 1.0, "multiplier": -1.0}}, "sigma"),
    ],
)
def test_wrong_settings_are_refused_by_name(tmp_path, tables, text):
    with pytest.raises(ConfigError, match=text):
        make_job(tmp_path, **tables)


def test_missing_files_and_devices_are_said_early(tmp_path):
    with pytest.raises(DataError, match=r"model\.file: no such file"):
        check_inputs(make_job(tmp_path, model={"file": "nowhere.npz"}), ())
    with pytest.raises(ConfigError, match=r"train\.device"):
        make_target(make_job(tmp_path, train={"device": "cuda:99"}), ())
