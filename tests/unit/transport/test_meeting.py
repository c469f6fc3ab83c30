"""A party that dials again and again: what it may hold while the others are awaited."""

import secrets
import socket
import threading
import time
from contextlib import ExitStack, suppress

import pytest

from tacit.transport import Peer, fingerprint, listen
from tacit.transport.dial import Hello, Me, _dial_lane
from tacit.transport.meeting import MAX_GUESTS_PER_HOST, MAX_HALF_LINKS, Connector
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
