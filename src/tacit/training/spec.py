"""What the user of a training says: whose data, which model, how it is trained and protected."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Literal, Self

from annotated_types import Ge

from tacit.data.prepare import PREPARED, Prepare
from tacit.data.source import OwnerTable, check_prepared
from tacit.errors import ConfigError
from tacit.mpc import Roles, find_protocol
from tacit.mpc.registry import ProtocolName, spell
from tacit.nn.features import TEXTS
from tacit.ring import FixedPoint
from tacit.spec import (
    LOCAL,
    Count,
    Party,
    Positive,
    Problem,
    RefusedError,
    Share,
    TwoParties,
    refuse,
)
from tacit.training.ops import Optimiser, OptimiserName
from tacit.training.privacy import PRIVATE_BITS, Privacy

BOUND, PRIVATE_BOUND = 4.0, 64.0
"""How large a weight may get where nobody says: with privacy noise makes it larger."""


@dataclass(frozen=True, kw_only=True)
class TrainData:
    """[data]: who owns what, and what everyone may assume about it.

    Attributes:
        owners: of rows, or of columns of the same rows; none of them deals.
        split: whether owners have different rows, or different columns of the same rows, matched by
            id.
        labels: the owner of the labels; needed with "columns", refused with "rows".
        shape: of a row, for layers that want pictures; flat if not given.
        features: with split rows: a public rule by which every owner turns its own rows into others
            before anything else: "hog", histograms of gradients of pictures (``shape`` two
            numbers); "images:FILE", EfficientNet-Lite0 without its last layer (its weights as
            safetensors; ``shape`` 3, height, width; values from 0 to 1); "texts:FOLDER", a sentence
            encoder (model.onnx and tokenizer.json; owners' files have lines with text and label;
            needs `tacit-ml[networks]`); or file.py:function, which makes a callable; it is run.
        prepare: with split rows: what every owner does to the values of columns, before anything
            else, by their names.
        test_share: share of the rows, drawn by the seed, to measure on.
        bound: the promised size of a feature after ``prepare``; public.
    """

    owners: Mapping[Party, OwnerTable] = field(default_factory=dict)
    split: Literal["rows", "columns"] = "rows"
    labels: Party | None = None
    shape: tuple[int, ...] | None = None
    features: str | None = None
    prepare: Prepare = field(default_factory=dict, metadata=PREPARED)
    test_share: Share = 0.1
    bound: Positive = 1.0

    def __post_init__(self) -> None:
        if self.split == "columns" and self.labels is None:
            refuse("labels", "missing; wanted the owner of the labels, because columns are split")
        if self.split == "rows" and self.labels is not None:
            refuse("labels", "with split rows every owner has labels")
        if self.split == "columns" and self.features is not None:
            refuse("features", 'are cut out of whole rows; wanted split = "rows"')
        if self.prepare and self.features is not None and self.features.startswith(TEXTS):
            refuse("prepare", "is for columns of numbers, and the owners' files have texts")
        check_prepared(self.split, self.prepare, self.owners)


@dataclass(frozen=True, kw_only=True)
class TrainModel:
    """[model]: the network, and how large weights and hidden values may be.

    Attributes:
        layers: the network in words: "dense OUT", "conv OUT SIZE [STRIDE [PADDING]]", "avgpool
            SIZE", "maxpool SIZE", "flatten", activations; either this or ``code``.
        code: file.py:function, which makes a torch module that ends in an nn.Linear; it is run.
        file: weights to start from (.safetensors, .pt or .npz), which are public; drawn by ``seed``
            if there is none.
        bound: how large a weight may ever get; two bits about it are opened at every look, and it
            may be raised while a training goes on. 4 if not given; with [privacy] 64, where weights
            saturate and nothing is opened.
        cap: where hidden values and their gradients saturate; what fits if not given.
        seed: of the weights to start from, which are public.
        adapters: the rank of LoRA matrices; then these alone learn, and all else is public and
            stays. The weights given out have them merged in.
        adapt: with ``adapters``: last names of the layers that get them; all linear ones if not
            given.
        train: with ``adapters``: names of layers that learn as a whole.
        table: with the loss next-token: the name of the nn.Embedding, public and as it is: owners
            look their own ids up.
        head: privacy: the name of the last nn.Linear, without bias, public and as it is: owners
            compute the loss. Each sees the last hidden states of its own rows in every step, which
            the ledger names; labels are never shared. Not with [privacy].
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
        if self.adapters is None and (self.adapt or self.train):
            refuse("adapters", "missing; 'adapt' and 'train' say where adapters of that rank go")


