"""What a link waits for and what it admits."""

import math
from dataclasses import dataclass, fields

from tacit.errors import ConfigError

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
