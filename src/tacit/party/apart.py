"""All parties of a job as processes of this machine, over TLS: what threads run, apart."""

import signal
import socket
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from pickle import PicklingError  # noqa: TID251  the name of the error only; nothing is read
from typing import Any, TypeVar

from tacit import errors
from tacit.crypto import Identity, make_identity
from tacit.errors import ConfigError, InputError, PartyError
from tacit.party.join import Meeting, joined
from tacit.party.progress import Progress
from tacit.party.threads import Program, first_cause
from tacit.transport import Peer, listen

R = TypeVar("R")
_HOST = "127.0.0.1"
_LEAVE_S = 5.0


@dataclass(frozen=True, eq=False)
class _Seat:
    """What a process of one party is started with."""

    me: str
    meeting: Meeting
    peers: Mapping[str, Peer]
    identity: Identity
    listener: socket.socket


def run_processes(programs: Mapping[str, Program[R]], meeting: Meeting) -> dict[str, R]:
    """Run one program per party in a process of its own, and return what each gave.

    They meet on free ports of this machine, with keys that are thrown away afterwards. What
    `run_threads` runs can be run here if it can be sent to another process: programs are functions
    or objects of a module, and so is what they hold. Stopping this process stops them all.

    Raises:
        TacitError: the error of the party that failed first; the others only report it.
        ConfigError: a program cannot be sent.
    """
    for me in meeting.parties:
        _check_travels(me, programs[me])
    with tempfile.TemporaryDirectory(prefix="tacit-") as folder, ExitStack() as stack:
        identities = {me: make_identity(me, Path(folder)) for me in meeting.parties}
        listeners = {me: stack.enter_context(listen(_HOST, 0)) for me in meeting.parties}
        peers = {
            me: Peer((_HOST, listeners[me].getsockname()[1]), identities[me].fingerprint)
            for me in meeting.parties
        }
        context = get_context("spawn")
        pipes: dict[str, Connection] = {}
        for me in meeting.parties:
            others = {name: peer for name, peer in peers.items() if name != me}
            seat = _Seat(me, meeting, others, identities[me], listeners[me])
            pipes[me], theirs = context.Pipe(duplex=False)
            process = context.Process(target=_run, args=(programs[me], seat, theirs), daemon=True)
            process.start()
            theirs.close()
            stack.callback(process.join, _LEAVE_S)
            stack.callback(process.terminate)  # whatever happens, nobody stays
        return _collect(pipes)


def _collect(pipes: Mapping[str, Connection]) -> dict[str, Any]:
    """Hear from everyone, in the order in which they end."""
    values: dict[str, Any] = {}
    failed: list[BaseException] = []
    waiting = dict(pipes)
    while waiting:
        ready = wait(list(waiting.values()))
        for me in [name for name, pipe in waiting.items() if pipe in ready]:
            try:
                is_done, said = waiting.pop(me).recv()
            except EOFError:
                failed.append(PartyError(me, "its process ended without a word"))
                continue
            if is_done:
                values[me] = said
            else:
                failed.append(_read_error(me, *said))
    if failed:
        raise first_cause(failed)
    return {me: values[me] for me in pipes}


def _run(program: Program[R], seat: _Seat, pipe: Connection) -> None:
    """Be one party; say what came out, or why nothing did."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever started us is stopped, and ends us
    try:
        with joined(
            seat.me,
            seat.meeting,
            peers=seat.peers,
            identity=seat.identity,
            listener=seat.listener,
            progress=Progress(),
        ) as session:
            value = program(session)
            session.finish()
        pipe.send((True, value))
    except Exception as error:  # it is raised again where the process was started
        pipe.send((False, _write_error(error)))


def _write_error(error: Exception) -> tuple[str, str, str, str | None]:
    if isinstance(error, PartyError):
        return type(error).__name__, error.party, error.reason, error.said_by
    return type(error).__name__, "", str(error), None


def _read_error(me: str, kind: str, party: str, text: str, said_by: str | None) -> Exception:
    known = getattr(errors, kind, None)
    if isinstance(known, type) and issubclass(known, PartyError):
        return known(party, text, said_by=said_by)
    if isinstance(known, type) and issubclass(known, InputError):
        return known(text)
    return PartyError(me, f"internal error ({kind}: {text})")


def _check_travels(me: str, program: object) -> None:
    try:
        ForkingPickler.dumps(program)
    except (AttributeError, TypeError, PicklingError) as error:
        raise ConfigError(
            f"the program of {me!r} cannot be sent to another process ({error}); build models in "
            "functions and classes of a module, or run all parties in this process"
        ) from error
