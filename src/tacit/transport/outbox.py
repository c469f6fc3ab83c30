"""The sending half over a byte stream: inline while it can, through a thread when it must."""

import threading
from collections import deque
from collections.abc import Callable
from time import monotonic

from tacit.transport.bounds import LinkLimits, Patience
from tacit.transport.head import DATA, HEADER, HEARTBEAT
from tacit.transport.lane import TICK_S, ByteSink
from tacit.transport.packet import Packet, control

INLINE_BYTES = 1 << 16
CHUNK_BYTES = 1 << 18


class StreamOutlet:
    """Encodes packets onto a byte stream and keeps it alive with heart-beats.

    A small packet is written by the caller itself when nothing is queued before it; that saves
    two thread switches. Everything else is written by a daemon thread, payloads straight from the
    sender's memory.
    """

    def __init__(
        self,
        sink: ByteSink,
        *,
        name: str,
        patience: Patience,
        limits: LinkLimits,
        inline_bytes: int = INLINE_BYTES,
    ) -> None:
        self.error: OSError | None = None
        self._sink = sink
        self._patience = patience
        self._queue_bytes = limits.queue_bytes
        self._inline_bytes = inline_bytes
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._queue: deque[Packet] = deque()
        self._queued_bytes = 0
        self._rest: memoryview | None = None  # of a packet that was written inline in part
        self._is_writing = False
        self._is_finishing = False
        self._is_abandoned = False
        self._sequence = 0
        self._last_write = monotonic()
        self._thread = threading.Thread(target=self._run, name=f"tacit-send-{name}", daemon=True)
        self._thread.start()

    def put(self, packet: Packet, *, check: Callable[[str, float], None]) -> None:
        """Write a small packet now, or queue it; wait while the queue is full."""
        size = packet.head.payload_bytes
        with self._lock:
            if self.error is not None:
                raise self.error
            if size <= self._inline_bytes and not self._is_writing and not self._queue:
                self._write_inline(packet)
                return
            begun = monotonic()
            while self._queued_bytes and self._queued_bytes + size > self._queue_bytes:
                self._changed.wait(TICK_S)
                check(packet.head.tag, begun)
                if self.error is not None:
                    raise self.error
            self._queue.append(packet)
            self._queued_bytes += size
            self._changed.notify_all()

    def finish(self, last: Packet, *, flush: bool) -> None:
        """Send what is queued (with ``flush``), then ``last``; then close.

        Gives up when nothing moves for ``silence_s``: from now on, or, where a failure is told,
        since something last did, for then the others have waited long enough; and after
        ``stall_s``, however lively the peer: one that takes a byte now and then would keep us here.
        """
        with self._changed:
            if not flush:
                self._queue.clear()
                self._queued_bytes = 0
            self._queue.append(last)
            self._is_finishing = True
            self._changed.notify_all()
        called = monotonic()
        begun = called if flush else 0.0
        while self._thread.is_alive():
            self._thread.join(TICK_S)
            now = monotonic()
            is_silent = now - max(begun, self._last_write) > self._patience.silence_s
            if is_silent or now - called > self._patience.stall_s:
                self._is_abandoned = True
        self._sink.close()

    def kill(self) -> None:
        """Close without a word."""
        with self._changed:
            self._is_abandoned = self._is_finishing = True
            self._queue.clear()
            self._rest = None
            self._changed.notify_all()
        self._thread.join()
        self._sink.close()

    def _write_inline(self, packet: Packet) -> None:
        data = b"".join((*self._encode_head(packet), packet.frame.data))
        try:
            sent = self._sink.send(data)
        except OSError as error:
            self.error = error
            raise
        self._last_write = monotonic()
        if sent < len(data):
            self._rest = memoryview(data)[sent:]
            self._is_writing = True
            self._changed.notify_all()

    def _run(self) -> None:
        try:
            while (parts := self._next()) is not None:
                for part in parts:
                    self._write(part)
        except OSError as error:
            with self._changed:
                self.error = error
                self._queue.clear()
                self._changed.notify_all()

    def _next(self) -> tuple[memoryview, ...] | None:
        """Wait for work and return its bytes, or None when all is done."""
        with self._changed:
            if self._rest is None and self._is_writing:
                self._is_writing = False
                self._changed.notify_all()
            while self._rest is None and not self._queue and self._is_idle():
                self._changed.wait(self._patience.heartbeat_s / 2)
            if self._rest is not None:
                parts: tuple[memoryview, ...] = (self._rest,)
                self._rest = None
            elif self._queue:
                parts = self._encode(self._queue.popleft())
            elif self._is_finishing:
                return None
            else:
                parts = self._encode(control(HEARTBEAT))
            self._is_writing = True
            return parts

    def _is_idle(self) -> bool:
        is_fresh = monotonic() - self._last_write < self._patience.heartbeat_s
        return is_fresh and not self._is_finishing and self.error is None

    def _encode_head(self, packet: Packet) -> tuple[bytes, bytes]:
        head = packet.head
        header = HEADER.pack(head.static, packet.depth, self._sequence, head.payload_bytes)
        self._sequence += 1
        return header, head.label

    def _encode(self, packet: Packet) -> tuple[memoryview, ...]:
        head = memoryview(b"".join(self._encode_head(packet)))
        size = packet.head.payload_bytes
        if packet.head.kind == DATA:
            self._queued_bytes -= size
        # A view with a zero in its shape cannot be cast.
        return (head, packet.frame.data.cast("B")) if size else (head,)

    def _write(self, data: memoryview) -> None:
        while data:
            sent = self._sink.send(data[:CHUNK_BYTES])
            now = monotonic()
            if sent:
                self._last_write = now
                data = data[sent:]
                continue
            self._sink.wait()
            if self._is_abandoned:
                raise ConnectionAbortedError("closed while the peer was not reading")
            if now - self._last_write > self._patience.stall_s:
                raise TimeoutError(f"it took no byte for {self._patience.stall_s:g} s")
