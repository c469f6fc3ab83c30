"""The tables that every job file has, and the hash of what its parties must share.

`Patience` (from transport) only decides how long one waits; `ReportChoice` only decides what is
shown. What a kind of work is told, which can weaken privacy, is a record of the package that does
the work; a kind of job is that record and this frame:

    class SplitJob(SplitSpec, Job):
        def __post_init__(self) -> None:
            refuse_together(super().__post_init__, self.check_parties)
"""

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, ClassVar, Literal, Self, TypeVar

from tacit.crypto import parse_fingerprint, parse_name
from tacit.errors import ConfigError, IdentityError
from tacit.nn.code import OwnModel
from tacit.spec import (
    LOCAL,
    Check,
    Count,
    Problem,
    RefusedError,
    parties_in,
    refuse,
    suggest,
    to_tables,
)
from tacit.transport import Patience, Peer
from tacit.transport import parse_address as parse_address

Name = Annotated[str, Check(parse_name)]
Address = Annotated[str, Check(parse_address)]
Fingerprint = Annotated[str, Check(parse_fingerprint)]


@dataclass(frozen=True, kw_only=True)
class Head:
    """[job]: what is computed, and where the result goes.

    Attributes:
        name: 1 to 32 characters out of a to z, 0 to 9, ``_`` and ``-``; starts with a letter or a
            digit.
        kind: what is done; the other tables follow from it.
        out: folder for the result, ``out/NAME`` if not given; `tacit party` appends ``-PARTY``. One
            that holds files but no result of tacit is refused; an earlier result with ledgers,
            shares or weights stays beside the new one as ``NAME.1``. It can be read by its owner
            alone.
    """

    name: Name
    kind: str
    out: Path | None = field(default=None, metadata=LOCAL)


@dataclass(frozen=True, kw_only=True)
class WorkerTable:
    """[parties.NAME.worker]: who multiplies for a party, and what follows if it is caught lying.

    Attributes:
        device: an accelerator of the party's host, such as "cuda"; either this or ``address``.
        address: host:port of a `tacit worker`.
        key: the fingerprint of that worker, as `tacit keys NAME` prints it on its host.
        on_failure: what follows when the worker is caught or gone: end with its name (exit code 4),
            or go on without it.
        least_terms: products of fewer multiplications stay with the party; measured at the start if
            not given.
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
    """[parties.NAME]: where a party listens, if it does, and the key by which it is known.

    Attributes:
        address: ``host:port``, or ``[host]:port`` for IPv6, where the others reach it. Of two
            parties at least one needs an address; `tacit run` does not use it.
        key: fingerprint of the party's certificate, as `tacit keys NAME` prints it. `tacit party`
            needs the keys of all; `tacit run` makes throw-away keys for parties without one.
        enclave: the party attests to all others which code and job it runs, before anything is
            sent. The only backend is simulated and proves nothing: the report says "no guarantee".
    """

    address: Address | None = field(default=None, metadata=LOCAL)
    key: Fingerprint | None = None
    worker: WorkerTable | None = field(default=None, metadata=LOCAL)
    enclave: Literal["simulated"] | None = None


@dataclass(frozen=True, kw_only=True)
class ReportChoice:
    """[report]: what is shown besides the result itself.

    Attributes:
        compare: put the answers of a plain computation beside the private ones; never beside a
            training with [privacy], whose ε would not cover it. Only `tacit run` can, because it
            holds all inputs.
        html: write ``report.html`` beside ``result.json``.
    """

    compare: Literal["plain", "none"] = "plain"
    html: bool = True


@dataclass(frozen=True, kw_only=True)
class Job(ABC):
    """What every job file has beside the tables of its kind, which come from a spec."""

    job: Head
    parties: Mapping[str, PartyEntry]
    network: Patience = field(default_factory=Patience)
    report: ReportChoice = field(default_factory=ReportChoice, metadata=LOCAL)

    @property
    def out(self) -> Path:
        """Return the folder that the result of the whole job goes to."""
        return self.job.out or Path("out") / self.job.name

    def check_parties(self) -> None:
        """Refuse parties that are wrong, and names in the tables that are no party's."""
        named = dict(parties_in(self))
        problems = [*check_parties(self.parties), *check_references(self.parties, named)]
        if problems:
            raise RefusedError(*problems)

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


@dataclass(frozen=True, kw_only=True)
class LoneJob(Job):
    """What a job file has that has no parties: it runs on one machine."""

    parties: Mapping[str, PartyEntry] = field(default_factory=dict, hash=False)
    alone: ClassVar[str]
    """Why there are no parties."""
    does: ClassVar[str]
    """What the machine does, in words."""

    def check_parties(self) -> None:
        """Refuse parties."""
        if self.parties:
            refuse("parties", self.alone)

    def role(self, party: str) -> str:
        """Say what the machine does."""
        return self.does


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
    parties: Mapping[str, PartyEntry], named: Mapping[str, str]
) -> Iterator[Problem]:
    """Yield what is wrong with the names that stand at dotted keys, and parties that none names."""
    for key, name in named.items():
        if name not in parties:
            text = f"wanted one of the parties {', '.join(parties)}, got {name!r}"
            yield Problem(key, text + suggest(name, parties))
    computing = [name for key, name in named.items() if key.startswith("protocol.compute")]
    if (dealer := named.get("protocol.dealer")) in computing:
        text = f"{dealer!r} computes, and a dealer who computes could read the inputs; name another"
        yield Problem("protocol.dealer", text)
    for name in set(parties) - set(named.values()):
        text = "has no part in this job and would learn sizes for nothing; remove it"
        yield Problem(f"parties.{name}", text)


def job_digest(job: Job) -> bytes:
    """Hash the public content of a job.

    Everything counts but what is marked local: the paths of files, which lie on one host only;
    addresses, which depend on where one stands (the key says who a party is); and the report.
    The order of keys does not count, nor whether a default is written out.

    Guarantee: two parties with the same digest have the same parties, keys, owners, bounds,
    protocol, ring and timeouts, if SHA-256 is collision resistant.
    Cost: 0 rounds, 0 bits.
    """
    text = json.dumps(shared_content(job), sort_keys=True, ensure_ascii=True, allow_nan=False)
    return hashlib.sha256(b"tacit job 1\n" + text.encode()).digest()


def binding_of(job: Job, me: str, *more: bytes) -> str:
    """Hash what checkpoints of a party belong to; addresses and keys may change on the way.

    Args:
        job: the job.
        me: the party.
        more: what else they belong to, such as the digest of its rows.
    """
    nowhere = {name: PartyEntry() for name in job.parties}
    parts = (job_digest(replace(job, parties=nowhere)), me.encode(), *more)
    return hashlib.sha256(b"".join(parts)).hexdigest()


def measured_digest(job: Job) -> bytes:
    """Hash what an enclave of a job is measured by beside this package: the job, and its code.

    Raises:
        ConfigError: the code that the job names is not here, or was not allowed.
    """
    code = getattr(getattr(job, "model", None), "code", None)
    if code is None:
        return job_digest(job)
    return hashlib.sha256(job_digest(job) + OwnModel.read(code).digest.encode()).digest()


def shared_content(job: Job) -> Mapping[str, object]:
    """Return what the digest covers, as plain tables."""
    content = to_tables(job.settled(), is_shared=True)
    assert isinstance(content, dict)  # noqa: S101 - a job is a dataclass
    return content
