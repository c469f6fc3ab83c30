"""Mutual TLS 1.3 between parties that know each other's certificate by its fingerprint.

There is no authority. Python's ``ssl`` cannot ask us about a client certificate during the
handshake, so both sides show theirs first; each then demands, inside TLS, proof of the key of
exactly the certificate that it was shown, and accepts the peer only if that one is pinned.
"""

import errno
import hashlib
import socket
import ssl
import struct
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any

from tacit.errors import ConfigError, IdentityError
from tacit.transport.frame import clean


@dataclass(frozen=True)
class Credentials:
    """Our certificate and its private key, both PEM files, the key without a password."""

    certificate_file: Path
    key_file: Path

    def certificate(self) -> bytes:
        """Return our certificate as DER, or raise IdentityError."""
        try:
            der = ssl.PEM_cert_to_DER_cert(self.certificate_file.read_text().strip())
        except (OSError, ValueError) as error:
            raise IdentityError(
                f"cannot read the certificate {self.certificate_file}: {error}"
            ) from error
        if len(der) > MAX_CERTIFICATE_BYTES:
            raise IdentityError(
                f"{self.certificate_file} is {len(der)} bytes, the limit is"
                f" {MAX_CERTIFICATE_BYTES}; make a smaller key with `tacit keys`"
            )
        return der

    def check(self) -> None:
        """Raise IdentityError unless both files are there and belong together."""
        self.certificate()
        self.load_into(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))

    def load_into(self, context: ssl.SSLContext) -> None:
        """Load our certificate and key, or raise IdentityError."""
        try:
            context.load_cert_chain(
                self.certificate_file, self.key_file, password=self._refuse_password
            )
        except OSError as error:  # ssl.SSLError is one
            raise IdentityError(
                f"{self.certificate_file} and {self.key_file} are not a usable certificate and"
                f" its key: {error}; make new ones with `tacit keys`"
            ) from error

    def _refuse_password(self) -> str:
        raise IdentityError(f"{self.key_file} has a password; a party cannot type it")


def fingerprint(certificate: bytes) -> str:
    """Return the fingerprint of a DER certificate; the same as in ``tacit.crypto``."""
    return f"sha256:{hashlib.sha256(certificate).hexdigest()}"


def secure(
    sock: socket.socket,
    theirs: bytes,
    credentials: Credentials,
    *,
    is_dialer: bool,
    deadline: float,
) -> ssl.SSLSocket:
    """Make a connected socket a TLS connection whose peer has proved the key of ``theirs``.

    Whether that is the *right* certificate is for the caller to say: until then the peer is a
    stranger and is told nothing but hello. The old socket object is of no use afterwards.

    Guarantee: the peer holds the private key of ``theirs``, and nobody else can read or change
    what follows, not even with the private keys at a later time.
    Cost: one round trip, and one signature and one verification on each side.

    Raises:
        ssl.SSLError, OSError, GreetingError: the peer cannot do this; ``describe`` says why.
        IdentityError: our own files are unusable.
    """
    context = _context(theirs, credentials, is_dialer=is_dialer)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.settimeout(max(deadline - monotonic(), 0.001))
    with ExitStack() as undo:
        tls = context.wrap_socket(sock, server_side=not is_dialer, do_handshake_on_connect=False)
        undo.callback(tls.close)
        tls.do_handshake()
        if tls.getpeercert(binary_form=True) != theirs:
            raise GreetingError("it proved another certificate than the one it had shown")
        undo.pop_all()
    return tls


class _LaneSocket(ssl.SSLSocket):
    """A TLS connection that does not stay open when its peer is gone before it began.

    ``wrap_socket`` takes the connection over and asks who is at the other end. Where nobody is
    any more it raises, and in some versions of Python leaves the connection open and out of reach.
    """

    def getpeername(self) -> Any:
        """Return the address of the peer; close and raise ConnectionResetError if it is gone."""
        try:
            return super().getpeername()
        except OSError as error:
            self.close()
            raise ConnectionResetError(
                errno.ECONNRESET, "it hung up before the handshake"
            ) from error


def _context(theirs: bytes, credentials: Credentials, *, is_dialer: bool) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT if is_dialer else ssl.PROTOCOL_TLS_SERVER)
    context.sslsocket_class = _LaneSocket
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False  # the fingerprint says more than a name
    context.verify_mode = ssl.CERT_REQUIRED
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    if not is_dialer:
        # Tickets would be written on lanes that nobody reads in that direction.
        context.num_tickets = 0
    try:
        context.load_verify_locations(cadata=theirs)
    except ssl.SSLError as error:
        raise GreetingError(f"what it showed is not a certificate: {error}") from error
    credentials.load_into(context)
    return context


