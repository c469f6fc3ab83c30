"""Who sits where in a chat, and what one user may make the others keep: counted, and held to."""

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import final

from tacit.errors import ConfigError, FrameError


@dataclass(frozen=True, kw_only=True)
class Seats:
    """Which party of the session owns the model, which asks, and which deals."""

    owner: str = "owner"
    user: str = "user"
    dealer: str = "dealer"

    def __post_init__(self) -> None:
        names = (self.owner, self.user, self.dealer)
        if len(set(names)) != len(names):
            raise ConfigError(
                f"owner, user and dealer must be three parties, got {', '.join(names)}: a dealer "
                "who takes part could read what it masks"
            )


Wait = Callable[[float], None]
"""Told, about once a second, for how many seconds a token or its material was waited for."""

PATIENCE_S = 1.0
"""How long nobody is told of a wait, and then again."""

Quota = Callable[[int, str], None]
"""Counts tokens that a user asks for, and refuses them with its name if they are too many."""


@dataclass(frozen=True, kw_only=True)
class Allowance:
    """Counts that hold for every user alike.

    Attributes:
        conversations: open at once in a session; each has threads of its own.
        orders: made and not yet used, in one conversation.
        keep_s: how long the caches of a session that broke wait for their user to come back.
    """

    conversations: int = 8
    batches: int = 16
    keep_s: float = 600.0

    def __post_init__(self) -> None:
        if min(self.conversations, self.batches) < 1 or not self.keep_s >= 0:
            raise ConfigError(f"an allowance is at least 1 of each, got {self}")


@final
class Account:
    """Bytes that one user makes a party keep, out of a pool that may serve others too.

    For threads. Without ``most`` there is no limit of this user's own. ``quota`` counts the tokens
    that it has computed, and refuses more than it may have.
    """

    def __init__(
        self,
        *,
        most: int = sys.maxsize,
        pool: "Account | None" = None,
        quota: Quota | None = None,
    ) -> None:
        self.most = most
        self._pool = pool
        self._quota = quota
        self._lock = threading.Lock()
        self._used = 0

    @property
    def used(self) -> int:
        """Return the bytes that are taken."""
        return self._used

    def fits(self, nbytes: int) -> bool:
        """Say whether there is room for so many more, in the pool too."""
        is_room = self._used + nbytes <= self.most
        return is_room and (self._pool is None or self._pool.fits(nbytes))

    def take(self, nbytes: int, *, user: str) -> None:
        """Count bytes before they are allocated.

        Raises:
            FrameError: they are too many for this user, or for all together.
        """
        with self._lock:
            if self._used + nbytes > self.most:
                raise FrameError(
                    user,
                    f"wants {_show(nbytes)} besides {_show(self._used)} that are kept here; "
                    f"{_show(self.most)} is the most",
                )
            if self._pool is not None:
                self._pool.take(nbytes, user=user)
            self._used += nbytes

    def spend(self, tokens: int, *, user: str) -> None:
        """Count tokens before they are computed.

        Raises:
            FrameError: the user has had as many as it may.
        """
        if self._quota is not None:
            self._quota(tokens, user)

    def give(self, nbytes: int) -> None:
        """Give bytes back."""
        with self._lock:
            self._used -= nbytes
            if self._pool is not None:
                self._pool.give(nbytes)

    def settle(self, nbytes: int, *, user: str) -> None:
        """Count so many bytes in all from now on, instead of those before."""
        more = nbytes - self._used
        if more > 0:
            self.take(more, user=user)
        else:
            self.give(-more)

    def clear(self) -> None:
        """Give everything back: nothing is kept any more."""
        self.give(self._used)

    @contextmanager
    def lent(self, nbytes: int, *, user: str) -> Iterator[None]:
        """Take bytes for as long as the block runs."""
        self.take(nbytes, user=user)
        try:
            yield
        finally:
            self.give(nbytes)


def _show(nbytes: int) -> str:
    return f"{nbytes / 1e6:.1f} MB"
