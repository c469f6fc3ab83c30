"""Links to every peer of a party, over TCP with mutual TLS."""

import errno
import socket
import threading
from collections.abc import Callable, Mapping
from time import monotonic

from tacit.errors import (
    ConfigError,
    HandshakeError,
    IdentityError,
    LinkTimeout,
    PartyError,
    TacitError,
)
from tacit.transport.bounds import Limits, Patience
from tacit.transport.dial import Lane, Me, Peer, RefusalError, dial, greet
from tacit.transport.hello import check_name
from tacit.transport.line import Line
from tacit.transport.link import Link
from tacit.transport.meter import Meter
from tacit.transport.stream import socket_link
from tacit.transport.tls import Credentials, fingerprint

REFUSAL_GRACE_S = 1.0
"""After refusing somebody who may have been a party, how long the right one may still come."""
MAX_GREETINGS = 64
MAX_STRANGERS = 8


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
    limits: Limits | None = None,
) -> dict[str, Link]:
    """Connect to every peer and return the links by name.

    Of two parties the one whose name sorts later dials, unless the earlier one does not listen.
    Connections from strangers are refused and remembered for the error message. The listener
    stays open and stays the caller's.

    Guarantee: each link is encrypted and its peer has proved the key that ``peers`` pins.
    Cost: about 4 round trips per peer, all peers at once.

    Raises:
        HandshakeError: a peer came with the wrong key, or refused ours.
        LinkTimeout: a peer did not come within ``connect_s``; names it.
        ConfigError, IdentityError: our own settings or files cannot work.
    """
    patience, limits = patience or Patience(), limits or Limits()
    dialled = _check(me, peers, credentials, listener)
    meeting = _Meeting(Me(me, credentials), peers, dialled, patience)
    meeting.start(listener)
    try:
        meeting.wait()
    except TacitError as error:
        failure = (error.party, error.reason) if isinstance(error, PartyError) else (me, str(error))
        for link in meeting.end(meter, patience, limits).values():
            link.close(failure=failure)
        raise
    return dict(meeting.end(meter, patience, limits))


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


class _Meeting:
    """The state of a mesh in the making, shared by its threads."""

    def __init__(
        self, me: Me, peers: Mapping[str, Peer], dialled: set[str], patience: Patience
    ) -> None:
        check_name(me.name)
        self._me = me
        self._peers = peers
        self._dialled = dialled
        self._awaited = {name: peer for name, peer in peers.items() if name not in dialled}
        self._connect_s = patience.connect_s
        self._deadline = monotonic() + patience.connect_s
        self._stop = threading.Event()
        self._changed = threading.Condition(threading.Lock())
        self._lanes: dict[tuple[str, bytes], dict[int, Lane]] = {}
        self._pairs: dict[str, dict[int, Lane]] = {}
        self._error: TacitError | None = None
        self._refusals: dict[str, tuple[float, str]] = {}
        self._strangers: list[str] = []
        self._free_greetings = threading.Semaphore(MAX_GREETINGS)
        self._acceptor: threading.Thread | None = None

    def start(self, listener: socket.socket | None) -> None:
        """Start the dialling threads and the accepting one."""
        for name in sorted(self._dialled):
            _daemon(self._dial, name)
        if self._awaited and listener is not None:
            self._acceptor = _daemon(self._accept, listener)

    def wait(self) -> None:
        """Wait until every peer is connected; raise when one cannot be."""
        try:
            with self._changed:
                while self._pairs.keys() != self._peers.keys():
                    self._raise_if_hopeless()
                    self._changed.wait(0.05)
        finally:
            self._stop.set()

    def end(self, meter: Meter, patience: Patience, limits: Limits) -> dict[str, Line]:
        """Drop half-made links and return the whole ones."""
        if self._acceptor is not None:
            self._acceptor.join()
        with self._changed:
            whole = dict(sorted(self._pairs.items()))
            for lanes in self._lanes.values():
                for lane in lanes.values():
                    lane.sock.close()
            self._lanes.clear()
        links = {}
        for name, pair in whole.items():
            out, back = (0, 1) if name in self._dialled else (1, 0)
            links[name] = socket_link(
                name,
                pair[out].sock,
                pair[back].sock,
                meter=meter,
                patience=patience,
                limits=limits,
            )
        return links

    def _raise_if_hopeless(self) -> None:
        now = monotonic()
        if self._error is not None:
            raise self._error
        for name, (since, reason) in self._refusals.items():
            if name not in self._pairs and now > min(since + REFUSAL_GRACE_S, self._deadline):
                raise HandshakeError(name, reason)
        missing = sorted(self._awaited.keys() - self._pairs.keys())
        if missing and now > self._deadline:
            seen = f"; refused meanwhile: {'; '.join(self._strangers)}" if self._strangers else ""
            raise LinkTimeout(
                missing[0],
                f"no connection from {', '.join(map(repr, missing))} within {self._connect_s:g} s;"
                f" is it running and is its address right?{seen}",
            )

    def _dial(self, name: str) -> None:
        try:
            lanes = dial(
                self._me,
                name,
                self._peers[name],
                connect_s=self._connect_s,
                stop=self._stop,
            )
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
            if not self._free_greetings.acquire(timeout=0.05):
                continue
            try:
                sock, address = listener.accept()
            except OSError:  # nobody came in this tick, or came and left
                self._free_greetings.release()
                self._stop.wait(0.001)
                continue
            _daemon(self._greet, sock, f"{address[0]}:{address[1]}")

    def _greet(self, sock: socket.socket, origin: str) -> None:
        try:
            self._add(greet(self._me, sock, self._awaited))
        except RefusalError as refusal:
            with self._changed:
                if refusal.party is not None:
                    since, _ = self._refusals.get(refusal.party, (monotonic(), ""))
                    self._refusals[refusal.party] = since, f"from {origin}: {refusal}"
                elif len(self._strangers) < MAX_STRANGERS:
                    self._strangers.append(f"{origin} ({refusal})")
        except IdentityError as error:
            self._give_up(error)
        finally:
            self._free_greetings.release()

    def _add(self, lane: Lane) -> None:
        """Keep a lane; when both of a link are there, the link is made. The newest link counts."""
        with self._changed:
            if self._stop.is_set():
                lane.sock.close()
                return
            lanes = self._lanes.setdefault((lane.party, lane.link_id), {})
            lanes[lane.number] = lane
            if len(lanes) == 2:
                del self._lanes[lane.party, lane.link_id]
                for old in self._pairs.get(lane.party, {}).values():
                    old.sock.close()
                self._pairs[lane.party] = lanes
                self._changed.notify_all()


def _daemon(target: Callable[..., None], *args: object) -> threading.Thread:
    thread = threading.Thread(target=target, args=args, name="tacit-meet", daemon=True)
    thread.start()
    return thread
