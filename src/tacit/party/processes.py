"""Every party of a job as a process on this machine, watched by the one that started them.

A child is told two file descriptors: its listening socket (so that no port can be stolen between
choosing and using it) and a pipe on which it reports, one JSON object per line. Its standard
input is a pipe that nobody writes to: when the parent dies it closes, and the child goes too.
"""

import json
import os
import selectors
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import IO, Any

from tacit.errors import PartyError

Event = Mapping[str, Any]  # parsed JSON of our own child: values differ by event
_LINE_LIMIT = 64 << 20
_POLITE_S = 2.0


@dataclass(frozen=True)
class Child:
    """A party to start: its command (without the descriptors) and its listening socket."""

    name: str
    command: Sequence[str]
    listener: socket.socket


@dataclass(frozen=True)
class ProcessEnd:
    """How a party ended: its exit code (negative for a signal), and its last words if any.

    ``was_ended`` tells that it still ran when the others had come to their end or failed, and
    that we ended it: then the exit code says nothing about what was wrong with it.
    """

    name: str
    exit_code: int
    final: Event | None
    was_ended: bool


class StatusPipe:
    """A child's way to report to the process that started it."""

    def __init__(self, descriptor: int) -> None:
        self._file: IO[str] = os.fdopen(descriptor, "w", encoding="utf-8")
        self._lock = threading.Lock()

    def send(self, event: str, **fields: object) -> None:
        """Report one event; a parent that is gone is not an error here, the watch ends us."""
        with self._lock:
            try:
                print(json.dumps({"event": event, **fields}), file=self._file, flush=True)
            except (BrokenPipeError, ValueError):
                return

    def close(self) -> None:
        """Close the pipe: there is nothing more to report."""
        with self._lock:
            self._file.close()


def watch_parent() -> None:
    """End this process when standard input closes, which it does when the parent dies."""

    def wait() -> None:
        while os.read(0, 4096):
            pass
        os._exit(PartyError.exit_code)

    threading.Thread(target=wait, name="watch-parent", daemon=True).start()


def supervise(
    children: Sequence[Child],
    *,
    on_event: Callable[[str, Event], None],
    on_stop: Callable[[], None],
    grace_s: float,
) -> tuple[ProcessEnd, ...]:
    """Start the children, pass on what they report, and see every one of them end.

    When one fails, the others get ``grace_s`` seconds to notice by themselves; then they are
    ended. At an interrupt ``on_stop`` is called and they are ended at once. No child outlives
    this call.
    """
    with ExitStack() as stack:
        running: list[_Running] = []
        stack.callback(_end_all, running)
        try:
            for child in children:
                running.append(_Running(child, stack))
            is_settled = _listen(running, on_event, grace_s)
        except KeyboardInterrupt:
            on_stop()  # before they are ended, which may take a moment
            raise
        # A child that has closed its pipe is ending by itself; ending it would hide how.
        _wait(running, grace_s if is_settled else 0.0)
        _end_all(running)
        return tuple(
            ProcessEnd(one.name, one.process.wait(), one.final, one.was_ended) for one in running
        )


class _Running:
    """A started child, the pipe it reports on and what it said last."""

    def __init__(self, child: Child, stack: ExitStack) -> None:
        self.name = child.name
        self.final: Event | None = None
        self.was_ended = False
        self._pending = b""
        reader, writer = os.pipe()
        stack.callback(os.close, reader)
        os.set_blocking(reader, False)
        self.status = reader
        descriptors = ["--listen-fd", str(child.listener.fileno()), "--status-fd", str(writer)]
        try:
            self.process = subprocess.Popen(  # noqa: S603 - our own interpreter and module
                [*child.command, *descriptors],
                stdin=subprocess.PIPE,
                pass_fds=(child.listener.fileno(), writer),
                start_new_session=True,
            )
        finally:
            os.close(writer)
        child.listener.close()

    def read(self, on_event: Callable[[str, Event], None]) -> bool:
        """Pass on complete lines; return False at the end of the pipe."""
        chunk = os.read(self.status, 1 << 16)
        self._pending += chunk
        *lines, self._pending = self._pending.split(b"\n")
        if len(self._pending) > _LINE_LIMIT:
            raise PartyError(self.name, "reported a line of more than 64 MiB")
        for line in lines:
            event: Event = json.loads(line)
            if event["event"] in ("done", "failed"):
                self.final = event
            on_event(self.name, event)
        return bool(chunk)


def _listen(
    running: Sequence[_Running], on_event: Callable[[str, Event], None], grace_s: float
) -> bool:
    """Read events until every pipe is closed (True), or the grace after a failure is over."""
    deadline: float | None = None
    with selectors.DefaultSelector() as selector:
        for one in running:
            selector.register(one.status, selectors.EVENT_READ, one)
        while selector.get_map():
            for key, _ in selector.select(timeout=0.2):
                if not key.data.read(on_event):
                    selector.unregister(key.fd)
            codes = [one.process.poll() for one in running]
            if deadline is None and any(code not in (None, 0) for code in codes):
                deadline = time.monotonic() + grace_s
            if deadline is not None and time.monotonic() > deadline:
                return False
    return True


def _end_all(running: Sequence[_Running]) -> None:
    """End what still runs: ask, and insist a moment later."""
    for one in running:
        if one.process.poll() is None:
            one.was_ended = True
            one.process.terminate()
        if one.process.stdin:
            one.process.stdin.close()
    try:
        _wait(running, _POLITE_S)
    finally:  # an impatient second interrupt comes here at once
        for one in running:
            one.process.kill()
    for one in running:
        one.process.wait()


def _wait(running: Sequence[_Running], seconds: float) -> None:
    """Wait until all have ended or the time is up."""
    limit = time.monotonic() + seconds
    for one in running:
        with suppress(subprocess.TimeoutExpired):
            one.process.wait(max(0.0, limit - time.monotonic()))


def python_command(*arguments: str) -> list[str]:
    """Return the command that runs tacit in a new process of this interpreter."""
    return [sys.executable, "-m", "tacit", *arguments]
