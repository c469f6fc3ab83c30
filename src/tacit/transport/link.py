"""What carries frames between two parties, and the one-way halves and streams beneath it."""

import math
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Protocol

from tacit.errors import ConfigError
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


MIB = 1 << 20


@dataclass(frozen=True, kw_only=True)
class Patience:
    """How long a link waits before it calls its peer gone.

    Attributes:
        connect_s: until every peer is connected, at the start.
        silence_s: without a single byte from a peer that we wait for, heart-beats included; at
            least twice ``heartbeat_s``.
        heartbeat_s: how often an idle side sends a heart-beat.
        stall_s: for one wanted frame, or until a peer has taken what is on its way to it when we
            leave, however lively it is; raise it for slow networks.
    """

    connect_s: float = 30.0
    silence_s: float = 20.0
    heartbeat_s: float = 2.0
    stall_s: float = 600.0

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not (math.isfinite(value) and value > 0):
                raise ConfigError(f"{field.name} must be a number of seconds > 0, got {value}")
        if self.heartbeat_s * 2 > self.silence_s:
            raise ConfigError(
                f"silence_s must be at least twice heartbeat_s ({self.heartbeat_s}) so that one"
                f" late heart-beat is forgiven, got {self.silence_s}"
            )


@dataclass(frozen=True, kw_only=True)
class LinkLimits:
    """How much memory a link may take, in bytes.

    Attributes:
        max_frame_bytes: one payload, either way; checked before anything is allocated.
        queue_bytes: frames handed to ``send`` and not yet written; beyond it ``send`` waits.
        prefetch_bytes: frames read ahead while nobody is in ``recv``; beyond it we stop reading.
        stash_bytes: frames of other channels kept while one channel is waited for, and one frame
            that is coming; beyond it the link fails.
    """

    max_frame_bytes: int = 1024 * MIB
    queue_bytes: int = 256 * MIB
    prefetch_bytes: int = 256 * MIB
    stash_bytes: int = 1024 * MIB

    def __post_init__(self) -> None:
        for field in fields(self):
            if getattr(self, field.name) < 1:
                raise ConfigError(f"{field.name} must be ≥ 1, got {getattr(self, field.name)}")
        if self.stash_bytes < self.prefetch_bytes:
            raise ConfigError(
                f"stash_bytes ({self.stash_bytes}) must not be below prefetch_bytes"
                f" ({self.prefetch_bytes})"
            )
