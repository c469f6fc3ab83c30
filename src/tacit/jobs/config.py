"""The tables that every job file has: frozen classes, checked before anything is read or sent.

`Patience` (from transport) only decides how long one waits; `ReportChoice` only decides what is
shown. The tables of a kind of job, which can weaken privacy, are in its own file.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Literal, Self, TypeVar

from tacit.crypto import parse_fingerprint, parse_name
from tacit.data import Source
from tacit.errors import ConfigError, IdentityError
from tacit.mpc import PROTOCOLS, find_protocol
from tacit.spec import LOCAL, Check, Count, Problem, Share, refuse, suggest
from tacit.transport import Patience, Peer
from tacit.transport import parse_address as parse_address


def parse_protocol(name: str) -> None:
    """Refuse a word that is no protocol on shares with a dealer."""
    alone = name in ("he", "enclave")
    try:
        alone = alone or not find_protocol(name).has_dealer
    except ConfigError as error:
        first = name.split(" ")[0]
        near = "" if first.rstrip(";") in PROTOCOLS else suggest(first, PROTOCOLS)
        raise ConfigError(f"{error}{near}") from error
    if alone:
        raise ConfigError(
            f"{name!r} is for jobs of kind 'infer' alone; take 'sealed', with a dealer"
        )


Name = Annotated[str, Check(parse_name)]
Address = Annotated[str, Check(parse_address)]
Fingerprint = Annotated[str, Check(parse_fingerprint)]
ProtocolName = Annotated[str, Check(parse_protocol)]


@dataclass(frozen=True, kw_only=True)
class Head:
    """[job]: what is computed, and where the result goes."""

    name: Name
    kind: str
    out: Path | None = field(default=None, metadata=LOCAL)


@dataclass(frozen=True, kw_only=True)
class WorkerTable:
    """[parties.NAME.worker]: who multiplies for a party, and what follows if it is caught lying.

    An accelerator of the party's host, or a `tacit worker` at an address, known by its key.
    """

    device: str | None = None
    address: Address | None = None
    key: Fingerprint | None = None
    on_failure: Literal["stop", "local"] = "stop"
    least_terms: Count | None = None

    def __post_init__(self) -> None:
        if (self.device is None) == (self.address is None):
            refuse("address", "wanted either 'device' or 'address' with 'key'")
        if (self.address is None) != (self.key is None):
            refuse("key", "goes with 'address': `tacit keys NAME` prints it on the worker's host")


@dataclass(frozen=True, kw_only=True)
class PartyEntry:
    """[parties.NAME]: where a party listens, if it does, and the key by which it is known."""

    address: Address | None = field(default=None, metadata=LOCAL)
    key: Fingerprint | None = None
    worker: WorkerTable | None = field(default=None, metadata=LOCAL)
    enclave: Literal["simulated"] | None = None


@dataclass(frozen=True, kw_only=True)
class RowsTable:
    """Rows out of a known data set or a file of the owner's."""

    set: str | None = None
    file: Path | None = field(default=None, metadata=LOCAL)
    label: str | None = None
    part: Literal["train", "test", "all"] = "all"
    test_share: Share | None = None

    def __post_init__(self) -> None:
        check_named(self.set, self.file, self.label)

    def source(self, key: str) -> Source:
        """Return where the rows come from."""
        return Source.of(self, key=key)


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

    def peers(self, me: str) -> dict[str, Peer]:
        """Return the other parties, as one of them dials them."""
        return {
            name: Peer(parse_address(entry.address) if entry.address else None, entry.key or "")
            for name, entry in self.parties.items()
            if name != me
        }

    def settled(self) -> Self:
        """Return the same job with defaults that follow from other settings written out."""
        return self


J = TypeVar("J", bound=Job)


def with_parties(job: J, entries: Mapping[str, PartyEntry]) -> J:
    """Return the job with other addresses and keys for the same parties."""
    if entries.keys() != job.parties.keys():
        raise ConfigError(f"wanted entries for {', '.join(job.parties)}, got {', '.join(entries)}")
    parties = {
        name: replace(entry, address=entries[name].address, key=entries[name].key)
        for name, entry in job.parties.items()
    }
    return replace(job, parties=parties)


def check_named(known: str | None, file: Path | None, label: str | None) -> None:
    """Refuse a table that names rows twice, or a column of a known set."""
    if known is not None and file is not None:
        refuse("file", "wanted either 'set' or 'file', got both")
    if known is not None and label is not None:
        refuse("label", "names a column of 'file'; a set has its labels")


def check_scale(scale: tuple[float, ...] | None, known: str | None) -> None:
    """Refuse divisors of columns that belong to a known set, which has its own."""
    if scale is not None and known is not None:
        refuse("scale", "belongs to 'file'; a set has its own divisors")


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
    computing = [name for key, name in named.items() if key.startswith("protocol.compute")]
    if (dealer := named.get("protocol.dealer")) in computing:
        text = f"{dealer!r} computes, and a dealer who computes could read the inputs; name another"
        yield Problem("protocol.dealer", text)
    for name in _unused(parties, named.values()) if all_used else ():
        text = "has no part in this job and would learn sizes for nothing; remove it"
        yield Problem(f"parties.{name}", text)


def _unused(parties: Iterable[str], named: Iterable[str]) -> list[str]:
    used = set(named)
    return [name for name in parties if name not in used]
