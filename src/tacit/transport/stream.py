"""Links over byte streams."""

import socket

from tacit.transport.bounds import LinkLimits, Patience
from tacit.transport.intake import StreamIntake
from tacit.transport.lane import ByteSink, ByteSource
from tacit.transport.line import Line
from tacit.transport.meter import Meter
from tacit.transport.outbox import INLINE_BYTES, StreamOutlet
from tacit.transport.prefetch import Prefetcher
from tacit.transport.sockets import SocketSink, SocketSource


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
    source: ByteSource,
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
    line = Line(peer, outlet, intake, meter=meter, patience=patience, limits=limits)
    line.attach(Prefetcher(line.read_ahead, name=peer))
    return line
