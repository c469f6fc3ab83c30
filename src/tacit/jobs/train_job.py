"""The job file of kind "train": whose data, which model, how it is trained and protected."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Literal, Self

from annotated_types import Ge
from torch import nn

from tacit.data.spec import OwnerTable
from tacit.errors import ConfigError
from tacit.jobs.config import Job, check_parties, check_references
from tacit.mpc import Roles, find_protocol
from tacit.mpc.mixing import spell
from tacit.mpc.registry import ProtocolName
from tacit.nn import Model, add_adapters, make_model, make_token_model
from tacit.nn.code import build_network, check_network
from tacit.nn.weights import load_weights
from tacit.ring import FixedPoint
from tacit.spec import (
    LOCAL,
    Count,
    Positive,
    Problem,
    RefusedError,
    Share,
    TwoParties,
    refuse,
)
from tacit.training import HeldData, Optimiser, Privacy, TrainTask
from tacit.training.losses import Ends, cut_ends

BATCH, BOUND, PRIVATE_BOUND = 128, 4.0, 64.0
"""Rows of a step, and how large a weight may get, where a job does not say."""


@dataclass(frozen=True, kw_only=True)
class TrainData:
    """[data]: who owns what, and what everyone may assume about it.

    ``features`` is a public rule by which every owner turns its own rows into others: "hog", a
    public network ("images:FILE" or "texts:FOLDER"), or file.py:function, which makes a callable;
    it is run.
    """

    owners: Mapping[str, OwnerTable]
    split: Literal["rows", "columns"] = "rows"
    labels: str | None = None
    shape: tuple[int, ...] | None = None
    features: str | None = None
    test_share: Share = 0.1
    bound: Positive = 1.0

    def __post_init__(self) -> None:
        if self.split == "columns" and self.labels is None:
            refuse("labels", "missing; wanted the owner of the labels, because columns are split")
        if self.split == "rows" and self.labels is not None:
            refuse("labels", "with split rows every owner has labels")
        if self.split == "columns" and self.features is not None:
            refuse("features", 'are cut out of whole rows; wanted split = "rows"')


@dataclass(frozen=True, kw_only=True)
class TrainModel:
    """[model]: the network, and how large weights and hidden values may be.

    Attributes:
        layers: the network in words, or
        code: as file.py:function, which makes a torch module; it is run.
        file: weights to start from, which are public; drawn by ``seed`` if there is none.
        bound: how large a weight may get; 4 if not given, and 64 with privacy, where it saturates.
        cap: where hidden values and gradients saturate.
        seed: of the weights to start from.
        adapters: the rank of LoRA matrices; then these alone learn, and all else is public.
        adapt: last names of the layers that get them; all linear ones if not given.
        train: names of layers that learn as a whole beside adapters.
        table: the name of the embedding, public and as it is: owners look their own ids up.
        head: the name of the last linear layer, public and as it is: owners compute the loss from
            the last hidden states of their own rows, which they see.
    """

    layers: tuple[str, ...] = ()
    code: Path | None = field(default=None, metadata=LOCAL)
    file: Path | None = field(default=None, metadata=LOCAL)
    bound: Positive | None = None
    cap: float | None = None
    seed: int = 0
    adapters: Count | None = None
    adapt: tuple[str, ...] = ()
    train: tuple[str, ...] = ()
    table: str | None = None
    head: str | None = None

    def __post_init__(self) -> None:
        if (wrong := check_network(self.layers, self.code)) is not None:
            refuse("layers", wrong)
        if self.adapters is None and (self.adapt or self.train):
            refuse("adapters", "missing; 'adapt' and 'train' say where adapters of that rank go")


@dataclass(frozen=True, kw_only=True)
class TrainingTable:
    """[training]: how weights are changed.

    ``batch`` is 128 if not given; with privacy it is all rows to train on, unless rows are sampled.
    With the loss "next-token" rows are ids, each to be told from those before it, and there are no
    labels.
    """

    epochs: Count = 1
    batch: Count | None = None
    rate: Positive = 0.1
    schedule: Literal["constant", "cosine", "halving", "linear"] = "constant"
    warmup: Annotated[int, Ge(0)] = 0
    accumulate: Count = 1
    optimiser: Literal["sgd", "momentum", "adam"] = "sgd"
    momentum: float = 0.9
    decay: float = 0.99
    clip: float | None = None
    weight_decay: float = 0.0
    loss: Literal["softmax", "logistic", "next-token"] = "softmax"
    class_weights: tuple[float, ...] | None = None
    seed: int = 0
    look_every: Count = 50
    keep: bool = field(default=True, metadata=LOCAL)


@dataclass(frozen=True, kw_only=True)
class TrainProtection:
    """[protocol]: how secrets are protected, and what is revealed to whom.

    ``layers`` gives kinds of functions (activations, norms, softmax) protocols of their own.
    """

    kind: ProtocolName
    dealer: str
    layers: Mapping[str, str] = field(default_factory=dict)
    compute: TwoParties | None = None
    show_to: tuple[str, ...] = ()
    give_to: tuple[str, ...] = ()
    score_to: tuple[str, ...] = ()

    @property
    def spelled(self) -> str:
        """Return the protocol with those of kinds of functions, as `find_protocol` reads it."""
        return spell(self.kind, self.layers)

    def __post_init__(self) -> None:
        try:
            find_protocol(self.spelled)
        except ConfigError as error:
            refuse("layers", str(error))


@dataclass(frozen=True, kw_only=True)
class TrainJob(Job):
    """A whole job file of kind "train"."""

    data: TrainData
    model: TrainModel
    protocol: TrainProtection
    training: TrainingTable = field(default_factory=TrainingTable)
    ring: FixedPoint = field(default_factory=FixedPoint)
    privacy: Privacy | None = None

    def __post_init__(self) -> None:
        problems = [
            *check_parties(self.parties),
            *check_references(self.parties, _named(self)),
            *_check_owners(self),
            *_check_privacy(self),
        ]
        if problems:
            raise RefusedError(*problems)

    @property
    def roles(self) -> Roles:
        """Return who is P0, P1 and dealer; the first two owners compute unless told otherwise."""
        first, second = self.protocol.compute or tuple(self.data.owners)[:2]
        return Roles(first, second, self.protocol.dealer)

    def settled(self) -> Self:
        """Return the job with the computing parties named, and how large weights may get."""
        return replace(
            self,
            protocol=replace(self.protocol, compute=self.roles.computing),
            model=replace(self.model, bound=self.weight_bound),
        )

    @property
    def weight_bound(self) -> float:
        """Return how large a weight may get."""
        return self.model.bound or (BOUND if self.privacy is None else PRIVATE_BOUND)

    def role(self, party: str) -> str:
        """Say in words what a party does."""
        is_dealer = party == self.roles.dealer
        duties = {
            "data owner": party in self.data.owners,
            "computes": party in self.roles.computing,
            "dealer": is_dealer,
            "helper": is_dealer and find_protocol(self.protocol.spelled).helper_is_online,
        }
        return ", ".join(duty for duty, has_it in duties.items() if has_it)

    def make_model(self, inputs: tuple[int, ...]) -> tuple[Model, Ends]:
        """Build the model for rows of a shape, and what of it stays with the owners."""
        make = make_token_model if self.reads_text else make_model
        ends = self.trainable(inputs)
        return make(ends.module, inputs, cap=self.model.cap), ends

    def trainable(self, inputs: tuple[int, ...]) -> Ends:
        """Build the module that is trained: without its ends, and with adapters."""
        model = self.model
        ends = cut_ends(self.module(inputs), table=model.table, head=model.head)
        if model.adapters is None:
            return ends
        adapted = add_adapters(
            ends.module,
            rank=model.adapters,
            seed=model.seed,
            only=model.adapt,
            keep_training=model.train,
        )
        return replace(ends, module=adapted)

    @property
    def draws_batches(self) -> bool:
        """Tell whether a step uses some of the rows; with privacy it usually uses all."""
        return self.privacy is None or self.privacy.sampling == "hidden"

    @property
    def reads_text(self) -> bool:
        """Tell whether rows are ids of tokens."""
        return self.training.loss == "next-token"

    def module(self, inputs: tuple[int, ...]) -> nn.Module:
        """Build the torch module for rows of a shape, with weights to start from.

        Args:
            inputs: the shape of a row; of a network whose table is public, with or without the
                width of what its owner looked up: the whole network reads ids.
        """
        model = self.model
        read = inputs if model.table is None else inputs[:1]
        module = build_network(model.layers, model.code, read, seed=model.seed)
        if model.file is not None:
            load_weights(module, model.file)
        return module

    def task(self, holdings: tuple[HeldData, ...]) -> TrainTask:
        """Return what is trained, once everyone has said how much data there is."""
        widths = [holding.features for holding in holdings]
        inputs = widths[0]
        if self.data.split == "columns":
            inputs = (sum(width[0] for width in widths),)
        rows = [holding.rows for holding in holdings]
        total = sum(rows) if self.data.split == "rows" else rows[0]
        how = self.training
        test_rows = max(1, round(total * self.data.test_share))
        if self.privacy is not None and self.privacy.looks == "none":
            test_rows = 0
        model, ends = self.make_model(inputs)
        bound = self.data.bound
        if self.reads_text:
            vocabulary = model.outputs if ends.head is None else len(ends.head)
            bound = float(vocabulary if ends.table is None else ends.table.abs().max())
        return TrainTask(
            name=self.job.name,
            roles=self.roles,
            protocol=self.protocol.spelled,
            model=model,
            holdings=holdings,
            split=self.data.split,
            test_rows=test_rows,
            loss="softmax" if how.loss == "next-token" else how.loss,
            class_weights=how.class_weights,
            optimiser=Optimiser(
                kind=how.optimiser,
                momentum=how.momentum,
                decay=how.decay,
                clip=how.clip,
                weight_decay=how.weight_decay,
            ),
            rate=how.rate,
            schedule=how.schedule,
            warmup=how.warmup,
            accumulate=how.accumulate,
            epochs=how.epochs,
            batch=how.batch or (BATCH if self.draws_batches else total - test_rows),
            seed=how.seed,
            frac_bits=self.ring.frac_bits,
            feature_bound=bound,
            weight_bound=self.weight_bound,
            cap=self.model.cap,
            watch_every=how.look_every,
            show_to=self.protocol.show_to,
            give_to=self.protocol.give_to,
            score_to=self.protocol.score_to,
            head=ends.head,
            privacy=self.privacy,
        )


def _named(job: TrainJob) -> Mapping[str, str]:
    lists = {
        "protocol.compute": job.protocol.compute or (),
        "protocol.show_to": job.protocol.show_to,
        "protocol.give_to": job.protocol.give_to,
        "protocol.score_to": job.protocol.score_to,
    }
    named = {f"data.owners.{name}": name for name in job.data.owners}
    named |= {f"{key}[{i}]": name for key, names in lists.items() for i, name in enumerate(names)}
    named["protocol.dealer"] = job.protocol.dealer
    if job.data.labels is not None:
        named["data.labels"] = job.data.labels
    return named


def _check_privacy(job: TrainJob) -> Iterator[Problem]:
    if find_protocol(job.protocol.spelled).is_checked:
        yield Problem(
            "protocol.kind",
            "a training keeps weights, and 'checked' has no tags for "
            "them: wanted 'sealed', which assumes that all parties follow it",
        )
    if job.privacy is None:
        return
    if job.model.head is not None:
        yield Problem("model.head", "a loss at the owners of rows has no privacy: leave it out")
    wrong = job.privacy.against(
        split=job.data.split,
        accumulate=job.training.accumulate,
        frac_bits=job.ring.frac_bits,
        show_to=job.protocol.show_to,
        score_to=job.protocol.score_to,
    )
    tables = {"split": "data", "accumulate": "training", "frac_bits": "ring"}
    for setting, text in wrong.items():
        yield Problem(f"{tables.get(setting, 'protocol')}.{setting}", text)


def _check_owners(job: TrainJob) -> Iterator[Problem]:
    owners = job.data.owners
    if len(owners) < 2 and job.protocol.compute is None:
        yield Problem("protocol.compute", "missing; with one owner of data, name two parties")
    if job.data.labels is not None and job.data.labels not in owners:
        text = f"wanted one of the owners {', '.join(owners)}, got {job.data.labels!r}"
        yield Problem("data.labels", text)
    if job.model.table is not None and not job.reads_text:
        yield Problem("model.table", 'is looked up with ids of texts; wanted loss = "next-token"')
    if job.reads_text and job.data.split == "columns":
        yield Problem("training.loss", "next-token wants whole rows of ids; wanted split rows")
    if job.protocol.dealer in owners:
        text = "must not own data: it knows the masks"
        yield Problem("protocol.dealer", text)
