"""Those who have dialled us and have no link yet: how many, and what they tried."""

import logging
import socket
import threading
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass

MAX_GUESTS = 64
MAX_GUESTS_PER_HOST = 16
MAX_NOTES = 4

_log = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class Guest:
    """A connection that is being greeted, held by a second handle so that it can be cut."""

    host: str
    handle: socket.socket


class Lobby:
    """Bounds the connections that are being greeted by cutting the oldest of the busiest host.

    A party proves its key within a few round trips and leaves; who stays is somebody who waits.
    So idle connections make room, and those of one host never push out those of another. Who has
    proved a key counts as that party from then on, wherever it dials from: strangers do not push it
    out, and it can come and be silent no more often than they can.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._guests: dict[Guest, str] = {}  # oldest first, with whom each counts for

    def enter(self, sock: socket.socket, host: str) -> Guest:
        """Let a connection in, cutting another if there are too many.

        Raises:
            OSError: the connection is gone, or we have no file handles left.
        """
        guest = Guest(host, sock.dup())
        with self._lock:
            self._guests[guest] = host
            self._make_room()
        return guest

    def know(self, guest: Guest, party: str) -> None:
        """Count a guest as a party's from now on: it has proved its key."""
        with self._lock:
            if guest in self._guests:
                self._guests[guest] = f"party {party}"
                self._make_room()

    def leave(self, guest: Guest) -> None:
        """Forget a guest that was greeted or refused; a second call does nothing."""
        with self._lock:
            if guest in self._guests:
                del self._guests[guest]
                guest.handle.close()

    def _make_room(self) -> None:
        busiest, count = Counter(self._guests.values()).most_common(1)[0]
        if count > MAX_GUESTS_PER_HOST or len(self._guests) > MAX_GUESTS:
            self._cut(next(guest for guest, whose in self._guests.items() if whose == busiest))

    def _cut(self, guest: Guest) -> None:
        del self._guests[guest]
        with suppress(OSError):  # it may have hung up by itself
            guest.handle.shutdown(socket.SHUT_RDWR)
        guest.handle.close()


class Notes:
    """What strangers tried, for whoever wonders why a party is missing. Not locked.

    A few notes are kept for each party that they may be about, and a few others, so that one
    stranger cannot fill the log or push out what was seen of another party.
    """

    def __init__(self) -> None:
        self._by_party: dict[str | None, list[str]] = {}

    def add(self, text: str, *, party: str | None) -> None:
        """Remember and log a note; ``party`` is whom the stranger may have meant to be."""
        notes = self._by_party.setdefault(party, [])
        if text not in notes and len(notes) < MAX_NOTES:
            notes.append(text)
            _log.warning("%s", text)

    def about(self, parties: Iterable[str]) -> str:
        """Return the notes that may explain why these parties are missing."""
        keys: list[str | None] = [*parties, None]
        return "; ".join(text for key in keys for text in self._by_party.get(key, ()))
