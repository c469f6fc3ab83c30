"""Connected sockets, plain or TLS, as one-way byte streams."""

import os
import select
import socket
import ssl
from time import monotonic

from tacit.transport.lane import TICK_S

SPIN_S = 80e-6
"""How long a wait begins awake."""
LONGEST_SPIN_S = 2e-3
"""How long a wait stays awake where the last ones were as short."""
RECORD_S = 30e-6
"""How long the next record of a payload is waited for awake: a peer on this machine is as fast."""
CROWDED_S = 300e-6
"""How long a yield takes only if others need the processor: less than the turn of one of them."""
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
        sock.settimeout(0)
        self._sock = sock
        self._poll = select.poll()
        self._poll.register(sock, select.POLLIN)
        self._read_into = sock.recv_into
        self._pending = sock.pending if isinstance(sock, ssl.SSLSocket) else int
        self._awake_s = SPIN_S
        self._skips = 0  # waits left until staying awake is tried again
        self._penalty = 1

    def read_first(self, buffer: memoryview) -> int | None:
        """Wait up to one tick for bytes, awake at first if that has paid off lately, and read them.

        Waking a sleeping process can cost more than a whole ping-pong between two that are
        awake, and what it does next is slow, because the processor has forgotten it. Where others
        need the processor, yielding takes too long and we stop trying.
        """
        if self._skips:
            self._skips -= 1
            return self._read_asleep(buffer)
        begun = monotonic()
        is_contested, count = self._read_awake(buffer, self._awake_s)
        if count is not None:
            self._penalty = 1
            return count
        count = self._read_asleep(buffer)
        waited_s = monotonic() - begun
        if waited_s < LONGEST_SPIN_S and not is_contested:
            self._awake_s = min(2 * waited_s, LONGEST_SPIN_S)
            return count
        self._awake_s, self._skips = SPIN_S, self._penalty
        self._penalty = min(2 * self._penalty, MAX_SKIPS)
        return count

    def read_into(self, buffer: memoryview) -> int | None:
        """Read some bytes; None if none came within one tick, 0 at the end."""
        count = self._read_awake(buffer, RECORD_S)[1]
        return self._read_asleep(buffer) if count is None else count

    def _read_awake(self, buffer: memoryview, most_s: float) -> tuple[bool, int | None]:
        """Read without sleeping; return if others need the processor, and how many bytes came."""
        read_into, limit, before = self._read_into, 0.0, 0.0
        while True:
            try:  # to ask first would take a call more when the bytes are there
                return False, read_into(buffer)
            except _TRY_AGAIN:
                pass
            now = monotonic()
            if now - (before or now) > CROWDED_S:
                return True, None
            limit = limit or now + most_s
            if now >= limit:
                return False, None
            before = now
            os.sched_yield()

    def _read_asleep(self, buffer: memoryview) -> int | None:
        """Read what comes within one tick."""
        try:
            if not self._pending() and not self._poll.poll(TICK_S * 1000):
                return None
            return self._read_into(buffer)
        except _TRY_AGAIN:
            return None

    def is_ready(self) -> bool:
        """Return whether bytes wait in the kernel or in the TLS layer."""
        return bool(self._pending() or self._poll.poll(0))

    def close(self) -> None:
        """Close the socket."""
        self._sock.close()
