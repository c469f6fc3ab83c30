"""Links that misbehave on purpose: drop, delay, duplicate, corrupt, truncate, kill."""

import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from tacit.errors import ConfigError
from tacit.transport.frame import DATA, HEADER, label_bytes
from tacit.transport.line import Line
from tacit.transport.link import ByteSink, LinkLimits, Patience
from tacit.transport.meter import Meter
from tacit.transport.stream import SocketSink, SocketSource, stream_link

FaultKind = Literal["drop", "delay", "duplicate", "corrupt", "truncate", "kill"]


@dataclass(frozen=True, kw_only=True)
class Fault:
    """What happens to one data frame of a direction.

    Attributes:
        kind: ``truncate`` cuts the stream in the middle of the frame, ``kill`` before it.
        frame: which one, counted from 0; heart-beats do not count.
        offset: of the byte that ``corrupt`` inverts, from the start of the header.
        seconds: of ``delay``.
    """

    kind: FaultKind
    frame: int
    offset: int = 0
    seconds: float = 0.0


class Faulty:
    """Wraps a byte sink and spoils chosen frames of the encoded stream, one fault a frame."""

    def __init__(self, sink: ByteSink, faults: Sequence[Fault]) -> None:
        self._sink = sink
        self._faults = {fault.frame: fault for fault in faults}
        self._held = bytearray()  # of a frame that is not complete yet
        self._spoiled: memoryview | None = None  # of the bytes that ``send`` was last given
        self._seen = 0
        self._is_dying = False

    def send(self, data: bytes | memoryview) -> int:
        """Write what these bytes become; frames go out once they are complete."""
        if self._spoiled is None:
            self._held += data
            self._spoiled = memoryview(b"".join(self._complete()))
        while self._spoiled:
            sent = self._sink.send(self._spoiled)
            if not sent:
                return 0
            self._spoiled = self._spoiled[sent:]
        if self._is_dying:
            self._sink.close()
            raise BrokenPipeError("killed by a fault")
        self._spoiled = None
        return len(data)

    def wait(self) -> None:
        """Wait for the stream beneath."""
        self._sink.wait()

    def close(self) -> None:
        """Close the stream beneath."""
        self._sink.close()

    def _complete(self) -> Iterator[bytes]:
        """Take the complete frames and yield what goes out in their place."""
        while (size := _frame_bytes(self._held)) is not None and len(self._held) >= size:
            frame = bytes(self._held[:size])
            del self._held[:size]
            if self._is_dying:
                continue
            if frame[3] != DATA:
                yield frame
            else:
                yield self._spoil(frame, self._faults.get(self._seen))
                self._seen += 1

    def _spoil(self, frame: bytes, fault: Fault | None) -> bytes:
        match fault:
            case None:
                return frame
            case Fault(kind="drop"):
                return b""
            case Fault(kind="duplicate"):
                return frame + frame
            case Fault(kind="delay", seconds=seconds):
                time.sleep(seconds)
                return frame
            case Fault(kind="corrupt", offset=offset):
                return _invert(frame, offset)
            case Fault(kind=kind):
                self._is_dying = True
                return frame[: len(frame) // 2] if kind == "truncate" else b""


def faulty_pair(
    a: str,
    b: str,
    *,
    faults: Mapping[str, Sequence[Fault]],
    meter_a: Meter,
    meter_b: Meter,
    patience: Patience | None = None,
    limits: LinkLimits | None = None,
) -> tuple[Line, Line]:
    """Make two link ends in one process over real byte streams, with faults by sender."""
    if strangers := faults.keys() - {a, b}:
        raise ConfigError(f"faults are for {a!r} and {b!r}, got {sorted(strangers)}")
    for sender, planned in faults.items():
        if len({fault.frame for fault in planned}) < len(planned):
            raise ConfigError(f"a frame can have one fault only, {sender!r} has {planned}")
    patience, limits = patience or Patience(), limits or LinkLimits()
    a_out, b_in = socket.socketpair()
    b_out, a_in = socket.socketpair()
    ends = ((b, a, a_out, a_in, meter_a), (a, b, b_out, b_in, meter_b))
    first, second = (
        stream_link(
            peer,
            Faulty(SocketSink(out), faults.get(me, ())),
            SocketSource(back),
            meter=meter,
            patience=patience,
            limits=limits,
            inline_bytes=-1,  # a fault may wait; that is the writer thread's part
        )
        for peer, me, out, back, meter in ends
    )
    return first, second


def _frame_bytes(held: bytearray) -> int | None:
    """Return the size of the frame that ``held`` starts with, or None if it is not known yet."""
    if len(held) < HEADER.size:
        return None
    static, _, _, payload = HEADER.unpack_from(held)
    return int(HEADER.size + label_bytes(static) + payload)


def _invert(frame: bytes, offset: int) -> bytes:
    spoiled = bytearray(frame)
    spoiled[offset] ^= 0xFF
    return bytes(spoiled)
