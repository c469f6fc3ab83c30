"""What is installed is pinned with hashes and named as ours; what is secret is kept out of git."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LOCKS = sorted((ROOT / "locks").glob("*.txt"))
PIN = re.compile(r"^([A-Za-z0-9._-]+)==(\S+)", re.MULTILINE)


def normal(name):
    return re.sub(r"[-_.]+", "-", name).lower()


def pins(text):
    return {normal(name): version for name, version in PIN.findall(text)}


@pytest.mark.parametrize("lock", LOCKS, ids=lambda path: path.stem)
def test_every_locked_file_has_a_hash_and_the_version_of_the_constraints(lock):
    text = lock.read_text()
    entries = re.split(r"\n(?=[A-Za-z])", text)[1:]
    assert len(entries) == len(pins(text)) > 10
    for entry in entries:
        assert re.search(r"--hash=sha256:[0-9a-f]{64}", entry), entry.splitlines()[0]
    wanted = pins((ROOT / "constraints.txt").read_text())
    assert pins(text).items() <= wanted.items()
    assert "://" not in text
    assert "torch" not in pins(text)  # installed by its version alone: see the Makefile


def test_there_is_a_lock_for_every_set_of_packages():
    assert [path.stem for path in LOCKS] == ["check", "docs", "run", "test"]


def tracked():
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("not a checkout")
    done = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True)
    return [ROOT / name for name in done.stdout.decode().split("\0") if name]


def test_nobody_is_told_to_install_the_distribution_of_someone_else():
    wrong = re.compile(r"pip install[^\n]*?(?<![\w./-])['\"]?tacit(?![\w/-])")
    kinds = {".py", ".md", ".toml", ".txt", ""}
    ours = [path for path in tracked() if path.suffix in kinds and path.is_file()]
    assert wrong.search("pip install 'tacit[dp]'")
    assert not wrong.search("pip install 'tacit-ml[dp]'")
    mine = Path(__file__)
    found = [path for path in ours if path != mine and wrong.search(path.read_text("utf-8"))]
    assert found == []


@pytest.mark.parametrize(
    "name",
    [
        "keys/alice.key",
        "alice.key",  # tacit keys alice --dir .
        "examples/jobs/ana.secret",
        "examples/jobs/keys/alice.key",
        "examples/jobs/out/demo/half-north.npz",
        "half-north.npz",
        ".train-north.state/step-2.npz",
        ".out.123-0123456789ab.part/predictions.csv",
        "split-state/0123/alice/step-4.npz",
        "audit-shadows/0123.npz",
        "bob.material",
        "bob.material.used",
        "7-1.journal",
    ],
)
def test_what_a_party_keeps_for_itself_is_not_committed(name):
    tracked()
    done = subprocess.run(["git", "check-ignore", "-q", name], cwd=ROOT, check=False)
    assert done.returncode == 0
