"""What a person at a terminal sees: something is always said, and Ctrl-C ends at once, in words."""

import os
import pty
import re
import select
import signal
import sys
import uuid
from pathlib import Path

import pytest

LIMIT_S = 120


# A stage that is over before the screen is drawn again is not seen; a fast machine shows few.
PARTIES_AT_WORK = "connecting|reading its input|comparing the job|planning|computing"


class Terminal:
    """A command of ours on a terminal of its own."""

    def __init__(self, folder, *arguments):
        self.mark = f"TACIT_TEST={uuid.uuid4().hex}"
        self.pid, self._fd = pty.fork()
        if self.pid == 0:
            # A suite that a shell has started in the background ignores it, and so would this.
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os.chdir(folder)
            name, value = self.mark.split("=")
            kept = {**os.environ, name: value, "COLUMNS": "100", "TERM": "xterm"}
            command = [sys.executable, "-m", "tacit", *arguments]
            # Our own interpreter and module.
            os.execve(command[0], command, {**kept, "OMP_NUM_THREADS": "1"})  # noqa: S606
        self.said = ""

    def wait_for(self, *texts):
        """Read on until one of these texts appears."""
        while not any(text in self.said for text in texts):
            assert self._read(), f"ended without saying {texts}: {self.said[-2000:]}"

    def interrupt(self):
        os.write(self._fd, b"\x03")

    def end(self):
        """Read to the end; return the exit code."""
        while self._read():
            pass
        os.close(self._fd)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])

    def left(self):
        """Return the processes that the command has left behind."""
        return [
            one.parent.name for one in Path("/proc").glob("[0-9]*/environ") if self._is_ours(one)
        ]

    def _is_ours(self, environ):
        try:
            return self.mark.encode() in environ.read_bytes().split(b"\0")
        except OSError:
            return False

    def _read(self):
        ready, _, _ = select.select([self._fd], [], [], LIMIT_S)
        if not ready:
            os.kill(self.pid, signal.SIGKILL)
            pytest.fail(f"silent for {LIMIT_S} s after: {self.said[-2000:]}")
        try:
            chunk = os.read(self._fd, 1 << 16)
        except OSError:  # how Linux says that the other side is gone
            return False
        self.said += chunk.decode(errors="replace")
        return bool(chunk)


def test_every_phase_of_a_job_is_said_in_its_order(tmp_path):
    shown = Terminal(tmp_path, "demo")
    assert shown.end() == 0
    at = -1
    for text in (
        *("three processes", "starting", "reading the job", PARTIES_AT_WORK),
        *("done", "putting the result together", "Nothing but predicted classes", "Report:"),
    ):
        found = [place.start() for place in re.finditer(text, shown.said) if place.start() > at]
        assert found, f"{text!r} is missing or too early"
        at = found[0]


@pytest.mark.parametrize("moment", ["starting", "reading the job", PARTIES_AT_WORK])
def test_ctrl_c_ends_at_once_in_words_and_leaves_nobody(tmp_path, moment):
    shown = Terminal(tmp_path, "demo")
    shown.wait_for(*moment.split("|"))
    shown.interrupt()
    assert shown.end() == 130
    assert "stopped" in shown.said
    assert "Traceback" not in shown.said
    assert shown.left() == []
    assert not (tmp_path / "out" / "demo").exists()


def test_rounds_of_a_federated_job_show_accuracy_and_epsilon_on_a_terminal(tmp_path):
    pytest.importorskip("dp_accounting", reason="tacit-ml[dp] is not installed")
    job = Path(__file__).parents[2] / "examples" / "jobs" / "fl-digits.toml"
    text = job.read_text().replace("rounds = 10", "rounds = 2")
    assert text != job.read_text()
    (tmp_path / "job.toml").write_text(text)
    shown = Terminal(tmp_path, "run", "job.toml")
    shown.wait_for("round    1/2")
    shown.wait_for("accuracy")
    assert shown.said.index("starting") < shown.said.index("ε =") < shown.said.index("round    1/2")
    shown.interrupt()
    assert shown.end() == 130
    assert "stopped" in shown.said
    assert "Traceback" not in shown.said
