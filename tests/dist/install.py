"""What `make dist` does: build, install in a fresh environment, and run what was installed.

The wheel is built from the sdist, so that the sdist is known to be whole. The environment has
nothing but the wheel and what it asks for, at the versions of constraints.txt; commands run in an
empty folder, where nothing of the repository is found.
"""

import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
DIST = ROOT / "dist"
# A command, and a line that it must print.
COMMANDS = (
    ("tacit --version", "tacit"),
    ("tacit demo", "Report: out/demo/report.html"),
    ("tacit examples", "fl-hospitals"),
    ("tacit examples train-columns --to mine.toml", "mine.toml"),
    ("tacit run mine.toml", "Report: "),
    ("tacit completion fish", "complete"),
)


def build() -> Path:
    """Build the sdist, and the wheel from what the sdist has; return the wheel."""
    shutil.rmtree(DIST, ignore_errors=True)
    hatchling = [sys.executable, "-m", "hatchling", "build", "-d", str(DIST)]
    subprocess.run([*hatchling, "-t", "sdist"], cwd=ROOT, check=True)
    (sdist,) = DIST.glob("*.tar.gz")
    with tempfile.TemporaryDirectory(prefix="tacit-sdist-") as name:
        with tarfile.open(sdist) as archive:
            archive.extractall(name, filter="data")
        (unpacked,) = Path(name).iterdir()
        subprocess.run([*hatchling, "-t", "wheel"], cwd=unpacked, check=True)
    (wheel,) = DIST.glob("*.whl")
    return wheel


def hold_nothing_else(wheel: Path) -> None:
    """Make sure that a wheel has no file that is not committed: a key, a result, an own job.

    Raises:
        SystemExit: it has one.
    """
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True, text=True
    ).stdout.split("\0")
    known = {name.removeprefix("src/") for name in listed} | {f"tacit/{name}" for name in listed}
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if ".dist-info/" not in name]
    if foreign := sorted(set(names) - known):
        sys.exit(f"the wheel has files that are not committed: {', '.join(foreign[:8])}")


def try_out(wheel: Path) -> None:
    """Install the wheel where nothing else is, and run it.

    Raises:
        SystemExit: a command failed, or did not print what it should.
    """
    with tempfile.TemporaryDirectory(prefix="tacit-wheel-") as name:
        place, empty = Path(name) / "venv", Path(name) / "empty"
        empty.mkdir()
        venv.create(place, with_pip=True)
        pip = [str(place / "bin" / "python"), "-m", "pip", "--disable-pip-version-check"]
        wanted = ["-c", str(ROOT / "constraints.txt"), str(wheel)]
        subprocess.run([*pip, "install", "--quiet", *wanted], check=True)
        path = f"{place / 'bin'}{os.pathsep}{os.environ['PATH']}"
        hidden = ("PYTHONPATH", "VIRTUAL_ENV", "TACIT_DATA")
        clean = {key: value for key, value in os.environ.items() if key not in hidden}
        for command, promised in COMMANDS:
            print(f"  $ {command}", flush=True)
            done = subprocess.run(
                ["bash", "-c", command],
                cwd=empty,
                env={**clean, "PATH": path, "COLUMNS": "200"},
                capture_output=True,
                text=True,
            )
            if done.returncode or promised not in done.stdout:
                sys.exit(f"{command}: exit code {done.returncode}\n{done.stdout}\n{done.stderr}")


def main() -> None:
    """Build, install, run, and say what lies in dist."""
    wheel = build()
    hold_nothing_else(wheel)
    try_out(wheel)
    for path in sorted(DIST.iterdir()):
        print(f"{path.relative_to(ROOT)}  {path.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
