"""A fit between real processes: the example job, whole."""

import json
from pathlib import Path

import numpy as np

from support.processes import Program

JOBS = Path(__file__).parents[2] / "examples" / "jobs"


def test_owners_of_columns_fit_a_learner_as_processes(tmp_path):
    text = (JOBS / "fit-columns.toml").read_text()
    text = text.replace('"out/fit-columns"', f'"{tmp_path / "out"}"')
    path = tmp_path / "job.toml"
    path.write_text(text.replace("[0, 160]", "[0, 80]").replace("[20, 180]", "[10, 90]"))
    process = Program("run", path, folder=tmp_path)
    _, errors = process.communicate()
    assert process.returncode == 0, errors
    result = json.loads((tmp_path / "out" / "result.json").read_text())
    measured = {one["name"]: one for one in result["utility"]}
    assert measured["accuracy"]["value"] > 0.7
    assert abs(measured["accuracy"]["value"] - measured["accuracy"]["reference"]) < 0.15
    assert measured["AUC"]["value"] > 0.8
    assert not [one for one in result["leakage"] if one["kind"] == "protocol"]
    assert not [o for o in result["leakage"] if o["to"] == "dealer" and o["kind"] != "size"]
    sent = {
        (one["sender"], one["receiver"], one["phase"]): one["payload_bytes"]
        for one in result["metered"]["traffic"]
        if one["phase"] != "setup"
    }
    planned = {
        (one["sender"], one["receiver"], one["phase"]): one["payload_bytes"]
        for one in result["forecast"]["cost"]["traffic"]
    }
    assert sent == planned
    assert np.load(tmp_path / "out" / "coefficients.npz")["coef"].shape == (9, 1)


def test_owners_of_columns_boost_by_a_cipher_as_processes(tmp_path):
    text = (JOBS / "fit-cipher.toml").read_text()
    text = text.replace('"out/fit-cipher"', f'"{tmp_path / "out"}"')
    path = tmp_path / "job.toml"
    path.write_text(text.replace("n_estimators = 5", "n_estimators = 1"))
    process = Program("run", path, folder=tmp_path)
    _, errors = process.communicate()
    assert process.returncode == 0, errors
    result = json.loads((tmp_path / "out" / "result.json").read_text())
    measured = {one["name"]: one["value"] for one in result["utility"]}
    assert measured["accuracy"] > 0.85
    shown = {(one["to"], one["what"].split(" of ")[0]) for one in result["leakage"]}
    assert ("insurer", "sums") in shown
    assert ("bank", "which rows lie in which node") in shown
