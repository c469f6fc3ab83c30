"""What a user says of a split training: the tables of a job file, and the words of Python.

`split` can weaken privacy; `train` only decides how fast it goes.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Annotated, Literal, Self

from annotated_types import MinLen

from tacit.data.ids import listed
from tacit.errors import ConfigError
from tacit.result import Claim
from tacit.spec import LOCAL, Count, Names, Party, Problem, RefusedError, Share, refuse, to_tables
from tacit.split.codec import Compression
from tacit.split.defend import Defence, claims_of
from tacit.split.models import CUT, NetworkSpec

Optimiser = Literal["sgd", "adam"]


@dataclass(frozen=True, kw_only=True)
class SplitData:
    """[data]: whose columns, whose labels, and where they come from.

    Attributes:
        features: the parties that own features; of a known set they get equal blocks of columns.
            The owner of the labels may be one of them: what it computes from its own stays with it.
        labels: the party that owns the labels.
        set: a known data set, of which every party takes its part; either this or ``files``.
        files: each party's own file instead; the same rows in the same order, unless matched.
        match: with files: the column that every party's file has and rows are matched by, in
            private, or a list of columns that make an id together; texts or whole numbers.
        label: with files: the column with the classes in the label owner's file.
        classes: how many classes there are, if the data comes from files.
        test_share: of the rows, to test on; the published division, else 0.3 (of a file each row by
            its own content), if not given.
        rows: take only so many rows to train on.
    """

    features: Annotated[tuple[Party, ...], MinLen(1)]
    labels: Party
    set: str | None = None
    files: Mapping[str, Path] = field(default_factory=dict, metadata=LOCAL)
    match: Names | None = None
    label: str | None = None
    classes: int | None = None
    test_share: Share | None = None
    rows: Count | None = None

    def __post_init__(self) -> None:
        if self.set is not None and self.files:
            refuse("files", "wanted either 'set' or 'files', got both")
        if self.set is not None and self.match is not None:
            refuse("match", "rows of a known set are in order; drop it")
        if self.label is not None and self.label in listed(self.match):
            refuse("match", f"{self.label!r} is the column of the labels")
        if self.features == (self.labels,):
            text = f"{self.labels!r} owns labels and features: it can train alone, and the split"
            refuse("features", f"{text} would protect nothing; wanted two parties")
        if len(dict.fromkeys(self.features)) < len(self.features):
            refuse("features", f"a party is named twice: {', '.join(self.features)}")
        if self.classes is not None and self.classes < 2:
            refuse("classes", f"wanted at least 2, got {self.classes}")

    @property
    def blocks(self) -> tuple[str, ...]:
        """Return the owners of features in the order in which the top takes their cut layers."""
        others = tuple(one for one in self.features if one != self.labels)
        return (*others, *((self.labels,) if self.labels in self.features else ()))

    @property
    def parties(self) -> tuple[str, ...]:
        """Return everyone who has rows, the label owner first."""
        return (self.labels, *(one for one in self.features if one != self.labels))


@dataclass(frozen=True, kw_only=True)
class CutSpec:
    """[split]: what travels between the parts, and what protects it.

    Attributes:
        defend: privacy: what protects the cut layer; a setting that its kind does not have is
            refused. Only "label-dp" protects the labels of the rows trained on.
        also_defend: further defences, each a table like ``defend``.
    """

    compress: Compression = field(default_factory=Compression)
    defend: Defence | None = None
    also_defend: tuple[Defence, ...] = ()


@dataclass(frozen=True, kw_only=True)
class TrainingPace:
    """[train]: how it learns and what overlaps; nothing here changes what is revealed.

    Attributes:
        epochs: how often every row is taken.
        batch: rows of one step.
        micro_batches: parts of a batch that are under way at once; the step is the same as with one
            part, but for batch norm and pairwise losses, which see one part at a time.
        in_flight: batches under way at once. With s of them the gradient of a batch is taken at
            weights that are s − 1 steps old, and applied to the newest.
        rate: the learning rate of both sides, or of the feature owners alone.
        label_rate: that of the label owner, if it is not the same. A compressed cut layer wants it
            larger: a row moves few columns of the label owner's matrix.
        optimiser: "sgd" with momentum 0.9, or "adam".
        weight_decay: of both sides.
        checkpoint_every: steps between checkpoints; 0 for the end of every epoch.
        class_weights: how much an error on each class counts; alike if not given. Public: weights
            that follow the counts of the label owner's rows tell those counts.
    """

    epochs: int = 5
    batch: int = 128
    micro_batches: int = 1
    in_flight: int = 1
    rate: float = 1e-3
    label_rate: float | None = None
    optimiser: Optimiser = "adam"
    weight_decay: float = 0.0
    checkpoint_every: int = 0
    class_weights: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        for name in ("epochs", "batch", "micro_batches", "in_flight"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name}: wanted at least 1, got {getattr(self, name)}")
        if self.micro_batches > self.batch:
            raise ConfigError(
                f"micro_batches: cannot cut {self.batch} rows into {self.micro_batches} parts"
            )
        for name in ("rate", "label_rate"):
            rate = getattr(self, name)
            if rate is not None and not 0 < rate < float("inf"):
                raise ConfigError(f"{name}: wanted above 0, got {rate}")
        if self.weight_decay < 0 or self.checkpoint_every < 0:
            raise ConfigError("weight_decay and checkpoint_every: wanted at least 0")
        if not all(0 < one < float("inf") for one in self.class_weights or ()):
            raise ConfigError(f"class_weights: wanted above 0, got {self.class_weights}")

    @property
    def top_rate(self) -> float:
        """Return the label owner's learning rate."""
        return self.rate if self.label_rate is None else self.label_rate


