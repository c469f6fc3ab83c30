"""Links that carry typed frames between parties, and the meter that counts them.

A ``Link`` comes from ``memory_pair`` (threads), from ``mesh`` (TCP with mutual TLS) or from
``faulty_pair`` (tests); ``Recorded`` and ``ShapedLink`` wrap one.
"""

from tacit.transport.dial import Peer, parse_address
from tacit.transport.faulty import Fault, Faulty, faulty_pair
from tacit.transport.frame import DTYPE_BYTES, Frame, frame_bytes
from tacit.transport.link import Link, LinkLimits, PacketLink, Patience
from tacit.transport.meeting import listen, mesh
from tacit.transport.memory import memory_pair
from tacit.transport.meter import Meter
from tacit.transport.tls import Credentials, fingerprint
from tacit.transport.wrapped import Received, Recorded, ShapedLink

__all__ = [
    "DTYPE_BYTES",
    "Credentials",
    "Fault",
    "Faulty",
    "Frame",
    "Link",
    "LinkLimits",
    "Meter",
    "PacketLink",
    "Patience",
    "Peer",
    "Received",
    "Recorded",
    "ShapedLink",
    "faulty_pair",
    "fingerprint",
    "frame_bytes",
    "listen",
    "memory_pair",
    "mesh",
    "parse_address",
]
