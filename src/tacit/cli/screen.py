"""What a person sees while parties work: a row for each, or plain lines when nobody watches."""

import re
import time
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Protocol, TypeVar, final

from rich.console import Console, ConsoleRenderable, RenderHook
from rich.live import Live
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn, track
from rich.spinner import Spinner
from rich.text import Text

from tacit.cli.journal import record
from tacit.report.words import STAGES
from tacit.result import TOLD

T = TypeVar("T")

_TELL_S = 1.0


class Board(Protocol):
    """Shows where each party stands."""

    def show(self, party: str, stage: str, done: int, total: int) -> None:
        """Take note that a party is at a stage, ``done`` steps of ``total`` (0: unknown)."""
        ...

    def note(self, text: str) -> None:
        """Say something about the whole."""
        ...


@contextmanager
def board(console: Console, roles: Mapping[str, str]) -> Iterator[Board]:
    """Show the progress of these parties while the block runs."""
    if not console.is_terminal:
        yield _Lines(console, roles)
        return
    progress = Progress(
        TextColumn("{task.fields[party]}", style="bold", markup=False),
        TextColumn("{task.fields[role]}", style="dim", markup=False),
        TextColumn("{task.fields[stage]}", markup=False),
        BarColumn(bar_width=16),
        TimeElapsedColumn(),
        console=console,
    )
    with progress:
        yield _Rows(progress, roles)


class _Rows:
    """A live row per party."""

    def __init__(self, progress: Progress, roles: Mapping[str, str]) -> None:
        self._progress = progress
        self._tasks: dict[str, TaskID] = {
            party: progress.add_task("", total=None, party=party, role=role, stage=_pad("start"))
            for party, role in roles.items()
        }

    def show(self, party: str, stage: str, done: int, total: int) -> None:
        """Move a row; what a party tells is a line above all of them."""
        if stage.startswith(TOLD):
            self.note(f"{party}: {stage.removeprefix(TOLD)}")
            return
        task = self._tasks[party]
        if stage in ("done", "failed"):
            done, total = int(stage == "done"), 1
        # A total of None makes the bar pulse: the stage has no steps to count.
        self._progress.update(task, total=total or None, completed=done, stage=_pad(stage))
        if stage in ("done", "failed"):
            self._progress.stop_task(task)

    def note(self, text: str) -> None:
        """Print a line above the rows."""
        say(self._progress.console, text)


class _Lines:
    """A line whenever a party comes to another stage."""

    def __init__(self, console: Console, roles: Mapping[str, str]) -> None:
        self._console = console
        self._roles = roles
        self._start = time.monotonic()
        self._seen: set[tuple[str, str]] = set()

    def show(self, party: str, stage: str, done: int, total: int) -> None:
        """Print a line if the stage is new."""
        if (party, stage) in self._seen:
            return
        self._seen.add((party, stage))
        width = max(map(len, self._roles))
        seconds = time.monotonic() - self._start
        words = STAGES.get(stage, stage.removeprefix(TOLD))
        say(self._console, f"{seconds:6.1f} s  {party:{width}}  {words}")

    def note(self, text: str) -> None:
        """Print a line."""
        say(self._console, text)


@contextmanager
def working(console: Console, text: str) -> Iterator[None]:
    """Show that work goes on while the block runs, if somebody watches.

    A last line that moves: what was said last, for how long, and how long the rest will take if
    what was said counts ("round 3/10"). Nothing of it stays.
    """
    if not console.is_terminal:
        yield
        return
    doing = _Doing(text, console.width)
    # Standard output may be a file, and what is written to it is not for this line's terminal.
    with Live(doing, console=console, transient=True, refresh_per_second=5, redirect_stdout=False):
        console.push_render_hook(doing)
        try:
            yield
        finally:
            console.pop_render_hook()


