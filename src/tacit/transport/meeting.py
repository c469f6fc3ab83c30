"""Links to every peer of a party, over TCP with mutual TLS."""

import errno
import logging
import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from time import monotonic

from tacit.errors import (
    ConfigError,
    HandshakeError,
    IdentityError,
    LinkClosed,
    LinkTimeout,
    PartyError,
    TacitError,
)
from tacit.transport.dial import Lane, Me, Peer, RefusalError, StrangerError, dial, greet
from tacit.transport.line import Line
from tacit.transport.link import Link, LinkLimits, Patience
from tacit.transport.meter import Meter
from tacit.transport.stream import socket_link
from tacit.transport.tls import Credentials, check_name, fingerprint


def listen(host: str, port: int) -> socket.socket:
    """Open a listening socket for ``mesh``; port 0 takes a free one."""
    try:
        family, kind, proto, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        sock = socket.socket(family, kind, proto)
    except (OSError, OverflowError, UnicodeError) as error:
        raise ConfigError(f"cannot listen on {host}:{port}: {error}") from error
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
        sock.listen(128)
    except (OSError, OverflowError) as error:
        sock.close()
        is_taken = isinstance(error, OSError) and error.errno == errno.EADDRINUSE
        hint = "; another program uses this port: stop it or choose another" if is_taken else ""
        raise ConfigError(f"cannot listen on {host}:{port}: {error}{hint}") from error
    return sock


def mesh(
    me: str,
    peers: Mapping[str, Peer],
    *,
    credentials: Credentials,
    listener: socket.socket | None,
    meter: Meter,
    patience: Patience | None = None,
    limits: LinkLimits | None = None,
) -> dict[str, Link]:
    """Connect to every peer and return the links by name.

    Of two parties the one whose name sorts later dials, unless the earlier one does not listen.
    Who dials us without proving a pinned key is a stranger, whatever it calls itself: it is
    refused, logged and remembered for the error message, and we go on waiting. The listener stays
    open and stays the caller's.

    Guarantee: each link is encrypted and its peer has proved the key that ``peers`` pins.
    Cost: about 4 round trips per peer, all peers at once.

    Raises:
        HandshakeError: a peer that we dialled has another key, or a peer refuses ours.
        LinkTimeout: a peer did not come within ``connect_s``; names it, and what strangers tried.
        PartyError: a peer that was connected already failed, or says who did.
        ConfigError, IdentityError: our own settings or files cannot work.
    """
    patience, limits = patience or Patience(), limits or LinkLimits()
    dialled = _check(me, peers, credentials, listener)
    meeting = Connector(
        Me(check_name(me), credentials),
        peers,
        dialled,
        make_link=partial(socket_link, meter=meter, patience=patience, limits=limits),
        connect_s=patience.connect_s,
    )
    meeting.start(listener)
    failure: tuple[str, str] | None = (me, "it could not connect; its own output says why")
    try:
        meeting.wait()
        failure = None
    except PartyError as error:
        failure = error.party, error.reason
        raise
    finally:
        links = meeting.end()
        if failure is not None:
            for link in links.values():
                link.close(failure=failure)
    return dict(links)


def _check(
    me: str,
    peers: Mapping[str, Peer],
    credentials: Credentials,
    listener: socket.socket | None,
) -> set[str]:
    """Check what we were given and return the peers that we dial."""
    credentials.check()
    owners = {fingerprint(credentials.certificate()): me}
    dialled = set()
    for name, peer in sorted(peers.items()):
        check_name(name)
        other = owners.setdefault(peer.fingerprint, name)
        if other != name:
            raise ConfigError(
                f"{other!r} and {name!r} have the same fingerprint {peer.fingerprint}; every party"
                " needs a key of its own"
            )
        they_listen, we_listen = peer.address is not None, listener is not None
        if not (they_listen or we_listen):
            raise ConfigError(f"neither {me!r} nor {name!r} has an address; one of them needs one")
        if they_listen and (name < me or not we_listen):
            dialled.add(name)
    return dialled


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

    def _greet(self, sock: socket.socket, guest: "Guest") -> None:
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

    def leave(self, guest: "Guest") -> None:
        """Forget a guest that was greeted or refused; a second call does nothing."""
        with self._lock:
            if guest in self._guests:
                del self._guests[guest]
                guest.handle.close()

    def _make_room(self) -> None:
        busiest, count = Counter(self._guests.values()).most_common(1)[0]
        if count > MAX_GUESTS_PER_HOST or len(self._guests) > MAX_GUESTS:
            self._cut(next(guest for guest, whose in self._guests.items() if whose == busiest))

    def _cut(self, guest: "Guest") -> None:
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
