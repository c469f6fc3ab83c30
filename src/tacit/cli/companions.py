"""Parties that run as child processes while this process is itself one of the parties."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from tacit.cli.failure import End, Failure, find_cause
from tacit.errors import PartyError, TacitError
from tacit.party import Child, Event, Outcome, supervise

GRACE_S = 3.0
"""How long the others may take to end by themselves."""
READY = "connect"
"""The stage that a child reports when its own input is in order."""
_PATIENCE_S = 8.0
_GLANCE_S = 0.1


@contextmanager
def companions(
    children: Sequence[Child], *, on_event: Callable[[str, Event], None]
) -> Iterator[None]:
    """Run child parties beside the block, and see them end with it.

    When the block fails because a party did, what the children say about themselves comes first:
    the block only knows that somebody went away.

    Raises:
        TacitError: what went wrong at a child, or in the block.
    """
    watch = _Watch(children, on_event)
    watch.start()
    watch.wait_ready()
    try:
        yield
    except PartyError as error:
        raise (watch.find_cause() or error) from error
    cause = watch.find_cause()
    if cause is not None:
        raise cause


class _Watch:
    """The thread that looks after the children; the process's end ends them too."""

    def __init__(self, children: Sequence[Child], on_event: Callable[[str, Event], None]) -> None:
        self._children = children
        self._on_event = on_event
        self._outcomes: tuple[Outcome, ...] = ()
        self._waiting = {child.name for child in children}
        self._is_ready = threading.Event()
        self._thread = threading.Thread(target=self._run, name="companions", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def wait_ready(self) -> None:
        """Wait until every child has read its input and connects, or one of them failed.

        Raises:
            TacitError: why a child failed.
        """
        while not self._is_ready.wait(_GLANCE_S):
            if not self._thread.is_alive():
                raise self.find_cause() or PartyError(
                    self._children[0].name, "ended before it was ready"
                )

    def find_cause(self) -> TacitError | None:
        """Wait until the children have ended, and say what went wrong at one of them, if any."""
        self._thread.join(_PATIENCE_S)
        return find_cause([_end(one) for one in self._outcomes])

    def _hear(self, party: str, event: Event) -> None:
        if event.get("stage") == READY:
            self._waiting.discard(party)
            if not self._waiting:
                self._is_ready.set()
        self._on_event(party, event)

    def _run(self) -> None:
        self._outcomes = supervise(
            self._children, on_event=self._hear, on_stop=lambda: None, grace_s=GRACE_S
        )


def _end(outcome: Outcome) -> End:
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
