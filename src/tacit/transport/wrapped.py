"""Links around a link: one keeps a copy of what it hands out, one is as slow as a given network."""

import math
import threading
from collections import deque
from dataclasses import dataclass
from time import monotonic, sleep

from tacit.errors import ConfigError, LinkClosed, PartyError
from tacit.result import Phase
from tacit.transport.frame import Frame, Packet
from tacit.transport.link import PacketLink


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


AWAKE_S = 0.002
"""How long before its time a frame is waited for without sleeping."""


class ShapedLink:
    """Wraps a link and delays what is sent on it; wrap both ends to shape both directions.

    A frame leaves when the frames before it have left and its own payload has passed at
    ``mbit_per_s``; it arrives half a round-trip time later. ``send`` never waits: a thread
    releases the frames, and the frames it holds are not limited.
    """

    def __init__(
        self, link: PacketLink, *, rtt_ms: float = 0.0, mbit_per_s: float = math.inf
    ) -> None:
        self._link = link
        self.reshape(rtt_ms=rtt_ms, mbit_per_s=mbit_per_s)
        self._changed = threading.Condition(threading.Lock())
        self._queue: deque[tuple[float, Packet]] = deque()
        self._free_at = 0.0
        self._failure: PartyError | None = None
        self._is_closing = False
        self._thread = threading.Thread(
            target=self._run, name=f"tacit-shape-{link.peer}", daemon=True
        )
        self._thread.start()

    def reshape(self, *, rtt_ms: float, mbit_per_s: float) -> None:
        """Be another network for what is sent from now on."""
        if not (rtt_ms >= 0 and math.isfinite(rtt_ms) and mbit_per_s > 0):
            raise ConfigError(
                f"a network has rtt_ms ≥ 0 and mbit_per_s > 0, got {rtt_ms} and {mbit_per_s}"
            )
        self._half_rtt_s = rtt_ms / 2000
        self._bytes_per_s = mbit_per_s * 1e6 / 8

    @property
    def peer(self) -> str:
        """Return the name of the party at the other end."""
        return self._link.peer

    def send(self, tag: str, frame: Frame, *, phase: Phase = "online") -> None:
        """Send a frame; it goes out when the network would have carried it."""
        self.put(self._link.stamp(tag, frame, phase))

    def recv(self, tag: str) -> Frame:
        """Return the next frame of the tag's channel."""
        return self._link.recv(tag)

    def close(self, *, failure: tuple[str, str] | None = None) -> None:
        """Let all frames out at their time and close; with ``failure``, drop them."""
        with self._changed:
            if failure is not None:
                self._queue.clear()
            self._is_closing = True
            self._changed.notify_all()
        self._thread.join()
        self._link.close(failure=failure)

    def stamp(self, tag: str, frame: Frame, phase: Phase) -> Packet:
        """Check and count a frame as sent now."""
        return self._link.stamp(tag, frame, phase)

    def put(self, packet: Packet) -> None:
        """Queue a packet for its time."""
        with self._changed:
            if self._is_closing:
                raise LinkClosed(self._link.peer, "this end of the link is closed")
            if self._failure is not None:
                raise self._failure.again()
            carried_s = packet.head.payload_bytes / self._bytes_per_s
            self._free_at = max(self._free_at, monotonic()) + carried_s
            self._queue.append((self._free_at + self._half_rtt_s, packet))
            self._changed.notify_all()

    def take(self, tag: str) -> Packet:
        """Return the next packet of the tag's channel."""
        return self._link.take(tag)

    def _run(self) -> None:
        while (packet := self._next()) is not None:
            try:
                self._link.put(packet)
            except PartyError as error:
                with self._changed:
                    self._failure = error
                    self._queue.clear()
                return

    def _next(self) -> Packet | None:
        with self._changed:
            while True:
                if not self._queue:
                    if self._is_closing:
                        return None
                    self._changed.wait()
                    continue
                due, packet = self._queue[0]
                wait_s = due - monotonic()
                if wait_s <= AWAKE_S:
                    self._queue.popleft()
                    break
                self._changed.wait(wait_s - AWAKE_S)
        while monotonic() < due:  # a sleeper wakes late, and a long chain of messages adds that up
            sleep(0)
        return packet
