"""Packets that came before anyone asked for them, by channel."""

from collections import deque

from tacit.transport.packet import Packet

PACKET_BYTES = 1024
"""What a packet costs beside its payload, so that a flood of empty frames is bounded too."""


class Stash:
    """First in, first out within a channel. Not locked: its owner does that."""

    def __init__(self) -> None:
        self.nbytes = 0
        self._channels: dict[str, deque[Packet]] = {}

    def add(self, packet: Packet) -> None:
        """Keep a packet for later."""
        self._channels.setdefault(packet.head.channel, deque()).append(packet)
        self.nbytes += packet.head.payload_bytes + PACKET_BYTES

    def pop(self, channel: str) -> Packet | None:
        """Return the oldest packet of a channel, or None."""
        waiting = self._channels.get(channel)
        if waiting is None:
            return None
        packet = waiting.popleft()
        if not waiting:
            del self._channels[channel]
        self.nbytes -= packet.head.payload_bytes + PACKET_BYTES
        return packet

    def clear(self) -> None:
        """Let go of everything."""
        self._channels.clear()
        self.nbytes = 0
