"""A link that keeps a copy of everything it hands out, for transcript tests."""

from dataclasses import dataclass

from tacit.result import Phase
from tacit.transport.frame import Frame
from tacit.transport.link import PacketLink
from tacit.transport.packet import Packet


@dataclass(frozen=True)
class Received:
    """One frame as its receiver saw it."""

    tag: str
    phase: Phase
    dtype: str
    shape: tuple[int, ...]
    data: bytes


class Recorded:
    """Wraps a link; ``received`` is what its party was handed, in order."""

    def __init__(self, link: PacketLink) -> None:
        self.received: list[Received] = []
        self._link = link

    @property
    def peer(self) -> str:
        """Return the name of the party at the other end."""
        return self._link.peer

    def send(self, tag: str, frame: Frame, *, phase: Phase = "online") -> None:
        """Send a frame."""
        self._link.send(tag, frame, phase=phase)

    def recv(self, tag: str) -> Frame:
        """Return the next frame of the tag's channel and keep a copy."""
        return self.take(tag).frame

    def close(self, *, failure: tuple[str, str] | None = None) -> None:
        """Close the link."""
        self._link.close(failure=failure)

    def stamp(self, tag: str, frame: Frame, phase: Phase) -> Packet:
        """Check and count a frame as sent now."""
        return self._link.stamp(tag, frame, phase)

    def put(self, packet: Packet) -> None:
        """Put a stamped packet on its way."""
        self._link.put(packet)

    def take(self, tag: str) -> Packet:
        """Return the next packet of the tag's channel and keep a copy of its frame."""
        packet = self._link.take(tag)
        head = packet.head
        self.received.append(
            Received(head.tag, head.phase, head.dtype, head.shape, bytes(packet.frame.data))
        )
        return packet
