"""What is said of one private question: whose rows and model, how they are protected, what is told.

It is about rows of one party or columns of several. What can weaken privacy is in its tables.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Literal, Self

from torch import nn

from tacit.data.prepare import PREPARED, Prepare
from tacit.data.source import OwnerTable, RowsTable, Source, check_named, check_prepared
from tacit.errors import ConfigError, RangeError
from tacit.inference.predict import Reveal, Sizes, plan_prediction
from tacit.inference.secured import DIRECT, Crew
from tacit.mpc import PROTOCOLS, Roles, find_protocol
from tacit.mpc.registry import NO_DEALER
from tacit.nn.code import build_network, check_network
from tacit.ring import FracBits
from tacit.spec import (
    LOCAL,
    Check,
    Count,
    Party,
    Positive,
    Problem,
    RefusedError,
    Share,
    Stretch,
    TwoParties,
    refuse,
    suggest,
)

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

    Attributes:
        owner: who has the rows, and gets the answers; of several owners of columns, the one of them
            that gets the answers, by id.
        owners: for a network without an owner: owners of columns of the same rows, in the order of
            the training; not under "permuted2". Instead of ``set``, ``file``, ``label``, ``rows``
            and ``shape``.
        set: a data set known by name, for instance breast-cancer; either this or ``file``, needed
            where the owner runs.
        file: the owner's own .csv, .npz or .parquet file, or a description of a table with text,
            dates, other encodings, or of a query.
        label: the column of ``file`` with the true classes, if known; they stay with the owner and
            serve to measure accuracy.
        part: which rows of a known set; the division is the same for everyone.
        test_share: the share of its rows that are test rows; the published division, else 0.3, if
            not given.
        rows: a stretch of them: the first, and the one after the last.
        shape: of a row, for a network with layers; ``model.inputs`` if not given.
        prepare: what is done to the values of columns, by their names, as in the training.
        bound: privacy: the promised size of a feature after ``prepare``. Public; a larger value in
            the data stops the job.
    """

    owner: Party
    owners: Mapping[Party, OwnerTable] = field(default_factory=dict)
    set: str | None = None
    file: Path | None = field(default=None, metadata=LOCAL)
    label: str | None = None
    part: Literal["train", "test", "all"] = "all"
    test_share: Share | None = None
    rows: Stretch | None = None
    shape: tuple[int, ...] | None = None
    prepare: Prepare = field(default_factory=dict, metadata=PREPARED)
    bound: Positive = 1.0

    def __post_init__(self) -> None:
        check_named(self.set, self.file, self.label)
        check_prepared("columns" if self.owners else "rows", self.prepare, self.owners)
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
        return Source.of(self, shape=None)  # it follows the model


