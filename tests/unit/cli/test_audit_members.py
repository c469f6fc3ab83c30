"""Who is a member is said by whoever trained the model: an audit that guesses finds nothing."""

import numpy as np
import pytest
import torch
from rich.console import Console
from safetensors.torch import save_file

from tacit.audit.target import fresh
from tacit.audit.targets import Build, load_sides
from tacit.cli.screen import OnConsole
from tacit.errors import ConfigError, DataError
from tacit.jobs.audit import AuditJob, audit_job, check_inputs
from tacit.report.headline import pick_headline_metric, state_headline
from tacit.spec import read_record

SILENT = OnConsole(Console(quiet=True))
ROWS, COLUMNS, CLASSES = 200, 20, 3


def write_rows(path, x, y, member=None):
    columns = [*x.T, y] if member is None else [*x.T, y, member]
    heads = [f"c{at}" for at in range(COLUMNS)] + ["y"] + ([] if member is None else ["in"])
    table = np.column_stack(columns)
    np.savetxt(path, table, header=",".join(heads), comments="", delimiter=",", fmt="%.9g")
    return str(path)


@pytest.fixture
def overfitted(tmp_path):
    """Return files of rows, and weights that know the members by heart."""
    draw = np.random.default_rng(5)
    y = draw.integers(0, CLASSES, 2 * ROWS)
    centres = draw.normal(0, 0.3, (CLASSES, COLUMNS))
    x = centres[y] + draw.normal(0, 1, (2 * ROWS, COLUMNS))
    member = np.zeros(2 * ROWS, bool)
    member[draw.permutation(2 * ROWS)[:ROWS]] = True
    module = fresh(Build("mlp", (COLUMNS,), CLASSES), 1)
    rows, labels = torch.tensor(x[member]).float(), torch.tensor(y[member])
    optimiser = torch.optim.Adam(module.parameters(), 5e-3)
    for _ in range(120):
        optimiser.zero_grad()
        torch.nn.functional.cross_entropy(module(rows), labels).backward()
        optimiser.step()
    save_file(module.state_dict(), tmp_path / "w.safetensors")
    guessed = draw.permutation(member)  # what dividing the file by a seed of one's own amounts to
    return {
        "members": write_rows(tmp_path / "in.csv", x[member], y[member]),
        "strangers": write_rows(tmp_path / "out.csv", x[~member], y[~member]),
        "all": write_rows(tmp_path / "all.csv", x, y),
        "marked": write_rows(tmp_path / "marked.csv", x, y, member.astype(int)),
        "guessed": write_rows(tmp_path / "guessed.csv", x, y, guessed.astype(int)),
        "weights": str(tmp_path / "w.safetensors"),
    }


def make_job(tmp_path, data, model=None):
    raw = {
        "job": {"name": "own", "kind": "audit", "out": str(tmp_path / "out")},
        "data": {"label": "y", **data},
        "model": {"name": "mlp", **(model or {})},
        "audit": {"threats": ["scores"]},
    }
    return read_record(raw, AuditJob, source="job.toml")


def best_auc(job):
    result, _ = audit_job(job, SILENT, ())
    return result, pick_headline_metric(result)


def test_weights_of_ones_own_without_members_are_refused_with_the_way_out(tmp_path, overfitted):
    for data in ({"file": overfitted["all"]}, {"set": "digits", "label": None}):
        data = {key: value for key, value in data.items() if value is not None}
        with pytest.raises(
            ConfigError, match=r"data\.members.*data\.strangers.*data\.member "
        ) as no:
            make_job(tmp_path, data, {"file": overfitted["weights"]})
        assert "only you know on which rows" in str(no.value)


@pytest.mark.parametrize("way", ["two files", "a column"])
def test_an_overfitted_model_is_found_out_with_its_true_members(tmp_path, overfitted, way):
    named = {key: overfitted[key] for key in ("members", "strangers")}
    data = named if way == "two files" else {"file": overfitted["marked"], "member": "in"}
    job = make_job(tmp_path, data, {"file": overfitted["weights"]})
    check_inputs(job, ())
    result, best = best_auc(job)
    inside, outside = result.utility[:2]
    assert inside.value > outside.value + 0.1  # by heart
    assert best.name.endswith("AUC")
    assert best.low > 0.55
    assert state_headline(result).startswith(f"Strongest attack: {best.name}")
    assert any("that the job names" in note for note in result.notes)


def test_a_guess_of_who_the_members_are_finds_nothing(tmp_path, overfitted):
    """The fault of 0.1: members drawn by a seed of the audit's own hide what is there."""
    data = {"file": overfitted["guessed"], "member": "in"}
    _, best = best_auc(make_job(tmp_path, data, {"file": overfitted["weights"]}))
    assert best.low < 0.5


def test_a_model_that_is_trained_here_may_draw_its_members_here(tmp_path, overfitted):
    job = make_job(tmp_path, {"file": overfitted["all"], "test_share": 0.25})
    members, strangers, classes = load_sides(job, ())
    assert (len(members[1]), len(strangers[1]), classes) == (300, 100, CLASSES)


def test_sides_that_cannot_be_are_refused(tmp_path, overfitted):
    twice = {"members": overfitted["members"], "strangers": overfitted["members"]}
    with pytest.raises(DataError, match="200 of 200 are among the members too"):
        load_sides(make_job(tmp_path, twice), ())
    other = {"members": overfitted["members"], "strangers": overfitted["marked"]}
    with pytest.raises(DataError, match="the same columns"):
        load_sides(make_job(tmp_path, other), ())
    with pytest.raises(DataError, match="wanted a column 'who'"):
        load_sides(make_job(tmp_path, {"file": overfitted["all"], "member": "who"}), ())
    with pytest.raises(DataError, match="wanted both 1 for members and 0"):
        load_sides(make_job(tmp_path, {"file": overfitted["all"], "member": "c0"}), ())
    gone = {"members": overfitted["members"], "strangers": str(tmp_path / "gone.csv")}
    with pytest.raises(DataError, match=r"data\.strangers: no such file"):
        check_inputs(make_job(tmp_path, gone), ())
