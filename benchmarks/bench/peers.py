"""Peers in virtual environments of their own: making those, and asking the scripts in them."""

import contextlib
import hashlib
import json
import os
import queue
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import IO, Self

from bench.case import NotMeasured, VenvPeer

MARKER = "tacit-requirements.sha256"
INSTALL_TIMEOUT_S = 1800.0
ANSWER_TIMEOUT_S = 600.0
GRACE_S = 2.0


def prepare_environment(peer: VenvPeer, root: Path) -> Path:
    """Make the peer's virtual environment unless it is there already, and return its Python.

    The marker is written last, so an environment whose making was interrupted is made again, as is
    one made for other requirements.

    Raises:
        NotMeasured: the environment cannot be made; carries the installer's last words.
    """
    home = root / peer.name
    python, marker, wanted = home / "bin" / "python", home / MARKER, _digest(peer)
    if python.exists() and marker.is_file() and marker.read_text() == wanted:
        return python
    if home.exists():
        shutil.rmtree(home)
    home.parent.mkdir(parents=True, exist_ok=True)
    pip = () if peer.requirements else ("--without-pip",)
    _install([sys.executable, "-m", "venv", *pip, str(home)])
    if peer.requirements:
        quiet = ("--quiet", "--disable-pip-version-check", "--no-input")
        options = (*quiet, *peer.pip_arguments)
        _install([str(python), "-m", "pip", "install", *options, *peer.requirements])
    marker.write_text(wanted)
    return python


def as_program(name: str, *arguments: str) -> list[str]:
    """Return the command that runs a file of a benchmark as a program of its own."""
    run = Path(__file__).parents[1] / "run.py"
    return [sys.executable, str(run), name, "--program", *arguments]


class Worker:
    """A peer's script, started when first asked and asked once per measurement."""

    def __init__(self, command: list[str], *, timeout_s: float = ANSWER_TIMEOUT_S) -> None:
        self._command = command
        self._timeout_s = timeout_s
        self._process: subprocess.Popen[str] | None = None
        self._lines: queue.Queue[str | None] = queue.Queue()
        self._has_answered = False
        # Closed on leaving the worker's own context.
        self._errors: IO[str] = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()
        self._errors.close()

    def measure(self) -> float:
        """Ask for one value.

        Raises:
            NotMeasured: the script ended, was silent for too long or answered without a number.
        """
        if self._process is None:
            self._start()
        value = self._ask()
        if value is None and self._has_answered and self._exit_code() == 0:
            # The script answers once per start.
            self._start()
            value = self._ask()
        if value is None:
            code = self._exit_code()
            raise NotMeasured(f"the script ended with exit code {code}{self._last_words()}")
        self._has_answered = True
        return value

    def _start(self) -> None:
        self._stop()
        self._has_answered = False
        self._lines = queue.Queue()
        try:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                text=True,
                errors="replace",
                env=_environment(),
                start_new_session=True,  # so that its own children end with it
            )
        except OSError as error:
            raise NotMeasured(f"the script does not start: {error}") from error
        arguments = (self._process.stdout, self._lines)
        threading.Thread(target=_pump, args=arguments, daemon=True).start()

    def _ask(self) -> float | None:
        if self._process is None or self._process.stdin is None:
            return None
        # A script that has ended cannot be written to; what it said before is still in the queue.
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write("measure\n")
            self._process.stdin.flush()
        while (line := self._next_line()) is not None:
            value = _value(line)
            if value is not None:
                return value
        return None

    def _next_line(self) -> str | None:
        try:
            return self._lines.get(timeout=self._timeout_s)
        except queue.Empty:
            self._stop()
            raise NotMeasured(f"no answer within {self._timeout_s:g} s") from None

    def _exit_code(self) -> int | None:
        if self._process is None:
            return None
        try:
            return self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            return None

    def _last_words(self) -> str:
        self._errors.seek(0)
        lines = self._errors.read().strip().splitlines()
        return f": {lines[-1].strip()}" if lines else ""

    def _stop(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        # Unflushed input of a script that has ended makes closing fail.
        with contextlib.suppress(BrokenPipeError):
            if process.stdin is not None:
                process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=GRACE_S)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _pump(stream: IO[str], lines: "queue.Queue[str | None]") -> None:
    with stream:
        for line in stream:
            lines.put(line)
    lines.put(None)


def _value(line: str) -> float | None:
    """Read the number out of an answer; None for a line that is not an answer."""
    try:
        answer = json.loads(line)
    except json.JSONDecodeError:
        return None
    if not isinstance(answer, dict) or "value" not in answer:
        return None
    value = answer["value"]
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise NotMeasured(f'the script answered "value": {value!r}, wanted a number')
    return float(value)


def _install(command: list[str]) -> None:
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            errors="replace",
            env=_environment(),
            timeout=INSTALL_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise NotMeasured(f"installing took longer than {INSTALL_TIMEOUT_S:g} s") from None
    except OSError as error:
        raise NotMeasured(f"installing failed: {error}") from error
    if done.returncode != 0:
        words = (done.stderr or done.stdout).strip().splitlines()
        last = words[-1].strip() if words else f"exit code {done.returncode}"
        raise NotMeasured(f"installing failed: {last}")


def _environment() -> dict[str, str]:
    """Return our environment without what would put our own packages before the peer's."""
    return {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}


def _digest(peer: VenvPeer) -> str:
    parts = [sys.version, peer.requirements, peer.pip_arguments]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()
