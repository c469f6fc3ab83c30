"""The job file of kind "infer": one party's rows, a network of another or of nobody, answers."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from torch import nn

from tacit.cli.jobs.code import build_network, check_network
from tacit.cli.jobs.config import (
    LOCAL,
    Job,
    Pair,
    Positive,
    ProtocolName,
    Source,
    Stretch,
    check_parties,
    check_references,
)
from tacit.cli.jobs.predict_job import RingTable
from tacit.cli.jobs.train_job import OwnerTable
from tacit.cli.toml import Problem, RefusedError, refuse
from tacit.learn.private import Crew
from tacit.learn.service import ServiceTask
from tacit.learn.training import make_model
from tacit.mpc import Roles, find_protocol


@dataclass(frozen=True, kw_only=True)
class InferData:
    """[data]: whose rows, where they come from, and what everyone may assume about them.

    Where ``owners`` have columns of the same rows, ``owner`` is the one of them that gets answers.
    """

    owner: str
    owners: Mapping[str, OwnerTable] = field(default_factory=dict)
    set: str | None = None
    file: Path | None = field(default=None, metadata=LOCAL)
    label: str | None = None
    rows: Stretch | None = None
    shape: tuple[int, ...] | None = None
    bound: Positive = 1.0

    def __post_init__(self) -> None:
        _ = self.source
        if self.owners and (self.set, self.file, self.label, self.rows, self.shape) != (None,) * 5:
            text = "say where their columns come from; leave set, file, label, rows and shape out"
            refuse("owners", text)

    @property
    def source(self) -> Source:
        """Return where the rows come from."""
        return Source(set=self.set, file=self.file, label=self.label)


@dataclass(frozen=True, kw_only=True)
class InferModel:
    """[model]: whose network; its layers are public, its weights are not.

    ``layers`` are the network in words; instead ``code``, as file.py:function, makes a torch
    module and is run by every party. ``file`` holds its weights by name: .safetensors, as
    `tacit run` writes them after a training, .pt or .npz. Without an owner the network is shared:
    ``halves`` name the files that a training left with the two parties of ``protocol.compute``,
    and ``bound`` is that of the training.
    """

    layers: tuple[str, ...] = ()
    code: Path | None = field(default=None, metadata=LOCAL)
    inputs: tuple[int, ...]
    owner: str | None = None
    file: Path | None = field(default=None, metadata=LOCAL)
    halves: Mapping[str, Path] = field(default_factory=dict, metadata=LOCAL)
    bound: Positive = 4.0
    cap: float | None = None

    def __post_init__(self) -> None:
        if (wrong := check_network(self.layers, self.code)) is not None:
            refuse("layers", wrong)

    def module(self) -> nn.Module:
        """Build the network, with weights that do not count."""
        return build_network(self.layers, self.code, self.inputs, seed=0)


@dataclass(frozen=True, kw_only=True)
class InferProtection:
    """[protocol]: how secrets are protected, and what the owner of the rows gets."""

    kind: ProtocolName
    dealer: str
    compute: Pair | None = None
    reveal: Literal["class", "output"] = "class"


@dataclass(frozen=True, kw_only=True)
class InferJob(Job):
    """A whole job file of kind "infer"."""

    data: InferData
    model: InferModel
    protocol: InferProtection
    ring: RingTable = field(default_factory=lambda: RingTable(frac_bits=16))

    def __post_init__(self) -> None:
        problems = [*check_parties(self.parties), *check_references(self.parties, _named(self))]
        problems += _check_shared(self) if self.model.owner is None else _check_owned(self)
        if problems:
            raise RefusedError(*problems)

    @property
    def is_shared(self) -> bool:
        """Tell whether nobody owns the network: two parties hold shares of it."""
        return self.model.owner is None

    @property
    def holders(self) -> tuple[str, ...]:
        """Return the two parties that hold shares of a shared network; empty if it has an owner."""
        return self.protocol.compute or ()

    @property
    def crew(self) -> Crew:
        """Return who is who; the owner of the rows is the one who sees permuted values."""
        server = self.model.owner or ""  # refused before, where nobody owns the network
        return Crew(client=self.data.owner, server=server, dealer=self.protocol.dealer)

    def shared_task(self) -> ServiceTask:
        """Return what is answered from a shared network."""
        model, (first, second) = self.model, self.holders
        return ServiceTask(
            name=self.job.name,
            roles=Roles(first, second, self.protocol.dealer),
            protocol=self.protocol.kind,
            model=make_model(model.module(), model.inputs, cap=model.cap),
            clients=(self.data.owner,),
            reveal="class" if self.protocol.reveal == "class" else "score",
            frac_bits=self.ring.frac_bits,
            feature_bound=self.data.bound,
            weight_bound=model.bound,
        ).fitted()

    def role(self, party: str) -> str:
        """Say in words what a party does."""
        if party == self.protocol.dealer:
            online = find_protocol(self.protocol.kind).helper_is_online
            return "dealer, helper" if online else "dealer"
        if self.is_shared:
            holds = party in self.holders
            owns = party == self.data.owner or party in self.data.owners
            parts = ["data owner"] * owns
            return ", ".join([*parts, *["holds a share of the model, computes"] * holds])
        return "data owner, computes" if party == self.data.owner else "model owner, computes"


def _named(job: InferJob) -> Mapping[str, str]:
    named = {"data.owner": job.data.owner, "protocol.dealer": job.protocol.dealer}
    if job.model.owner is not None:
        named["model.owner"] = job.model.owner
    named |= {f"data.owners.{name}": name for name in job.data.owners}
    for at, name in enumerate(job.holders):
        named[f"protocol.compute[{at}]"] = name
    return named


def _check_owned(job: InferJob) -> Iterator[Problem]:
    if len({job.data.owner, job.model.owner, job.protocol.dealer}) != 3:
        yield Problem("parties", "wanted another party for each of the three roles")
    if job.protocol.compute is not None:
        yield Problem("protocol.compute", "is for a network without an owner; leave it out")
    if job.model.halves:
        yield Problem("model.halves", "are of a network without an owner; leave owner or them out")
    if job.data.owners:
        yield Problem("data.owners", "ask a network without an owner; leave model.owner out")


def _check_shared(job: InferJob) -> Iterator[Problem]:
    computing = job.protocol.compute
    if computing is None:
        text = "missing; a network without model.owner wants the two parties that hold its shares"
        yield Problem("protocol.compute", text)
        return
    if len({*computing, job.protocol.dealer}) != 3:
        yield Problem("protocol", "wanted two parties that compute and another one that deals")
    yield from _check_columns(job)
    if job.data.owner == job.protocol.dealer:
        yield Problem("data.owner", "the dealer knows the masks and must not own the rows")
    for name in set(job.model.halves) - set(computing):
        yield Problem(f"model.halves.{name}", "is not one of the parties of protocol.compute")
    if job.model.file is not None:
        yield Problem("model.file", "is of a network with an owner; wanted model.halves")
    if not job.data.owners and _is_seen(job) and job.data.owner != computing[1]:
        text = (
            f"under {job.protocol.kind} the second of protocol.compute sees values that follow "
            f"from the rows; let it be {job.data.owner!r}, or use sealed or permuted3"
        )
        yield Problem("protocol.compute", text)


def _is_seen(job: InferJob) -> bool:
    return find_protocol(job.protocol.kind).second_sees


def _check_columns(job: InferJob) -> Iterator[Problem]:
    """Check owners of columns, if there are any."""
    owners = job.data.owners
    if not owners:
        return
    if len(owners) < 2:
        yield Problem("data.owners", "wanted two owners of columns or more; of one, leave it out")
    if job.data.owner not in owners:
        text = f"wanted one of the owners {', '.join(owners)}, got {job.data.owner!r}"
        yield Problem("data.owner", text)
    if job.protocol.dealer in owners:
        yield Problem("data.owners", "the dealer knows the masks and must not own columns")
    if len(job.model.inputs) != 1:
        yield Problem("model.inputs", f"columns make flat rows, got {list(job.model.inputs)}")
    if _is_seen(job):
        text = (
            f"under {job.protocol.kind} the second of protocol.compute sees values that follow "
            "from the rows of all owners; use sealed or permuted3"
        )
        yield Problem("protocol.kind", text)
