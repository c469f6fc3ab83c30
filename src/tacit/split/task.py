"""What all parties of a split training agree on, and the order in which they take the rows."""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Literal

import torch
from torch import Tensor, nn

from tacit.errors import ConfigError
from tacit.result import Claim
from tacit.ring import Prg
from tacit.split.compress import Compression
from tacit.split.defend import Defence, claims_of

Optimiser = Literal["sgd", "adam"]
_FUSED_ON = ("cpu", "cuda")
"""Where torch steps all weights at once, which saves half a millisecond a step for small models."""


@dataclass(frozen=True, kw_only=True)
class Pace:
    """How it learns and what overlaps; nothing here changes what is revealed.

    Attributes:
        epochs: how often every row is taken.
        batch_rows: rows of one step.
        micro_batches: parts of a batch that are under way at once; the step is the same as with
            one part, but for batch norm and pairwise losses, which see one part at a time.
        in_flight: batches under way at once. With s of them the gradient of a batch is taken at
            weights that are s − 1 steps old, and applied to the newest.
        learning_rate: of both sides, or of the feature owners alone.
        label_learning_rate: of the label owner, if it is not the same. A compressed cut layer wants
            it larger: a row moves few columns of the label owner's matrix.
        optimiser: "sgd" with momentum 0.9, or "adam".
        weight_decay: of both sides.
        checkpoint_every: steps between checkpoints; 0 for the end of every epoch.
        class_weights: how much an error on each class counts; None for alike. Public: weights
            that follow the counts of the label owner's rows tell those counts.
    """

    epochs: int = 5
    batch_rows: int = 128
    micro_batches: int = 1
    in_flight: int = 1
    learning_rate: float = 1e-3
    label_learning_rate: float | None = None
    optimiser: Optimiser = "adam"
    weight_decay: float = 0.0
    checkpoint_every: int = 0
    class_weights: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        for name in ("epochs", "batch_rows", "micro_batches", "in_flight"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name}: wanted at least 1, got {getattr(self, name)}")
        if self.micro_batches > self.batch_rows:
            raise ConfigError(
                f"micro_batches: cannot cut {self.batch_rows} rows into {self.micro_batches} parts"
            )
        for name in ("learning_rate", "label_learning_rate"):
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
        own = self.label_learning_rate
        return self.learning_rate if own is None else own


@dataclass(frozen=True, kw_only=True)
class SplitTask:
    """Who holds what, where the model is cut, and how the cut is compressed and defended.

    Attributes:
        feature_owners: those whose cut layers travel.
        label_owner: has the labels and the top.
        classes: how many.
        cut: the last layer of a bottom.
        compression: of what travels.
        defences: of the labels and inputs.
        pace: how it learns.
        label_owner_has_features: whether the label owner has a bottom for columns of its own, too;
            what it computes stays with it.
    """

    feature_owners: tuple[str, ...]
    label_owner: str
    classes: int
    cut: str = "cut"
    compression: Compression = field(default_factory=Compression)
    defences: tuple[Defence, ...] = ()
    pace: Pace = field(default_factory=Pace)
    label_owner_has_features: bool = False

    @property
    def about(self) -> str:
        """Say in a few words where the model is cut, and what is done at the cut."""
        compression = self.compression.kind.replace("none", "no compression")
        defences = [one.kind for one in self.defences] or ["no defence"]
        return ", ".join([f"split at {self.cut!r}", compression, *defences])

    def __post_init__(self) -> None:
        if not self.feature_owners:
            raise ConfigError("feature_owners: wanted at least one party, got none")
        if len(set(self.feature_owners)) < len(self.feature_owners):
            raise ConfigError(f"feature_owners: a party is named twice: {self.feature_owners}")
        if self.label_owner in self.feature_owners:
            raise ConfigError(
                f"{self.label_owner!r} owns labels and features: it can train alone; beside "
                "others' features, wanted label_owner_has_features"
            )
        if self.classes < 2:
            raise ConfigError(f"classes: wanted at least 2, got {self.classes}")
        weights = self.pace.class_weights
        if weights is not None and len(weights) != self.classes:
            raise ConfigError(f"class_weights: wanted {self.classes}, got {len(weights)}")
        if sum(one.is_on_sphere for one in self.defences) > 1:
            raise ConfigError("defend: potential-energy is named twice")

    @property
    def bottoms(self) -> int:
        """Return how many cut layers the top takes: those that travel, and the label owner's."""
        return len(self.feature_owners) + self.label_owner_has_features

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

    @property
    def is_normalised(self) -> bool:
        """Tell whether the cut layer is normalised, as the energy on the sphere wants it."""
        return any(one.is_on_sphere for one in self.defences)

    def digest(self) -> bytes:
        """Return the SHA-256 of everything in here."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).digest()


@dataclass(frozen=True)
class Step:
    """One step of training: its number, its epoch, and the rows of each micro-batch."""

    number: int
    epoch: int
    parts: tuple[Tensor, ...]
    is_pause: bool

    @property
    def rows(self) -> int:
        """Return how many rows the batch has."""
        return sum(len(part) for part in self.parts)


def steps_per_epoch(rows: int, pace: Pace) -> int:
    """Return how many batches the rows make; the last may be smaller."""
    return -(-rows // pace.batch_rows)


def steps(rows: int, pace: Pace, *, order: Prg, start: int = 0) -> Iterator[Step]:
    """Yield the steps from `start` on; a pause is where pipelines drain and checkpoints are.

    Every party with the same generator gets the same rows in the same order.
    """
    per_epoch = steps_per_epoch(rows, pace)
    every = pace.checkpoint_every or per_epoch
    for epoch in range(start // per_epoch, pace.epochs):
        shuffled = order.fork(f"epoch {epoch}").permutation(rows)
        for at in range(max(start - epoch * per_epoch, 0), per_epoch):
            batch = shuffled[at * pace.batch_rows : (at + 1) * pace.batch_rows]
            number = epoch * per_epoch + at
            is_last = at == per_epoch - 1
            yield Step(
                number,
                epoch,
                tuple(batch.tensor_split(min(pace.micro_batches, len(batch)))),
                is_last or (number + 1) % every == 0,
            )


def make_optimiser(
    module: nn.Module, pace: Pace, *, rate: float | None = None
) -> torch.optim.Optimizer:
    """Make the optimiser of one side; a side without parameters gets one that does nothing.

    Args:
        module: that side of the model.
        pace: says which optimiser, and how fast.
        rate: of this side, if it is not `pace.learning_rate`.
    """
    rate = pace.learning_rate if rate is None else rate
    weights = [p for p in module.parameters() if p.requires_grad]
    if not weights:
        weights = [nn.Parameter(torch.zeros(()))]
    if pace.optimiser == "adam":
        return torch.optim.Adam(
            weights,
            lr=rate,
            weight_decay=pace.weight_decay,
            fused=all(p.is_floating_point() and p.device.type in _FUSED_ON for p in weights),
        )
    return torch.optim.SGD(weights, lr=rate, momentum=0.9, weight_decay=pace.weight_decay)
