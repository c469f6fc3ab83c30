"""Child parties beside this process, played by small scripts."""

import sys

import pytest

from tacit.cli.companions import companions
from tacit.errors import InputError, PartyError
from tacit.party import Child
from tacit.transport import listen

READY = 'tell(event="stage", stage="connect")'
DONE = 'tell(event="done")'
FAILED = (
    'tell(event="failed", exit_code=2, message="no such tensor", party=None, reason=None, '
    'details=""); sys.exit(2)'
)
BLAMES = (
    'tell(event="failed", exit_code=4, message="gone", party="dealer", reason="went away", '
    'details=""); sys.exit(4)'
)
PRELUDE = """
import json, os, signal, sys, time
pipe = os.fdopen(int(sys.argv[sys.argv.index("--status-fd") + 1]), "w")
def tell(**event):
    print(json.dumps(event), file=pipe, flush=True)
"""


@pytest.fixture
def child():
    def make(name, *lines):
        script = PRELUDE + "\n".join(lines)
        return Child(name, [sys.executable, "-c", script], listen("127.0.0.1", 0))

    return make


def run(*children, block=lambda: None):
    seen = []
    with companions(children, on_event=lambda party, event: seen.append((party, event["event"]))):
        block()
    return seen


def test_the_block_runs_when_all_are_ready_and_the_end_is_good(child):
    seen = run(child("owner", READY, DONE), child("dealer", READY, DONE))
    assert sorted(seen) == [
        (name, what) for name in ("dealer", "owner") for what in ("done", "stage")
    ]


def test_one_that_cannot_start_is_told_and_the_block_does_not_run(child):
    ran = []
    with pytest.raises(InputError, match="party 'owner': no such tensor"):
        run(
            child("owner", FAILED),
            child("dealer", READY, "time.sleep(60)"),
            block=lambda: ran.append(1),
        )
    assert ran == []


def test_the_one_that_died_is_blamed_and_not_the_messenger(child):
    def block():
        raise PartyError("owner", "it went away")

    with pytest.raises(PartyError, match="party 'dealer' failed: killed by signal 9"):
        run(
            child("owner", READY, "time.sleep(0.3)", BLAMES),
            child("dealer", READY, "os.kill(os.getpid(), signal.SIGKILL)"),
            block=block,
        )


def test_one_that_is_done_but_slow_to_leave_is_no_failure(child):
    slow = "signal.signal(signal.SIGTERM, lambda *_: sys.exit(143)); time.sleep(60)"
    run(child("owner", READY, DONE, "pipe.close()", slow), child("dealer", READY, DONE))


def test_an_error_of_the_block_itself_stays_what_it_is(child):
    def block():
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        run(child("owner", READY, DONE), child("dealer", READY, DONE), block=block)
