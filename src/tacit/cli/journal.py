"""``--progress FILE``: what a run does, one JSON object per line, for pages and programs to follow.

It says what the screen says, with the bytes of every link: stages, counts, figures that parties
tell, how it ended. The file is locked while the run lives, so that a reader can tell a run that
died without a word from one that is silent.
"""

import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console, ConsoleRenderable, RenderHook
from rich.text import Text

from tacit.cli.failure import describe
from tacit.disk import lock_open
from tacit.errors import InputError

if TYPE_CHECKING:
    from tacit.party import Event

_QUIET_S = 0.5
_STOPPED = 130


class Journal(RenderHook):
    """The file of one run; may listen to a console."""

    def __init__(self, path: Path) -> None:
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            if not _lock(descriptor):
                raise InputError(f"--progress {path}: another run writes this file")
        except OSError as error:
            raise InputError(f"--progress {path}: cannot be written: {error.strerror}") from error
        os.ftruncate(descriptor, 0)
        self._file = os.fdopen(descriptor, "w", encoding="utf-8")
        self._last: dict[str, tuple[str, float]] = {}
        self.write("open", pid=os.getpid())

    def write(self, event: str, **fields: object) -> None:
        """Add a line."""
        line = {"at": round(time.time(), 3), "event": event, **fields}
        print(json.dumps(line, ensure_ascii=False), file=self._file, flush=True)

    def take(self, party: str, event: "Event") -> None:
        """Add what a party reports: stages at once, steps now and then."""
        if event["event"] == "failed":
            self.write("failed", party=party, message=event["message"])
        elif event["event"] == "done":  # what it made is in the result
            self.write("stage", party=party, stage="done")
        elif self._is_due(party, event):
            self.write(**{**event, "party": party})

    def process_renderables(self, renderables: list[ConsoleRenderable]) -> list[ConsoleRenderable]:
        """Take note of lines that are said."""
        for one in renderables:
            if isinstance(one, Text) and one.plain.strip():
                self.write("said", text=one.plain.strip())
        return renderables

    def close(self) -> None:
        """Close the file, which unlocks it."""
        self._file.close()

    def _is_due(self, party: str, event: "Event") -> bool:
        stage, now = event["stage"], time.monotonic()
        before, next_s = self._last.get(party, ("", 0.0))
        if stage == before and event["done"] != event["total"] and now < next_s:
            return False
        self._last[party] = (stage, now + _QUIET_S)
        return True


def _lock(descriptor: int) -> bool:
    """Lock a file; a reader that tries the lock has it for a moment."""
    for _ in range(20):
        if lock_open(descriptor):
            return True
        time.sleep(0.05)
    return False


_current: ContextVar[Journal | None] = ContextVar("journal", default=None)


def record(event: str, **fields: object) -> None:
    """Add a line to the journal of this run, if one is kept."""
    if (journal := _current.get()) is not None:
        journal.write(event, **fields)


def record_party(party: str, event: "Event") -> None:
    """Add what a party reports to the journal of this run, if one is kept."""
    if (journal := _current.get()) is not None:
        journal.take(party, event)


@contextmanager
def keeping(path: Path | None) -> Iterator[None]:
    """Keep a journal while the block runs, and write down how it ends.

    Raises:
        InputError: the file cannot be written, or another run writes it.
    """
    if path is None:
        yield
        return
    journal = Journal(path)
    token = _current.set(journal)
    try:
        yield
    except BaseException as error:
        journal.write("end", **_ending(error))
        raise
    else:
        journal.write("end", code=0)
    finally:
        _current.reset(token)
        journal.close()


@contextmanager
def overheard(console: Console) -> Iterator[None]:
    """Add what is said on the console while the block runs, if a journal is kept."""
    if (journal := _current.get()) is None:
        yield
        return
    console.push_render_hook(journal)
    try:
        yield
    finally:
        console.pop_render_hook()


def _ending(error: BaseException) -> Mapping[str, object]:
    if not isinstance(error, Exception):
        return {"code": _STOPPED, "message": "stopped"}
    failure = describe(error)
    seen = None if failure.said_by else failure.party  # hearsay is in the message, with its source
    return {"code": failure.exit_code, "message": failure.message, "party": seen}
