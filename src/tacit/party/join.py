"""Joining a job: connect, open the session, and leave in good order or with a reason."""

import errno
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from tacit.crypto import Identity
from tacit.errors import InputError, PartyError
from tacit.party.progress import Progress
from tacit.party.session import Session, about_me, open_session
from tacit.transport import Credentials, Link, LinkLimits, Meter, Patience, Peer, mesh

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@dataclass(frozen=True, kw_only=True)
class Meeting:
    """What all parties of a job agree on before they connect."""

    parties: tuple[str, ...]
    job_digest: bytes
    patience: Patience = field(default_factory=Patience)
    limits: LinkLimits = field(default_factory=LinkLimits)


@contextmanager
def joined(
    me: str,
    meeting: Meeting,
    *,
    peers: Mapping[str, Peer],
    identity: Identity,
    listener: socket.socket | None,
    progress: Progress,
) -> Iterator[Session]:
    """Take part in a job over TLS; whatever happens, tell the others before leaving."""
    meter = Meter(me)
    with progress.stage("connect"):
        try:
            links = mesh(
                me,
                peers,
                credentials=Credentials(identity.certificate_file, identity.key_file),
                listener=listener,
                meter=meter,
                patience=meeting.patience,
                limits=meeting.limits,
            )
        except PartyError as error:
            known = about_me(error, me)
            raise known from (None if known is error else error)
    with session_over(me, meeting, links=links, meter=meter, progress=progress) as session:
        yield session


@contextmanager
def session_over(
    me: str, meeting: Meeting, *, links: Mapping[str, Link], meter: Meter, progress: Progress
) -> Iterator[Session]:
    """Open a session on links that are up, and close them at the end, saying why if we failed."""
    failure: tuple[str, str] | None = (me, "it stopped for an unknown reason")
    session = None
    try:
        with progress.stage("agree"):
            session = open_session(
                me=me,
                parties=meeting.parties,
                links=links,
                meter=meter,
                progress=progress,
                job_digest=meeting.job_digest,
            )
        yield session
        failure = None
    except PartyError as error:
        known = about_me(error if session is None else session.as_heard(error), me)
        failure = blame(me, known)
        if known is error:
            raise
        raise known from error
    except BaseException as error:
        failure = blame(me, error)
        raise
    finally:
        for link in links.values():
            link.close(failure=failure)


def blame(me: str, error: BaseException) -> tuple[str, str]:
    """Say who failed and why, in words that may be told to the other parties.

    A message about a party's own input may speak of its data, so the others learn only that
    there was one; that a disk is full says nothing of what lies on it.
    """
    match error:
        case InputError() | OSError() if _is_of_full_disk(error):
            return me, "its disk is full, or its files may not grow; its own output says where"
        case PartyError():
            return error.party, error.reason
        case InputError():
            return me, "its own input cannot be used; its own output says why"
        case KeyboardInterrupt():
            return me, "it was stopped by its user"
        case _:
            return me, f"internal error ({type(error).__name__}); its own output says more"


def _is_of_full_disk(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, OSError) and error.errno in _FULL:
            return True
        error = error.__cause__
    return False