def describe(error: Exception) -> str:
    """Say in a sentence why a connection could not be secured."""
    if isinstance(error, ssl.SSLCertVerificationError):
        if error.verify_code in _OUT_OF_DATE:
            return (
                f"its certificate cannot be used now: {error.verify_message}; it must make a new"
                " one with `tacit keys`, or its clock or ours is wrong"
            )
        return f"its certificate was not accepted: {error.verify_message}"
    if isinstance(error, ssl.SSLError) and "CERTIFICATE_EXPIRED" in (error.reason or ""):
        return (
            "it says that our certificate has expired; make a new one with `tacit keys` and send"
            " its fingerprint to the others"
        )
    if isinstance(error, ssl.SSLError):
        return f"TLS failed: {error.reason or error}"
    return str(error)


_OUT_OF_DATE = {9, 10}  # X509_V_ERR_CERT_NOT_YET_VALID, X509_V_ERR_CERT_HAS_EXPIRED


MAX_CERTIFICATE_BYTES = 8192
MAX_NAME_BYTES = 64
MAX_REASON_BYTES = 480

_PREAMBLE = struct.Struct("<6sH")
_PREAMBLE_MAGIC = b"TACIT\x01"
_HELLO = struct.Struct(f"<4sBB16s{MAX_NAME_BYTES}s{MAX_NAME_BYTES}s{MAX_REASON_BYTES}s")
_HELLO_MAGIC = b"TH\x00\x01"


class GreetingError(Exception):
    """The other side does not speak our language; never leaves this room."""


@dataclass(frozen=True, kw_only=True)
class Hello:
    """A greeting. ``refusal`` says why its sender does not accept the other; empty means yes."""

    sender: str
    receiver: str
    lane: int
    link_id: bytes
    refusal: str = ""


def check_name(name: str) -> str:
    """Return a party name that fits a hello, or raise ConfigError."""
    if not name or len(name.encode()) > MAX_NAME_BYTES or clean(name, MAX_NAME_BYTES) != name:
        raise ConfigError(
            f"a party name is 1 to {MAX_NAME_BYTES} bytes of printable text, got {name!r}"
        )
    return name


def exchange_certificates(sock: socket.socket, mine: bytes, *, deadline: float) -> bytes:
    """Show our certificate and return the one that the other side shows. Both are public."""
    sock.settimeout(max(deadline - monotonic(), 0.001))
    sock.sendall(_PREAMBLE.pack(_PREAMBLE_MAGIC, len(mine)) + mine)
    magic, size = _PREAMBLE.unpack(_read_exactly(sock, _PREAMBLE.size, deadline=deadline))
    if magic != _PREAMBLE_MAGIC:
        raise GreetingError(f"it is not a party of this version: it said {magic!r}")
    if not 0 < size <= MAX_CERTIFICATE_BYTES:
        raise GreetingError(f"it announced a certificate of {size} bytes")
    return _read_exactly(sock, size, deadline=deadline)


def send_hello(sock: socket.socket, hello: Hello) -> None:
    """Send a greeting on a TLS connection."""
    reason = hello.refusal.encode()[:MAX_REASON_BYTES]
    names = hello.sender.encode(), hello.receiver.encode()
    is_refusal = 1 if hello.refusal else 0
    sock.sendall(_HELLO.pack(_HELLO_MAGIC, is_refusal, hello.lane, hello.link_id, *names, reason))


def recv_hello(sock: socket.socket, *, deadline: float) -> Hello:
    """Read a greeting from a TLS connection."""
    raw = _read_exactly(sock, _HELLO.size, deadline=deadline)
    magic, is_refusal, lane, link_id, sender, receiver, reason = _HELLO.unpack(raw)
    if magic != _HELLO_MAGIC or is_refusal > 1 or lane > 1:
        raise GreetingError("its greeting is malformed")
    return Hello(
        sender=_text(sender, MAX_NAME_BYTES),
        receiver=_text(receiver, MAX_NAME_BYTES),
        lane=lane,
        link_id=link_id,
        refusal=(_text(reason, MAX_REASON_BYTES) or "no reason") if is_refusal else "",
    )


def _text(field: bytes, max_chars: int) -> str:
    return clean(field.rstrip(b"\0").decode(errors="replace"), max_chars)


def _read_exactly(sock: socket.socket, size: int, *, deadline: float) -> bytes:
    """Read ``size`` bytes by the deadline, however slowly they drip."""
    data = bytearray()
    while len(data) < size:
        left_s = deadline - monotonic()
        if left_s <= 0:
            raise TimeoutError("it did not finish its greeting in time")
        sock.settimeout(left_s)
        try:
            piece = sock.recv(size - len(data))
        except TimeoutError:
            continue
        if not piece:
            raise GreetingError("it hung up during the greeting")
        data += piece
    return bytes(data)
