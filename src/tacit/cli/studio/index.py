"""Every result below a folder in a line; kept, so that a thousand need not be read again.

And how much ε the runs on one data set have claimed together. Releases about the same records
compose: their ε add up, and their δ (basic composition), whatever each run saw of those before it.
That is an upper bound for runs under one neighbouring relation; runs that claim no ε are not
bounded by any sum.
"""

import json
import os
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from tacit import __version__, report
from tacit.disk import read_regular
from tacit.errors import InputError
from tacit.jobs.folder import JOB, RESULT, write_text
from tacit.jobs.toml import parse_toml
from tacit.report.format import show_quantity
from tacit.report.headline import GAMES, pick_headline_metric, pick_private_claim
from tacit.report.tally import find_slowest, time_at_work
from tacit.result import Result

_PIECE_S = 0.1
_LARGEST_JOB = 1 << 20
_LARGEST_CACHE = 1 << 26
_ODD_NAME = "the name of its folder is not UTF-8; give it another one"
_SOURCES = ("set", "file", "files", "members", "strangers", "texts")


@dataclass(frozen=True)
class Summary:
    """A result in short; ``problem`` says why it cannot be read.

    ``data`` names the data sets and files of its job, as far as the job file is there.
    """

    name: str
    stamp: str
    when: str = ""
    kind: str = ""
    job: str = ""
    protocol: str = ""
    figure: str = ""
    epsilon: float | None = None
    delta: float | None = None
    relation: str = ""
    sent: int = 0
    seconds: float | None = None
    data: tuple[str, ...] = ()
    problem: str = ""

    def has(self, wanted: list[str]) -> bool:
        """Tell whether all words occur."""
        texts = (self.name, self.when, self.kind, self.job, self.protocol, self.figure, *self.data)
        text = " ".join(texts).casefold()
        return all(word in text for word in wanted)


class Index:
    """Summaries of the results below a folder."""

    def __init__(self, top: Path, cache: Path) -> None:
        self._top, self._cache = top, cache
        self._lock = threading.Lock()
        self._known, self._left = _load(cache), 0

    def refresh(self, seconds: float) -> tuple[list[Summary], int]:
        """Return what is known, the newest first, after reading new files for so long.

        The second value is how many are not read yet.
        """
        limit = time.monotonic() + seconds
        if self._lock.acquire(timeout=seconds or -1):  # else somebody reads: take what there is
            try:
                self._read(limit)
            finally:
                self._lock.release()
        found = sorted(self._known.values(), key=lambda one: (one.when, one.name), reverse=True)
        return found, self._left

    def _read(self, limit: float) -> None:
        """Find results, and read those that are new until a time."""
        found, odd = dict[str, Summary](), dict[str, Summary]()
        left = 0
        for name, stamp in find_results(self._top):
            if not _is_text(name):  # no page could name it
                shown = os.fsencode(name).decode(errors="backslashreplace")
                odd[shown] = Summary(shown, stamp, problem=_ODD_NAME)
                continue
            known = self._known.get(name)
            if known is not None and known.stamp == stamp:
                found[name] = known
            elif time.monotonic() < limit:
                found[name] = summarise(self._top / name, name, stamp)
            else:
                left += 1
        found = {**odd, **found}
        is_new = found != self._known
        self._known, self._left = found, left
        if is_new and not left:
            _save(self._cache, found)

    def read_ahead(self) -> None:
        """Read what is not summarised yet, beside pages that ask."""

        def read() -> None:
            while self.refresh(_PIECE_S)[1]:
                time.sleep(_PIECE_S / 10)  # let pages have the index, and the interpreter

        threading.Thread(target=read, name="read-ahead", daemon=True).start()

    def load(self, name: str) -> Result:
        """Read one of the results.

        Raises:
            InputError: there is no such result, or it cannot be read.
        """
        if name not in dict(find_results(self._top)):  # nothing else is a path of ours
            raise InputError(f"no such result: {name}")
        return report.load(self._top / name / RESULT)


def summarise(folder: Path, name: str, stamp: str) -> Summary:
    """Read a result and say it in short."""
    try:
        result = report.load(folder / RESULT)
    except InputError as error:
        return Summary(name, stamp, problem=str(error))
    first, claim, slowest = (
        pick_headline_metric(result),
        pick_private_claim(result),
        find_slowest(result),
    )
    return Summary(
        name,
        stamp,
        when=result.created.replace("T", " ").removesuffix("+00:00"),
        kind=result.kind,
        job=result.name,
        protocol=result.protocol,
        figure="" if first is None else f"{first.name} {show_quantity(first.value, first.unit)}",
        epsilon=None if claim is None else claim.epsilon,
        delta=None if claim is None else claim.delta,
        relation="" if claim is None else claim.relation or "",
        sent=sum_traffic(result),
        seconds=None if slowest is None else time_at_work(slowest) or slowest.seconds,
        data=tuple(_sources(folder / JOB)),
    )


