import os
import socket
import time

import pytest

from tacit import crypto
from tacit.transport import fingerprint, listen
from tacit.transport.tls import secure

RESET = socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0"
"""The option by which a close is a reset."""


def test_both_rooms_that_name_a_certificate_give_it_the_same_name(keys):
    der = keys["ann"].certificate()
    assert fingerprint(der) == crypto.fingerprint(der)
    assert crypto.parse_fingerprint(fingerprint(der)) == fingerprint(der)


@pytest.mark.parametrize("is_dialer", [False, True])
@pytest.mark.parametrize("unread", [b"", b"garbage"])
def test_a_connection_that_was_reset_before_the_handshake_is_closed(keys, is_dialer, unread):
    ann, bob = connect()
    handle, inode = ann.fileno(), os.fstat(ann.fileno()).st_ino
    with ann, bob:
        bob.sendall(b"shown" + unread)
        ann.recv(5)
        bob.setsockopt(*RESET)
        bob.close()
        theirs = keys["bob"].certificate()
        with pytest.raises(ConnectionResetError) as caught:
            secure(ann, theirs, keys["ann"], is_dialer=is_dialer, deadline=time.monotonic() + 60)
        # What is alive here is whatever the error has met on its way.
        assert not is_open(handle, inode), f"{caught.value!r} left it open"


def is_open(handle: int, inode: int) -> bool:
    """Return whether a file handle still stands for the same socket."""
    try:
        return os.fstat(handle).st_ino == inode
    except OSError:
        return False


def connect() -> tuple[socket.socket, socket.socket]:
    """Return both ends of a TCP connection."""
    with listen("127.0.0.1", 0) as door:
        bob = socket.create_connection(door.getsockname())
        return door.accept()[0], bob
