"""Runs that were started from the page: detached commands, known by the journal that they write."""

import json
import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from tacit.disk import lock_open, read_regular
from tacit.errors import InputError
from tacit.jobs.folder import write_text
from tacit.party import python_command
from tacit.result import TOLD

JOB, PROGRESS, LOG, OPTIONS = "job.toml", "progress.jsonl", "log.txt", "options.json"
_ACCURACY = re.compile(r"accuracy ([0-9.]+) ?%")
_NAME = re.compile(r"[A-Za-z0-9_-]{1,200}")
_MOST_LINES = 500
_LONGEST_TEXT = 100_000
_LARGEST_PIECE = 1 << 24
"""How much of a journal is read at a time."""
_SLOW_START_S = 60.0


@dataclass
class PartyState:
    """Where a party stands."""

    role: str = ""
    stage: str = "start"
    done: int = 0
    total: int = 0
    rounds: int = 0
    problem: str = ""
    sent: dict[str, int] = field(default_factory=dict)
    lines: list[tuple[float, str]] = field(default_factory=list)


@dataclass
class RunState:
    """What the journal of a run says so far."""

    name: str
    job: str = ""
    kind: str = ""
    out: str = ""
    pid: int = 0
    began: float = 0.0
    seen: float = 0.0
    code: int | None = None
    message: str = ""
    blamed: str = ""
    is_alive: bool = False
    parties: dict[str, PartyState] = field(default_factory=dict)
    said: list[str] = field(default_factory=list)
    accuracy: list[tuple[float, float]] = field(default_factory=list)
    epsilon: list[tuple[float, float]] = field(default_factory=list)
    terms: str = ""
    dropped: dict[int, list[str]] = field(default_factory=dict)

    @property
    def is_over(self) -> bool:
        """Tell whether nothing more will come."""
        return self.code is not None or not self.is_alive

    def take(self, event: Mapping[str, object]) -> None:
        """Take note of one line of the journal."""
        self.seen = _real(event.get("at")) or self.seen
        match event.get("event"):
            case "open":
                self.pid, self.began = int(_real(event.get("pid"))), self.seen
            case "start":
                self.job, self.kind = str(event.get("job")), str(event.get("kind"))
                self.out = str(event.get("out", ""))
                roles = event.get("parties")
                for name, role in roles.items() if isinstance(roles, dict) else ():
                    self.parties[str(name)] = PartyState(role=str(role))
            case "stage":
                self._take_stage(event)
            case "failed":
                party = self._party(event)
                party.stage, party.problem = "failed", str(event.get("message"))
            case "round":
                self._take_round(event)
            case "said":
                self.said = [*self.said[1 - _MOST_LINES :], str(event.get("text"))]
            case "end":
                self.code = int(_real(event.get("code")))
                self.message = str(event.get("message") or "")
                self.blamed = str(event.get("party") or "")

    def _party(self, event: Mapping[str, object]) -> PartyState:
        return self.parties.setdefault(str(event.get("party")), PartyState())

    def _take_stage(self, event: Mapping[str, object]) -> None:
        party, stage = self._party(event), str(event.get("stage"))
        done, total = int(_real(event.get("done"))), int(_real(event.get("total")))
        sent = event.get("sent")
        if isinstance(sent, dict):
            party.sent = {str(to): int(_real(size)) for to, size in sent.items()}
            party.rounds = int(_real(event.get("rounds")))
        if stage != party.stage or stage.startswith(TOLD):
            text = stage.removeprefix(TOLD)
            party.lines = [*party.lines[1 - _MOST_LINES :], (self.seen, text)]
        if not stage.startswith(TOLD):
            party.stage, party.done, party.total = stage, done, total
        elif found := _ACCURACY.search(stage):
            point = (float(done), float(found[1]) / 100)
            if not self.accuracy or self.accuracy[-1] != point:  # several parties tell the same
                self.accuracy.append(point)

    def _take_round(self, event: Mapping[str, object]) -> None:
        number = _real(event.get("number"))
        for name, points in (("accuracy", self.accuracy), ("epsilon", self.epsilon)):
            if event.get(name) is not None:
                points.append((number, _real(event.get(name))))
        delta, relation, accountant = map(event.get, ("delta", "relation", "accountant"))
        self.terms = f"δ = {delta}, {relation}, {accountant}" if delta is not None else ""
        dropped = event.get("dropped")
        if isinstance(dropped, list) and dropped:
            self.dropped[int(number)] = [str(one) for one in dropped]


