"""Links over byte streams: the sending half, the receiving half, and sockets beneath them."""

import os
import select
import socket
import ssl
import threading
from collections import deque
from collections.abc import Callable
from time import monotonic

import numpy as np

from tacit.errors import FrameError, LinkClosed
from tacit.transport.frame import (
    DATA,
    HEADER,
    HEARTBEAT,
    BadHeadError,
    Frame,
    FrameHead,
    Packet,
    control,
    decode_head,
    explain_refusal,
    label_bytes,
)
from tacit.transport.line import Line
from tacit.transport.link import TICK_S, ByteSink, LinkLimits, Patience
from tacit.transport.meter import Meter

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


BUFFER_BYTES = 1 << 16
RECORD_BYTES = 1 << 14  # TLS hands out at most one record at a time
BURST_BYTES = 1 << 20
DRIP_BYTES = 1 << 12


class StreamIntake:
    """Decodes packets from a byte stream.

    Heads and small payloads go through one buffer; the rest of a large payload is read straight
    into its final memory. The state survives between calls, so threads may take turns.
    """

    def __init__(self, source: "SocketSource", *, peer: str, limits: LinkLimits) -> None:
        self.last_heard = monotonic()
        self._source = source
        self._peer = peer
        # One frame on the way counts as one that is kept: it stays as long as its sender likes.
        self._max_bytes = min(limits.max_frame_bytes, limits.stash_bytes)
        self._buffer = bytearray(BUFFER_BYTES)
        self._view = memoryview(self._buffer)
        self._start = 0
        self._end = 0
        self._due = 0
        self._open: Packet | None = None  # its payload is still coming
        self._filled = 0

    def take(self) -> Packet | None:
        """Return the next complete packet, or None if bytes are missing."""
        if self._open is not None:
            if self._filled < self._open.head.payload_bytes:
                return None
            done, self._open = self._open, None
            return done
        if self._end - self._start < HEADER.size:
            return None
        static, depth, sequence, size = HEADER.unpack_from(self._buffer, self._start)
        try:
            body = self._start + HEADER.size + label_bytes(static)
            if self._end < body:
                return None
            head = decode_head(static, bytes(self._view[self._start + HEADER.size : body]))
            is_due = sequence == self._due and size == head.payload_bytes <= self._max_bytes
            if not is_due or (depth == 0) != (head.phase == "setup"):
                explain_refusal(head, depth, sequence, size, due=self._due, most=self._max_bytes)
        except BadHeadError as error:
            raise FrameError(self._peer, str(error)) from error
        self._due += 1
        return self._begin(head, depth, body)

    def fill(self) -> bool:
        """Read what comes within one tick and return whether anything did."""
        try:
            count = self._read_head() if self._open is None else self._read_payload(self._open)
        except ssl.SSLError as error:
            raise FrameError(self._peer, f"the encrypted stream is broken: {error}") from error
        except OSError as error:
            raise LinkClosed(self._peer, f"the connection broke: {error}") from error
        if count is None:
            return False
        if count == 0:
            raise LinkClosed(self._peer, "went away without saying goodbye")
        self.last_heard = monotonic()
        return True

    def is_ready(self) -> bool:
        """Return whether bytes wait in the stream."""
        return self._source.is_ready()

    def close(self) -> None:
        """Close the stream, and let go of a payload that was still coming."""
        self._open = None
        self._source.close()

    def _begin(self, head: FrameHead, depth: int, body: int) -> Packet | None:
        """Make the packet of a head; keep it open if its payload is not complete."""
        end = body + head.payload_bytes
        if end <= self._end:
            data = memoryview(self._buffer[body:end])
            self._start = end
            if end == self._end:
                self._start = self._end = 0
            return Packet(head, depth, Frame(head.dtype, head.shape, data))
        try:
            data = np.empty(head.payload_bytes, np.uint8).data  # untouched pages cost nothing
        except MemoryError as error:
            text = f"announced {head.payload_bytes} bytes, for which there is no memory here"
            raise FrameError(self._peer, text) from error
        self._filled = self._end - body
        data[: self._filled] = self._view[body : self._end]
        self._start = self._end = 0
        self._open = Packet(head, depth, Frame(head.dtype, head.shape, data))
        return None

    def _read_head(self) -> int | None:
        if BUFFER_BYTES - self._end < RECORD_BYTES:
            kept = self._buffer[self._start : self._end]
            self._buffer[: len(kept)] = kept
            self._start, self._end = 0, len(kept)
        count = self._source.read_first(self._view[self._end :])
        if count:
            self._end += count
        return count

    def _read_payload(self, packet: Packet) -> int | None:
        data = packet.frame.data
        begin = self._filled
        stop = min(len(data), begin + BURST_BYTES)
        count: int | None = DRIP_BYTES
        # A peer that drips must not keep us here: whoever waits looks at the clock in between.
        while self._filled < stop and count and count >= DRIP_BYTES:
            count = self._source.read_into(data[self._filled :])
            self._filled += count or 0
        return self._filled - begin or count


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


def socket_link(
    peer: str,
    out: socket.socket,
    back: socket.socket,
    *,
    meter: Meter,
    patience: Patience,
    limits: LinkLimits,
) -> Line:
    """Make a link that writes to one connected socket and reads from another."""
    return stream_link(
        peer,
        SocketSink(out),
        SocketSource(back),
        meter=meter,
        patience=patience,
        limits=limits,
    )


def stream_link(
    peer: str,
    sink: ByteSink,
    source: "SocketSource",
    *,
    meter: Meter,
    patience: Patience,
    limits: LinkLimits,
    inline_bytes: int = INLINE_BYTES,
) -> Line:
    """Make a link that writes to one byte stream and reads from another."""
    outlet = StreamOutlet(
        sink, name=peer, patience=patience, limits=limits, inline_bytes=inline_bytes
    )
    intake = StreamIntake(source, peer=peer, limits=limits)
    return Line(
        peer, outlet, intake, meter=meter, patience=patience, limits=limits, reads_ahead=True
    )
