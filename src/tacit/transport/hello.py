"""What two parties say to each other on a new connection before any frame.

First, in the clear, each side shows the certificate that it is going to prove. Then, inside TLS,
each side says who it is, whom it wants, which lane this is, and whether it accepts the other.
"""

import socket
import struct
from dataclasses import dataclass
from time import monotonic

from tacit.errors import ConfigError
from tacit.transport.packet import clean

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
