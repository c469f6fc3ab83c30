"""Links between threads of one process."""

import threading
from collections import deque
from collections.abc import Callable
from time import monotonic

from tacit.errors import LinkClosed
from tacit.transport.frame import Frame, Packet
from tacit.transport.line import Line
from tacit.transport.link import TICK_S, LinkLimits, Patience
from tacit.transport.meter import Meter


def memory_pair(
    a: str,
    b: str,
    *,
    meter_a: Meter,
    meter_b: Meter,
    patience: Patience | None = None,
    limits: LinkLimits | None = None,
) -> tuple[Line, Line]:
    """Make the two ends of a link inside one process: ``a``'s end, then ``b``'s.

    A payload is copied once, when the receiver takes it, so that parties share no memory. Nothing
    is encoded. There is no silence between threads of one process, only stalling.
    """
    patience, limits = patience or Patience(), limits or LinkLimits()
    there, back = (MemoryLane(peer, limits=limits, patience=patience) for peer in (a, b))
    return (
        Line(b, there, back, meter=meter_a, patience=patience, limits=limits),
        Line(a, back, there, meter=meter_b, patience=patience, limits=limits),
    )


class MemoryLane:
    """Both halves of one direction: the outlet of its sender, the intake of its receiver."""

    def __init__(self, sender: str, *, limits: LinkLimits, patience: Patience) -> None:
        self.error: OSError | None = None
        self._sender = sender
        self._room = limits.queue_bytes + limits.prefetch_bytes
        self._stall_s = patience.stall_s
        self._changed = threading.Condition(threading.Lock())
        self._queue: deque[Packet] = deque()
        self._queued_bytes = 0
        self._has_ended = False

    @property
    def last_heard(self) -> float:
        """Return now: what shares our process is not silent while we run."""
        return monotonic()

    def put(self, packet: Packet, *, check: Callable[[str, float], None]) -> None:
        """Queue a packet; wait while the queue is full."""
        size = packet.head.payload_bytes
        begun = monotonic()
        with self._changed:
            while self._queued_bytes and self._queued_bytes + size > self._room:
                self._changed.wait(TICK_S)
                check(packet.head.tag, begun)
                if monotonic() - begun > self._stall_s:
                    raise TimeoutError(f"it took nothing for {self._stall_s:g} s")
            if self.error is not None:
                raise self.error
            self._append(packet)

    def finish(self, last: Packet, *, flush: bool) -> None:
        """End the lane with a last packet, dropping the others unless ``flush``."""
        with self._changed:
            if not flush:
                self._queue.clear()
                self._queued_bytes = 0
            if self.error is None:
                self._append(last)
            self._has_ended = True

    def kill(self) -> None:
        """End the lane without a word."""
        with self._changed:
            self._has_ended = True
            self._changed.notify_all()

    def take(self) -> Packet | None:
        """Return the oldest packet with a payload of its own, or None."""
        with self._changed:
            if not self._queue:
                return None
            packet = self._queue.popleft()
            self._queued_bytes -= packet.head.payload_bytes
            self._changed.notify_all()
        frame = packet.frame
        own = Frame(frame.dtype, frame.shape, memoryview(bytearray(frame.data)))
        return Packet(packet.head, packet.depth, own)

    def fill(self) -> bool:
        """Wait up to one tick for a packet."""
        with self._changed:
            if not self._queue and not self._has_ended:
                self._changed.wait(TICK_S)
            if not self._queue and self._has_ended:
                raise LinkClosed(self._sender, "went away without saying goodbye")
            return bool(self._queue)

    def is_ready(self) -> bool:
        """Return whether a packet waits."""
        return bool(self._queue) or self._has_ended

    def close(self) -> None:
        """Tell the sender that nobody takes its packets any more, and drop them."""
        with self._changed:
            self.error = BrokenPipeError("the other end is closed")
            self._queue.clear()
            self._queued_bytes = 0
            self._changed.notify_all()

    def _append(self, packet: Packet) -> None:
        self._queue.append(packet)
        self._queued_bytes += packet.head.payload_bytes
        self._changed.notify_all()
