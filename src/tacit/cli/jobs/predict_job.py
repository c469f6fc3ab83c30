"""The job file of kind "predict": whose data, whose model, how they are protected.

`Protection` and the bounds can weaken privacy.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field

from tacit.cli.jobs.config import (
    LOCAL,
    Job,
    Pair,
    Positive,
    ProtocolName,
    Share,
    Source,
    check_parties,
    check_references,
    check_scale,
)
from tacit.cli.toml import Problem, RefusedError, refuse
from tacit.errors import ConfigError, RangeError
from tacit.learn.private import PredictTask, Sizes, plan_prediction
from tacit.mpc import Roles, find_protocol
from tacit.ring import MAX_FRAC_BITS


@dataclass(frozen=True, kw_only=True)
class DataTable:
    """[data]: whose rows, where they come from, and what everyone may assume about them."""

    owner: str
    set: str | None = None
    file: Path | None = field(default=None, metadata=LOCAL)
    label: str | None = None
    part: Literal["train", "test", "all"] = "all"
    test_share: Share | None = None
    scale: tuple[Positive, ...] | None = None
    bound: Positive = 1.0

    def __post_init__(self) -> None:
        check_scale(self.scale, self.set)
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
    """[model]: whose model, and how the owner comes by it.

    ``train`` names rows to train on, ``file`` weights (.npz, .safetensors or .pt), ``code``, as
    file.py:function, makes a trained torch module of one linear layer and is run.
    """

    owner: str
    kind: Literal["logistic"] = "logistic"
    train: Source | None = None
    file: Path | None = field(default=None, metadata=LOCAL)
    code: Path | None = field(default=None, metadata=LOCAL)
    bound: Positive = 256.0

    def __post_init__(self) -> None:
        named = [key for key in ("train", "file", "code") if getattr(self, key) is not None]
        if len(named) > 1:
            both = " and ".join(named)
            refuse(named[1], f"wanted either 'train', 'file' or 'code', got both {both}")


@dataclass(frozen=True, kw_only=True)
class Protection:
    """[protocol]: how secrets are protected, by whom, and what is revealed in the end."""

    kind: ProtocolName
    dealer: str
    compute: Pair | None = None
    reveal: Literal["class", "score"] = "class"


@dataclass(frozen=True, kw_only=True)
class RingTable:
    """[ring]: how numbers are written as integers."""

    frac_bits: Annotated[int, Field(ge=1, le=MAX_FRAC_BITS)] = 20


@dataclass(frozen=True, kw_only=True)
class PrivacyTable:
    """[privacy]: reserved; a setting here would promise something that is not done yet."""


@dataclass(frozen=True, kw_only=True)
class PredictJob(Job):
    """A whole job file of kind "predict"."""

    data: DataTable
    model: ModelTable
    protocol: Protection
    ring: RingTable = field(default_factory=RingTable)
    privacy: PrivacyTable = field(default_factory=PrivacyTable)

    def __post_init__(self) -> None:
        problems = [
            *check_parties(self.parties),
            *check_references(self.parties, _named(self)),
            *_check_viewer(self),
        ]
        if problems:
            raise RefusedError(*problems)
        try:
            # On one value: bounds that leave no room for it leave none for the real sizes.
            plan_prediction(self.task(), Sizes(rows=1, features=1))
        except RangeError as error:
            raise ConfigError(f"data.bound, model.bound and ring.frac_bits: {error}") from error

    @property
    def roles(self) -> Roles:
        """Return who is P0, P1 and dealer; data and model owner compute unless told otherwise.

        Under permuted2 the second party sees permuted values. That must be the owner of the data,
        who could compute them if it had the model; a model owner could match them with rows.
        """
        owners = (self.data.owner, self.model.owner)
        usual = owners[::-1] if "permuted2" in self.protocol.kind else owners
        first, second = self.protocol.compute or usual
        return Roles(first, second, self.protocol.dealer)

    def settled(self) -> Self:
        """Return the job with the computing parties named."""
        return replace(self, protocol=replace(self.protocol, compute=self.roles.computing))

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
            "helper": is_dealer and find_protocol(self.protocol.kind).helper_is_online,
        }
        return ", ".join(duty for duty, has_it in duties.items() if has_it)


def _check_viewer(job: PredictJob) -> Iterator[Problem]:
    is_second = job.protocol.compute is not None and job.protocol.compute[1] == job.model.owner
    if is_second and "permuted2" in job.protocol.kind:
        yield Problem(
            "protocol.compute",
            f"under permuted2 the second party sees permuted values of the rows: "
            f"wanted {job.data.owner!r} second, got the model owner {job.model.owner!r}",
        )


def _named(job: PredictJob) -> Mapping[str, str]:
    return {
        "data.owner": job.data.owner,
        "model.owner": job.model.owner,
        "protocol.dealer": job.protocol.dealer,
        **{f"protocol.compute[{i}]": name for i, name in enumerate(job.protocol.compute or ())},
    }
