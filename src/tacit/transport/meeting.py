"""A mesh in the making: the threads that dial and greet, and what they share."""

import socket
import threading
from collections.abc import Callable, Mapping
from functools import partial
from time import monotonic

from tacit.errors import HandshakeError, IdentityError, LinkClosed, LinkTimeout, TacitError
from tacit.transport.dial import Lane, Me, Peer, RefusalError, StrangerError, dial, greet
from tacit.transport.line import Line
from tacit.transport.lobby import Guest, Lobby, Notes

REDIAL_S = 1.0
"""How long a party whose link broke may take to dial again."""
FAREWELL_S = 2.0
"""How long a failing party waits for links in the making, so that it can say why it fails."""

MAX_HALF_LINKS = 4
"""Lanes of one party whose other lane has not come."""

MakeLink = Callable[[str, socket.socket, socket.socket], Line]


class Connector:
    """Makes the links to all peers at once, and watches those that are made already."""

    def __init__(
        self,
        me: Me,
        peers: Mapping[str, Peer],
        dialled: set[str],
        *,
        make_link: MakeLink,
        connect_s: float,
    ) -> None:
        self._me = me
        self._peers = peers
        self._dialled = dialled
        self._awaited = {name: peer for name, peer in peers.items() if name not in dialled}
        self._make_link = make_link
        self._connect_s = connect_s
        self._deadline = monotonic() + connect_s
        self._stop = threading.Event()
        self._changed = threading.Condition(threading.Lock())
        self._lanes: dict[tuple[str, bytes], dict[int, Lane]] = {}
        self._links: dict[str, Line] = {}
        self._broken: dict[str, float] = {}  # since when
        self._error: TacitError | None = None
        self._is_over = False
        self._lobby = Lobby()
        self._notes = Notes()
        self._threads: list[threading.Thread] = []

    def start(self, listener: socket.socket | None) -> None:
        """Start the dialling threads and the accepting one."""
        for name in sorted(self._dialled):
            self._threads.append(_daemon(self._dial, name))
        if self._awaited and listener is not None:
            self._threads.append(_daemon(self._accept, listener))

    def wait(self) -> None:
        """Wait until every peer is connected; raise when one cannot be, or fails meanwhile."""
        with self._changed:
            while True:
                self._raise_if_hopeless()
                if self._links.keys() == self._peers.keys() and not self._broken:
                    return
                self._changed.wait(0.05)

    def end(self) -> dict[str, Line]:
        """Stop all threads, drop half-made links and return the whole ones."""
        self._stop.set()
        limit = monotonic() + FAREWELL_S
        for thread in self._threads:
            thread.join(max(limit - monotonic(), 0))
        with self._changed:
            self._is_over = True
            for lanes in self._lanes.values():
                for lane in lanes.values():
                    lane.sock.close()
            self._lanes.clear()
            return dict(sorted(self._links.items()))

    def _raise_if_hopeless(self) -> None:
        if self._error is not None:
            raise self._error
        now = monotonic()
        for name, link in self._links.items():
            failure = link.failure
            if failure is None:
                continue
            may_redial = isinstance(failure, LinkClosed) and name in self._awaited
            if not may_redial or now > self._broken.setdefault(name, now) + REDIAL_S:
                raise failure
        missing = sorted(self._awaited.keys() - self._links.keys())
        if missing and now > self._deadline:
            seen = self._notes.about(missing)
            raise LinkTimeout(
                missing[0],
                f"no connection from {', '.join(map(repr, missing))} within {self._connect_s:g} s;"
                " is it running and is its address right?"
                + (f" Refused meanwhile: {seen}" if seen else ""),
            )

    def _dial(self, name: str) -> None:
        peer = self._peers[name]
        try:
            lanes = dial(self._me, name, peer, connect_s=self._connect_s, stop=self._stop)
        except TacitError as error:
            return self._give_up(error)
        for lane in lanes or ():
            self._add(lane)
        return None

    def _give_up(self, error: TacitError) -> None:
        with self._changed:
            self._error = self._error or error
            self._changed.notify_all()

    def _accept(self, listener: socket.socket) -> None:
        listener.settimeout(0.05)
        while not self._stop.is_set():
            try:
                sock, address = listener.accept()
            except OSError:  # nobody came in this tick, or came and left
                self._stop.wait(0.001)
                continue
            try:
                guest = self._lobby.enter(sock, address[0])
            except OSError:
                sock.close()
                continue
            try:
                _daemon(self._greet, sock, guest)
            except RuntimeError:  # the system gives no thread now
                self._lobby.leave(guest)
                sock.close()

    def _greet(self, sock: socket.socket, guest: Guest) -> None:
        try:
            know = partial(self._lobby.know, guest)
            lane = greet(self._me, sock, self._awaited, on_proof=know)
            self._add(lane)
        except RefusalError as refusal:
            if refusal.party not in self._links:
                self._give_up(HandshakeError(refusal.party, f"from {guest.host}: {refusal}"))
        except StrangerError as stranger:
            with self._changed:
                if not self._is_over:
                    self._notes.add(f"from {guest.host}: {stranger}", party=stranger.claimed)
        except IdentityError as error:
            self._give_up(error)
        finally:
            self._lobby.leave(guest)

    def _add(self, lane: Lane) -> None:
        """Keep a lane; when both of a link are there, the link is made. The newest link counts."""
        name = lane.party
        with self._changed:
            if self._is_over:
                lane.sock.close()
                return
            lanes = self._lanes.setdefault((name, lane.link_id), {})
            lanes[lane.number] = lane
            if len(lanes) < 2:
                self._forget_old(name)
                return
            del self._lanes[name, lane.link_id]
            out, back = (0, 1) if name in self._dialled else (1, 0)
            old = self._links.get(name)
            self._links[name] = self._make_link(name, lanes[out].sock, lanes[back].sock)
            self._broken.pop(name, None)
            self._changed.notify_all()
        if old is not None:
            old.kill()

    def _forget_old(self, name: str) -> None:
        """Close the oldest lane of a party whose other one never came, if it has many."""
        mine = [key for key in self._lanes if key[0] == name]
        if len(mine) > MAX_HALF_LINKS:
            for lane in self._lanes.pop(mine[0]).values():
                lane.sock.close()


def _daemon(target: Callable[..., None], *args: object) -> threading.Thread:
    thread = threading.Thread(target=target, args=args, name="tacit-meet", daemon=True)
    thread.start()
    return thread