class Started:
    """The runs below one hidden folder; each is a folder with a job file and a journal."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._lock = threading.Lock()
        self._read: dict[str, tuple[int, RunState]] = {}
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, text: str, name: str, *, is_fresh: bool = False, party: str = "") -> str:
        """Start the command that runs a job file, or one party of it; it outlives this process."""
        stem = re.sub(r"[^A-Za-z0-9_-]", "-", name)[:32] or "job"
        at = f"{stem}-{time.strftime('%Y%m%d-%H%M%S')}"
        folder = self._home / at
        try:
            self._home.mkdir(mode=0o700, parents=True, exist_ok=True)
            folder.mkdir(mode=0o700)
        except OSError as error:
            raise InputError(f"cannot start a run in {folder}: {error.strerror}") from error
        write_text(folder / JOB, text)
        write_text(folder / OPTIONS, json.dumps({"party": party}))
        with (folder / LOG).open("wb") as log:
            process = subprocess.Popen(  # noqa: S603 - our own interpreter and module
                self.command(at, is_fresh=is_fresh, party=party),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._processes[at] = process
        return at

    def command(self, name: str, *, is_fresh: bool = False, party: str = "") -> list[str]:
        """Return the command that runs a job of ours."""
        folder = self._home / name
        verb = ["party", str(folder / JOB), "--as", party] if party else ["run", str(folder / JOB)]
        fresh = ["--fresh"] if is_fresh else []
        return python_command(*verb, "--progress", str(folder / PROGRESS), *fresh)

    def again(self, name: str, *, is_fresh: bool) -> str:
        """Start a run again: a training that was stopped goes on, unless ``is_fresh``."""
        state = self.state(name)
        options: object = None
        with suppress(ValueError, RecursionError):
            options = json.loads(self.read(name, OPTIONS))
        party = options.get("party") if isinstance(options, dict) else ""
        text = self.read(name, JOB)
        return self.start(text, state.job or name, is_fresh=is_fresh, party=str(party or ""))

    def stop(self, name: str) -> None:
        """Ask a run to stop, as Ctrl-C would."""
        state = self.state(name)
        if state.is_alive and state.pid > 0:  # 0 and below are groups of processes
            with suppress(ProcessLookupError):
                os.kill(state.pid, signal.SIGTERM)

    def list_runs(self) -> list[RunState]:
        """Return all runs, the newest first."""
        names = [one.name for one in self._home.iterdir()] if self._home.is_dir() else []
        ours = [one for one in names if _NAME.fullmatch(one) and (self._home / one / JOB).is_file()]
        found = [self.state(one) for one in ours]
        return sorted(found, key=lambda one: one.began, reverse=True)

    def _find(self, name: str) -> Path:
        if not _NAME.fullmatch(name) or not (self._home / name / JOB).is_file():
            raise InputError(f"no such run: {name}")
        return self._home / name

    def read(self, name: str, file: str) -> str:
        """Return a file of a run as text, the end of it if it is long.

        Raises:
            InputError: there is no such run.
        """
        folder = self._find(name)
        with suppress(OSError):
            end = read_regular(folder / file, most=_LONGEST_TEXT, at=-_LONGEST_TEXT)
            return end.decode(errors="replace")
        return ""

    def state(self, name: str) -> RunState:
        """Return where a run stands.

        Raises:
            InputError: there is no such run.
        """
        folder = self._find(name)
        with self._lock:
            process = self._processes.get(name)
            at, state = self._read.get(name, (0, RunState(name=name)))
            path = folder / PROGRESS
            # Before the last lines are read, not after.
            state.is_alive = _is_alive(path) and (process is None or process.poll() is None)
            self._read[name] = (_follow(path, at, state), state)
        return state


def _follow(path: Path, at: int, state: RunState) -> int:
    """Read the lines that came since the last time; return where to go on."""
    try:
        content = read_regular(path, most=_LARGEST_PIECE, at=at)
    except OSError:
        return at
    whole = content[: content.rfind(b"\n") + 1]
    for line in whole.splitlines():
        with suppress(ValueError, RecursionError):
            event = json.loads(line)
            if isinstance(event, dict):
                state.take(event)
    return at + len(whole)


def _is_alive(path: Path) -> bool:
    """Tell whether somebody writes a journal; one that is not there yet is about to be written."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # it may be a pipe
    except FileNotFoundError:
        return time.time() - path.parent.stat().st_mtime < _SLOW_START_S
    except OSError:
        return False
    try:
        return not lock_open(descriptor, is_shared=True)
    finally:
        os.close(descriptor)


def _real(value: object) -> float:
    """Return a number as it is, and 0 for what is none or beyond every time and count."""
    return float(value) if isinstance(value, int | float) and abs(value) < 1e15 else 0.0
