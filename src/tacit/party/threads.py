"""All parties of a job as threads of one process, over links in memory: for tests and try-outs."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import combinations
from typing import TypeVar

from tacit.errors import PartyError
from tacit.party.join import Meeting, session_over
from tacit.party.progress import Progress
from tacit.party.session import Session
from tacit.transport import Link, Meter, memory_pair

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
