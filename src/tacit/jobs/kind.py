"""What a kind of job brings along, what it is given, and what it says before it is started."""

import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar, cast

import numpy as np
from torch import Tensor

from tacit.data.source import NOTHING, Given
from tacit.errors import ConfigError, InputError
from tacit.jobs.config import J, Job
from tacit.matching import leaks_of_matching
from tacit.mpc.plan import NETWORKS
from tacit.party import Enclave, Progress, Session
from tacit.party.cost import forecast_seconds
from tacit.result import Claim, Forecast, Leak, PartyReport, Result

T = TypeVar("T")

NO_GUARANTEE = "no guarantee"
ALL_HERE = "No forecast of traffic: nothing is sent, everything runs on this machine."

Network = tuple[float, float]
"""Round-trip time in milliseconds and bandwidth in Mbit/s."""


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a party does its part.

    Attributes:
        search: folders that may hold data sets.
        launched: "remote" or "processes", for the result.
        report: says what this party has used up to now.
        out: the folder of the whole job; what must survive a crash goes beside it.
        is_fresh: whether what an earlier run has left there is to be discarded.
        given: what this party hands over in Python, in place of its files.
        inside: the enclave that this party runs in, if it does: it opens sealed files.
    """

    search: tuple[Path, ...]
    launched: str
    report: Callable[[], PartyReport]
    out: Path
    is_fresh: bool = False
    given: Given = NOTHING
    inside: Enclave | None = None


@dataclass(frozen=True, kw_only=True)
class Part:
    """What a party has when its part is done: its view, and files for the result folder.

    The parties and the metered cost of ``result`` are taken anew after the very end. Folders of
    ``checkpoints`` are removed when the results of all parties stand on their disks: until then a
    job goes on from them. For a party in Python, ``values`` are its answers, ``weights`` a model
    that it got, and ``shares`` its share of one.
    """

    result: Result
    values: Tensor | None = None
    weights: Mapping[str, Tensor] = field(default_factory=dict)
    shares: Mapping[str, Tensor] = field(default_factory=dict)
    files: Mapping[str, str | bytes] = field(default_factory=dict)
    checkpoints: tuple[Path, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What the command says: where data may be, and sizes where it is not here.

    Attributes:
        search: folders that may hold data sets.
        rows: of all owners together.
        features: likewise.
    """

    search: tuple[Path, ...] = ()
    rows: int | None = None
    features: int | None = None

    def refuse(self, *options: str) -> None:
        """Refuse sizes that would change nothing.

        Raises:
            ConfigError: one of these options was given.
        """
        for option in options:
            if getattr(self, option) is not None:
                raise ConfigError(f"--{option} changes nothing in the plan of this job: leave it")


@dataclass(frozen=True, kw_only=True)
class Outlook:
    """What is known of a job before anything is sent.

    Attributes:
        about: the protocol, or what else it is known by.
        lines: what will be done, a sentence each.
        forecast: traffic and rounds; None where there is nothing to forecast, which a line says.
        leaks: who will learn what.
        claims: what is promised.
    """

    about: str
    lines: tuple[str, ...]
    forecast: Forecast | None = None
    leaks: tuple[Leak, ...] = ()
    claims: tuple[Claim, ...] = ()


class Screen(Protocol):
    """Where a run on this machine says what it does."""

    @property
    def is_terminal(self) -> bool:
        """Return whether somebody watches."""
        ...

    def say(self, text: str, style: str = "") -> None:
        """Print text as it is."""
        ...

    def tell(self, stage: str, done: int, total: int) -> None:
        """Say how far the work of a stage is."""
        ...

    def record(self, event: str, **fields: object) -> None:
        """Write what happened into the run's journal, where it keeps one."""
        ...

    def track(self, items: Iterable[T], what: str, total: int) -> Iterable[T]:
        """Give the items, and show how many are done."""
        ...


@dataclass(frozen=True, kw_only=True)
class Kind(Generic[J]):
    """A kind of job.

    Attributes:
        record: the class of its job files.
        check_inputs: makes sure, cheaply, that what these parties bring is there.
        take_part: does one party's part over its session.
        complete: adds to the joined result what only someone with all inputs can tell; gets the
            folder with the parties' files. Called by `tacit run` alone.
        attack: adds to it what attacks with all inputs find, and tells what it is doing; it may
            take minutes. Called by `tacit run` alone.
        forecast: says what would be sent and revealed, from sizes alone.
        run: runs the whole job on this machine with an engine of its own, for kinds whose
            parties are not processes of ours; None for all others.
        resumes: whether a run that was stopped goes on, and can be told not to.
        keeps: says whether the parties of a job keep checkpoints; None where none of them can.
    """

    record: type[J]
    check_inputs: Callable[[J, Sequence[str]], None]
    forecast: Callable[[J, Asked], Outlook]
    take_part: Callable[[Session, J, Place], Part] | None = None
    complete: Callable[[J, Result, Path, Sequence[Path]], Result] | None = None
    attack: Callable[[J, Result, Sequence[Path], Progress], Result] | None = None
    run: Callable[[J, Screen, Sequence[Path]], Part] | None = None
    resumes: bool = False
    keeps: Callable[[J], bool] | None = None


def of_any(kind: Kind[J]) -> Kind[Job]:
    """Return an entry for a table of kinds that each have another record."""
    # A kind is given no jobs but those that were read as its own record.
    return cast("Kind[Job]", kind)


def timed(forecast: Forecast, network: Network | None) -> Forecast:
    """Add the seconds that a forecast takes on one network, or on a few usual ones."""
    if network is None and forecast.timings:
        return forecast
    networks = NETWORKS if network is None else (network,)
    seconds = [forecast_seconds(forecast.cost, rtt_ms=rtt, mbit_per_s=m) for rtt, m in networks]
    return replace(forecast, timings=tuple(seconds))


def unread(error: InputError, options: str) -> ConfigError:
    """Say what is wrong with the data here, and what can be given where it is elsewhere."""
    return ConfigError(f"{error} (for a plan where the data is not, give {options})")


def evenly(total: int, names: tuple[str, ...]) -> dict[str, int]:
    """Divide rows or columns between owners, for a forecast of what nobody has yet."""
    each, more = divmod(total, len(names))
    return {name: each + (at < more) for at, name in enumerate(names)}


def matched(counts: Mapping[str, int]) -> tuple[str, ...]:
    """Say how many ids are matched, if any are."""
    ids = ", ".join(f"{owner} {count}" for owner, count in counts.items())
    return (f"ids to match: {ids}",) if counts else ()


def to_npz(arrays: Mapping[str, np.ndarray[Any, Any]]) -> bytes:
    """Return arrays as an .npz file for the result folder."""
    content = io.BytesIO()
    np.savez(content, allow_pickle=False, **arrays)
    return content.getvalue()


def matching_leaks(job: Job, counts: Mapping[str, int], common: int) -> tuple[Leak, ...]:
    """List what matching tells, if ids are matched."""
    return leaks_of_matching(counts, common, tuple(job.parties)) if counts else ()
