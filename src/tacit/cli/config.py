"""The job file: one frozen class per table, checked before anything is read or sent.

`Protection` and the bounds can weaken privacy; `Patience` (from transport) only decides how long
one waits; `ReportChoice` only decides what is shown.
"""

import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from tacit.cli.toml import Problem, RefusedError, read_record, read_toml, suggest
from tacit.crypto import parse_fingerprint, parse_name
from tacit.errors import ConfigError, IdentityError, InputError, RangeError
from tacit.learn.private import PredictTask, Sizes, plan_prediction
from tacit.mpc import PROTOCOLS, Roles
from tacit.ring import MAX_FRAC_BITS
from tacit.transport import Patience

_ADDRESS = re.compile(r"(?:\[([0-9A-Fa-f:.%]+)\]|([^\s:\[\]]+)):([0-9]{1,5})")

LOCAL: Mapping[str, bool] = {"is_local": True}
"""Marks a setting that is one party's own business and may differ between the parties."""


@dataclass(frozen=True, kw_only=True)
class Head:
    """[job]: what is computed, and where the result goes."""

    name: str
    kind: Literal["predict"]
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
class DataTable:
    """[data]: whose rows, where they come from, and what everyone may assume about them."""

    owner: str
    set: str | None = None
    file: Path | None = field(default=None, metadata=LOCAL)
    label: str | None = None
    part: Literal["train", "test", "all"] = "all"
    test_share: float | None = None
    scale: tuple[float, ...] | None = None
    bound: float = 1.0

    def __post_init__(self) -> None:
        _check_bound(self.bound)
        if self.scale is not None and self.set is not None:
            raise RefusedError(Problem("scale", "belongs to 'file'; a set has its own divisors"))
        if self.scale is not None and not all(divisor > 0 for divisor in self.scale):
            text = f"wanted divisors greater than 0, got {list(self.scale)}"
            raise RefusedError(Problem("scale", text))
        _ = self.source

    @property
    def source(self) -> Source:
        """Return where the rows come from."""
        return Source(
            set=self.set,
            file=self.file,
            label=self.label,
            part=self.part,
            test_share=self.test_share,
        )


@dataclass(frozen=True, kw_only=True)
class ModelTable:
    """[model]: whose model, and how the owner comes by it."""

    owner: str
    kind: Literal["logistic"] = "logistic"
    train: Source | None = None
    file: Path | None = field(default=None, metadata=LOCAL)
    bound: float = 256.0

    def __post_init__(self) -> None:
        _check_bound(self.bound)
        if self.train is not None and self.file is not None:
            raise RefusedError(Problem("file", "wanted either 'train' or 'file', got both"))


@dataclass(frozen=True, kw_only=True)
class Protection:
    """[protocol]: how secrets are protected, by whom, and what is revealed in the end."""

    kind: str
    dealer: str
    compute: tuple[str, ...] | None = None
    reveal: Literal["class", "score"] = "class"

    def __post_init__(self) -> None:
        if self.kind not in PROTOCOLS:
            wanted = f"wanted one of {', '.join(sorted(PROTOCOLS))}, got {self.kind!r}"
            raise RefusedError(Problem("kind", wanted + suggest(self.kind, PROTOCOLS)))
        if self.compute is not None and len(self.compute) != 2:
            raise RefusedError(
                Problem("compute", f"wanted the names of two parties, got {list(self.compute)}")
            )


@dataclass(frozen=True, kw_only=True)
class RingTable:
    """[ring]: how numbers are written as integers."""

    frac_bits: int = 20

    def __post_init__(self) -> None:
        if not 1 <= self.frac_bits <= MAX_FRAC_BITS:
            text = f"wanted a number from 1 to {MAX_FRAC_BITS}, got {self.frac_bits}"
            raise RefusedError(Problem("frac_bits", text))


@dataclass(frozen=True, kw_only=True)
class PrivacyTable:
    """[privacy]: reserved; a setting here would promise something that is not done yet."""


@dataclass(frozen=True, kw_only=True)
class ReportChoice:
    """[report]: what is shown besides the result itself."""

    compare: Literal["plain", "none"] = "plain"
    html: bool = True


