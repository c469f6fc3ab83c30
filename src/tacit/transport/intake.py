"""The receiving half over a byte stream: checks first, allocates after, copies once at most."""

import ssl
from time import monotonic

import numpy as np

from tacit.errors import FrameError, LinkClosed
from tacit.transport.bounds import LinkLimits
from tacit.transport.frame import Frame
from tacit.transport.head import (
    HEADER,
    BadHeadError,
    FrameHead,
    decode_head,
    explain_refusal,
    label_bytes,
)
from tacit.transport.lane import ByteSource
from tacit.transport.packet import Packet

BUFFER_BYTES = 1 << 16
RECORD_BYTES = 1 << 14  # TLS hands out at most one record at a time
BURST_BYTES = 1 << 20
DRIP_BYTES = 1 << 12


class StreamIntake:
    """Decodes packets from a byte stream.

    Heads and small payloads go through one buffer; the rest of a large payload is read straight
    into its final memory. The state survives between calls, so threads may take turns.
    """

    def __init__(self, source: ByteSource, *, peer: str, limits: LinkLimits) -> None:
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
