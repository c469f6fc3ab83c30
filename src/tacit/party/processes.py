"""Every party of a job as a process on this machine, watched by the one that started them.

A child is told two file descriptors: its listening socket (so that no port can be stolen between
choosing and using it) and a pipe on which it reports, one JSON object per line. Its standard
input is a pipe that nobody writes to: when the parent dies it closes, and the child goes too.
"""

import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from time import monotonic
from typing import IO, Any

from tacit.errors import PartyError, TacitError
from tacit.failure import End, Failure, find_cause

Event = Mapping[str, Any]  # parsed JSON of our own child: values differ by event
_LINE_LIMIT = 64 << 20
_POLITE_S = 2.0


@dataclass(frozen=True)
class Child:
    """A party to start: its command (without the descriptors) and its listening socket."""

    name: str
    command: Sequence[str]
    listener: socket.socket


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
) -> tuple[End, ...]:
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
        return tuple(one.end() for one in running)


class _Running:
    """A started child, the pipe it reports on and what it said last."""

    def __init__(self, child: Child, stack: ExitStack) -> None:
        self.name = child.name
        self.final: Event = {}
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

    def end(self) -> End:
        """Wait for the end, and say how it came."""
        code, failure = self.process.wait(), None
        if self.final.get("event") == "failed":
            failure = Failure(**{key: self.final[key] for key in Failure.__dataclass_fields__})
        # One that has said it is done, and was only slow to leave, has done its part.
        is_done = self.final.get("event") == "done" and self.was_ended
        return End(
            party=self.name,
            exit_code=0 if is_done else code,
            failure=failure,
            was_ended=self.was_ended,
            final=self.final,
        )


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
            (end,) = supervise([again], on_event=self._hear, on_stop=lambda: None, grace_s=GRACE_S)
            if end.final.get("event") == "done":  # it may take longer to leave than we wait
                end = replace(end, exit_code=0)
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
