"""The job file of kind "infer": one party's rows, another party's network, answers come out."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from tacit.cli.config import (
    LOCAL,
    Job,
    Source,
    check_bound,
    check_parties,
    check_protocol,
    check_references,
)
from tacit.cli.predict_job import RingTable
from tacit.cli.toml import Problem, RefusedError
from tacit.learn.private import Crew
from tacit.mpc import find_protocol


@dataclass(frozen=True, kw_only=True)
class InferData:
    """[data]: whose rows, where they come from, and what everyone may assume about them."""

    owner: str
    set: str | None = None
    file: Path | None = field(default=None, metadata=LOCAL)
    label: str | None = None
    rows: tuple[int, ...] | None = None
    shape: tuple[int, ...] | None = None
    bound: float = 1.0

    def __post_init__(self) -> None:
        check_bound(self.bound)
        if self.rows is not None and not (len(self.rows) == 2 and 0 <= self.rows[0] < self.rows[1]):
            text = f"wanted two numbers, first < end, got {list(self.rows)}"
            raise RefusedError(Problem("rows", text))
        _ = self.source

    @property
    def source(self) -> Source:
        """Return where the rows come from."""
        return Source(set=self.set, file=self.file, label=self.label)


@dataclass(frozen=True, kw_only=True)
class InferModel:
    """[model]: whose network; its layers are public, its weights are not.

    ``file`` holds arrays named as `tacit run` writes them after a training, e.g. ``0/weight``.
    """

    owner: str
    layers: tuple[str, ...]
    inputs: tuple[int, ...]
    file: Path | None = field(default=None, metadata=LOCAL)
    cap: float | None = None


@dataclass(frozen=True, kw_only=True)
class InferProtection:
    """[protocol]: how secrets are protected, and what the owner of the rows gets."""

    kind: str
    dealer: str
    reveal: Literal["class", "output"] = "class"

    def __post_init__(self) -> None:
        check_protocol(self.kind)


@dataclass(frozen=True, kw_only=True)
class InferJob(Job):
    """A whole job file of kind "infer"."""

    data: InferData
    model: InferModel
    protocol: InferProtection
    ring: RingTable = field(default_factory=lambda: RingTable(frac_bits=16))

    def __post_init__(self) -> None:
        problems = [*check_parties(self.parties), *check_references(self.parties, _named(self))]
        if len(set(_named(self).values())) != 3:
            text = "wanted another party for each of the three roles"
            problems.append(Problem("parties", text))
        if problems:
            raise RefusedError(*problems)

    @property
    def crew(self) -> Crew:
        """Return who is who; the owner of the rows is the one who sees permuted values."""
        return Crew(client=self.data.owner, server=self.model.owner, dealer=self.protocol.dealer)

    def role(self, party: str) -> str:
        """Say in words what a party does."""
        if party == self.protocol.dealer:
            online = find_protocol(self.protocol.kind).helper_is_online
            return "dealer, helper" if online else "dealer"
        return "data owner, computes" if party == self.data.owner else "model owner, computes"


def _named(job: InferJob) -> Mapping[str, str]:
    return {
        "data.owner": job.data.owner,
        "model.owner": job.model.owner,
        "protocol.dealer": job.protocol.dealer,
    }