@dataclass(frozen=True, kw_only=True)
class Job:
    """A whole job file."""

    job: Head
    parties: Mapping[str, PartyEntry]
    data: DataTable
    model: ModelTable
    protocol: Protection
    ring: RingTable = field(default_factory=RingTable)
    network: Patience = field(default_factory=Patience)
    privacy: PrivacyTable = field(default_factory=PrivacyTable)
    report: ReportChoice = field(default_factory=ReportChoice, metadata=LOCAL)

    def __post_init__(self) -> None:
        problems = [*_check_parties(self.parties), *_check_references(self)]
        if problems:
            raise RefusedError(*problems)
        try:
            # On one value: bounds that leave no room for it leave none for the real sizes.
            plan_prediction(self.task(), Sizes(rows=1, features=1))
        except RangeError as error:
            raise ConfigError(f"data.bound, model.bound and ring.frac_bits: {error}") from error

    @property
    def roles(self) -> Roles:
        """Return who is P0, P1 and dealer; data and model owner compute unless told otherwise."""
        first, second = self.protocol.compute or (self.data.owner, self.model.owner)
        return Roles(first, second, self.protocol.dealer)

    @property
    def out(self) -> Path:
        """Return the folder that the result of the whole job goes to."""
        return self.job.out or Path("out") / self.job.name

    def task(self) -> PredictTask:
        """Return what is computed, without who is where."""
        return PredictTask(
            data_owner=self.data.owner,
            model_owner=self.model.owner,
            protocol=self.protocol.kind,
            roles=self.roles,
            reveal=self.protocol.reveal,
            frac_bits=self.ring.frac_bits,
            feature_bound=self.data.bound,
            weight_bound=self.model.bound,
        )

    def role(self, party: str) -> str:
        """Say in words what a party does."""
        is_dealer = party == self.roles.dealer
        duties = {
            "data owner": party == self.data.owner,
            "model owner": party == self.model.owner,
            "computes": party in self.roles.computing,
            "dealer": is_dealer,
            "helper": is_dealer and PROTOCOLS[self.protocol.kind].helper_is_online,
        }
        return ", ".join(duty for duty, has_it in duties.items() if has_it)


def load_job(path: Path) -> Job:
    """Read and check a job file.

    Raises:
        ConfigError: names the file, every wrong key, what was wanted and what came.
    """
    return read_record(read_toml(path), Job, source=str(path))


def with_parties(job: Job, entries: Mapping[str, PartyEntry]) -> Job:
    """Return the job with other addresses and keys for the same parties."""
    if entries.keys() != job.parties.keys():
        raise ConfigError(f"wanted entries for {', '.join(job.parties)}, got {', '.join(entries)}")
    return replace(job, parties={name: entries[name] for name in job.parties})


def parse_address(address: str) -> tuple[str, int]:
    """Take `host:port`, `1.2.3.4:port` or `[v6]:port` apart.

    Raises:
        ConfigError: it is none of them.
    """
    match = _ADDRESS.fullmatch(address)
    if match is None or not 0 < int(match[3]) < 65536:
        raise ConfigError(f"wanted host:port, with [] around an IPv6 host, got {address!r}")
    return match[1] or match[2], int(match[3])


def _check_with(parse: Callable[[str], object], text: str, key: str) -> None:
    """Let a parser look at a text, and put the key before its complaint."""
    try:
        parse(text)
    except InputError as error:
        raise RefusedError(Problem(key, str(error))) from error


def _check_bound(bound: float) -> None:
    if not (math.isfinite(bound) and bound > 0):
        raise RefusedError(Problem("bound", f"wanted a number greater than 0, got {bound}"))


def _check_parties(parties: Mapping[str, PartyEntry]) -> Iterator[Problem]:
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


def _check_references(job: Job) -> Iterator[Problem]:
    named = {
        "data.owner": job.data.owner,
        "model.owner": job.model.owner,
        "protocol.dealer": job.protocol.dealer,
        **{f"protocol.compute[{i}]": name for i, name in enumerate(job.protocol.compute or ())},
    }
    for key, name in named.items():
        if name not in job.parties:
            text = f"wanted one of the parties {', '.join(job.parties)}, got {name!r}"
            yield Problem(key, text + suggest(name, job.parties))
    for name in job.parties:
        if name not in named.values():
            text = "has no part in this job and would learn sizes for nothing; remove it"
            yield Problem(f"parties.{name}", text)
