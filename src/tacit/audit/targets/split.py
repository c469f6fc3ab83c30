"""Split models under audit: membership in the whole model, labels and inputs at the cut."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, final

import numpy as np
import torch
from torch import Tensor, nn

from tacit.audit.findings import Finding, Threat, judge
from tacit.audit.split import (
    CutAudit,
    SplitTarget,
    Watch,
    audit_gradients,
    audit_inputs,
    audit_labels,
)
from tacit.audit.target import TorchClassifier, code_of
from tacit.audit.targets.target import Side, Target, halve_rows, picture_of_set
from tacit.errors import ConfigError, DataError
from tacit.matching import align_in_the_clear
from tacit.split import Codec, Halves, SplitSpec, cut_model, fit_locally, make_head
from tacit.split.rows import load_own, load_whole

_LARGEST_AUDIT = 2000
_LABEL_THREAT = Threat(
    name="labels, bottom model",
    who="a feature owner after training",
    sees="its own bottom model",
    knows="its rows, and a few labels of every class",
)
_GRADIENT_THREAT = Threat(
    name="labels, gradients",
    who="a feature owner while training",
    sees="the gradient of every row that it sent",
    knows="its rows and the job; no label, or a few of every class",
)
_INPUT_THREAT = Threat(
    name="inputs, cut layer",
    who="the label owner",
    sees="the cut layer as it is sent",
    knows="some rows with their cut layers",
)
_LABEL_REMEDIES = (
    'split.defend = { kind = "potential-energy" } makes the finished bottom model tell less of '
    "labels; the gradients of training tell as much as before",
    'split.defend = { kind = "label-dp" } bounds what training can tell about a label, with an ε',
)
_GRADIENT_REMEDIES = (
    'split.defend = { kind = "label-dp" } bounds what gradients tell of a training label, with an '
    "ε; losses at the cut layer (potential-energy, distance-correlation) do not",
    'split.also_defend = [{ kind = "gradient-noise" }] makes clusters harder to find, as measured',
)
_INPUT_REMEDIES = (
    "send less: a compressor with fewer values, or a cut further up",
    "compute on shares instead of sending the cut layer: a job of kind 'train'",
)


@final
@dataclass(frozen=True, kw_only=True)
class SplitTrainer:
    """Trains both parts of a split model here, with what travels rounded and masked as on the wire.

    With several feature owners every one has its own bottom model and its own choice of values; a
    defence sees their cut layers joined.

    Guarantee: none. Whoever knows the seed knows the noise of the defences.
    """

    spec: SplitSpec

    @property
    def recipe(self) -> str:
        """Return the settings that decide the outcome, and the code, as text."""
        return "\n".join([repr(self.spec), code_of(cut_model)])

    def __call__(self, x: Tensor, y: Tensor, *, seed: int) -> TorchClassifier:
        """Return the joined model, trained on these rows alone."""
        return TorchClassifier(Joined(self.train(x, y, seed=seed)))

    def train(self, x: Tensor, y: Tensor, *, seed: int, watch: Watch | None = None) -> Halves:
        """Return both parts, trained on these rows alone; `watch` sees what comes back."""
        spec = self.spec
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            halves = self._build(x)
        owner = spec.feature_owners[0]
        fit_locally(
            spec,
            halves,
            x,
            y,
            seed=seed,
            on_gradient=None if watch is None else lambda one: watch(owner, one),
        )
        return halves

    def _build(self, x: Tensor) -> Halves:
        spec = self.spec
        blocks = torch.tensor_split(x[:2], spec.bottoms, dim=-1)
        parts = [cut_model(spec.model(one.shape[1:], spec.classes), spec, one) for one in blocks]
        if spec.bottoms == 1:
            return parts[0]
        return Halves(
            bottom=SideBySide([one.bottom for one in parts]),
            top=make_head(spec.bottoms * spec.model.width, spec.classes, hidden=spec.model.hidden),
            # It has all of a codec that training here asks for.
            codec=Apiece(parts[0].codec),  # type: ignore[arg-type]
            own_width=spec.model.width if spec.label_owner_has_features else 0,
        )


class SideBySide(nn.Module):
    """Several bottom models, each on its own block of columns."""

    def __init__(self, parts: Sequence[nn.Module]) -> None:
        super().__init__()
        self.parts = nn.ModuleList(parts)

    def forward(self, x: Tensor) -> Tensor:
        """Return all cut layers in one row."""
        blocks = torch.tensor_split(x, len(self.parts), dim=-1)
        found = [part(block) for part, block in zip(self.parts, blocks, strict=True)]
        return torch.cat(found, dim=1)


@dataclass(frozen=True)
class Apiece:
    """One owner's compressor, used by every owner on its own values."""

    codec: Codec

    @property
    def l1_weight(self) -> float:
        """Return the weight of the penalty."""
        return self.codec.l1_weight

    def apply(self, h: Tensor, **how: Any) -> Tensor:
        """Return what arrives of the cut layers of all owners."""
        return self.codec.apply(h.reshape(-1, self.codec.width), **how).reshape(h.shape)

    def penalty(self, h: Tensor) -> Tensor:
        """Return the penalty over all owners."""
        return self.codec.penalty(h.reshape(-1, self.codec.width))


class Joined(nn.Module):
    """Both parts as one classifier, with what the compressor lets through between them."""

    def __init__(self, halves: Halves) -> None:
        super().__init__()
        self.bottom, self.top, self._halves = halves.bottom, halves.top, halves

    def forward(self, x: Tensor) -> Tensor:
        """Return (rows, classes) logits."""
        return self._halves.serve(x)


