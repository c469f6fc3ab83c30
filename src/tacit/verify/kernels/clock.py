"""Clocks: of kernels, and those of Python around them that stand still while they are compiled."""

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType, FunctionType
from typing import Any, Protocol

import numba
import numpy as np
from numba.core import event

from tacit.jit import bare, compiled
from tacit.verify.kernels.tables import Longs

# Any: only kernels call it. A name, not an address, so that kernels can be kept on disk.
external_clock: Any = numba.types.ExternalFunction(
    "clock_gettime", numba.types.int32(numba.types.int32, numba.types.voidptr)
)
PROCESSOR = time.CLOCK_THREAD_CPUTIME_ID

SMALL = ("tacit.verify.kernels.presolve.", "tacit.verify.kernels.layout.rounding")
"""Where the kernels lie that answer most rows, and are compiled first."""


@compiled
def make_hand() -> Longs:
    """Make the two words that a clock is read into."""
    return np.zeros(2, np.int64)


@bare
def read_clock(which: int, hand: Longs) -> float:
    """Read a clock, in seconds."""
    external_clock(which, hand.ctypes)
    return hand[0] + 1e-9 * hand[1]  # type: ignore[no-any-return]


class _Dispatcher(Protocol):
    py_func: FunctionType


class _Compilation(Protocol):
    data: dict[str, _Dispatcher]


class _Watch(event.Listener):
    """Counts the time that is spent on compiling; Numba compiles one kernel at a time."""

    def __init__(self) -> None:
        self.wall = 0.0
        self.own = threading.local()
        self.tell: Callable[[str], None] | None = None
        self.is_interrupted = False
        self.thread: int | None = None
        self._depth = 0
        self._begun = (0.0, 0.0)

    def on_start(self, event: _Compilation) -> None:
        if self._depth == 0:
            self.thread = threading.get_ident()
            self._begun = time.monotonic(), time.thread_time()
            if self.tell is not None:
                self.tell(event.data["dispatcher"].py_func.__module__)
        self._depth += 1

    def on_end(self, event: _Compilation) -> None:
        self._depth -= 1
        if self._depth == 0:
            self.thread = None
            self.wall += time.monotonic() - self._begun[0]
            spent = time.thread_time() - self._begun[1]
            self.own.processor = getattr(self.own, "processor", 0.0) + spent
        if self.is_interrupted:
            raise KeyboardInterrupt


_watch = _Watch()
event.register("numba:compile", _watch)  # type: ignore[no-untyped-call]


def wall_time() -> float:
    """Read the wall clock, which stands still while a kernel is compiled."""
    return time.monotonic() - _watch.wall


def processor_time() -> float:
    """Read the processor time of this thread, less what it has spent on compiling."""
    spent: float = getattr(_watch.own, "processor", 0.0)
    return time.thread_time() - spent


@contextmanager
def tell_compiling(tell: Callable[[str], None]) -> Iterator[None]:
    """Call `tell` before kernels are compiled, with what they are for; once for each purpose.

    An interrupt is then raised between two kernels: within one, Numba may swallow it.
    """
    said: set[str] = set()

    def tell_once(module: str) -> None:
        purpose = "the small search" if module.startswith(SMALL) else "the deep search"
        if purpose not in said:
            said.add(purpose)
            tell(purpose)

    before, _watch.tell = _watch.tell, tell_once
    try:
        with _interrupted_between_kernels():
            yield
    finally:
        _watch.tell = before


@contextmanager
def _interrupted_between_kernels() -> Iterator[None]:
    main = threading.main_thread().ident
    if threading.get_ident() != main:
        yield
        return

    def interrupt(number: int, frame: FrameType | None) -> None:
        _watch.is_interrupted = True
        if _watch.thread != main:
            raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        _watch.is_interrupted = False
