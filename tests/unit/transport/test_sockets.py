"""When a socket's reader waits awake and when it sleeps, on a clock that only the test moves."""

import select
import socket

import pytest

from tacit.transport import stream as sockets
from tacit.transport.stream import CROWDED_S, LONGEST_SPIN_S, MAX_SKIPS, SPIN_S, SocketSource

LOOK_S = 1e-6
SHORT_S, LONG_S = 0.6 * LONGEST_SPIN_S, 5 * LONGEST_SPIN_S


class World:
    """A clock, and bytes that arrive at a time; stands in for a socket and its poll object."""

    def __init__(self):
        self.now, self.due, self.sleeps, self.yield_s = 0.0, 0.0, 0, 1e-6

    def register(self, sock, events):
        pass

    def poll(self, timeout_ms):
        self.now += LOOK_S
        if self.now < self.due and timeout_ms:
            self.sleeps += 1
            self.now = min(self.due, self.now + timeout_ms / 1000)
        return [(0, select.POLLIN)] if self.now >= self.due else []

    def settimeout(self, timeout_s):
        pass

    def recv_into(self, buffer):
        self.now += LOOK_S
        if self.now < self.due:
            raise BlockingIOError
        return 1

    def sched_yield(self):
        self.now += self.yield_s


@pytest.fixture
def world(monkeypatch):
    found = World()
    monkeypatch.setattr(sockets.select, "poll", lambda: found)
    monkeypatch.setattr(sockets.os, "sched_yield", found.sched_yield)
    monkeypatch.setattr(sockets, "monotonic", lambda: found.now)
    return found


@pytest.fixture
def source(world):
    return SocketSource(world)


def sleeps_of(world, source, after_s):
    """Wait for bytes that come after so long; return how often that slept."""
    world.due, before = world.now + after_s, world.sleeps
    assert source.read_first(memoryview(bytearray(1))) == 1
    return world.sleeps - before


def test_who_waited_a_short_time_waits_awake_the_next_time(world, source):
    assert [sleeps_of(world, source, SHORT_S) for _ in range(5)] == [1, 0, 0, 0, 0]


def test_what_comes_at_once_is_never_slept_for(world, source):
    assert [sleeps_of(world, source, SPIN_S / 2) for _ in range(5)] == [0] * 5


def test_after_a_long_wait_short_ones_are_learned_anew(world, source):
    waits = [SHORT_S, SHORT_S, LONG_S, SHORT_S, SHORT_S, SHORT_S]
    slept = [sleeps_of(world, source, after_s) for after_s in waits]
    # The long wait is followed by one that does not try, and one that finds out how long it takes.
    assert slept == [1, 0, 1, 1, 1, 0]


def test_long_waits_are_hardly_ever_waited_for_awake(world, source):
    for _ in range(4 * MAX_SKIPS):
        sleeps_of(world, source, LONG_S)
    begun, waits = world.now, 2 * MAX_SKIPS
    for _ in range(waits):
        sleeps_of(world, source, LONG_S)
    awake_s = world.now - begun - waits * LONG_S
    assert abs(awake_s) < waits * 2 * LOOK_S
    world.due = float("inf")
    assert source.read_first(memoryview(bytearray(1))) is None


def test_where_others_need_the_processor_it_is_left_to_them(world, source):
    sleeps_of(world, source, SHORT_S)
    world.yield_s = 2 * CROWDED_S
    slept = [sleeps_of(world, source, SHORT_S) for _ in range(100)]
    assert slept == [1] * 100


def test_bytes_in_pieces_are_waited_for_and_the_end_is_told():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        source, buffer = SocketSource(ours), memoryview(bytearray(8))
        assert source.read_into(buffer) is None
        theirs.sendall(b"abc")
        assert source.read_into(buffer) == 3
        theirs.close()
        assert source.read_into(buffer) == 0
