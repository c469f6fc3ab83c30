"""The job file of kind "split": who has features, who has labels, where the model is cut.

`[split]` can weaken privacy; `[train]` only decides how fast it goes.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from annotated_types import Ge, Le, MinLen

from tacit.audit.split import CutAudit
from tacit.jobs.config import Job, check_parties, check_references
from tacit.spec import LOCAL, Count, Problem, RefusedError, Share, refuse, suggest
from tacit.split import (
    CUT,
    MODELS,
    READS_TOKENS,
    Compression,
    Defence,
    NetworkSpec,
    SplitTask,
    TrainingPace,
)

_LARGEST_VOCABULARY = 1 << 24  # whole numbers up to here are exact in float32


@dataclass(frozen=True, kw_only=True)
class SplitData:
    """[data]: whose columns, whose labels, and where they come from.

    Attributes:
        features: the parties that own features; of a known set they get equal blocks of columns.
            The owner of the labels may be one of them: what it computes from its own stays with it.
        labels: the party that owns the labels.
        set: a known data set; every party takes its part of it.
        files: each party's own file instead; the same rows in the same order, unless matched.
        match: a column with numbers that every party's file has: rows are matched by it, privately.
        label: the column with the classes in the label owner's file.
        classes: how many classes there are, if the data comes from files.
        test_share: of the rows, to test on.
        rows: take only so many rows to train on.
    """

    features: Annotated[tuple[str, ...], MinLen(1)]
    labels: str
    set: str | None = None
    files: Mapping[str, Path] = field(default_factory=dict, metadata=LOCAL)
    match: str | None = None
    label: str | None = None
    classes: int | None = None
    test_share: Share | None = None
    rows: Count | None = None

    def __post_init__(self) -> None:
        if self.set is not None and self.files:
            refuse("files", "wanted either 'set' or 'files', got both")
        if self.set is None and (self.label is None or self.classes is None):
            refuse("set", "wanted a set, or files with 'label' and 'classes'")
        if self.set is not None and self.match is not None:
            refuse("match", "rows of a known set are in order; drop it")
        if self.match is not None and self.match == self.label:
            refuse("match", f"{self.match!r} is the column of the labels")
        if self.features == (self.labels,):
            text = f"{self.labels!r} owns labels and features: it can train alone, and the split"
            refuse("features", f"{text} would protect nothing; wanted two parties")

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
class SplitModel:
    """[model]: which model, and at which layer it is cut.

    Attributes:
        kind: mlp, two-conv, resnet20, resnet20-quarters, vit, textcnn or gru4rec.
        cut: the last layer of the feature owners' part.
        width: of the layer named "cut".
        hidden: width of a hidden layer between that and the logits; 0 for none.
        vocabulary: for a model that reads tokens, how many there are; 0 stands for none.
    """

    kind: str = "mlp"
    cut: str = CUT
    width: Count = 64
    hidden: Annotated[int, Ge(0)] = 0
    vocabulary: Annotated[int, Ge(2), Le(_LARGEST_VOCABULARY)] | None = None

    def __post_init__(self) -> None:
        if self.kind not in MODELS:
            wanted = f"wanted one of {', '.join(sorted(MODELS))}, got {self.kind!r}"
            refuse("kind", wanted + suggest(self.kind, MODELS))
        if (self.vocabulary is not None) != (self.kind in READS_TOKENS):
            text = f"{self.kind} reads no tokens; drop it"
            if self.vocabulary is None:
                text = f"{self.kind} reads tokens: wanted how many different ones there are"
            refuse("vocabulary", text)

    def network(self, classes: int) -> NetworkSpec:
        """Return the model, before the shape of a row is known."""
        names = ("kind", "width", "hidden", "vocabulary")
        return NetworkSpec(classes=classes, **{name: getattr(self, name) for name in names})


@dataclass(frozen=True, kw_only=True)
class SplitTable:
    """[split]: what travels between the parts, and what protects it."""

    compress: Compression = field(default_factory=Compression)
    defend: Defence | None = None
    also_defend: tuple[Defence, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ServeTable:
    """[serve]: ask a model that was trained before, instead of training one.

    The rows to ask about are those of the feature owners' files, or the test rows of a known set.

    Attributes:
        models: the folder with this party's trained part, as a training left it.
    """

    models: Path = field(metadata=LOCAL)


@dataclass(frozen=True, kw_only=True)
class AuditTable:
    """[audit]: how the result is attacked.

    Attributes:
        leaked_per_class: labels that the attacker holds.
        before: an earlier layer to attack too, as the bottom model names it.
        sweep: weights of the defence to draw the frontier with; each trains a model.
        ray: the address of a Ray cluster of one's own to train them on, or "local".
        tsne: whether to draw the cut layer by t-SNE besides PCA.
    """

    leaked_per_class: Count = 1
    before: str | None = None
    sweep: tuple[float, ...] = ()
    ray: str | None = None
    tsne: bool = False

    def __post_init__(self) -> None:
        if self.ray is not None and not self.sweep:
            refuse("ray", "wanted audit.sweep, which it spreads over machines")

    def how(self) -> CutAudit:
        """Return how the cut is attacked."""
        names = ("before", "sweep", "ray")
        return CutAudit(
            per_class=self.leaked_per_class, **{name: getattr(self, name) for name in names}
        )


@dataclass(frozen=True, kw_only=True)
class SplitJob(Job):
    """A whole job file of kind "split"."""

    data: SplitData
    model: SplitModel = field(default_factory=SplitModel)
    split: SplitTable = field(default_factory=SplitTable)
    train: TrainingPace = field(default_factory=TrainingPace)
    serve: ServeTable | None = None
    audit: AuditTable = field(default_factory=AuditTable, metadata=LOCAL)

    def __post_init__(self) -> None:
        named = {f"data.features[{i}]": name for i, name in enumerate(self.data.features)}
        named["data.labels"] = self.data.labels
        problems = [*check_parties(self.parties), *check_references(self.parties, named)]
        if len(self.data.features) > 1 and self.model.cut != CUT:
            text = f"with several feature owners the cut is the layer {CUT!r}"
            problems.append(Problem("model.cut", text))
        if self.data.set is None and self.model.cut != CUT:
            text = f"with files, the label owner knows the model from the layer {CUT!r} on only"
            problems.append(Problem("model.cut", text))
        if self.audit.sweep and self.split.defend is None:
            problems.append(Problem("audit.sweep", "wanted split.defend, whose weight it changes"))
        if self.model.vocabulary is not None and self.data.set is not None:
            text = f"known sets have no tokens, which {self.model.kind} reads; wanted files"
            problems.append(Problem("data.set", text))
        if self.serve is not None and self.data.match and len(self.data.features) > 1:
            text = "several owners ask about the same rows in the same order; drop it"
            problems.append(Problem("data.match", text))
        if problems:
            raise RefusedError(*problems)
        self.task(self.data.classes or len(self.train.class_weights or (1, 1)))

    @property
    def defences(self) -> tuple[Defence, ...]:
        """Return all defences, the main one first."""
        main = () if self.split.defend is None else (self.split.defend,)
        return (*main, *self.split.also_defend)

    def task(self, classes: int) -> SplitTask:
        """Return what is trained, without who is where."""
        return SplitTask(
            feature_owners=tuple(one for one in self.data.features if one != self.data.labels),
            label_owner=self.data.labels,
            classes=classes,
            cut=self.model.cut,
            compression=self.split.compress,
            defences=self.defences,
            pace=self.train,
            label_owner_has_features=self.data.labels in self.data.features,
        )

    def role(self, party: str) -> str:
        """Say in words what a party does."""
        if party != self.data.labels:
            return "feature owner"
        return "label owner" + (", with features" if party in self.data.features else "")