class _Doing(RenderHook):
    """The last line of `working`; sees what is printed above it."""

    _COUNT = re.compile(r"[^0-9]*([0-9]+)(?:/| of )([0-9]+)")

    def __init__(self, text: str, width: int) -> None:
        self._width = width
        self._spinner = Spinner("dots")
        self._text, self._since = text, time.monotonic()
        self._total, self._first, self._began, self._left_s = 0, 0, 0.0, 0.0

    def process_renderables(self, renderables: list[ConsoleRenderable]) -> list[ConsoleRenderable]:
        """Take note of a line that is said."""
        for one in renderables:
            if isinstance(one, Text) and one.plain.strip():
                self._text, self._since = one.plain.split("\n")[0].strip(), time.monotonic()
                self._count(self._text)
        return renderables

    def _count(self, text: str) -> None:
        found = self._COUNT.match(text)
        self._left_s = 0.0
        if found is None:
            return
        done, total = int(found[1]), int(found[2])
        if total != self._total or done <= self._first:
            self._total, self._first, self._began = total, done, self._since
        else:
            pace = (self._since - self._began) / (done - self._first)
            self._left_s = pace * (total - done)

    def __rich__(self) -> Text:
        """Draw the line anew."""
        now = time.monotonic()
        tail = f" {now - self._since:.0f} s"
        left = self._left_s - (now - self._since)
        if left >= 1:
            tail += f", about {left:.0f} s left"
        head = self._text[: max(self._width - len(tail) - 3, 8)]
        sign = self._spinner.render(now)
        return Text.assemble(sign if isinstance(sign, Text) else "", f" {head}{tail}", style="dim")


def teller(console: Console) -> Callable[[str, int, int], None]:
    """Return what says a line when work of this process comes to another stage, and now and then.

    How many steps are done is said at most once a second, unless it is all of them; how long the
    others will take, where nobody watches the last line that `working` shows.
    """
    stage_before, began, next_s = "", 0.0, 0.0

    def tell(stage: str, done: int, total: int) -> None:
        nonlocal stage_before, began, next_s
        now, words = time.monotonic(), STAGES.get(stage, stage)
        if stage != stage_before:
            say(console, f"{words} …", "dim")
            stage_before, began, next_s = stage, now, now + _TELL_S
        elif total and done and (done == total or now >= next_s):
            left_s = (now - began) / done * (total - done)
            tail = f", about {left_s:.0f} s left" if left_s >= 1 and not console.is_terminal else ""
            say(console, f"{words}: {done} of {total}{tail}", "dim")
            next_s = now + _TELL_S

    return tell


@final
class OnConsole:
    """Where a run says what it does: on a console, and in the journal of the run."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self.tell = teller(console)

    @property
    def is_terminal(self) -> bool:
        """Return whether somebody watches."""
        return self._console.is_terminal

    def say(self, text: str, style: str = "") -> None:
        """Print text as it is."""
        say(self._console, text, style)

    def record(self, event: str, **fields: object) -> None:
        """Write what happened into the run's journal, where it keeps one."""
        record(event, **fields)

    def track(self, items: Iterable[T], what: str, total: int) -> Iterable[T]:
        """Give the items, with a progress bar where somebody watches."""
        hidden = not self.is_terminal
        return track(items, what, total=total, console=self._console, disable=hidden)


def say(console: Console, text: str, style: str = "") -> None:
    """Print text as it is: no markup, no wrapping, and nothing that a terminal would obey."""
    console.print(Text(printable(text), style=style), soft_wrap=True, highlight=False)


def printable(text: str) -> str:
    """Replace what is not printable, except line ends: a peer's words may be in it."""
    return "".join(map(_printable, text))


def _printable(char: str) -> str:
    if char.isprintable() or char == "\n":
        return char
    # Our own numbers have hard spaces, which a terminal need not know.
    return " " if unicodedata.category(char) == "Zs" else "\ufffd"


def _pad(stage: str) -> str:
    """Give every stage the same width, so that the bars do not jump."""
    return f"{STAGES.get(stage, stage):{max(map(len, STAGES.values()))}}"