@dataclass(frozen=True, kw_only=True)
class InferModel:
    """[model]: whose model, asked once or served. Without layers and inputs it is one linear layer.

    Layers are public, weights are not; of a forest the number of trees, their depth, columns and
    classes are told. How large a linear model's weights are is agreed, ``bound``, and not told.

    Attributes:
        owner: who has the model; nobody, if two parties have shares of a network. Of a service one
            of its two servers, which shares the weights once, when it starts.
        kind: "forest" for an ensemble of trees; "logistic" says that the model is linear, and may
            be left out.
        train: of a linear model: train it on these rows of its owner before the job; either this,
            ``file`` or ``code``.
        layers: the network in words, as in a training; public; either this or ``code``.
        code: file.py:function. With ``inputs``: makes a torch module with a row of scores per
            input; every party runs it, and its weights do not count. Without: makes a trained
            module of one linear layer; the owner runs it.
        inputs: the shape of a row that the layers take.
        file: weights by name: .safetensors, .pt (a state_dict; no code is run) or .npz. Of a linear
            model: weight, one number per feature, and bias, for features after ``data.prepare``. Of
            a forest: what XGBoost (.json, .ubj), LightGBM or `tacit.verify.save_ensemble` wrote.
        shares: without an owner: the file with the share that a training left, by party; each needs
            its own only.
        bound: the promised size of a weight; public. 256 for a linear model, else 4, if not given.
            Without an owner ``model.bound`` of the training: less is refused, and weights are
            compared with it on shares.
        cap: of a network: where hidden values saturate; if not given nowhere, or where bounds do
            not fit at the largest of 4096, 1024, 256 and 64 that does.
    """

    owner: Party | None = None
    kind: Literal["logistic", "forest"] | None = None
    train: RowsTable | None = None
    layers: tuple[str, ...] = ()
    code: Path | None = field(default=None, metadata=LOCAL)
    inputs: tuple[Count, ...] = ()
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
    def usual_frac_bits(self) -> int:
        """Return how many bits of a number stand after the point, unless told."""
        return _LINEAR_FRAC_BITS if self.is_linear else _NETWORK_FRAC_BITS

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

    Attributes:
        kind: privacy: "sealed": nothing leaks but sizes and the declared result, if all follow the
            protocol; "checked": nor if one of the two that compute cheats; "permuted3" is cheaper,
            and the helper sees the inputs of non-linear functions in random order; "permuted2", and
            the second party of ``compute`` does. Between the two owners alone "he", on ciphertexts,
            or "enclave", simulated.
        dealer: hands out randomness; under "permuted3" also the helper. Must not own an input,
            compute, or work together with one who does. Required but under "he", "enclave" and
            without a dealer.
        compute: who computes: two parties that must not work together; data owner and model owner
            if not given. Left out for a network with an owner; without one it says who has the
            shares: the owner of the rows may be one of them or another party, and under "permuted2"
            must be the second.
        reveal: privacy: what the data owner learns of each row. Linear: the class, or the "score",
            a probability; scores give the model away after as many rows as it has features.
            Networks: the position of the largest score, or every score, "output". Under "he"
            "score" or "output".
    """

    kind: InferProtocol
    dealer: Party | None = None
    compute: TwoParties | None = None
    reveal: Literal["class", "score", "output"] = "class"


@dataclass(frozen=True, kw_only=True)
class InferRing:
    """[ring]: how numbers are written as integers; finer for a linear model unless told.

    Attributes:
        frac_bits: binary digits behind the point; 20 for a linear model, else 16, if not given.
            More are more exact and leave less room for large numbers; a job that could overflow is
            refused. Under "he" the bits of weights and inputs, 2 to 24: 16, 8, 5 or 4 by the depth
            of the network.
    """

    frac_bits: FracBits | None = None


@dataclass(frozen=True, kw_only=True)
class NoPrivacy:
    """[privacy]: reserved; a setting here would promise something that is not done yet."""


@dataclass(frozen=True, kw_only=True)
class InferSpec:
    """Ask a model about rows; neither owner shows the other what it has."""

    data: InferData
    model: InferModel
    protocol: InferProtection
    ring: InferRing = field(default_factory=InferRing)
    privacy: NoPrivacy = field(default_factory=NoPrivacy)

    def __post_init__(self) -> None:
        self.check_tables()
        self.check_room()

    def check_tables(self) -> None:
        """Refuse what does not fit together."""
        if problems := tuple(_problems(self)):
            raise RefusedError(*problems)

    def check_room(self) -> None:
        """Refuse bounds that leave no room for one value: they leave none for the real sizes."""
        if not self.is_linear or self.is_direct:
            return
        if self.data.owner == self.model.owner:
            raise ConfigError(
                f"{self.data.owner!r} owns both the data and the model; nothing is to be hidden"
            )
        for owner in (self.data.owner, self.model.owner):
            if owner == self.protocol.dealer:
                raise ConfigError(f"the dealer {owner!r} must not own an input: it knows the masks")
        try:
            plan_prediction(self, Sizes(rows=1, features=1))
        except RangeError as error:
            raise ConfigError(f"data.bound, model.bound and ring.frac_bits: {error}") from error

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
        return self.ring.frac_bits or self.model.usual_frac_bits

    @property
    def reveal(self) -> Reveal:
        """Return what is told of a row, in the words of who answers it on shares."""
        return "class" if self.protocol.reveal == "class" else "score"

    @property
    def bound(self) -> float:
        """Return how large a feature may be."""
        return self.data.bound

    @property
    def prepare(self) -> Prepare:
        """Return what is done to the values of columns."""
        return self.data.prepare

    @property
    def weight_bound(self) -> float:
        """Return how large a weight may be."""
        return self.model.weight_bound

    @property
    def crew(self) -> Crew:
        """Return who is who; the owner of the rows is the one who sees permuted values."""
        server = self.model.owner or ""  # refused before, where nobody owns the network
        return Crew(client=self.data.owner, server=server, dealer=self.protocol.dealer)

    @property
    def roles(self) -> Roles:
        """Return who is P0, P1 and dealer; data and model owner compute unless told otherwise.

        Where the second party sees values, it must be the owner of the data, who could compute
        them if it had the model; a model owner could match them with rows.
        """
        if not self.is_linear and not self.is_shared:
            return self.crew.roles
        owners = (self.data.owner, self.model.owner or "")
        sees = not self.is_direct and "second" in find_protocol(self.protocol.kind).shows_to
        usual = owners[::-1] if sees else owners
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


def _problems(spec: InferSpec) -> Iterator[Problem]:
    """Say what does not fit together."""
    if spec.is_direct:
        yield from _check_direct(spec)
        return
    if spec.has_dealer and spec.protocol.dealer is None:
        yield Problem("protocol.dealer", "missing; wanted a text")
        return
    if not spec.has_dealer and spec.protocol.dealer is not None:
        yield Problem("protocol.dealer", f"{spec.protocol.kind!r} has none; leave it out")
        return
    check = _check_linear if spec.is_linear else _check_shared if spec.is_shared else _check_owned
    yield from check(spec)


def _check_direct(spec: InferSpec) -> Iterator[Problem]:
    """Check what is between the two owners alone."""
    kind, owner = spec.protocol.kind, spec.model.owner
    if owner is None:
        yield Problem("model.owner", f"missing; under {kind} one party owns the model")
        return
    if owner == spec.data.owner:
        yield Problem("model.owner", "owns the rows as well; nothing is to be hidden")
    for key in ("dealer", "compute"):
        if getattr(spec.protocol, key) is not None:
            yield Problem(f"protocol.{key}", f"{kind} is between the two owners; leave it out")
    for key, value in (("data.owners", spec.data.owners), ("model.shares", spec.model.shares)):
        if value:
            yield Problem(key, f"is not there under {kind}; use sealed")
    if spec.model.cap is not None:
        yield Problem("model.cap", f"nothing saturates under {kind}; leave it out")
    wrong = "output" if spec.is_linear else "score"
    if kind == "he":
        if spec.model.is_forest:
            yield Problem("protocol.kind", "he cannot compare, as trees do; use sealed or enclave")
        if spec.protocol.reveal == "class":
            right = "score" if spec.is_linear else "output"
            yield Problem("protocol.reveal", f"he cannot find the largest; take {right!r}")
    elif spec.ring.frac_bits is not None:
        yield Problem("ring.frac_bits", "an enclave computes with floats; leave it out")
    elif spec.is_linear and spec.model.code is not None:
        text = f"only {owner} has it, and everybody measures what an enclave runs; use model.file"
        yield Problem("model.code", text)
    if spec.protocol.reveal == wrong:
        model = "a linear model" if spec.is_linear else "a network"
        yield Problem("protocol.reveal", f"{model} has no {wrong!r} to reveal")


def _check_linear(spec: InferSpec) -> Iterator[Problem]:
    yield from _check_reveal(spec, "output", "a linear model", "class' or 'score")
    for key, value in (("shape", spec.data.shape), ("owners", spec.data.owners)):
        if value:
            yield Problem(f"data.{key}", "is for a network with layers; leave it out")
    if spec.model.cap is not None:
        yield Problem("model.cap", "one linear layer has no hidden values; leave it out")
    if spec.model.owner is None:
        text = "missing; wanted the owner of the linear model, or the layers of a shared network"
        yield Problem("model.owner", text)
    is_second = spec.protocol.compute is not None and spec.protocol.compute[1] == spec.model.owner
    if is_second and "second" in find_protocol(spec.protocol.kind).shows_to:
        yield Problem(
            "protocol.compute",
            f"under {spec.protocol.kind} the second party sees permuted values of the rows: "
            f"wanted {spec.data.owner!r} second, got the model owner {spec.model.owner!r}",
        )


def _check_reveal(spec: InferSpec, wrong: str, model: str, wanted: str) -> Iterator[Problem]:
    if spec.protocol.reveal == wrong:
        yield Problem("protocol.reveal", f"of {model} wanted '{wanted}', got {wrong!r}")


def _check_owned(spec: InferSpec) -> Iterator[Problem]:
    yield from _check_reveal(spec, "score", "a network", "class' or 'output")
    if spec.model.is_forest:
        yield from _check_reveal(spec, "output", "a forest", "class")
    if len({spec.data.owner, spec.model.owner, spec.protocol.dealer}) != 3:
        yield Problem("parties", "wanted another party for each of the roles")
    if spec.protocol.compute is not None:
        yield Problem("protocol.compute", "is for a network without an owner; leave it out")
    if spec.model.shares:
        yield Problem("model.shares", "are of a network without an owner; leave owner or them out")
    if spec.data.owners:
        yield Problem("data.owners", "ask a network without an owner; leave model.owner out")


def _check_shared(spec: InferSpec) -> Iterator[Problem]:
    if spec.model.is_forest:
        yield Problem("model.owner", "missing; wanted the owner of the forest")
        return
    yield from _check_reveal(spec, "score", "a network", "class' or 'output")
    computing = spec.protocol.compute
    if computing is None:
        text = "missing; a network without model.owner wants the two parties that hold its shares"
        yield Problem("protocol.compute", text)
        return
    if len({*computing, spec.protocol.dealer}) != 3:
        yield Problem("protocol", "wanted two parties that compute and another one that deals")
    yield from _check_columns(spec)
    if spec.data.owner == spec.protocol.dealer:
        yield Problem("data.owner", "the dealer knows the masks and must not own the rows")
    for name in set(spec.model.shares) - set(computing):
        yield Problem(f"model.shares.{name}", "is not one of the parties of protocol.compute")
    if spec.model.file is not None:
        yield Problem("model.file", "is of a network with an owner; wanted model.shares")
    if not spec.data.owners and _is_seen(spec) and spec.data.owner != computing[1]:
        text = (
            f"under {spec.protocol.kind} the second of protocol.compute sees values that follow "
            f"from the rows; let it be {spec.data.owner!r}, or use sealed or permuted3"
        )
        yield Problem("protocol.compute", text)


def _is_seen(spec: InferSpec) -> bool:
    return "second" in find_protocol(spec.protocol.kind).shows_to


def _check_columns(spec: InferSpec) -> Iterator[Problem]:
    """Check owners of columns, if there are any."""
    owners = spec.data.owners
    if not owners:
        return
    if len(owners) < 2:
        yield Problem("data.owners", "wanted two owners of columns or more; of one, leave it out")
    if spec.data.owner not in owners:
        text = f"wanted one of the owners {', '.join(owners)}, got {spec.data.owner!r}"
        yield Problem("data.owner", text)
    if spec.protocol.dealer in owners:
        yield Problem("data.owners", "the dealer knows the masks and must not own columns")
    if len(spec.model.inputs) != 1:
        yield Problem("model.inputs", f"columns make flat rows, got {list(spec.model.inputs)}")
    if _is_seen(spec):
        text = (
            f"under {spec.protocol.kind} the second of protocol.compute sees values that follow "
            "from the rows of all owners; use sealed or permuted3"
        )
        yield Problem("protocol.kind", text)
