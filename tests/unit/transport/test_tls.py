import os
import socket
import ssl
import time

import pytest
from cryptography.hazmat.primitives import serialization

from tacit import crypto
from tacit.errors import IdentityError
from tacit.transport import Credentials, fingerprint, listen
from tacit.transport.tls import (
    GreetingError,
    Hello,
    exchange_certificates,
    recv_hello,
    secure,
    send_hello,
)

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


def greeting_of(spoilt):
    """Return what a peer says whose greeting is spoilt in one field."""
    mine, theirs = socket.socketpair()
    with mine, theirs:
        send_hello(mine, Hello(sender="a", receiver="b", lane=0, link_id=bytes(16)))
        said = bytearray(theirs.recv(1 << 16))
    said[spoilt] = 7
    return bytes(said)


@pytest.mark.parametrize("spoilt", [0, 4, 5], ids=["magic", "refusal", "lane"])
def test_a_greeting_of_another_form_is_refused(spoilt):
    mine, theirs = socket.socketpair()
    with mine, theirs:
        mine.sendall(greeting_of(spoilt))
        with pytest.raises(GreetingError, match="malformed"):
            recv_hello(theirs, deadline=time.monotonic() + 60)


def test_what_is_no_certificate_is_refused_before_a_handshake(keys):
    mine, theirs = socket.socketpair()
    with mine, theirs, pytest.raises(GreetingError, match="is not a certificate"):
        secure(
            theirs,
            b"0\x03\x02\x01\x05",
            keys["ann"],
            is_dialer=False,
            deadline=time.monotonic() + 60,
        )


def test_a_certificate_that_no_peer_would_take_is_refused_where_it_is(keys, tmp_path):
    large = tmp_path / "large.pem"
    large.write_text(ssl.DER_cert_to_PEM_cert(bytes(10_000)))
    with pytest.raises(IdentityError, match="make a smaller key"):
        Credentials(large, keys["ann"].key_file).certificate()


def test_a_key_with_a_password_is_refused_and_nobody_is_asked_for_it(keys, tmp_path):
    key = serialization.load_pem_private_key(keys["ann"].key_file.read_bytes(), password=None)
    locked = tmp_path / "locked.pem"
    form = serialization.PrivateFormat.PKCS8, serialization.BestAvailableEncryption(b"word")
    locked.write_bytes(key.private_bytes(serialization.Encoding.PEM, *form))
    with pytest.raises(IdentityError, match="has a password"):
        Credentials(keys["ann"].certificate_file, locked).check()


@pytest.mark.parametrize("size", [0, 8193, 65_535])
def test_a_certificate_of_a_size_that_none_has_is_not_waited_for(size):
    mine, theirs = socket.socketpair()
    with mine, theirs:
        mine.sendall(b"TACIT\x01" + size.to_bytes(2, "little") + bytes(size))
        with pytest.raises(GreetingError, match=f"announced a certificate of {size} bytes"):
            exchange_certificates(theirs, b"ours", deadline=time.monotonic() + 60)


def test_who_hangs_up_in_the_middle_of_a_greeting_is_said_to():
    mine, theirs = socket.socketpair()
    with theirs:
        mine.sendall(b"TACIT\x01\x10\x00half")
        mine.shutdown(socket.SHUT_WR)
        with mine, pytest.raises(GreetingError, match="hung up during the greeting"):
            exchange_certificates(theirs, b"ours", deadline=time.monotonic() + 5)
