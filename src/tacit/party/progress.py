"""Where a party stands: stages with a count, and how long each took."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tacit.result import TOLD, Span

Listener = Callable[[str, int, int], None]
"""Called with the stage, the steps done and the steps in all (0 when unknown)."""


def silent(stage: str, done: int, total: int) -> None:
    """Ignore progress."""


class Progress:
    """Tell a listener where we are, and remember the time that each stage took."""

    def __init__(self, listener: Listener = silent) -> None:
        self._listener = listener
        self._lock = threading.Lock()
        self._start = time.monotonic()
        self._spans: list[Span] = []

    @contextmanager
    def stage(self, name: str, total: int = 0) -> Iterator[Callable[[int], None]]:
        """Run a stage; the yielded function reports how many steps are done."""
        began = time.monotonic() - self._start
        self._listener(name, 0, total)

        def advance(done: int) -> None:
            self._listener(name, done, total)

        try:
            yield advance
        finally:
            ended = time.monotonic() - self._start
            with self._lock:
                self._spans.append(Span(name=name, start_s=began, end_s=ended))

    def tell(self, text: str, done: int, total: int) -> None:
        """Say how it goes, beside the stages."""
        self._listener(TOLD + text, done, total)

    def spans(self) -> tuple[Span, ...]:
        """Return the finished stages, earliest first."""
        with self._lock:
            return tuple(sorted(self._spans, key=lambda span: (span.start_s, span.end_s)))
