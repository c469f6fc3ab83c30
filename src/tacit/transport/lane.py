"""The two one-way halves that a link is made of, and the byte streams beneath them."""

from collections.abc import Callable
from typing import Protocol

from tacit.transport.packet import Packet

TICK_S = 0.05
"""How long one wait lasts before clocks and flags are looked at again."""


class Outlet(Protocol):
    """The sending half. An OSError means that the lane is broken, not yet why."""

    @property
    def error(self) -> OSError | None:
        """Return what broke the lane, if anything did."""
        ...

    def put(self, packet: Packet, *, check: Callable[[str, float], None]) -> None:
        """Take a packet; while there is no room, wait and call ``check``, which may raise.

        ``check`` is given the tag and when the waiting began.
        """
        ...

    def finish(self, last: Packet, *, flush: bool) -> None:
        """Send what is queued (with ``flush``), then ``last``; then close."""
        ...

    def kill(self) -> None:
        """Close without a word."""
        ...


class Intake(Protocol):
    """The receiving half. One thread at a time uses it."""

    @property
    def last_heard(self) -> float:
        """Return when the last byte came, by the monotonic clock."""
        ...

    def take(self) -> Packet | None:
        """Return a packet that is already complete, or None. No waiting."""
        ...

    def fill(self) -> bool:
        """Wait up to one tick for bytes and return whether some came.

        Raises:
            LinkError: the stream ended or broke.
        """
        ...

    def is_ready(self) -> bool:
        """Return whether ``fill`` would find bytes at once."""
        ...

    def close(self) -> None:
        """Release the lane."""
        ...


class ByteSink(Protocol):
    """Where encoded bytes go."""

    def send(self, data: bytes | memoryview) -> int:
        """Write what can be written without waiting and return how much; 0 means wait.

        After 0 the next call must offer the same bytes again.
        """
        ...

    def wait(self) -> None:
        """Wait up to one tick until ``send`` may take something."""
        ...

    def close(self) -> None:
        """Release the stream; what was written before still arrives."""
        ...


class ByteSource(Protocol):
    """Where encoded bytes come from."""

    def read_first(self, buffer: memoryview) -> int | None:
        """Read as ``read_into`` does, where the wait may be long."""
        ...

    def read_into(self, buffer: memoryview) -> int | None:
        """Read some bytes; None if none came within one tick, 0 at the end of the stream."""
        ...

    def is_ready(self) -> bool:
        """Return whether ``read_into`` would find bytes at once."""
        ...

    def close(self) -> None:
        """Release the stream."""
        ...
