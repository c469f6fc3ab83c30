"""Both ends of making a link over TLS: dialling a peer, and greeting one that dialled us."""

import re
import secrets
import socket
import ssl
import threading
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from time import monotonic

from tacit.errors import ConfigError, HandshakeError, LinkTimeout
from tacit.transport.tls import (
    Credentials,
    GreetingError,
    Hello,
    describe,
    exchange_certificates,
    fingerprint,
    recv_hello,
    secure,
    send_hello,
)

GREETING_S = 5.0
"""How long one connection may take from TCP to the end of its hello."""
PREAMBLE_S = 1.0
"""How long who dialled us may take to show a certificate, which it can send at once."""

_ADDRESS = re.compile(r"(?:\[([0-9A-Fa-f:.%]+)\]|([^\s:\[\]]+)):([0-9]{1,5})")


def parse_address(address: str) -> tuple[str, int]:
    """Take `host:port`, `1.2.3.4:port` or `[v6]:port` apart.

    Raises:
        ConfigError: it is none of them.
    """
    match = _ADDRESS.fullmatch(address)
    if match is None or not 0 < int(match[3]) < 65536:
        raise ConfigError(f"wanted host:port, with [] around an IPv6 host, got {address!r}")
    return match[1] or match[2], int(match[3])


@dataclass(frozen=True)
class Peer:
    """Where a peer listens, if it does, and the fingerprint of its certificate.

    A fingerprint that no certificate can have is not refused here; it fits nobody.
    """

    address: tuple[str, int] | None
    fingerprint: str

    def __post_init__(self) -> None:
        if self.address is None:
            return
        host, port = self.address
        try:
            host.encode("idna")
        except UnicodeError as error:
            raise ConfigError(f"{host!r} is not a host name: {error}") from error
        if not 0 < port < 1 << 16:
            raise ConfigError(f"a port is a number from 1 to 65535, got {port}")


@dataclass(frozen=True)
class Me:
    """What a party needs to introduce itself."""

    name: str
    credentials: Credentials


@dataclass(frozen=True)
class Lane:
    """A secured connection, to be used one way: lane 0 from the dialler, lane 1 to it."""

    party: str
    number: int
    link_id: bytes
    sock: ssl.SSLSocket


class RefusalError(Exception):
    """A party that proved its pinned key refused us, or we it; never leaves this room."""

    def __init__(self, party: str, reason: str) -> None:
        super().__init__(reason)
        self.party = party


class StrangerError(Exception):
    """Somebody dialled us and did not become a peer; never leaves this room.

    ``claimed`` is the party that it may have meant to be. Anybody can claim that, so it may serve
    as a hint and never as a reason to give up.
    """

    def __init__(self, claimed: str | None, reason: str) -> None:
        super().__init__(reason)
        self.claimed = claimed


def dial(
    me: Me, name: str, peer: Peer, *, connect_s: float, stop: threading.Event
) -> tuple[Lane, Lane] | None:
    """Connect both lanes to a peer, trying again until it is up; None if stopped.

    Raises:
        HandshakeError: the peer's key is not the pinned one, or the peer refuses ours.
        LinkTimeout: no connection in time.
    """
    deadline = monotonic() + connect_s
    problem: Exception = TimeoutError("no answer")
    pause_s = 0.02
    while not stop.is_set():
        try:
            return _dial_both(me, name, peer, deadline=deadline)
        except (OSError, GreetingError) as error:
            problem = error
        if monotonic() + pause_s > deadline:
            raise LinkTimeout(
                name,
                f"no connection to {name!r} at {_show(peer.address)} within {connect_s:g} s"
                f" ({describe(problem)}); is it running and is its address right?",
            )
        stop.wait(pause_s)
        pause_s = min(2 * pause_s, 0.5)
    return None


def greet(
    me: Me, sock: socket.socket, peers: Mapping[str, Peer], *, on_proof: Callable[[str], None]
) -> Lane:
    """Find out who has dialled us and accept it if it proves a pinned key.

    ``on_proof`` is called with its name as soon as it has, before it is told so.

    Raises:
        RefusalError: it proved the key of a party, and one of us does not accept the other.
        StrangerError: it proved no key of a party, or the connection broke.
    """
    deadline = monotonic() + GREETING_S
    claimed: str | None = None
    party: str | None = None
    with ExitStack() as undo:
        undo.callback(sock.close)
        try:
            theirs = exchange_certificates(
                sock, me.credentials.certificate(), deadline=monotonic() + PREAMBLE_S
            )
            shown = fingerprint(theirs)
            claimed = next((n for n, p in peers.items() if p.fingerprint == shown), None)
            tls = secure(sock, theirs, me.credentials, is_dialer=False, deadline=deadline)
            undo.callback(tls.close)
            party = claimed  # what was shown is proved from here on
            if party is not None:
                on_proof(party)
            hello = recv_hello(tls, deadline=deadline)
            refusal = _judge(me, hello, party, shown, peers)
            send_hello(tls, replace(hello, sender=me.name, receiver=hello.sender, refusal=refusal))
        except (OSError, GreetingError) as error:
            raise StrangerError(claimed, _hint_broken(claimed, party, describe(error))) from error
        if party is None:
            known = hello.sender if hello.sender in peers else None
            raise StrangerError(known, _hint_unknown(hello.sender, shown, peers))
        if refusal or hello.refusal:
            raise RefusalError(party, refusal or f"it refused us: {hello.refusal}")
        undo.pop_all()
    return Lane(party, hello.lane, hello.link_id, tls)


