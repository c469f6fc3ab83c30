"""What carries frames between two parties, and the one-way halves and streams beneath it."""

from collections.abc import Callable
from typing import Protocol

from tacit.result import Phase
from tacit.transport.frame import Frame, Packet


class Link(Protocol):
    """An ordered, metered connection to one peer.

    A tag is ``channel/label``. Frames keep their order within a channel; frames of other channels
    that arrive meanwhile are kept for later. Different threads may wait on different channels.
    """

    @property
    def peer(self) -> str:
        """Return the name of the party at the other end."""
        ...

    def send(self, tag: str, frame: Frame, *, phase: Phase = "online") -> None:
        """Send a frame and return at once; the memory behind it must not change any more.

        Waits only while more than ``LinkLimits.queue_bytes`` are still unsent.

        Raises:
            InputError: the tag or the frame cannot be sent.
            PartyError: the peer, or a party that the peer names, failed.
        """
        ...

    def recv(self, tag: str) -> Frame:
        """Return the next frame of the tag's channel. The caller owns its memory.

        Raises:
            DisagreementError: that frame has another tag; the peer is at another step.
            PartyError: the peer, or a party that the peer names, failed.
            LinkClosed: the peer went away, or finished without sending this.
            LinkTimeout: the peer was silent, or the frame did not come, for too long.
            FrameError: what came is not a valid frame.
        """
        ...

    def close(self, *, failure: tuple[str, str] | None = None) -> None:
        """Send what is queued, say goodbye and close; a second call does nothing.

        With ``failure``, drop the queue and tell the peer first which party failed and why.
        Does not raise if the peer is gone and does not prove that the peer took everything:
        parties that need to know confirm it with a frame.
        """
        ...


class PacketLink(Link, Protocol):
    """A link whose two acts can be taken apart, which is what wrappers do."""

    def stamp(self, tag: str, frame: Frame, phase: Phase) -> Packet:
        """Check and count a frame as sent now."""
        ...

    def put(self, packet: Packet) -> None:
        """Put a stamped packet on its way."""
        ...

    def take(self, tag: str) -> Packet:
        """Do what ``recv`` does, and return what travelled beside the frame too."""
        ...


TICK_S = 0.05
"""How long one wait lasts before clocks and flags are looked at again."""


class Outlet(Protocol):
    """The sending half. An OSError means that the lane is broken, not yet why."""

    @property
    def error(self) -> OSError | None:
        """Return what broke the lane, if anything did."""
        ...

    def put(self, packet: Packet, *, check: Callable[[str, float], None]) -> None:
        """Take a packet; while there is no room, wait and call ``check``, which may raise.

        ``check`` is given the tag and when the waiting began.
        """
        ...

    def finish(self, last: Packet, *, flush: bool) -> None:
        """Send what is queued (with ``flush``), then ``last``; then close."""
        ...

    def kill(self) -> None:
        """Close without a word."""
        ...


class Intake(Protocol):
    """The receiving half. One thread at a time uses it."""

    @property
    def last_heard(self) -> float:
        """Return when the last byte came, by the monotonic clock."""
        ...

    def take(self) -> Packet | None:
        """Return a packet that is already complete, or None. No waiting."""
        ...

    def fill(self) -> bool:
        """Wait up to one tick for bytes and return whether some came.

        Raises:
            LinkError: the stream ended or broke.
        """
        ...

    def is_ready(self) -> bool:
        """Return whether ``fill`` would find bytes at once."""
        ...

    def close(self) -> None:
        """Release the lane."""
        ...


class ByteSink(Protocol):
    """Where encoded bytes go."""

    def send(self, data: bytes | memoryview) -> int:
        """Write what can be written without waiting and return how much; 0 means wait.

        After 0 the next call must offer the same bytes again.
        """
        ...

    def wait(self) -> None:
        """Wait up to one tick until ``send`` may take something."""
        ...

    def close(self) -> None:
        """Release the stream; what was written before still arrives."""
        ...
