"""The job file of kind "infer": one party's rows, a network of another or of nobody, answers.

A network of one linear layer, logistic regression, needs no words: its width follows the rows.
`[protocol]` and the bounds can weaken privacy.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, Self

from torch import nn

from tacit.data import Source
from tacit.data.spec import OwnerTable, RowsTable, check_named, check_scale
from tacit.errors import ConfigError
from tacit.inference import (
    DIRECT,
    Crew,
    PredictTask,
)
from tacit.inference.service import ServiceTask
from tacit.jobs.config import (
    Job,
    check_parties,
    check_references,
)
from tacit.jobs.infer_checks import check_room, find_problems, named_parties
from tacit.mpc import PROTOCOLS, Roles, find_protocol
from tacit.mpc.mixing import NO_DEALER
from tacit.nn import make_model
from tacit.nn.code import build_network, check_network
from tacit.ring import FracBits
from tacit.spec import (
    LOCAL,
    Check,
    Positive,
    RefusedError,
    Share,
    Stretch,
    TwoParties,
    refuse,
    suggest,
)

if TYPE_CHECKING:
    pass

SEALED = ".sealed"
"""How the name of a file ends that `tacit.party.seal_file` wrote."""


def parse_kind(name: str) -> None:
    """Refuse a word that is no protocol of predictions."""
    if name in DIRECT:
        return
    try:
        find_protocol(name)
    except ConfigError as error:
        if name.split(" ")[0].rstrip(";") in PROTOCOLS:  # what follows it is wrong
            raise
        near = suggest(name.lower(), (*PROTOCOLS, *DIRECT))
        raise ConfigError(
            f"unknown protocol {name!r}; there are {', '.join(sorted(PROTOCOLS))}, and between the "
            f"owners alone {', '.join(DIRECT)} and {NO_DEALER!r}{near}"
        ) from error


InferProtocol = Annotated[str, Check(parse_kind)]
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
        check_named(self.set, self.file, self.label)
        named = (self.set, self.file, self.label, self.rows, self.shape)
        if self.owners and any(one is not None for one in named):
            text = "say where their columns come from; leave set, file, label, rows and shape out"
            refuse("owners", text)
        for name, owner in self.owners.items():
            if owner.book is not None:
                refuse(
                    f"owners.{name}.book",
                    "counts what private trainings spend; predictions spend nothing: leave book "
                    "and most_epsilon out",
                )

    @property
    def source(self) -> Source:
        """Return where the rows come from."""
        return Source.of(self, shape=None, scale=None)  # these follow the model


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
    train: RowsTable | None = None
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

    ``he`` and ``enclave`` are between the two owners and have no dealer; nor has
    ``sealed; linear: he; activations: garbled``, whose two computing parties are alone. ``score``,
    a probability, is for a linear model; ``output``, the last layer, for all others.
    """

    kind: InferProtocol
    dealer: str | None = None
    compute: TwoParties | None = None
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
        named = named_parties(self)
        problems = [*check_parties(self.parties), *check_references(self.parties, named)]
        problems += find_problems(self)
        if problems:
            raise RefusedError(*problems)
        if self.is_linear and not self.is_direct:
            check_room(self)

    @property
    def is_linear(self) -> bool:
        """Tell whether the model is one linear layer."""
        return self.model.is_linear

    @property
    def is_direct(self) -> bool:
        """Tell whether the two owners are alone: ciphertexts or an enclave, no shares."""
        return self.protocol.kind in DIRECT

    @property
    def has_dealer(self) -> bool:
        """Tell whether the protocol wants a third party that makes randomness."""
        return not self.is_direct and find_protocol(self.protocol.kind).has_dealer

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
        return Roles(first, second, self.protocol.dealer or "")

    def settled(self) -> Self:
        """Return the job with what follows from other settings written out."""
        if self.is_direct:
            return self
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
        owns = {
            "data owner": party == self.data.owner or party in self.data.owners,
            "model owner": party == self.model.owner,
        }
        if self.is_direct:
            return ", ".join(duty for duty, has_it in owns.items() if has_it)
        duties = {
            **owns,
            "holds a share of the model": party in self.holders,
            "computes": party in self.roles.computing,
            "dealer": is_dealer,
            "helper": is_dealer and find_protocol(self.protocol.kind).helper_is_online,
        }
        return ", ".join(duty for duty, has_it in duties.items() if has_it)
