"""A report on paper: the page, printed to a PDF file by a browser that is already there."""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from tacit.errors import InputError
from tacit.report.html import render
from tacit.result import Result

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
_PATIENCE_S = 120


def write_pdf(result: Result, path: Path) -> None:
    """Print the page of a result into a PDF file, whole or not at all.

    Raises:
        InputError: there is no Chromium or Chrome, it failed, or the file cannot be written.
    """
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        raise InputError(
            f"a PDF file is printed by Chromium or Chrome, and none of {', '.join(BROWSERS)} is on "
            "the PATH; install one, or print the HTML page from any browser"
        )
    with tempfile.TemporaryDirectory(prefix="tacit-pdf-") as name:
        folder = Path(name)
        (folder / "report.html").write_text(render(result), encoding="utf-8")
        _print(browser, folder)
        _put(folder / "report.pdf", path)


def _put(made: Path, path: Path) -> None:
    """Copy beside the place first, so that no half of a file is ever there."""
    part = path.with_name(f".{path.name[:80]}.part")
    try:
        shutil.copyfile(made, part)
        os.replace(part, path)
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror or error}") from error
    finally:
        part.unlink(missing_ok=True)


def _print(browser: str, folder: Path) -> None:
    command = [
        browser,
        "--headless",
        "--disable-gpu",
        "--no-pdf-header-footer",
        f"--user-data-dir={folder / 'profile'}",
        f"--print-to-pdf={folder / 'report.pdf'}",
        (folder / "report.html").as_uri(),
    ]
    if os.geteuid() == 0:
        command.insert(1, "--no-sandbox")  # Chromium refuses to run as root otherwise
    try:
        done = subprocess.run(command, capture_output=True, timeout=_PATIENCE_S, check=False)  # noqa: S603 - no shell, and all but our own paths is fixed
    except (OSError, subprocess.TimeoutExpired) as error:
        raise InputError(f"{browser} could not print the page: {error}") from error
    if done.returncode or not (folder / "report.pdf").is_file():
        said = done.stderr.decode(errors="replace").strip().splitlines()
        raise InputError(
            f"{browser} could not print the page (exit code {done.returncode}): "
            f"{said[-1] if said else 'it said nothing'}"
        )
