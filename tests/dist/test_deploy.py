"""What is deployed: completion in real shells, units, and the commands of the compose file."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from dist.install import ROOT

DEPLOY = ROOT / "examples" / "deploy"
TACIT = [sys.executable, "-c", "from tacit.__main__ import main; main()"]
PORTS = {"hospital": "7411", "lab": "7412"}


def find_shell(name):
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found


def ask(shell, **typed):
    """Return what the shell's script gets from us for what was typed."""
    asking = {"_TACIT_COMPLETE": f"{shell}_complete", **typed}
    command = [sys.executable, "-c", "import sys; sys.argv[0] = 'tacit'\n" + TACIT[-1]]
    done = subprocess.run(command, env={**os.environ, **asking}, capture_output=True, text=True)
    return done.stdout


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_reads_its_completion_script(shell, tmp_path):
    script = subprocess.run([*TACIT, "completion", shell], capture_output=True, text=True).stdout
    path = tmp_path / f"tacit.{shell}"
    path.write_text(script)
    assert "_TACIT_COMPLETE" in script
    done = subprocess.run([find_shell(shell), "-n", path], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_commands_and_parties_are_completed():
    job = str(ROOT / "examples" / "jobs" / "predict-permuted.toml")
    assert "plain,report\n" in ask("bash", COMP_WORDS="tacit rep", COMP_CWORD="1")
    assert "report" in ask("zsh", COMP_WORDS="tacit rep", COMP_CWORD="1").split("\n")
    assert "plain,report" in ask("fish", COMP_WORDS="tacit", COMP_CWORD="rep")
    asked = ask("bash", COMP_WORDS=f"tacit party {job} --as h", COMP_CWORD="4")
    assert asked == "plain,hospital\nplain,helper\n"


def test_units_are_such_as_systemd_wants(tmp_path):
    analyze = find_shell("systemd-analyze")
    units = sorted(DEPLOY.glob("*.service"))
    assert len(units) == 2
    for unit in units:
        # The program is not where the unit will find it: one that is there stands in.
        text = unit.read_text().replace("/opt/tacit/bin/tacit", shutil.which("true") or "")
        copy = tmp_path / unit.name.replace("@", "@north")
        copy.write_text(text.replace("User=tacit", "User=root"))
        done = subprocess.run(
            [analyze, "verify", "--man=no", copy], capture_output=True, text=True
        )
        assert (done.returncode, done.stderr) == (0, ""), unit.name


@pytest.mark.slow
def test_the_parties_of_the_compose_file_predict_together(tmp_path):
    """Each command as compose starts it, in a folder of its own instead of a container."""
    yaml = pytest.importorskip("yaml")
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    job = tmp_path / "job.toml"
    text = (DEPLOY / "job.toml").read_text()
    for name in services:
        keys = tmp_path / name / "keys"
        made = subprocess.run(
            [*TACIT, "keys", name, "--dir", keys], capture_output=True, text=True, check=True
        )
        text += made.stdout
        text += f'address = "127.0.0.1:{PORTS[name]}"\n' if name in PORTS else ""
    job.write_text(text)
    running = {}
    for name, service in services.items():
        volumes = dict(one.split(":")[:2] for one in service["volumes"])
        own_volumes = {f"{name}-keys": "/keys", f"{name}-out": "/out"}
        assert volumes == {"./job.toml": "/job/job.toml", **own_volumes}
        own = tmp_path / name / "job.toml"
        own.write_text(text.replace('"/out/', f'"{tmp_path / name}/'))
        words = [
            word.replace("/job/job.toml", str(own))
            .replace("/keys", str(tmp_path / name / "keys"))
            .replace("0.0.0.0", "127.0.0.1")  # noqa: S104
            for word in service["command"]
        ]
        running[name] = subprocess.Popen(
            [*TACIT, *words], cwd=tmp_path / name, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
    said = {name: process.communicate(timeout=120)[0] for name, process in running.items()}
    assert {process.returncode for process in running.values()} == {0}, said
    assert Path(tmp_path / "hospital" / "diagnosis-hospital" / "predictions.csv").exists()
