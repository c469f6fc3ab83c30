"""The acceptor of a server: clients come and go, each proves its key, strangers are refused."""

import logging
import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial

from tacit.errors import IdentityError
from tacit.transport import Credentials, Link, LinkLimits, Meter, Patience, Peer
from tacit.transport.dial import Lane, Me, RefusalError, StrangerError, greet
from tacit.transport.meeting import MAX_HALF_LINKS, Guest, Lobby, Notes
from tacit.transport.stream import socket_link

_TICK_S = 0.2  # how long the end of a service waits for who listens
_MOST_ARRIVALS = 4
"""Links of one client that are being made, each in place of the one before."""
_log = logging.getLogger(__name__)


class Acceptor:
    """Accept the links of clients for as long as it is open.

    Guarantee: a link is handed on only after its client has proved the key that is pinned for it.
    However often a client comes, it takes no more than a few connections and threads, and none of
    those of others.
    """

    def __init__(
        self,
        me: str,
        clients: Mapping[str, Peer],
        *,
        credentials: Credentials,
        listener: socket.socket,
        patience: Patience,
        limits: LinkLimits,
    ) -> None:
        credentials.check()
        self._me = Me(me, credentials)
        self._clients = clients
        self._listener = listener
        self.meter = Meter(me)
        self._make = partial(socket_link, meter=self.meter, patience=patience, limits=limits)
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._lobby = Lobby()
        self._notes = Notes()
        self._lanes: dict[tuple[str, bytes], Lane] = {}
        self._arriving: Counter[str] = Counter()
        self._accepting: threading.Thread | None = None

    def open(self, admit: Callable[[Link], None]) -> None:
        """Start to hand links of clients to ``admit``."""
        self._accepting = threading.Thread(
            target=self._accept, args=(admit,), name="tacit-accept", daemon=True
        )
        self._accepting.start()

    def close(self) -> None:
        """Let nobody in any more."""
        self._stop.set()
        if self._accepting is not None:
            self._accepting.join()
        with self._lock:
            for lane in self._lanes.values():
                lane.sock.close()
            self._lanes.clear()

    def _accept(self, admit: Callable[[Link], None]) -> None:
        self._listener.settimeout(_TICK_S)
        while not self._stop.is_set():
            try:
                sock, address = self._listener.accept()
            except TimeoutError:
                continue
            except OSError:  # it left, or no file handle is free: then there is one in a while
                self._stop.wait(_TICK_S / 10)
                continue
            try:
                guest = self._lobby.enter(sock, address[0])
            except OSError:
                sock.close()
                continue
            greeting = threading.Thread(
                target=self._greet, args=(sock, guest, admit), name="tacit-greet", daemon=True
            )
            try:
                greeting.start()
            except RuntimeError:  # the system gives no thread now
                self._lobby.leave(guest)
                sock.close()

    def _greet(self, sock: socket.socket, guest: Guest, admit: Callable[[Link], None]) -> None:
        try:
            know = partial(self._lobby.know, guest)
            lane = greet(self._me, sock, self._clients, on_proof=know)
        except (RefusalError, StrangerError, IdentityError) as error:
            with self._lock:
                self._notes.add(f"from {guest.host}: {error}", party=None)
            return
        finally:
            self._lobby.leave(guest)
        with self._arrival(lane) as is_welcome:
            if not is_welcome:
                lane.sock.close()
                return
            link = self._pair(lane)
            if link is not None:
                admit(link)

    @contextmanager
    def _arrival(self, lane: Lane) -> Iterator[bool]:
        """Say whether a client may come once more while others of its links are being made."""
        with self._lock:
            self._arriving[lane.party] += 1
            is_welcome = self._arriving[lane.party] <= _MOST_ARRIVALS
            if not is_welcome:
                self._notes.add(f"{lane.party!r} comes too often at once", party=lane.party)
        try:
            yield is_welcome
        finally:
            with self._lock:
                self._arriving[lane.party] -= 1

    def _pair(self, lane: Lane) -> Link | None:
        """Keep a lane until the other one of its link is there."""
        key = lane.party, lane.link_id
        with self._lock:
            if self._stop.is_set():
                lane.sock.close()
                return None
            other = self._lanes.pop(key, None)
            if other is None:
                self._lanes[key] = lane
                self._forget_old(lane.party)
                return None
        lanes = {one.number: one for one in (lane, other)}
        if len(lanes) < 2:
            for one in (lane, other):
                one.sock.close()
            return None
        return self._make(lane.party, lanes[1].sock, lanes[0].sock)

    def _forget_old(self, party: str) -> None:
        """Close the oldest lane of a client whose other one never came, if it has many."""
        mine = [key for key in self._lanes if key[0] == party]
        if len(mine) > MAX_HALF_LINKS:
            self._lanes.pop(mine[0]).sock.close()
