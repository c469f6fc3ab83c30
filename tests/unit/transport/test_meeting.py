"""A party that dials again and again: what it may hold while the others are awaited."""

import secrets
import socket
import threading
import time
from contextlib import ExitStack, suppress

import pytest

from tacit.transport import Peer, fingerprint, listen
from tacit.transport.dial import Hello, Me, _dial_lane
from tacit.transport.meeting import (
    MAX_GUESTS,
    MAX_GUESTS_PER_HOST,
    MAX_HALF_LINKS,
    MAX_NOTES,
    Connector,
    Lobby,
    Notes,
)
from tacit.transport.tls import GreetingError, exchange_certificates, secure

MANY = 3 * MAX_GUESTS_PER_HOST


@pytest.fixture
def meeting(keys):
    """Return a meeting of ann's that waits for bob and for somebody who never comes."""
    with listen("127.0.0.1", 0) as listener:
        bob = fingerprint(keys["bob"].certificate())
        peers = {"bob": Peer(None, bob), "cat": Peer(None, "sha256:" + "0" * 64)}
        me = Me("ann", keys["ann"])
        made = Connector(me, peers, set(), make_link=lambda *_: None, connect_s=60.0)
        made.start(listener)
        ann = Peer(listener.getsockname()[:2], fingerprint(keys["ann"].certificate()))
        yield made, ann
        made.end()


def test_lanes_whose_other_half_never_comes_are_a_few(meeting, keys):
    made, ann = meeting
    with ExitStack() as stack:
        for _ in range(MANY):
            hello = Hello(sender="bob", receiver="ann", lane=0, link_id=secrets.token_bytes(16))
            deadline = time.monotonic() + 60
            stack.enter_context(_dial_lane(ann, hello, keys["bob"], deadline=deadline))
        assert len(made._lanes) <= MAX_HALF_LINKS


def test_a_party_that_proves_its_key_and_is_silent_holds_a_few_threads(meeting, keys):
    _, ann = meeting
    before = threading.active_count()
    with ExitStack() as stack:
        for _ in range(MANY):
            sock = stack.enter_context(socket.create_connection(ann.address))
            with suppress(OSError, GreetingError):
                deadline = time.monotonic() + 60
                theirs = exchange_certificates(sock, keys["bob"].certificate(), deadline=deadline)
                tls = secure(sock, theirs, keys["bob"], is_dialer=True, deadline=deadline)
                stack.callback(tls.close)
        # Some that were cut may not have ended yet.
        assert threading.active_count() - before <= MAX_GUESTS_PER_HOST + 8


@pytest.fixture
def call():
    """Return a function that makes a caller enter a lobby and tells whether it is still in."""
    lobby, guests, ends = Lobby(), [], []

    def enter(host):
        near, far = socket.socketpair()
        far.setblocking(False)
        ends.extend((near, far))
        guest = lobby.enter(near, host)
        guests.append(guest)

        def is_in() -> bool:
            try:
                return far.recv(1) != b""
            except BlockingIOError:
                return True

        return lobby, guest, is_in

    yield enter
    for guest in guests:
        lobby.leave(guest)
    for end in ends:
        end.close()


def test_the_oldest_of_too_many_from_one_host_is_cut(call):
    callers = [call("mallory")[2] for _ in range(MAX_GUESTS_PER_HOST + 3)]
    assert [is_in() for is_in in callers] == [False] * 3 + [True] * MAX_GUESTS_PER_HOST


def test_many_from_one_host_do_not_push_out_another(call):
    bob = call("bob")[2]
    for _ in range(3 * MAX_GUESTS_PER_HOST):
        call("mallory")
    assert bob()


def test_a_full_lobby_cuts_whoever_has_most_in_it(call):
    bob = call("bob")[2]
    for i in range(2 * MAX_GUESTS):
        call(f"mallory {i % 10}")
    assert bob()


def test_who_has_left_is_not_cut_any_more(call):
    lobby, guest, is_in = call("bob")
    lobby.leave(guest)
    lobby.leave(guest)
    for _ in range(3 * MAX_GUESTS_PER_HOST):
        call("bob")
    assert is_in()


def test_a_caller_that_hung_up_can_still_be_cut_and_leave(call):
    near, far = socket.socketpair()
    with near, far:
        lobby, _, _ = call("mallory")
        guest = lobby.enter(near, "mallory")
        far.close()
        for _ in range(2 * MAX_GUESTS_PER_HOST):
            call("mallory")
        lobby.leave(guest)


def test_notes_are_logged_once_and_bounded_for_each_party(caplog):
    notes = Notes()
    for i in range(20):
        for _ in range(2):
            notes.add(f"noise {i}", party=None)
            notes.add(f"about cat {i}", party="cat")
    notes.add("about bob", party="bob")
    assert len(caplog.records) == 2 * MAX_NOTES + 1
    noise = [f"noise {i}" for i in range(MAX_NOTES)]
    assert notes.about(["bob"]) == "; ".join(["about bob", *noise])


def test_a_known_party_is_not_pushed_out_by_strangers_of_its_host(call):
    lobby, guest, is_in = call("nat")
    lobby.know(guest, "bob")
    for _ in range(3 * MAX_GUESTS_PER_HOST):
        call("nat")
    assert is_in()


def test_a_known_party_has_no_more_guests_than_a_stranger_wherever_it_dials_from(call):
    callers = [call(f"host {i}") for i in range(MAX_GUESTS_PER_HOST + 3)]
    for lobby, guest, _ in callers:
        lobby.know(guest, "bob")
    assert [is_in() for _, _, is_in in callers] == [False] * 3 + [True] * MAX_GUESTS_PER_HOST
    lobby.know(callers[0][1], "bob")  # was cut: nothing happens
