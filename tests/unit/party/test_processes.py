import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

import tacit
from tacit.errors import PartyError
from tacit.party import Child, supervise
from tacit.party import processes as processes_module

SOURCE = str(Path(tacit.__file__).parent.parent)

PREAMBLE = """
import sys, os, time, json
sys.path.insert(0, {path!r})
from tacit.party.processes import StatusPipe, watch_parent
fd = int(sys.argv[sys.argv.index("--status-fd") + 1])
status = StatusPipe(fd)
watch_parent()
"""


def child(name, code):
    listener = socket.create_server(("127.0.0.1", 0))
    return Child(name, [sys.executable, "-c", PREAMBLE.format(path=SOURCE) + code], listener)


def run(*children, grace_s=200.0, on_event=lambda name, event: None, on_stop=lambda: None):
    ended = supervise(children, on_event=on_event, on_stop=on_stop, grace_s=grace_s)
    return {one.party: one for one in ended}


def test_events_and_last_words_reach_the_parent():
    heard = []
    outcomes = run(
        child(
            "a", "status.send('progress', stage='deal', done=1, total=2)\nstatus.send('done', n=3)"
        ),
        on_event=lambda name, event: heard.append((name, event["event"])),
    )
    assert heard == [("a", "progress"), ("a", "done")]
    assert outcomes["a"].exit_code == 0
    assert outcomes["a"].final == {"event": "done", "n": 3}


def test_when_one_is_killed_the_others_are_ended_after_the_grace():
    outcomes = run(
        child("a", "os.kill(os.getpid(), 9)"),
        child("b", "time.sleep(600)"),
        grace_s=0.5,
    )
    assert outcomes["a"].exit_code == -signal.SIGKILL
    assert outcomes["b"].exit_code != 0
    assert {name: one.was_ended for name, one in outcomes.items()} == {"a": False, "b": True}


def test_a_child_that_ignores_polite_signals_is_ended_all_the_same():
    stubborn = (
        "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "os.dup2(os.open('/dev/zero', os.O_RDONLY), 0)\n"
        "status.send('progress', stage='x', done=0, total=0)\ntime.sleep(600)"
    )
    outcomes = run(child("a", "sys.exit(3)"), child("b", stubborn), grace_s=2.0)
    assert outcomes["a"].exit_code == 3
    assert outcomes["b"].exit_code != 0


def test_a_child_that_hangs_is_told_apart_from_one_that_was_killed():
    outcomes = run(child("a", "sys.exit(3)"), child("b", HANGS), grace_s=2.0)
    assert (outcomes["a"].exit_code, outcomes["a"].was_ended) == (3, False)
    assert outcomes["b"].exit_code < 0
    assert outcomes["b"].was_ended


# Stopped as a whole, so that it can neither answer a signal nor notice that its parent is gone.
HANGS = f"status.send('ready', id=os.getpid())\nos.kill(os.getpid(), {signal.SIGSTOP:d})"


def test_an_interrupt_is_announced_once_and_ends_all_even_one_that_hangs():
    heard, stops = [], []

    def interrupt(name, event):
        heard.append(event["id"])
        if len(heard) == 2:
            raise KeyboardInterrupt

    waits = "status.send('ready', id=os.getpid())\ntime.sleep(600)"
    with pytest.raises(KeyboardInterrupt):
        run(
            child("a", waits),
            child("b", HANGS),
            on_event=interrupt,
            on_stop=lambda: stops.append([is_running(one) for one in heard]),
        )
    assert stops == [[True, True]]
    assert not any(is_running(one) for one in heard)


def test_a_failure_of_ours_ends_a_child_that_hangs():
    heard = []

    def fail(name, event):
        heard.append(event["id"])
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run(child("a", HANGS), on_event=fail)
    assert not is_running(heard[0])


PARENT = """
import socket, sys
sys.path.insert(0, {path!r})
from tacit.party import Child, supervise
one = Child("a", [sys.executable, "-c", {code!r}], socket.create_server(("127.0.0.1", 0)))
supervise([one], on_event=lambda *_: None, on_stop=lambda: None, grace_s=1)
"""


def is_running(process_id):
    try:
        state = Path(f"/proc/{process_id}/stat").read_text().split()[2]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def test_a_child_ends_when_its_parent_dies():
    code = PREAMBLE.format(path=SOURCE) + "print(os.getpid(), flush=True)\ntime.sleep(600)"
    command = [sys.executable, "-c", PARENT.format(path=SOURCE, code=code)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as parent:
        child_id = int(parent.stdout.readline())
        assert is_running(child_id)
        parent.kill()
    for _ in range(1000):
        if not is_running(child_id):
            return
        time.sleep(0.1)
    os.kill(child_id, signal.SIGKILL)
    pytest.fail("an orphan was left")


def test_a_line_without_end_of_a_child_is_not_kept(monkeypatch):
    monkeypatch.setattr(processes_module, "_LINE_LIMIT", 100)
    reader, writer = os.pipe()
    running = processes_module._Running.__new__(processes_module._Running)
    running.name, running.status, running._pending = "lab", reader, b""
    with os.fdopen(reader, "rb"), os.fdopen(writer, "wb") as end:
        end.write(bytes(200))
        end.flush()
        with pytest.raises(PartyError, match="'lab' failed: reported a line"):
            running.read(lambda name, event: None)
