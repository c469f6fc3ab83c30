"""Connected sockets, plain or TLS, as one-way byte streams."""

import os
import select
import socket
import ssl
from time import monotonic

from tacit.transport.lane import TICK_S

SPIN_S = 80e-6
MAX_SKIPS = 64

_TRY_AGAIN = (BlockingIOError, TimeoutError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class SocketSink:
    """Writes to a socket without ever blocking in it."""

    def __init__(self, sock: socket.socket) -> None:
        sock.settimeout(0)
        self._sock = sock
        self._send = sock.send
        self._poll = select.poll()
        self._poll.register(sock, select.POLLOUT)

    def send(self, data: bytes | memoryview) -> int:
        """Write what fits; 0 means wait and offer the same bytes again."""
        try:
            return self._send(data)
        except _TRY_AGAIN:
            return 0

    def wait(self) -> None:
        """Wait up to one tick until the socket takes more."""
        self._poll.poll(TICK_S * 1000)

    def close(self) -> None:
        """Close the socket; the kernel still delivers what it holds."""
        self._sock.close()


class SocketSource:
    """Reads from a socket, one tick at a time."""

    def __init__(self, sock: socket.socket) -> None:
        sock.settimeout(TICK_S)
        self._sock = sock
        self._poll = select.poll()
        self._poll.register(sock, select.POLLIN)
        self._read_into = sock.recv_into
        self._pending = sock.pending if isinstance(sock, ssl.SSLSocket) else int
        self._skips = 0  # waits left until spinning is tried again
        self._penalty = 1

    def wait(self) -> bool:
        """Wait up to one tick for bytes, awake at first if that has paid off lately.

        Waking a sleeping process can cost more than a whole ping-pong between two that are
        awake. Where others need the processor, yielding takes too long and we stop trying.
        """
        if self._pending():
            return True
        poll = self._poll.poll
        if self._skips:
            self._skips -= 1
            return bool(poll(TICK_S * 1000))
        limit = monotonic() + SPIN_S
        while monotonic() < limit:
            if poll(0):
                self._penalty = 1
                return True
            os.sched_yield()
        self._skips = self._penalty
        self._penalty = min(2 * self._penalty, MAX_SKIPS)
        return bool(poll(TICK_S * 1000))

    def read_into(self, buffer: memoryview) -> int | None:
        """Read some bytes; None if none came within one tick, 0 at the end."""
        try:
            return self._read_into(buffer)
        except _TRY_AGAIN:
            return None

    def is_ready(self) -> bool:
        """Return whether bytes wait in the kernel or in the TLS layer."""
        return bool(self._pending() or self._poll.poll(0))

    def close(self) -> None:
        """Close the socket."""
        self._sock.close()
