"""The link contract: what carries frames between two parties."""

from typing import Protocol

from tacit.result import Phase
from tacit.transport.frame import Frame
from tacit.transport.packet import Packet


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