def target_of_split(
    spec: SplitSpec,
    search: Sequence[Path] = (),
    *,
    rows: int | None = None,
    how: CutAudit = CutAudit(),  # noqa: B008  it is frozen
) -> Target:
    """Train both parts on half of all rows, and attack what either side sees.

    Args:
        spec: where the rows of all owners come from, and how they train.
        search: folders that may hold data sets.
        rows: at most so many of each half.
        how: what the attacker holds, and where it looks.

    Raises:
        ConfigError: a model of sequences, or a job that serves.
        DataError: rows of owners that do not belong together.
    """
    if spec.model.vocabulary is not None:
        raise ConfigError(f"audit: wanted a model that reads numbers, got {spec.model.kind!r}")
    x, y, classes = _join_columns(spec, search)
    trainer = SplitTrainer(spec=spec.with_classes(classes))
    target = split_target(trainer, x, y, rows=rows, how=how)
    return replace(target, picture=picture_of_set(spec.data.set, search))


def split_target(
    trainer: SplitTrainer,
    x: Tensor,
    y: Tensor,
    *,
    rows: int | None = None,
    how: CutAudit = CutAudit(),  # noqa: B008  it is frozen
) -> Target:
    """Do the same with rows that are there.

    Args:
        trainer: says how.
        x: the columns of all feature owners side by side, in equal blocks; the label owner's own
            last.
        y: a class for each.
        rows: at most so many of each half.
        how: what the attacker holds, and where it looks.
    """
    members, others = halve_rows((x, y), rows)
    spec = trainer.spec
    watch = Watch(len(members[1]), spec.train)
    halves = trainer.train(*members, seed=0, watch=watch)
    return Target(
        model=TorchClassifier(Joined(halves)),
        trainer=trainer,
        members=members,
        non_members=others,
        classes=spec.classes,
        threats=("scores", "labels", "shadows"),
        findings=(
            *_attack_gradients(spec, watch, members, how.leaked_per_class),
            *_attack_cut(trainer, halves, (members, others), how),
        ),
        claims=spec.claims(),
        notes=(
            "Attacked: both parts, trained here on half of all rows as the job says.",
            "No party holds both parts: attacks on all weights are left out.",
        ),
    )


def _join_columns(spec: SplitSpec, search: Sequence[Path]) -> tuple[Tensor, Tensor, int]:
    """Return the rows of all owners, their classes, and how many there are."""
    if spec.data.set is not None:
        whole = load_whole(spec, search)
        x = torch.cat([whole.train_x, whole.test_x])
        return x, torch.cat([whole.train_y, whole.test_y]), whole.classes
    parts = {party: load_own(spec, party) for party in spec.data.parties}
    if spec.data.match is not None:
        parts = align_in_the_clear(parts)
    counts = {party: len(one) for party, one in parts.items()}
    if len(set(counts.values())) != 1:
        raise DataError(f"wanted the same rows in the file of every party, got {counts}")
    columns = [parts[owner].features for owner in spec.data.blocks]
    x = torch.from_numpy(np.concatenate(columns, axis=1)).float()
    x = (x - x.mean(0)) / x.std(0).clamp(min=1e-6)
    y = parts[spec.data.labels].labels
    if y is None:
        raise ConfigError("audit: wanted a job that trains, got [serve]")
    return x, torch.from_numpy(y), spec.data.classes or int(y.max()) + 1


def _attack_gradients(
    spec: SplitSpec, watch: Watch, members: Side, per_class: int
) -> tuple[Finding, ...]:
    """Read the labels of the rows trained on off the gradients; those of all owners together."""
    blocks = torch.tensor_split(members[0], spec.bottoms, dim=-1)
    seen, truth = watch.see(
        spec.feature_owners[0],
        members[1],
        per_class=per_class,
        classes=spec.classes,
        defences=spec.defences,
        inputs=torch.cat(blocks[: len(spec.feature_owners)], dim=-1),
    )
    told = audit_gradients(seen, truth, per_class=per_class)
    return tuple(
        judge(_GRADIENT_THREAT, one.name, one, curves=told.curves, remedies=_GRADIENT_REMEDIES)
        for one in told.metrics
    )


def _attack_cut(
    trainer: SplitTrainer,
    halves: Halves,
    both: tuple[Side, Side],
    how: CutAudit,
) -> tuple[Finding, ...]:
    """Attack labels and inputs at the first feature owner's cut."""
    count = trainer.spec.bottoms
    bottom = halves.bottom.parts[0] if isinstance(halves.bottom, SideBySide) else halves.bottom
    codec = halves.codec.codec if isinstance(halves.codec, Apiece) else halves.codec
    sides = [
        (torch.tensor_split(x, count, dim=-1)[0][:_LARGEST_AUDIT], y[:_LARGEST_AUDIT])
        for x, y in both
    ]
    shape = sides[0][0].shape[1:]
    target = SplitTarget(
        bottom=bottom,
        make_model=lambda: trainer.spec.model(shape, trainer.spec.classes),
        pool=sides[0],
        targets=sides[1],
        classes=trainer.spec.classes,
        before=how.before,
        as_sent=lambda h: codec.apply(h, is_training=False),
    )
    labels = audit_labels(target, per_class=how.leaked_per_class)
    found = [
        judge(_LABEL_THREAT, one.name, one, remedies=_LABEL_REMEDIES)
        for one in labels
        if one.reference is not None
    ]
    inputs = audit_inputs(target)
    # Here small is bad: an error below that of guessing the mean.
    is_found = (inputs.high or 0.0) < (inputs.reference or 0.0)
    rebuilt = judge(_INPUT_THREAT, inputs.name, inputs, remedies=_INPUT_REMEDIES)
    return (*found, replace(rebuilt, is_found=is_found))
