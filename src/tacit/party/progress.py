"""Where a party stands, and what a run takes from this machine: stages, seconds and memory."""

import gc
import resource
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tacit.result import TOLD, PartyReport, Span

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


class Usage:
    """Measure from construction on."""

    def __init__(self) -> None:
        self._start = time.monotonic()
        self._cpu_start = time.process_time()

    def report(self, *, name: str, role: str, progress: Progress) -> PartyReport:
        """Return this party's view of what it used; memory is the peak of the whole process."""
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return PartyReport(
            name=name,
            role=role,
            host=socket.gethostname(),
            seconds=time.monotonic() - self._start,
            cpu_seconds=time.process_time() - self._cpu_start,
            peak_memory_bytes=peak if sys.platform == "darwin" else peak * 1024,
            spans=progress.spans(),
        )


@contextmanager
def without_collections() -> Iterator[None]:
    """Collect no cycles meanwhile.

    For work that makes very many small objects, which reference counts free, beside many that
    stay, such as plans: the collector walked those again and again, a tenth of all time. Of two
    threads the first one to come switches it on again when it goes.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
