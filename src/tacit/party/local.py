"""All parties of a job on this machine: as threads, for tests and try-outs, or apart, over TLS."""

import signal
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from itertools import combinations
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from pickle import PicklingError  # noqa: TID251  the name of the error only; nothing is read
from typing import Any, TypeVar

from tacit import errors
from tacit.crypto import make_identity
from tacit.errors import ConfigError, InputError, PartyError
from tacit.party.join import Meeting, joined, session_over
from tacit.party.progress import Progress
from tacit.party.session import Session
from tacit.transport import Link, Meter, Peer, listen, memory_pair

R = TypeVar("R")
Program = Callable[[Session], R]
Wrap = Callable[[str, Link], Link]
"""Given a party and one of its links, return the link to use: a test records or breaks it."""


def run_threads(
    programs: Mapping[str, Program[R]],
    meeting: Meeting,
    *,
    wrap: Wrap = lambda me, link: link,
    progress: Mapping[str, Progress] | None = None,
) -> dict[str, R]:
    """Run one program per party, and return what each gave.

    Raises:
        TacitError: the error of the party that failed first; the others only report it.
    """
    meters, links = _link_all(meeting, wrap)

    def run(me: str) -> R:
        steps = (progress or {}).get(me) or Progress()
        with session_over(
            me, meeting, links=links[me], meter=meters[me], progress=steps
        ) as session:
            value = programs[me](session)
            session.finish()
            return value

    with ThreadPoolExecutor(len(meeting.parties)) as pool:
        futures = {me: pool.submit(run, me) for me in meeting.parties}
    errors = [error for future in futures.values() if (error := future.exception())]
    if errors:
        raise first_cause(errors)
    return {me: future.result() for me, future in futures.items()}


@contextmanager
def session_beside(
    me: str,
    others: Mapping[str, Program[object]],
    meeting: Meeting,
    *,
    progress: Progress,
    errors: list[BaseException],
) -> Iterator[Session]:
    """Give one party's session, the other parties being threads beside the block.

    The block ends with `Session.finish`; after it the others end. What goes wrong at one of them
    is added to ``errors``: the block only hears that somebody failed.
    """
    meters, links = _link_all(meeting, lambda me, link: link)

    def run(name: str) -> None:
        try:
            with session_over(
                name, meeting, links=links[name], meter=meters[name], progress=Progress()
            ) as session:
                others[name](session)
                session.finish()
        except BaseException as error:
            errors.append(error)
            raise

    with ThreadPoolExecutor(len(others), thread_name_prefix="tacit-party") as pool:
        for name in others:
            pool.submit(run, name)
        with session_over(
            me, meeting, links=links[me], meter=meters[me], progress=progress
        ) as session:
            yield session


def _link_all(meeting: Meeting, wrap: Wrap) -> tuple[dict[str, Meter], dict[str, dict[str, Link]]]:
    """Link every party with every other one, in memory."""
    meters = {name: Meter(name) for name in meeting.parties}
    links: dict[str, dict[str, Link]] = {name: {} for name in meeting.parties}
    for first, second in combinations(meeting.parties, 2):
        ends = memory_pair(
            first,
            second,
            meter_a=meters[first],
            meter_b=meters[second],
            patience=meeting.patience,
            limits=meeting.limits,
        )
        links[first][second], links[second][first] = wrap(first, ends[0]), wrap(second, ends[1])
    return meters, links


def first_cause(errors: Iterable[BaseException]) -> BaseException:
    """Return what failed first; the others only report it."""
    return min(errors, key=_hearsay)


def _hearsay(error: BaseException) -> int:
    """Rank an error: a cause, then what a link saw, then what a party was told by another."""
    if not isinstance(error, PartyError):
        return 0
    return 2 if type(error) is PartyError else 1


_HOST = "127.0.0.1"
_LEAVE_S = 5.0


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
            join = partial(
                joined,
                me,
                meeting,
                peers=others,
                identity=identities[me],
                listener=listeners[me],
            )
            pipes[me], theirs = context.Pipe(duplex=False)
            process = context.Process(target=_run, args=(programs[me], join, theirs), daemon=True)
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


def _run(
    program: Program[R], join: Callable[..., AbstractContextManager[Session]], pipe: Connection
) -> None:
    """Be one party; say what came out, or why nothing did."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever started us is stopped, and ends us
    try:
        with join(progress=Progress()) as session:
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