@dataclass(frozen=True)
class Spent:
    """What runs on one data set have claimed under one relation, the earliest first."""

    relation: str
    runs: tuple[Summary, ...]

    @property
    def epsilon(self) -> float:
        """Return the sum of all ε."""
        return sum(one.epsilon or 0.0 for one in self.runs)

    @property
    def delta(self) -> float:
        """Return the sum of all δ."""
        return sum(one.delta or 0.0 for one in self.runs)


def list_data(found: Iterable[Summary]) -> dict[str, list[Summary]]:
    """Group runs by the data that their job files name, the earliest first."""
    groups: dict[str, list[Summary]] = {}
    for one in sorted(found, key=lambda one: one.when):
        for name in one.data:
            if one.kind not in GAMES:
                groups.setdefault(name, []).append(one)
    return groups


def spent_on(runs: Sequence[Summary]) -> tuple[Spent, ...]:
    """Add up what runs on one data set claim, under each relation."""
    claimed = [one for one in runs if one.epsilon is not None]
    relations = dict.fromkeys(one.relation for one in claimed)
    return tuple(
        Spent(relation, tuple(one for one in claimed if one.relation == relation))
        for relation in relations
    )


def sum_traffic(result: Result) -> int:
    """Add up what all parties sent; a link that both ends metered counts once."""
    links = {
        (one.sender, one.receiver, one.phase): one.payload_bytes for one in result.metered.traffic
    }
    return sum(links.values())


def find_results(top: Path) -> Iterator[tuple[str, str]]:
    """Find results, with what changes when the file does."""
    for folder, below, files in os.walk(top):
        below[:] = sorted(name for name in below if not name.startswith("."))
        if RESULT in files:
            with suppress(OSError):
                stat = os.stat(os.path.join(folder, RESULT))
                name = Path(folder).relative_to(top).as_posix()
                yield name, f"{stat.st_mtime_ns}-{stat.st_size}-{__version__}"


def _is_text(name: str) -> bool:
    """Tell whether a name is UTF-8; Python writes other bytes as halves of surrogate pairs."""
    return not any("\ud800" <= char <= "\udfff" for char in name)


def _sources(path: Path) -> Iterator[str]:
    """List the data that a job file names, wherever it stands."""
    try:
        raw = parse_toml(read_regular(path, most=_LARGEST_JOB).decode(), source=str(path))
    except (OSError, UnicodeDecodeError, InputError):
        return
    yield from dict.fromkeys(_named(raw.get("data")))


def _named(table: object) -> Iterator[str]:
    for key, value in table.items() if isinstance(table, Mapping) else ():
        if isinstance(value, Mapping):
            yield from _named(value) if key != "files" else map(str, value.values())
        elif key in _SOURCES:
            yield from map(str, value) if isinstance(value, list) else (str(value),)


def _load(cache: Path) -> dict[str, Summary]:
    """Read what was kept; whatever does not fit is read anew."""
    try:
        raw = json.loads(read_regular(cache, most=_LARGEST_CACHE))
        found = (Summary(**{**one, "data": tuple(one["data"])}) for one in raw)
        return {one.name: one for one in found if _is_whole(one)}
    except (OSError, ValueError, TypeError, AttributeError, KeyError, RecursionError):
        return {}


def _is_whole(one: Summary) -> bool:
    """Tell whether all fields are of their types: somebody may hand on a folder with a cache."""
    run = (one.name, one.stamp, one.when, one.kind, one.job, one.protocol)
    texts = (*run, one.figure, one.relation, one.problem, *one.data)
    figures = (one.epsilon, one.delta, one.seconds)
    return (
        all(isinstance(text, str) and _is_text(text) for text in texts)
        and all(isinstance(figure, float | None) for figure in figures)
        and isinstance(one.sent, int)
    )


def _save(cache: Path, found: Mapping[str, Summary]) -> None:
    is_led = cache.is_symlink() or cache.parent.is_symlink()
    if is_led or (cache.exists() and not cache.is_file()):
        return  # somebody else's doing: what it leads to is not ours to write
    with suppress(InputError, OSError):  # it is only faster with it
        cache.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_text(cache, json.dumps([asdict(one) for one in found.values()]))
