"""Links to every peer of a party, over TCP with mutual TLS."""

import errno
import socket
from collections.abc import Mapping
from functools import partial

from tacit.errors import ConfigError, PartyError
from tacit.transport.bounds import LinkLimits, Patience
from tacit.transport.dial import Me, Peer
from tacit.transport.hello import check_name
from tacit.transport.link import Link
from tacit.transport.meeting import Connector
from tacit.transport.meter import Meter
from tacit.transport.stream import socket_link
from tacit.transport.tls import Credentials, fingerprint


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
