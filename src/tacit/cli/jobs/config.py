"""The tables that every job file has: frozen classes, checked before anything is read or sent.

`Patience` (from transport) only decides how long one waits; `ReportChoice` only decides what is
shown. The tables of a kind of job, which can weaken privacy, are in its own file.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, Self, TypeVar

from tacit.cli.toml import Problem, RefusedError, suggest
from tacit.crypto import parse_fingerprint, parse_name
from tacit.errors import ConfigError, IdentityError, InputError
from tacit.mpc import PROTOCOLS, find_protocol
from tacit.transport import Patience
from tacit.transport import parse_address as parse_address

LOCAL: Mapping[str, bool] = {"is_local": True}
"""Marks a setting that is one party's own business and may differ between the parties."""


@dataclass(frozen=True, kw_only=True)
class Head:
    """[job]: what is computed, and where the result goes."""

    name: str
    kind: str
    out: Path | None = field(default=None, metadata=LOCAL)

    def __post_init__(self) -> None:
        _check_with(parse_name, self.name, "name")


@dataclass(frozen=True, kw_only=True)
class PartyEntry:
    """[parties.NAME]: where a party listens, if it does, and the key by which it is known."""

    address: str | None = field(default=None, metadata=LOCAL)
    key: str | None = None

    def __post_init__(self) -> None:
        if self.address is not None:
            _check_with(parse_address, self.address, "address")
        if self.key is not None:
            _check_with(parse_fingerprint, self.key, "key")


@dataclass(frozen=True, kw_only=True)
class Source:
    """Rows out of a known data set or a file of the owner's."""

    set: str | None = None
    file: Path | None = field(default=None, metadata=LOCAL)
    label: str | None = None
    part: Literal["train", "test", "all"] = "all"
    test_share: float | None = None

    def __post_init__(self) -> None:
        if self.set is not None and self.file is not None:
            raise RefusedError(Problem("file", "wanted either 'set' or 'file', got both"))
        if self.set is not None and self.label is not None:
            raise RefusedError(Problem("label", "names a column of 'file'; a set has its labels"))
        if self.test_share is not None and not 0 < self.test_share < 1:
            text = f"wanted a number between 0 and 1, got {self.test_share}"
            raise RefusedError(Problem("test_share", text))


@dataclass(frozen=True, kw_only=True)
class ReportChoice:
    """[report]: what is shown besides the result itself."""

    compare: Literal["plain", "none"] = "plain"
    html: bool = True


@dataclass(frozen=True, kw_only=True)
class Job(ABC):
    """What every job file has; a kind of job adds its own tables."""

    job: Head
    parties: Mapping[str, PartyEntry]
    network: Patience = field(default_factory=Patience)
    report: ReportChoice = field(default_factory=ReportChoice, metadata=LOCAL)

    @property
    def out(self) -> Path:
        """Return the folder that the result of the whole job goes to."""
        return self.job.out or Path("out") / self.job.name

    @abstractmethod
    def role(self, party: str) -> str:
        """Say in words what a party does."""

    def settled(self) -> Self:
        """Return the same job with defaults that follow from other settings written out."""
        return self


J = TypeVar("J", bound=Job)


def with_parties(job: J, entries: Mapping[str, PartyEntry]) -> J:
    """Return the job with other addresses and keys for the same parties."""
    if entries.keys() != job.parties.keys():
        raise ConfigError(f"wanted entries for {', '.join(job.parties)}, got {', '.join(entries)}")
    return replace(job, parties={name: entries[name] for name in job.parties})


def _check_with(parse: Callable[[str], object], text: str, key: str) -> None:
    """Let a parser look at a text, and put the key before its complaint."""
    try:
        parse(text)
    except InputError as error:
        raise RefusedError(Problem(key, str(error))) from error


def check_bound(bound: float) -> None:
    """Refuse a promised size that is none."""
    if not (math.isfinite(bound) and bound > 0):
        raise RefusedError(Problem("bound", f"wanted a number greater than 0, got {bound}"))


def check_scale(scale: tuple[float, ...] | None, known: str | None) -> None:
    """Refuse divisors of columns that are no such thing, or that belong to a known set."""
    if scale is None:
        return
    if known is not None:
        raise RefusedError(Problem("scale", "belongs to 'file'; a set has its own divisors"))
    if not all(0 < divisor < math.inf for divisor in scale):
        raise RefusedError(Problem("scale", f"wanted divisors greater than 0, got {list(scale)}"))


def check_protocol(name: str, key: str = "kind") -> None:
    """Refuse a protocol that does not exist, or options that it does not have."""
    try:
        find_protocol(name)
    except ConfigError as error:
        near = suggest(name.split(" ")[0], PROTOCOLS)
        raise RefusedError(Problem(key, f"{error}{near}")) from error


def check_parties(parties: Mapping[str, PartyEntry]) -> Iterator[Problem]:
    """Yield what is wrong with the parties: too few, bad names, shared addresses or keys."""
    if len(parties) < 2:
        yield Problem("parties", f"wanted two parties or more, got {len(parties)}")
    for name in parties:
        try:
            parse_name(name)
        except IdentityError as error:
            yield Problem("parties", str(error))
    for what in ("address", "key"):
        seen: dict[str, str] = {}
        for name, entry in parties.items():
            value = getattr(entry, what)
            if value is not None and seen.setdefault(value, name) != name:
                text = f"is the same as that of {seen[value]!r}; every party needs its own"
                yield Problem(f"parties.{name}.{what}", text)


def check_references(
    parties: Mapping[str, PartyEntry], named: Mapping[str, str], *, all_used: bool = True
) -> Iterator[Problem]:
    """Yield what is wrong with names of parties, given by the key that holds each.

    Args:
        parties: the parties of the job.
        named: the name that stands at each dotted key.
        all_used: whether a party that no key names is one too many.
    """
    for key, name in named.items():
        if name not in parties:
            text = f"wanted one of the parties {', '.join(parties)}, got {name!r}"
            yield Problem(key, text + suggest(name, parties))
    for name in _unused(parties, named.values()) if all_used else ():
        text = "has no part in this job and would learn sizes for nothing; remove it"
        yield Problem(f"parties.{name}", text)


def _unused(parties: Iterable[str], named: Iterable[str]) -> list[str]:
    used = set(named)
    return [name for name in parties if name not in used]