@dataclass(frozen=True, kw_only=True)
class Training(Optimiser):
    """[training]: how weights are changed.

    Attributes:
        epochs: passes over the data.
        batch: rows in a step; 128 if not given, or less where there are fewer; with [privacy] all
            rows to train on, unless they are sampled.
        rate: the learning rate.
        schedule: how the rate goes on: by epochs, or "linear" by tenths of the training, to a tenth
            of the rate.
        warmup: over so many steps, in tenths, the rate grows to what it is.
        accumulate: in so many parts, one after the other, a step goes through its rows, which takes
            less memory.
        optimiser: how weights follow gradients.
        momentum: of "momentum" and "adam": how much of the velocity, or of Adam's mean, stays.
        decay: how much of Adam's mean square stays.
        clip: the largest Euclidean norm of a batch's mean gradient; not clipped if not given.
        weight_decay: how much of every weight a step takes away, before the rate.
        loss: "softmax" for several classes, "logistic" for one score of two; with "next-token" rows
            are ids of tokens without labels, each to be told from those before it: ``model.code``
            makes a module of ids that ends in an nn.Linear over the vocabulary, and the perplexity
            is shown.
        class_weights: how much an error on each class counts; all alike if not given.
        seed: of the order of rows, which is public.
        look_every: steps between two looks at loss, accuracy and the size of weights.
        keep: write checkpoints to go on from.
    """

    epochs: Count = 1
    batch: Count | None = None
    rate: Positive = 0.1
    schedule: Literal["constant", "cosine", "halving", "linear"] = "constant"
    warmup: Annotated[int, Ge(0)] = 0
    accumulate: Count = 1
    optimiser: OptimiserName = "sgd"
    momentum: float = 0.9
    decay: float = 0.99
    clip: float | None = None
    weight_decay: float = 0.0
    loss: Literal["softmax", "logistic", "next-token"] = "softmax"
    class_weights: tuple[float, ...] | None = None
    seed: int = 0
    look_every: Count = 50
    keep: bool = field(default=True, metadata=LOCAL)

    def __post_init__(self) -> None:
        self.check_optimiser()


@dataclass(frozen=True, kw_only=True)
class TrainProtection:
    """[protocol]: how secrets are protected, and what is revealed to whom.

    Attributes:
        kind: privacy: "sealed", "permuted3" or "permuted2", with protocols of their own for kinds
            of functions after it if wanted, as "sealed; activations: permuted3".
        dealer: hands out randomness; under "permuted3" also the helper. Owns no data.
        layers: privacy: protocols for kinds of functions: activations, norms, softmax (with losses
            and whatever else is done with scores); linear is always "sealed".
        compute: the two parties that compute, which must not work together; the first two owners if
            not given.
        show_to: privacy: who learns loss and accuracy on the way; nobody if not given.
        give_to: privacy: who gets the weights; without it they stay shared.
        score_to: privacy: who learns the scores of the rows kept for measuring, in the end; an
            owner of labels among them measures F1, AUC, KS and calibration.
    """

    kind: ProtocolName
    dealer: Party
    layers: Mapping[str, str] = field(default_factory=dict)
    compute: TwoParties | None = None
    show_to: tuple[Party, ...] = ()
    give_to: tuple[Party, ...] = ()
    score_to: tuple[Party, ...] = ()

    @property
    def spelled(self) -> str:
        """Return the protocol with those of kinds of functions, as `find_protocol` reads it."""
        return spell(self.kind, self.layers)

    def __post_init__(self) -> None:
        try:
            find_protocol(self.spelled)
        except ConfigError as error:
            refuse("layers" if self.layers else "kind", str(error))


