"""``tacit hosts``: parties in folders of their own, with real processes, and a key that changes."""

import csv
import json
import re
import shlex
import shutil
from pathlib import Path

import numpy as np
import pytest

import tacit
from support.jobs import tacit_says
from support.processes import Program
from tacit.crypto import renew_identity

JOBS = Path(tacit.__file__).parents[2] / "examples" / "jobs"
OWN = """[job]
name = "own"
kind = "infer"
out = "elsewhere"

[parties.hospital]
[parties.lab]
[parties.dealer]

[data]
owner = "hospital"
file = "patients.csv"
bound = 1.0

[model]
owner = "lab"
file = "model.npz"
bound = 4.0

[protocol]
kind = "sealed"
compute = ["hospital", "lab"]
dealer = "dealer"
reveal = "class"

[network]
connect_s = 100
"""


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job.toml").write_text(OWN)
    (tmp_path / "patients.csv").write_text("pressure,sex,age\n0.5,0,0.5\n0,1,0\n1,1,0.25\n")
    np.savez(tmp_path / "model.npz", weight=[0.8, -1.2, 0.4], bias=[0.1])
    return tmp_path


def start_all(top, lines):
    """Start what the command printed, each in its folder."""
    started = []
    for line in lines:
        folder, command = re.fullmatch(r"\(cd (\S+) && tacit (.*)\) &", line).groups()
        started.append(Program(*shlex.split(command), folder=top / folder))
    ended = [(*program.communicate(timeout=240), program.returncode) for program in started]
    return [code for *_, code in ended], [err for _, err, _ in ended]


def test_one_command_makes_folders_whose_parties_meet_until_one_changes_its_key(here):
    code, out, err = tacit_says("hosts", "job.toml", "--to", "trial hosts")
    assert code == 0, err
    assert "all keys were made here" in err
    shutil.move(here / "trial hosts", here / "trial")  # folders may be moved, as to a real host
    *lines, last = out.replace("'trial hosts/", "trial/").replace("' &&", " &&").splitlines()
    assert last == "wait"
    codes, errors = start_all(here, lines)
    assert codes == [0, 0, 0], errors
    result = here / "trial/hospital/out/own-hospital"
    with (result / "predictions.csv").open() as stream:
        assert [row["prediction"] for row in csv.DictReader(stream)] == ["1", "0", "0"]
    assert json.loads((result / "result.json").read_text())["launched"] == "remote"

    # The lab's key was stolen. Everybody but the thief has the job with the new one.
    shutil.copytree(here / "trial/lab", here / "thief")
    new, old, _ = renew_identity("lab", here / "trial/lab/keys")
    for name in ("hospital", "dealer", "lab"):
        job = here / "trial" / name / "job.toml"
        job.write_text(job.read_text().replace(old, new.fingerprint).replace("100", "5"))
    codes, errors = start_all(here, [line.replace("trial/lab", "thief") for line in lines])
    assert codes == [4, 4, 4], errors
    assert old in errors[0]
    assert new.fingerprint in errors[0]


def test_a_folder_holds_one_key_and_the_job_with_those_of_all(here):
    code, out, err = tacit_says("hosts", "job.toml")
    assert code == 0, err
    assert out.splitlines()[0] == "(cd hosts/own/hospital && tacit party job.toml --as hospital) &"
    jobs = {path.read_text() for path in here.glob("hosts/own/*/job.toml")}
    assert len(jobs) == 1
    text = jobs.pop()
    assert len(set(re.findall(r"sha256:\w+", text))) == len(set(re.findall(r":\d+\"", text))) == 3
    assert f'file = "{here}/patients.csv"' in text
    assert "elsewhere" not in text
    held = sorted(str(one.relative_to(here / "hosts/own")) for one in here.rglob("*.key"))
    assert held == [f"{name}/keys/{name}.key" for name in ("dealer", "hospital", "lab")]
    assert tacit_says("hosts", "job.toml")[0] == 2  # is not written over
    assert [one.name for one in (here / "hosts").iterdir()] == ["own"]


def test_a_service_has_folders_for_its_clients_and_doors_here(here):
    code, out, _ = tacit_says("hosts", JOBS / "serve-digits.toml", "--to", "t")
    assert code == 0
    assert out.splitlines()[2:4] == [
        "(cd t/helper && tacit serve job.toml --as helper) &",
        "(cd t/ann && tacit ask job.toml ROWS.csv --as ann)",
    ]
    assert "127.0.0.1:7801" not in (here / "t/ann/job.toml").read_text()


def test_a_job_of_one_process_has_no_hosts_and_leaves_nothing(here):
    code, _, err = tacit_says("hosts", JOBS / "fl-digits.toml", "--to", "t")
    assert code == 2
    assert "use `tacit run`" in err
    assert not (here / "t").exists()
