"""How long a link that is closed waits for a peer that takes nothing, on a clock of the test."""

import itertools
import threading
import time

import pytest

from tacit.transport import LinkLimits, Patience, frame_bytes
from tacit.transport import stream as outbox
from tacit.transport.frame import BYE, DATA, Packet, control, fail, make_head
from tacit.transport.stream import StreamOutlet

SILENCE_S, STALL_S = 20.0, 10_000.0
PATIENT_S = 30.0  # how long the test waits for a thread before it says that it hangs


class Full:
    """A stream whose other end takes no byte."""

    def __init__(self):
        self.tried, self.is_closed = threading.Event(), False

    def send(self, data):
        self.tried.set()
        return 0

    def wait(self):
        time.sleep(1e-3)

    def close(self):
        self.is_closed = True


@pytest.fixture
def clock(monkeypatch):
    found = [1000.0]
    monkeypatch.setattr(outbox, "monotonic", lambda: found[0])
    return found


@pytest.fixture
def stuck(clock):
    """An outlet that has begun to write a large packet, of which nothing is taken."""
    sink = Full()
    patience = Patience(silence_s=SILENCE_S, heartbeat_s=1.0, stall_s=STALL_S)
    outlet = StreamOutlet(sink, name="eve", patience=patience, limits=LinkLimits())
    load = frame_bytes(bytes(1 << 20))
    packet = Packet(make_head(DATA, "online", "x/1", load.dtype, load.shape), 1, load)
    outlet.put(packet, check=lambda tag, begun: None)
    assert sink.tried.wait(PATIENT_S)
    yield outlet, sink
    outlet.kill()


def finish(outlet, last, *, flush):
    thread = threading.Thread(target=outlet.finish, args=(last,), kwargs={"flush": flush})
    thread.start()
    return thread


def test_a_failure_is_told_no_longer_than_the_peer_was_waited_for(stuck, clock):
    """On 0.2 the last survivor of a dead link waited for it twice: 40 s where 20 were allowed."""
    outlet, sink = stuck
    clock[0] += SILENCE_S + 0.1  # that long the party that closes has heard nothing
    thread = finish(outlet, fail("eve", "was silent"), flush=False)
    thread.join(PATIENT_S)
    assert not thread.is_alive()
    assert sink.is_closed


def test_what_is_queued_is_waited_for_from_the_close_on(stuck, clock):
    """Who closes in good order may find the other one busy: it has the whole time to take it."""
    outlet, sink = stuck
    clock[0] += SILENCE_S + 0.1
    thread = finish(outlet, control(BYE), flush=True)
    thread.join(0.3)
    assert thread.is_alive()
    clock[0] += SILENCE_S + 0.1
    thread.join(PATIENT_S)
    assert not thread.is_alive()
    assert sink.is_closed


def test_a_link_that_is_stuck_since_a_moment_is_not_given_up_at_once(stuck, clock):
    outlet, _ = stuck
    clock[0] += SILENCE_S / 2
    thread = finish(outlet, fail("bob", "went away"), flush=False)
    thread.join(0.3)
    assert thread.is_alive()
    clock[0] += SILENCE_S / 2 + 0.1
    thread.join(PATIENT_S)
    assert not thread.is_alive()


def test_a_peer_that_takes_a_byte_now_and_then_does_not_keep_us(stuck, clock):
    outlet, sink = stuck
    turns = itertools.cycle((1, 0))

    def drip(data):
        clock[0] += SILENCE_S / 4
        return next(turns)

    sink.send = drip
    thread = finish(outlet, control(BYE), flush=True)
    thread.join(PATIENT_S)
    assert not thread.is_alive()
    assert sink.is_closed
    assert STALL_S < clock[0] - 1000.0 < 1 << 20  # all of it would take ten million seconds