@dataclass(frozen=True, kw_only=True)
class TrainSpec:
    """Train a network on rows that their owners do not show each other."""

    data: TrainData
    model: TrainModel
    protocol: TrainProtection
    training: Training = field(default_factory=Training)
    ring: FixedPoint = field(default_factory=FixedPoint)
    privacy: Privacy | None = None

    def __post_init__(self) -> None:
        problems = [*_check_owners(self), *_check_privacy(self)]
        if problems:
            raise RefusedError(*problems)

    @property
    def roles(self) -> Roles:
        """Return who is P0, P1 and dealer; the first two owners compute unless told otherwise."""
        first, second = self.protocol.compute or tuple(self.data.owners)[:2]
        return Roles(first, second, self.protocol.dealer)

    def settled(self) -> Self:
        """Return this with the computing parties named, and how large weights may get."""
        return replace(
            self,
            protocol=replace(self.protocol, compute=self.roles.computing),
            model=replace(self.model, bound=self.weight_bound),
        )

    def with_bound(self, bound: float) -> Self:
        """Return this with weights that may get as large as that."""
        return replace(self, model=replace(self.model, bound=bound))

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

    @property
    def weight_bound(self) -> float:
        """Return how large a weight may get."""
        return self.model.bound or (BOUND if self.privacy is None else PRIVATE_BOUND)

    @property
    def is_sampled(self) -> bool:
        """Tell whether the two computing parties draw the rows of every step."""
        return self.privacy is not None and self.privacy.sampling == "hidden"

    @property
    def reads_text(self) -> bool:
        """Tell whether rows are ids of tokens, each to be told from those before it."""
        return self.training.loss == "next-token"

    @property
    def loss(self) -> Literal["softmax", "logistic"]:
        """Return what is computed of scores and labels: that of the next token is a softmax."""
        return "logistic" if self.training.loss == "logistic" else "softmax"


def _check_privacy(spec: TrainSpec) -> Iterator[Problem]:
    if find_protocol(spec.protocol.spelled).is_checked:
        yield Problem(
            "protocol.kind",
            "a training keeps weights, and 'checked' has no tags for "
            "them: wanted 'sealed', which assumes that all parties follow it",
        )
    if spec.privacy is None:
        return
    if spec.model.head is not None:
        yield Problem("model.head", "a loss at the owners of rows has no privacy: leave it out")
    looks, show_to = spec.privacy.looks, spec.protocol.show_to
    if spec.data.split == "columns":
        text = "privacy wants split='rows': the norm of a row is known to its owner"
        yield Problem("data.split", text)
    if spec.training.accumulate != 1:
        text = "with privacy a step takes its rows at once: leave accumulate out"
        yield Problem("training.accumulate", text)
    if spec.ring.frac_bits < PRIVATE_BITS:
        text = (
            f"privacy wants frac_bits of {PRIVATE_BITS} at least: the proof of clipping counts on "
            f"it, got {spec.ring.frac_bits}"
        )
        yield Problem("ring.frac_bits", text)
    if spec.protocol.score_to and looks != "public":
        text = "score_to opens scores of held-out rows without noise: wanted looks='public'"
        yield Problem("protocol.score_to", text)
    if bool(show_to) != (looks != "none"):
        text = (
            f"show_to names {', '.join(show_to) or 'nobody'}, but privacy looks are {looks!r}; "
            "looks cost ε ('noisy') or want rows that are 'public'"
        )
        yield Problem("protocol.show_to", text)


def _check_owners(spec: TrainSpec) -> Iterator[Problem]:
    owners = spec.data.owners
    if len(owners) < 2 and spec.protocol.compute is None:
        yield Problem("protocol.compute", "missing; with one owner of data, name two parties")
    if spec.data.labels is not None and spec.data.labels not in owners:
        text = f"wanted one of the owners {', '.join(owners)}, got {spec.data.labels!r}"
        yield Problem("data.labels", text)
    if spec.model.table is not None and not spec.reads_text:
        yield Problem("model.table", 'is looked up with ids of texts; wanted loss = "next-token"')
    if spec.reads_text and spec.data.split == "columns":
        yield Problem("training.loss", "next-token wants whole rows of ids; wanted split rows")
    if spec.protocol.dealer in owners:
        yield Problem("protocol.dealer", "must not own data: it knows the masks")