def _hint_broken(claimed: str | None, party: str | None, reason: str) -> str:
    if claimed is None:
        return f"a connection did not become one of a party: {reason}"
    if party is None:
        return (
            f"a connection showed the certificate of {claimed!r} without proving its key: {reason}"
        )
    return f"a connection of {party!r} broke: {reason}"


def _hint_unknown(sender: str, shown: str, peers: Mapping[str, Peer]) -> str:
    hint = f"a connection that called itself {sender!r} showed the key {shown}"
    if sender not in peers:
        return f"{hint}, and no such party is expected to dial"
    return (
        f"{hint} instead of {peers[sender].fingerprint}; if that is {sender!r}, correct"
        f" parties.{sender}.key"
    )


def _judge(me: Me, hello: Hello, party: str | None, shown: str, peers: Mapping[str, Peer]) -> str:
    """Return why we do not accept a dialler, or nothing if we do."""
    if party is None:
        known = peers.get(hello.sender)
        return (
            f"{hello.sender!r} came with the key {shown}, but {me.name!r} "
            + (f"pins {known.fingerprint}" if known else "expects no such party")
            + "; put the right fingerprint into the job file"
        )
    if hello.receiver != me.name or hello.sender != party:
        return (
            f"the dialler says it is {hello.sender!r} and wants {hello.receiver!r}, but its key is"
            f" that of {party!r} and this is {me.name!r}; the job files differ"
        )
    return ""


def _dial_both(me: Me, name: str, peer: Peer, *, deadline: float) -> tuple[Lane, Lane]:
    link_id = secrets.token_bytes(16)
    with ExitStack() as undo:
        lanes = []
        for number in (0, 1):
            sock = _dial_lane(
                peer,
                Hello(sender=me.name, receiver=name, lane=number, link_id=link_id),
                me.credentials,
                deadline=min(deadline, monotonic() + GREETING_S),
            )
            undo.callback(sock.close)
            lanes.append(Lane(name, number, link_id, sock))
        undo.pop_all()
    return lanes[0], lanes[1]


def _dial_lane(
    peer: Peer, hello: Hello, credentials: Credentials, *, deadline: float
) -> ssl.SSLSocket:
    name = hello.receiver
    with ExitStack() as undo:
        sock = socket.create_connection(
            peer.address or ("", 0), timeout=max(deadline - monotonic(), 0.001)
        )
        undo.callback(sock.close)
        theirs = exchange_certificates(sock, credentials.certificate(), deadline=deadline)
        wrong_key = _check_pin(fingerprint(theirs), peer)
        try:
            tls = secure(sock, theirs, credentials, is_dialer=True, deadline=deadline)
            undo.callback(tls.close)
            # Even a wrong peer gets a hello that proves our key, so that it can trust the reason.
            send_hello(tls, replace(hello, refusal=wrong_key))
            answer = recv_hello(tls, deadline=deadline)
        except (OSError, GreetingError) as error:
            if wrong_key or _is_verdict(error):
                raise HandshakeError(name, wrong_key or describe(error)) from error
            raise
        if wrong_key or answer.refusal:
            raise HandshakeError(name, wrong_key or f"it refused us: {answer.refusal}")
        if (answer.sender, answer.link_id, answer.lane) != (name, hello.link_id, hello.lane):
            raise HandshakeError(name, f"its answer was meant for another hello: {answer.sender!r}")
        undo.pop_all()
    return tls


def _is_verdict(error: Exception) -> bool:
    """Tell a TLS refusal from a connection that merely broke."""
    return isinstance(error, ssl.SSLError) and not isinstance(
        error, (ssl.SSLEOFError, ssl.SSLSyscallError, ssl.SSLZeroReturnError)
    )


def _check_pin(shown: str, peer: Peer) -> str:
    if shown == peer.fingerprint:
        return ""
    return (
        f"{_show(peer.address)} answers with the key {shown}, but the job pins {peer.fingerprint};"
        " put the right fingerprint into the job file, unless somebody else answers there"
    )


def _show(address: tuple[str, int] | None) -> str:
    return f"{address[0]}:{address[1]}" if address else "no address"
