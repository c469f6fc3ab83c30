"""What all parties of a split training agree on."""

import hashlib
import json
from dataclasses import asdict, dataclass, field
from typing import Literal

from tacit.errors import ConfigError
from tacit.result import Claim
from tacit.split.compress import Compression
from tacit.split.defend import Defence, claims_of

Optimiser = Literal["sgd", "adam"]


@dataclass(frozen=True, kw_only=True)
class TrainingPace:
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
    pace: TrainingPace = field(default_factory=TrainingPace)
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
