"""Child parties beside this process, played by small scripts."""

import os
import sys
from contextlib import ExitStack

import pytest

from tacit.errors import InputError, PartyError
from tacit.party import Child
from tacit.party.processes import companions
from tacit.transport import listen

READY = 'tell(event="stage", stage="connect")'
DONE = 'tell(event="done")'
FAILED = (
    'tell(event="failed", exit_code=2, message="no such tensor", party=None, reason=None, '
    'said_by=None, details=""); sys.exit(2)'
)
BLAMES = (
    'tell(event="failed", exit_code=4, message="gone", party="dealer", reason="went away", '
    'said_by=None, details=""); sys.exit(4)'
)
DIES = "os.kill(os.getpid(), signal.SIGKILL)"
PRELUDE = """
import json, os, signal, sys, time
pipe = os.fdopen(int(sys.argv[sys.argv.index("--status-fd") + 1]), "w")
def tell(**event):
    print(json.dumps(event), file=pipe, flush=True)
tell(event="stage", stage="load", pid=os.getpid())
"""


@pytest.fixture
def child():
    with ExitStack() as stack:

        def make(name, *lines):
            script = PRELUDE + "\n".join(lines)
            socket = stack.enter_context(listen("127.0.0.1", 0))
            return Child(name, [sys.executable, "-c", script], socket)

        yield make


def run(*children, block=lambda others: None, restarts=None):
    seen = []
    with companions(
        children,
        on_event=lambda party, event: seen.append((party, event["event"])),
        on_restart=lambda party, why: restarts.append((party, why)),
    ) as others:
        block(others)
    return seen


def look_until(others, is_seen):
    """Look again and again: the first look may only see that another child is done."""
    for _ in range(20):
        others.look()
        if is_seen():
            return


def test_the_block_runs_when_all_are_ready_and_the_end_is_good(child):
    seen = run(child("owner", READY, DONE), child("dealer", READY, DONE))
    assert sorted(seen) == [
        (name, what) for name in ("dealer", "owner") for what in ("done", "stage", "stage")
    ]


def test_one_that_cannot_start_is_told_and_the_block_does_not_run(child):
    ran = []
    with pytest.raises(InputError, match="party 'owner': no such tensor"):
        run(
            child("owner", FAILED),
            child("dealer", READY, "time.sleep(60)"),
            block=lambda others: ran.append(1),
        )
    assert ran == []


def test_the_one_that_died_is_blamed_and_not_the_messenger(child, monkeypatch):
    monkeypatch.setattr("tacit.party.processes._NOTICE_S", 30.0)

    def block(others):
        raise PartyError("owner", "it went away")

    with pytest.raises(PartyError, match="party 'dealer' failed: killed by signal 9"):
        run(
            child("owner", READY, "time.sleep(0.3)", BLAMES),
            child("dealer", READY, DIES),
            block=block,
            restarts=[],
        )


def test_one_that_is_done_but_slow_to_leave_is_no_failure(child):
    slow = "signal.signal(signal.SIGTERM, lambda *_: sys.exit(143)); time.sleep(60)"
    run(child("owner", READY, DONE, "pipe.close()", slow), child("dealer", READY, DONE))


def test_an_error_of_the_block_itself_stays_what_it_is(child):
    def block(others):
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        run(child("owner", READY, DONE), child("dealer", READY, DONE), block=block)


def test_one_that_dies_without_a_word_is_started_again(child, tmp_path):
    mark, restarts = tmp_path / "mark", []
    once = f"mark = {str(mark)!r}; is_first = not os.path.exists(mark); open(mark, 'w').close()"

    dies_once = (once, READY, f"{DIES} if is_first else None", DONE)
    run(
        child("owner", READY, DONE),
        child("dealer", *dies_once),
        block=lambda others: look_until(others, lambda: restarts),
        restarts=restarts,
    )
    assert restarts == [("dealer", "killed by signal 9 (SIGKILL)")]


def test_one_that_failed_by_itself_is_not_started_again_and_the_block_can_see_it(child):
    restarts = []
    with pytest.raises(InputError, match="party 'owner': no such tensor"):
        run(
            child("owner", READY, "time.sleep(0.2)", FAILED),
            child("dealer", READY, "time.sleep(60)"),
            block=lambda others: look_until(others, lambda: False),
            restarts=restarts,
        )
    assert restarts == []


def test_those_who_wait_for_another_meeting_are_ended_with_the_block(child, monkeypatch):
    monkeypatch.setattr("tacit.party.processes.GRACE_S", 60.0)
    pids = []

    def block(others):
        pids.extend(others._running.values())
        raise PartyError("dealer", "it went away")

    waits = (READY, "time.sleep(60)")
    with pytest.raises(PartyError, match="party 'dealer' failed: it went away"):
        run(child("owner", *waits), child("dealer", *waits), block=block)
    assert len(pids) == 2
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