@dataclass(frozen=True, kw_only=True)
class ServeSpec:
    """[serve]: ask a model that was trained before, instead of training one.

    The rows to ask about are those of the feature owners' files, or the test rows of a known set.

    Attributes:
        models: the folder with this party's trained part, as a training left it: nothing is
            trained. A label owner with features needs a file with its columns of the same rows in
            the same order.
    """

    models: Path = field(metadata=LOCAL)


@dataclass(frozen=True, kw_only=True)
class SplitSpec:
    """A model that is cut between those who have features and the one who has labels."""

    data: SplitData
    model: NetworkSpec = field(default_factory=NetworkSpec)
    split: CutSpec = field(default_factory=CutSpec)
    train: TrainingPace = field(default_factory=TrainingPace)
    serve: ServeSpec | None = None

    def __post_init__(self) -> None:
        problems = []
        if len(self.data.features) > 1 and self.model.cut != CUT:
            text = f"with several feature owners the cut is the layer {CUT!r}"
            problems.append(Problem("model.cut", text))
        if self.model.vocabulary is not None and self.data.set is not None:
            text = f"known sets have no tokens, which {self.model.kind} reads; wanted files"
            problems.append(Problem("data.set", text))
        if self.serve is not None and self.data.match and len(self.data.features) > 1:
            text = "several owners ask about the same rows in the same order; drop it"
            problems.append(Problem("data.match", text))
        if (weights := self.train.class_weights) is not None:
            wanted = self.data.classes or max(len(weights), 2)
            if len(weights) != wanted:
                text = f"wanted {wanted}, got {len(weights)}"
                problems.append(Problem("train.class_weights", text))
        if sum(one.is_on_sphere for one in self.defences) > 1:
            problems.append(Problem("split.also_defend", "potential-energy is named twice"))
        if problems:
            raise RefusedError(*problems)

    @property
    def classes(self) -> int:
        """Return how many classes there are, which somebody has said by now."""
        assert self.data.classes is not None  # noqa: S101 - `with_classes` comes first
        return self.data.classes

    def with_classes(self, classes: int) -> Self:
        """Return the same for rows of so many classes."""
        return replace(self, data=replace(self.data, classes=classes))

    @property
    def label_owner(self) -> str:
        """Return who has the labels and the top."""
        return self.data.labels

    @property
    def feature_owners(self) -> tuple[str, ...]:
        """Return those whose cut layers travel."""
        return tuple(one for one in self.data.features if one != self.data.labels)

    @property
    def label_owner_has_features(self) -> bool:
        """Tell whether the label owner has a bottom, too; what it computes stays with it."""
        return self.data.labels in self.data.features

    @property
    def bottoms(self) -> int:
        """Return how many cut layers the top takes: those that travel, and the label owner's."""
        return len(self.data.features)

    @property
    def defences(self) -> tuple[Defence, ...]:
        """Return all defences, the main one first."""
        main = () if self.split.defend is None else (self.split.defend,)
        return (*main, *self.split.also_defend)

    @property
    def is_normalised(self) -> bool:
        """Tell whether the cut layer is normalised, as the energy on the sphere wants it."""
        return any(one.is_on_sphere for one in self.defences)

    @property
    def about(self) -> str:
        """Say in a few words where the model is cut, and what is done at the cut."""
        compression = self.split.compress.kind.replace("none", "no compression")
        defences = [one.kind for one in self.defences] or ["no defence"]
        return ", ".join([f"split at {self.model.cut!r}", compression, *defences])

    @property
    def why_gradients(self) -> str:
        """Say why gradients are shown, and what they depend on."""
        also = " and the label owner's own columns" if self.label_owner_has_features else ""
        return f"split learning sends them in the clear; they depend on the labels{also}"

    def claims(self) -> tuple[Claim, ...]:
        """Return what is promised about labels and columns; mostly nothing."""
        if not self.label_owner_has_features:
            return claims_of(self.defences)
        own = Claim(
            subject="the label owner's own columns, towards the feature owners",
            guarantee="no guarantee",
            assumptions=("gradients depend on them; label-dp covers labels alone",),
        )
        return (*claims_of(self.defences), own)

    def role(self, party: str) -> str:
        """Say in words what a party does."""
        if party != self.data.labels:
            return "feature owner"
        return "label owner" + (", with features" if self.label_owner_has_features else "")

    def digest(self) -> bytes:
        """Return the SHA-256 of everything in here that parties share."""
        shared = [to_tables(getattr(self, one.name), is_shared=True) for one in fields(SplitSpec)]
        return hashlib.sha256(json.dumps(shared, sort_keys=True).encode()).digest()
