"""Threads of one party that fail together: the first error ends them all, and is the one told."""

import os
import threading
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import final

from tacit.party import Session, blame

_BEHIND = 5


def step_back() -> None:
    """Let other threads go first, as one that works ahead of need.

    Where cores are few, a message that somebody waits for is answered before material is made
    that nobody needs yet. Linux has priorities of single threads; elsewhere nothing happens.
    """
    me = threading.get_native_id()
    with suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, me, os.getpriority(os.PRIO_PROCESS, me) + _BEHIND)


@final
class Crew:
    """Run functions in threads; leave the block when all have ended, or one has failed.

    A thread that fails closes the links, with the reason, so that nobody waits in vain.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._error: BaseException | None = None

    def start(self, work: Callable[[], None], name: str) -> None:
        """Start a thread."""
        thread = threading.Thread(
            target=self._watched, args=(work,), name=f"tacit-{name}", daemon=True
        )
        thread.start()
        self._threads = [*self._alive(), thread]

    @property
    def running(self) -> int:
        """Return how many threads have not ended."""
        return len(self._alive())

    @property
    def error(self) -> BaseException | None:
        """Return the first error of a thread."""
        with self._lock:
            return self._error

    def __enter__(self) -> "Crew":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None and self.error is None:
            self._fail(error)
        for thread in self._threads:
            thread.join()
        if self.error is not None and self.error is not error:
            raise self.error

    def _alive(self) -> list[threading.Thread]:
        return [thread for thread in self._threads if thread.is_alive()]

    def _watched(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        with self._lock:
            is_first, self._error = self._error is None, self._error or error
        if is_first:
            failure = blame(self._session.me, error)
            for link in self._session.links.values():
                link.close(failure=failure)
