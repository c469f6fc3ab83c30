"""A job that somebody else wrote: what one reads before running it does not run."""

import os
import subprocess
import sys

import pytest

from support.jobs import JOBS, tacit_says
from tacit.jobs.toml import read_toml, write_toml

CODE = """
from pathlib import Path
from torch import nn

Path(__file__).with_name("planted").touch()

def make_model():
    return nn.Sequential(nn.Linear(64, 10))
"""


@pytest.fixture
def home(tmp_path, monkeypatch):
    """Be a user who has allowed nothing yet."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return tmp_path


def job_with_code(folder, name):
    """Write an example whose model is a program that leaves a trace."""
    (folder / "net.py").write_text(CODE)
    raw = read_toml(JOBS / f"{name}.toml")
    raw["model"].pop("layers", None)
    raw["model"].pop("name", None)
    raw["model"]["code"] = str(folder / "net.py")
    raw["job"]["out"] = str(folder / "out")
    path = folder / f"{name}.toml"
    path.write_text(write_toml(raw))
    return path


CHILDREN = """
import subprocess
from multiprocessing import get_context
from tacit.cli import main
from tacit.party import python_command

def start_children(arguments, edge):
    child = get_context("spawn").Process(target=print)
    child.start()
    child.join()
    return child.exitcode or subprocess.run(python_command("--version")).returncode

if __name__ == "__main__":
    main.run_command = start_children
    main.entry()
"""
COMMANDS = {
    "train-digits": ("plan", "plan --all-protocols", "run", "doctor --job"),
    "predict": ("plan", "plan --all-protocols", "run", "leakage"),
    "audit-digits": ("plan", "run", "audit"),
    "serve-digits": ("plan", "serve"),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_code_of_a_job_runs_under_no_command_before_it_was_allowed(home, name):
    job = job_with_code(home, name)
    said = ""
    for command in COMMANDS[name]:
        said += "".join(map(str, tacit_says(*command.split(), job)))
        assert not (home / "planted").exists(), command
    assert f"tacit allow {home / 'net.py'}" in said


def test_the_page_runs_no_code_of_a_job_that_it_checks(home):
    testclient = pytest.importorskip("starlette.testclient")
    from tacit.cli.studio.app import make_app
    from tacit.cli.studio.guard import COOKIE, Keys

    keys = Keys(path="/place/", token="t" * 32, cookie="c" * 32)
    client = testclient.TestClient(
        make_app(home / "out", keys, 8099), base_url="http://127.0.0.1:8099"
    )
    client.headers["origin"] = "http://127.0.0.1:8099"
    client.cookies.set(COOKIE, keys.cookie)
    for name in COMMANDS:
        text = job_with_code(home, name).read_text()
        page = client.post("/place/start?kind=train", data={"do": "check", "text": text}).text
        assert "sha256" in page or name == "audit-digits", page
        assert not (home / "planted").exists(), name


def test_a_file_is_allowed_as_it_is_and_asked_about_again_once_it_changes(home):
    job = job_with_code(home, "train-digits")
    code, out, err = tacit_says("allow", home / "net.py")
    assert (code, out.count("sha256")) == (0, 1), err
    assert not (home / "planted").exists()
    assert tacit_says("plan", job)[0] == 0
    assert (home / "planted").exists()
    (home / "net.py").write_text(CODE + "\n# and more\n")
    code, _, err = tacit_says("plan", job)
    assert (code, "tacit allow" in err) == (2, True)


def test_no_process_of_a_run_imports_what_lies_in_the_folder_of_a_job(home):
    (home / "job").mkdir()
    for name in ("click", "multiprocessing", "tacit"):
        (home / "job" / f"{name}.py").write_text(f"raise SystemExit('{name} of the job')")
    (home / "command.py").write_text(CHILDREN)
    done = subprocess.run(
        [sys.executable, home / "command.py"],
        cwd=home / "job",
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout.split()[0]) == (0, "tacit"), done.stderr


@pytest.mark.parametrize("what", ["code", "file", "described", "texts"])
def test_what_a_job_names_is_a_file_and_no_pipe_that_never_ends(home, what):
    """A plan reads it, and so does the studio: one that waits for a writer would stay for ever."""
    (home / "pipe.csv").symlink_to("/dev/zero")
    os.mkfifo(home / "pipe")
    (home / "rows.toml").write_text('file = "pipe.csv"')
    named = {"code": "pipe", "file": "pipe.csv", "described": "rows.toml", "texts": "pipe"}[what]
    raw = read_toml(JOBS / ("text-hospital.toml" if what == "texts" else "train-digits.toml"))
    if what == "code":
        raw["model"] = {"code": str(home / named)}
    elif what == "texts":
        raw["data"]["texts"] = str(home / named)
    else:
        raw["data"]["owners"]["north"] = {"file": str(home / named), "label": "y"}
    (home / "job.toml").write_text(write_toml(raw))
    code, _, err = tacit_says("plan", home / "job.toml")
    assert code == 2, err
    assert "a file, got a folder, a pipe or a device" in err or "no such file" in err, err
