"""The job file of kind "infer": one party's rows, a network of another or of nobody, answers.

A network of one linear layer, logistic regression, needs no words: its width follows the rows.
`[protocol]` and the bounds can weaken privacy.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, Self

from torch import nn

from tacit.cli.jobs.config import (
    LOCAL,
    FracBits,
    Job,
    Pair,
    Positive,
    ProtocolName,
    Share,
    Source,
    Stretch,
    check_parties,
    check_references,
    check_scale,
)
from tacit.cli.jobs.train_job import OwnerTable
from tacit.cli.toml import Problem, RefusedError, refuse
from tacit.errors import ConfigError, RangeError
from tacit.learn.code import build_network, check_network
from tacit.learn.private import Crew, PredictTask, Sizes, plan_prediction
from tacit.learn.service import ServiceTask
from tacit.learn.training import make_model
from tacit.mpc import Roles, find_protocol

_LINEAR_BOUND, _NETWORK_BOUND = 256.0, 4.0
_LINEAR_FRAC_BITS, _NETWORK_FRAC_BITS = 20, 16


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
    part: Literal["train", "test", "all"] = "all"
    test_share: Share | None = None
    rows: Stretch | None = None
    shape: tuple[int, ...] | None = None
    scale: tuple[Positive, ...] | None = None
    bound: Positive = 1.0

    def __post_init__(self) -> None:
        check_scale(self.scale, self.set)
        _ = self.source
        named = (self.set, self.file, self.label, self.rows, self.shape)
        if self.owners and any(one is not None for one in named):
            text = "say where their columns come from; leave set, file, label, rows and shape out"
            refuse("owners", text)

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
class InferModel:
    """[model]: whose network; its layers are public, its weights are not.

    ``layers`` are the network in words; instead ``code``, as file.py:function, makes a torch
    module and is run by every party. ``file`` holds its weights by name: .safetensors, as
    `tacit run` writes them after a training, .pt or .npz. Without an owner the network is shared:
    ``shares`` name the files that a training left with the two parties of ``protocol.compute``,
    and ``bound`` is that of the training.

    Without ``layers`` and ``inputs`` it is one linear layer with one output, whose sign is the
    class: the owner has its weights in ``file``, makes it by ``code``, or trains it on rows of its
    own, ``train``. How large its weights are is then agreed, ``bound``, and not told.

    With ``kind`` "forest" it is an ensemble of trees out of ``file``, as XGBoost, LightGBM or
    `tacit.verify.save_ensemble` write it; only how many trees there are and their depth are told.
    """

    owner: str | None = None
    kind: Literal["logistic", "forest"] | None = None
    train: Source | None = None
    layers: tuple[str, ...] = ()
    code: Path | None = field(default=None, metadata=LOCAL)
    inputs: tuple[int, ...] = ()
    file: Path | None = field(default=None, metadata=LOCAL)
    shares: Mapping[str, Path] = field(default_factory=dict, metadata=LOCAL)
    bound: Positive | None = None
    cap: float | None = None

    def __post_init__(self) -> None:
        if self.is_forest:
            for key in ("train", "layers", "code", "inputs", "shares", "bound", "cap"):
                if getattr(self, key):
                    refuse(key, "a forest is its file; leave this out")
        elif self.is_linear:
            named = [key for key in ("train", "file", "code") if getattr(self, key) is not None]
            if len(named) > 1:
                both = " and ".join(named)
                refuse(named[1], f"wanted either 'train', 'file' or 'code', got both {both}")
        elif self.train is not None or self.kind is not None:
            text = "is for a model of one linear layer; leave it out, or 'layers' and 'inputs'"
            refuse("train" if self.train is not None else "kind", text)
        elif (wrong := check_network(self.layers, self.code)) is not None:
            refuse("layers", wrong)
        elif not self.inputs:
            refuse("inputs", "missing; wanted a list, each a whole number: the shape of one row")

    @property
    def is_forest(self) -> bool:
        """Tell whether the model is an ensemble of trees."""
        return self.kind == "forest"

    @property
    def is_linear(self) -> bool:
        """Tell whether the model is one linear layer, as wide as the rows."""
        return not (self.is_forest or self.layers or self.inputs or self.shares)

    @property
    def weight_bound(self) -> float:
        """Return how large a weight may be."""
        return self.bound or (_LINEAR_BOUND if self.is_linear else _NETWORK_BOUND)

    def module(self) -> nn.Module:
        """Build the network, with weights that do not count."""
        return build_network(self.layers, self.code, self.inputs, seed=0)


@dataclass(frozen=True, kw_only=True)
class InferProtection:
    """[protocol]: how secrets are protected, by whom, and what the owner of the rows gets.

    ``score``, a probability, is for a linear model; ``output``, the last layer, for all others.
    """

    kind: ProtocolName
    dealer: str
    compute: Pair | None = None
    reveal: Literal["class", "score", "output"] = "class"


@dataclass(frozen=True, kw_only=True)
class InferRing:
    """[ring]: how numbers are written as integers; finer for a linear model unless told."""

    frac_bits: FracBits | None = None


@dataclass(frozen=True, kw_only=True)
class PrivacyTable:
    """[privacy]: reserved; a setting here would promise something that is not done yet."""


@dataclass(frozen=True, kw_only=True)
class InferJob(Job):
    """A whole job file of kind "infer"."""

    data: InferData
    model: InferModel
    protocol: InferProtection
    ring: InferRing = field(default_factory=InferRing)
    privacy: PrivacyTable = field(default_factory=PrivacyTable)

    def __post_init__(self) -> None:
        problems = [*check_parties(self.parties), *check_references(self.parties, _named(self))]
        check = (
            _check_linear if self.is_linear else _check_shared if self.is_shared else _check_owned
        )
        problems += check(self)
        if problems:
            raise RefusedError(*problems)
        if self.is_linear:
            _check_room(self)

    @property
    def is_linear(self) -> bool:
        """Tell whether the model is one linear layer."""
        return self.model.is_linear

    @property
    def is_shared(self) -> bool:
        """Tell whether nobody owns the network: two parties hold shares of it."""
        return self.model.owner is None

    @property
    def holders(self) -> tuple[str, ...]:
        """Return the two parties that hold shares of a shared network; empty if it has an owner."""
        return (self.protocol.compute or ()) if self.is_shared else ()

    @property
    def frac_bits(self) -> int:
        """Return how many bits of a number stand after the point."""
        usual = _LINEAR_FRAC_BITS if self.is_linear else _NETWORK_FRAC_BITS
        return self.ring.frac_bits or usual

    @property
    def crew(self) -> Crew:
        """Return who is who; the owner of the rows is the one who sees permuted values."""
        server = self.model.owner or ""  # refused before, where nobody owns the network
        return Crew(client=self.data.owner, server=server, dealer=self.protocol.dealer)

    @property
    def roles(self) -> Roles:
        """Return who is P0, P1 and dealer; data and model owner compute unless told otherwise.

        Under permuted2 the second party sees permuted values. That must be the owner of the data,
        who could compute them if it had the model; a model owner could match them with rows.
        """
        if not self.is_linear and not self.is_shared:
            return self.crew.roles
        owners = (self.data.owner, self.model.owner or "")
        usual = owners[::-1] if "permuted2" in self.protocol.kind else owners
        first, second = self.protocol.compute or usual
        return Roles(first, second, self.protocol.dealer)

    def settled(self) -> Self:
        """Return the job with what follows from other settings written out."""
        compute = self.roles.computing if self.is_linear else self.protocol.compute
        model = self.model
        return replace(
            self,
            model=model if model.is_forest else replace(model, bound=model.weight_bound),
            protocol=replace(self.protocol, compute=compute),
            ring=InferRing(frac_bits=self.frac_bits),
        )

    def task(self) -> PredictTask:
        """Return what a linear model computes, without who is where."""
        return PredictTask(
            data_owner=self.data.owner,
            model_owner=self.model.owner or "",
            protocol=self.protocol.kind,
            roles=self.roles,
            reveal="class" if self.protocol.reveal == "class" else "score",
            frac_bits=self.frac_bits,
            feature_bound=self.data.bound,
            weight_bound=self.model.weight_bound,
        )

    def shared_task(self) -> ServiceTask:
        """Return what is answered from a shared network."""
        return ServiceTask(
            name=self.job.name,
            roles=self.roles,
            protocol=self.protocol.kind,
            model=make_model(self.model.module(), self.model.inputs, cap=self.model.cap),
            clients=(self.data.owner,),
            reveal="class" if self.protocol.reveal == "class" else "score",
            frac_bits=self.frac_bits,
            feature_bound=self.data.bound,
            weight_bound=self.model.weight_bound,
        ).fitted()

    def role(self, party: str) -> str:
        """Say in words what a party does."""
        is_dealer = party == self.protocol.dealer
        duties = {
            "data owner": party == self.data.owner or party in self.data.owners,
            "model owner": party == self.model.owner,
            "holds a share of the model": party in self.holders,
            "computes": party in self.roles.computing,
            "dealer": is_dealer,
            "helper": is_dealer and find_protocol(self.protocol.kind).helper_is_online,
        }
        return ", ".join(duty for duty, has_it in duties.items() if has_it)


def _named(job: InferJob) -> Mapping[str, str]:
    named = {"data.owner": job.data.owner, "protocol.dealer": job.protocol.dealer}
    if job.model.owner is not None:
        named["model.owner"] = job.model.owner
    named |= {f"data.owners.{name}": name for name in job.data.owners}
    named |= {f"protocol.compute[{i}]": name for i, name in enumerate(job.protocol.compute or ())}
    return named


def _check_linear(job: InferJob) -> Iterator[Problem]:
    yield from _check_reveal(job, "output", "a linear model", "class' or 'score")
    for key, value in (("shape", job.data.shape), ("owners", job.data.owners)):
        if value:
            yield Problem(f"data.{key}", "is for a network with layers; leave it out")
    if job.model.cap is not None:
        yield Problem("model.cap", "one linear layer has no hidden values; leave it out")
    if job.model.owner is None:
        text = "missing; wanted the owner of the linear model, or the layers of a shared network"
        yield Problem("model.owner", text)
    is_second = job.protocol.compute is not None and job.protocol.compute[1] == job.model.owner
    if is_second and "permuted2" in job.protocol.kind:
        yield Problem(
            "protocol.compute",
            f"under permuted2 the second party sees permuted values of the rows: "
            f"wanted {job.data.owner!r} second, got the model owner {job.model.owner!r}",
        )


def _check_room(job: InferJob) -> None:
    """Refuse bounds that leave no room for one value: they leave none for the real sizes."""
    try:
        plan_prediction(job.task(), Sizes(rows=1, features=1))
    except RangeError as error:
        raise ConfigError(f"data.bound, model.bound and ring.frac_bits: {error}") from error


def _check_reveal(job: InferJob, wrong: str, model: str, wanted: str) -> Iterator[Problem]:
    if job.protocol.reveal == wrong:
        yield Problem("protocol.reveal", f"of {model} wanted '{wanted}', got {wrong!r}")


def _check_owned(job: InferJob) -> Iterator[Problem]:
    yield from _check_reveal(job, "score", "a network", "class' or 'output")
    if job.model.is_forest:
        yield from _check_reveal(job, "output", "a forest", "class")
    if len({job.data.owner, job.model.owner, job.protocol.dealer}) != 3:
        yield Problem("parties", "wanted another party for each of the three roles")
    if job.protocol.compute is not None:
        yield Problem("protocol.compute", "is for a network without an owner; leave it out")
    if job.model.shares:
        yield Problem("model.shares", "are of a network without an owner; leave owner or them out")
    if job.data.owners:
        yield Problem("data.owners", "ask a network without an owner; leave model.owner out")


def _check_shared(job: InferJob) -> Iterator[Problem]:
    if job.model.is_forest:
        yield Problem("model.owner", "missing; wanted the owner of the forest")
        return
    yield from _check_reveal(job, "score", "a network", "class' or 'output")
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
    for name in set(job.model.shares) - set(computing):
        yield Problem(f"model.shares.{name}", "is not one of the parties of protocol.compute")
    if job.model.file is not None:
        yield Problem("model.file", "is of a network with an owner; wanted model.shares")
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
