"""Parties that run as child processes while this process is itself one of the parties."""

import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from time import monotonic

from tacit.errors import PartyError, TacitError
from tacit.failure import End, Failure, find_cause
from tacit.party.processes import Child, Event, ProcessEnd, supervise

GRACE_S = 3.0
"""How long the others may take to end by themselves."""
READY = "connect"
"""The stage that a child reports when its own input is in order."""
_PATIENCE_S = 8.0
_GLANCE_S = 0.1
_NOTICE_S = 2.0
"""How long after a broken session a child's end may take to be seen."""
_RESTARTS = 8


@contextmanager
def companions(
    children: Sequence[Child],
    *,
    on_event: Callable[[str, Event], None],
    on_restart: Callable[[str, str], None],
) -> Iterator["Companions"]:
    """Run child parties beside the block, and see them end with it.

    A child that was ready and then died without a word is started again; ``on_restart`` is told
    which, and how it ended. Their sockets stay open here, for that. When the block fails because
    a party did, what the children say about themselves comes first: the block only knows that
    somebody went away.

    Raises:
        TacitError: what went wrong at a child, or in the block.
    """
    watch = Companions(children, on_event, on_restart)
    watch.start()
    try:
        watch.wait_ready()
        yield watch
    except PartyError as error:
        raise (watch.find_cause(_NOTICE_S) or error) from error
    else:
        cause = watch.find_cause(_PATIENCE_S)
        if cause is not None:
            raise cause
    finally:
        watch.end()


class Companions:
    """Threads that look after one child each; the process's end ends the children too."""

    def __init__(
        self,
        children: Sequence[Child],
        on_event: Callable[[str, Event], None],
        on_restart: Callable[[str, str], None],
    ) -> None:
        self._on_event, self._on_restart = on_event, on_restart
        self._changed = threading.Condition()
        self._waiting = {child.name for child in children}
        self._running: dict[str, int] = {}
        self._ends: list[End] = []
        self._news = 0  # ends and restarts since the last look
        self._is_left = False
        self._threads = [
            threading.Thread(
                target=self._watch, args=(child,), name=f"watch-{child.name}", daemon=True
            )
            for child in children
        ]

    def start(self) -> None:
        """Start all children."""
        for thread in self._threads:
            thread.start()

    def wait_ready(self) -> None:
        """Wait until every child has read its input and connects, or one of them failed.

        Raises:
            TacitError: why a child failed.
        """
        with self._changed:
            while self._waiting:
                ended = self._waiting & {end.party for end in self._ends}
                if ended or any(end.exit_code for end in self._ends):
                    break
                self._changed.wait(_GLANCE_S)
            else:
                return
        raise self.find_cause(_GLANCE_S) or PartyError(min(ended), "ended before it was ready")

    def look(self) -> None:
        """See, after a session broke, whether a child is gone for good.

        Raises:
            TacitError: it is, and why.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._news > 0, timeout=_NOTICE_S)
            self._news = 0
            ends = list(self._ends)
        cause = find_cause(ends)
        if cause is not None:
            raise cause

    def find_cause(self, patience_s: float) -> TacitError | None:
        """Wait a while for the children to end, and say what went wrong at one of them, if any.

        From here on, whoever ends is not started again.
        """
        limit = monotonic() + patience_s
        with self._changed:
            self._is_left = True
        for thread in self._threads:
            thread.join(max(0.0, limit - monotonic()))
        with self._changed:
            return find_cause(self._ends)

    def end(self) -> None:
        """End the children that still run: they would wait for another meeting."""
        with self._changed:
            self._is_left = True
            for pid in self._running.values():
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGTERM)
        for thread in self._threads:
            thread.join(GRACE_S)

    def _hear(self, party: str, event: Event) -> None:
        with self._changed:
            if "pid" in event:
                self._running[party] = event["pid"]
            if event.get("stage") == READY:
                self._waiting.discard(party)
                self._changed.notify_all()
        self._on_event(party, event)

    def _watch(self, child: Child) -> None:
        for left in range(_RESTARTS, -1, -1):
            # The child closes what it was given; the next one needs a socket too.
            again = replace(child, listener=child.listener.dup())
            (outcome,) = supervise(
                [again], on_event=self._hear, on_stop=lambda: None, grace_s=GRACE_S
            )
            end = _end(outcome)
            with self._changed:
                self._running.pop(child.name, None)
                self._news += 1
                is_over = self._is_left or not left or not self._comes_back(end)
                if is_over:
                    self._ends.append(end)
                self._changed.notify_all()
            if is_over:
                return
            cause = find_cause([end])
            self._on_restart(child.name, cause.reason if isinstance(cause, PartyError) else "ended")

    def _comes_back(self, end: End) -> bool:
        """Say whether a child died of something that is not its own: it had begun well."""
        return end.failure is None and end.exit_code != 0 and end.party not in self._waiting


def _end(outcome: ProcessEnd) -> End:
    said = outcome.final or {}
    failure = None
    if said.get("event") == "failed":
        failure = Failure(**{key: said[key] for key in Failure.__dataclass_fields__})
    # One that has done its part may take longer to leave than we like to wait.
    is_done = said.get("event") == "done"
    return End(
        party=outcome.name,
        exit_code=0 if is_done else outcome.exit_code,
        failure=failure,
        was_ended=outcome.was_ended,
    )
