"""Columns in units of their own: said before a run, with where they are brought to size."""

import io
import logging

import numpy as np
import pytest
import torch
from rich.console import Console

from tacit.cli.screen import OnConsole
from tacit.data import state_far
from tacit.errors import InputError, RangeError
from tacit.federated import fit as fit_federated
from tacit.jobs.federated import run
from tacit.jobs.kind import Asked
from tacit.jobs.kinds import find_kind, kind_of
from tacit.learners.rows import load_rows as load_fit_rows
from tacit.spec import read_record


def read(raw):
    return read_record(raw, find_kind(raw, "job.toml").record, source="job.toml")


@pytest.fixture
def files(tmp_path):
    """Two owners with money and years as they lie in a database, and a class that follows z."""
    coins, found = np.random.default_rng(0), []
    for name in ("north", "south"):
        z = coins.normal(size=60)
        rows = [coins.normal(3e5, 2e5, 60), coins.normal(40, 9, 60), z, z > 0.8]
        found.append(str(tmp_path / f"{name}.csv"))
        head = "money,age,z,y"
        np.savetxt(found[-1], np.column_stack(rows), "%.6g", ",", header=head, comments="")
    return found


def shares(files, kind, **tables):
    owners = {
        name: {"file": file, "label": "y"}
        for name, file in zip(("north", "south"), files, strict=True)
    }
    return read(
        {
            "job": {"name": "j", "kind": kind},
            "parties": {"north": {}, "south": {}, "helper": {}},
            "data": {"owners": owners},
            "protocol": {"kind": "sealed", "dealer": "helper"},
            **tables,
        }
    )


def test_a_training_beyond_its_bound_is_refused_by_the_plan_with_columns_and_remedy(files):
    job = shares(files, "train", model={"layers": ["dense 2"]}, training={"batch": 8})
    with pytest.raises(InputError, match="'money', 'age', 'z' of 'north' go beyond") as refused:
        kind_of(job).forecast(job, Asked())
    assert "data.prepare (of divided columns data.owners.NAME.prepare)" in str(refused.value)
    assert "e+0" not in str(refused.value)  # no value: others may be told


def test_a_learner_without_room_names_owners_and_the_key_that_helps(files):
    learner = {"kind": "logistic-regression"}
    job = shares(
        files, "fit", learner={**learner, "standardise": True}, reveal={"score": ["north"]}
    )
    assert load_fit_rows(job, "north", ()).columns == ("money", "age", "z")
    with pytest.raises(RangeError, match=r"north ±.*south ±.*data\.prepare"):
        kind_of(job).forecast(job, Asked())


def federated(files):
    return read(
        {
            "job": {"name": "j", "kind": "federated"},
            "data": {"files": files, "label": "y"},
            "federated": {"clients": 2, "rounds": 1, "aggregator": "plain"},
            "model": {"name": "linear"},
            "privacy": {"kind": "none"},
        }
    )


def test_a_federated_job_on_raw_columns_is_warned_of_in_plan_and_before_it_runs(files):
    job, said = federated(files), "Warning: 'money' (about 4e+05), 'age' (about 4e+01) are far from"
    assert any(line.startswith(said) for line in kind_of(job).forecast(job, Asked()).lines)
    out = io.StringIO()
    result = run(job, OnConsole(Console(file=out, width=400)), ()).result
    before, after = out.getvalue().split("round    1/1")
    assert said in before
    assert said not in after
    assert "money" not in str(result)  # sizes of rows stay with whoever has them


def test_one_s_own_program_is_warned_of_raw_columns_and_of_no_others(caplog):
    caplog.set_level(logging.WARNING)
    x, y = torch.randn(40, 3), torch.arange(40) % 2
    fit_federated("linear", [(x, y)] * 2, rounds=1, aggregator="plain")
    assert not caplog.records
    fit_federated("linear", [(x * 1000, y)] * 2, rounds=1, aggregator="plain")
    assert "'column 1' (about 1e+03)" in caplog.text


def test_only_columns_in_a_unit_of_their_own_are_named():
    assert state_far(torch.randn(50, 4), ()) == ""
    assert state_far(1e3 * torch.randn(5, 28, 28), ()) == ""  # pictures
    assert state_far(torch.arange(10)[:, None], ("token",)) == ""
    many = state_far(1e3 * torch.ones(5, 9), ())
    assert "'column 5' (about 1e+03), 4 more are far from" in many
