"""A classifier of one's own under audit: who was trained on and who was not, model and trainer.

It is trained here on the members, or was elsewhere, and its weights lie in a file.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, final

import numpy as np
import torch
from torch import Tensor, nn

from tacit.audit.membership import Effort
from tacit.audit.privacy.claims import claim_of_training, try_training
from tacit.audit.spec import AuditData, AuditPrivacy, AuditSpec
from tacit.audit.target import (
    Classifier,
    SklearnClassifier,
    SklearnTrainer,
    TorchClassifier,
    TorchTrainer,
    Trainer,
    code_of,
    code_of_module,
)
from tacit.audit.targets.target import Side, Target, Tested, picture_of_set, take_rows
from tacit.audit.views import fresh, prg_of
from tacit.data import Rows, Source, load_file, split_dataset
from tacit.dp import DpSgd, train_dp_sgd
from tacit.errors import ConfigError, DataError
from tacit.federated import build_model
from tacit.nn.code import OwnModel
from tacit.nn.weights import load_weights
from tacit.ring import check_device

_MOST_SHARED = 0.5
_SAID = {
    True: "Members and strangers are those that the job names; the audit is as right as they are.",
    False: "Members and strangers were drawn here, and the model was trained here on the members.",
}


@final
@dataclass(frozen=True)
class Build:
    """Makes a model of the table of federated learning; first weights follow torch's generator."""

    name: str
    shape: tuple[int, ...]
    classes: int
    dropout: float = 0.0

    def __call__(self) -> nn.Module:
        """Return a fresh module."""
        seed = torch.initial_seed() % 2**31
        return build_model(self.name, self.shape, self.classes, seed=seed, dropout=self.dropout)


@final
@dataclass(frozen=True, kw_only=True)
class DpTrainer:
    """Trains by DP-SGD. Noise follows from the seed, so that an audit can be repeated.

    It offers no plain modules: a game that trains them without noise would not be about this.

    Guarantee: none. Whoever knows the seed knows the noise; nothing that is trained here may be
    given away.
    """

    make: Callable[[], nn.Module]
    settings: DpSgd

    @property
    def recipe(self) -> str:
        """Return model, settings and code, as text."""
        made = repr(self.make), code_of_module(fresh(self.make, 0))
        return "\n".join([*made, repr(self.settings), code_of(train_dp_sgd)])

    def __call__(self, x: Tensor, y: Tensor, *, seed: int) -> TorchClassifier:
        """Return a module trained on these rows alone."""
        module = fresh(self.make, seed)
        train_dp_sgd(module, x, y, self.settings, prg=prg_of(seed))
        return TorchClassifier(module)


@final
@dataclass(frozen=True, kw_only=True)
class EstimatorTrainer:
    """Fits a scikit-learn classifier that a function makes.

    The function travels to workers and not the estimator: they could not look up a class that a
    user's own file defines.
    """

    make: Callable[[], Any]  # scikit-learn is untyped
    classes: int

    @property
    def recipe(self) -> str:
        """Return the estimator with all its settings, and the code."""
        return self._trainer().recipe

    def __call__(self, x: Tensor, y: Tensor, *, seed: int) -> SklearnClassifier:
        """Return a copy fitted to these rows alone."""
        return self._trainer()(x, y, seed=seed)

    def _trainer(self) -> SklearnTrainer:
        return SklearnTrainer(estimator=self.make(), classes=self.classes)


def own_target(spec: AuditSpec, search: Sequence[Path] = ()) -> Target:
    """Load members and strangers, and train or load the model.

    Args:
        spec: which rows and model, what is claimed, and what is swept.
        search: folders that may hold data sets.
    """
    members, non_members, classes = load_sides(spec, search)
    trainer = trainer_of(spec, tuple(members[0].shape[1:]), classes)
    if spec.model.file is not None and not isinstance(trainer, EstimatorTrainer):
        module = fresh(trainer.make if isinstance(trainer, DpTrainer) else trainer.build, 0)
        load_weights(module, spec.model.file)
        model: Classifier = TorchClassifier(module)
    else:
        model = trainer(*members, seed=spec.audit.seed)
    private = spec.privacy
    return Target(
        model=model,
        trainer=trainer,
        members=members,
        non_members=non_members,
        classes=classes,
        notes=(_SAID[spec.data.names_members],),
        picture=picture_of_set(spec.data.set, search),
        put_to_the_test=None
        if private is None
        else partial(_try_training, private, members, trainer, classes),
        swept=_swept(spec, tuple(members[0].shape[1:]), classes),
    )


def load_sides(spec: AuditSpec, search: Sequence[Path] = ()) -> tuple[Side, Side, int]:
    """Load members, strangers, and the number of classes.

    Raises:
        DataError: no labels, files whose columns differ, or rows that are on both sides.
    """
    data = spec.data
    members, strangers = _name_sides(data, search)
    shares = (members, 1 - data.test_share), (strangers, data.test_share)
    inside, outside = (
        to_side(one, rows=None if data.rows is None else round(share * data.rows))
        for one, share in shares
    )
    if data.names_members:
        check_apart(inside, outside)
    return inside, outside, max(len(members.classes), len(strangers.classes))


def trainer_of(
    spec: AuditSpec, shape: tuple[int, ...], classes: int
) -> DpTrainer | EstimatorTrainer | TorchTrainer:
    """Return what trains target and shadow models."""
    build: Build | OwnModel = Build(spec.model.name, shape, classes, spec.model.dropout)
    if spec.model.code is not None:
        build = OwnModel.read(spec.model.code)
        found = build.make()
        if not isinstance(found, nn.Module):
            _check_estimator(spec, found)
            return EstimatorTrainer(make=build.make, classes=classes)
    if spec.privacy is not None:
        return DpTrainer(make=build, settings=spec.privacy)
    check_device(spec.train.device, "train.device")
    return TorchTrainer(build=build, **asdict(spec.train))


def _name_sides(data: AuditData, search: Sequence[Path]) -> tuple[Rows, Rows]:
    if data.members is not None and data.strangers is not None:
        inside, outside = (
            load_file(one, label=data.label) for one in (data.members, data.strangers)
        )
        check_alike(inside, outside)
        return inside, outside
    whole = Source(set=data.set, file=data.file, label=data.label).whole(search)
    if data.member is not None:
        return divide_by_column(whole, data.member)
    return draw_sides(whole, test_share=data.test_share)


def _check_estimator(spec: AuditSpec, found: object) -> None:
    if not hasattr(found, "predict_proba") or not hasattr(found, "get_params"):
        raise ConfigError(
            "model.code: wanted a function that returns a torch module or a scikit-learn "
            f"classifier with predict_proba, got {type(found).__name__}"
        )
    if spec.privacy is not None or spec.model.file is not None:
        raise ConfigError(
            "model.code: a scikit-learn model is fitted here, without DP-SGD; "
            "leave [privacy] and model.file out"
        )


def _try_training(
    privacy: AuditPrivacy, members: Side, trainer: Trainer, classes: int, effort: Effort
) -> Tested:
    """Try what the audit claims about ε."""
    claim = claim_of_training(
        privacy,
        delta=privacy.delta,
        records=len(members[1]),
        claimed_epsilon=privacy.claimed_epsilon,
    )
    findings, verdicts = try_training(
        privacy, claim, members, effort, trainer=trainer, classes=classes
    )
    claims = tuple(dict.fromkeys(one.claim for one in verdicts))
    return Tested(findings=tuple(findings), verdicts=verdicts, claims=claims)


def _swept(
    spec: AuditSpec, shape: tuple[int, ...], classes: int
) -> tuple[str, Mapping[str, Trainer]]:
    setting = spec.audit.sweep_setting
    return setting, {
        f"{setting} {value:g}": trainer_of(spec.swept(value), shape, classes)
        for value in spec.audit.sweep
    }


def draw_sides(whole: Rows, *, test_share: float) -> tuple[Rows, Rows]:
    """Draw members, and a share of strangers: right for a model that is trained on these members.

    Args:
        whole: all rows.
        test_share: of the rows, that are strangers.
    """
    inside, outside = (
        split_dataset(whole, part=part, test_share=test_share) for part in ("train", "test")
    )
    return inside, outside


def divide_by_column(whole: Rows, column: str) -> tuple[Rows, Rows]:
    """Divide rows by a column of ones, the members, and zeros, which is no feature.

    Raises:
        DataError: no such column, or something else in it.
    """
    if column not in whole.columns:
        raise DataError(
            f"{whole.name}: wanted a column {column!r} with 1 for members and 0 for strangers, got "
            f"{', '.join(whole.columns[:8]) or 'no names of columns'}"
        )
    at = whole.columns.index(column)
    flags = whole.features[:, at]
    if set(np.unique(flags)) != {0.0, 1.0}:
        raise DataError(
            f"{whole.name}: wanted both 1 for members and 0 for strangers in {column!r}, and "
            "nothing else"
        )
    rest = whole.without(column)
    return rest.take(np.flatnonzero(flags == 1.0)), rest.take(np.flatnonzero(flags == 0.0))


def check_alike(inside: Rows, outside: Rows) -> None:
    """Refuse strangers whose columns are not those of the members.

    Raises:
        DataError: they differ in number, order or name.
    """
    shapes = inside.features.shape[1:], outside.features.shape[1:]
    if inside.columns != outside.columns or shapes[0] != shapes[1]:
        raise DataError(
            f"wanted the same columns in {inside.name} and {outside.name}, got rows of "
            f"shape {shapes[0]} and {shapes[1]}"
            + (", in another order or by other names" if shapes[0] == shapes[1] else "")
        )


def to_side(found: Rows, *, rows: int | None = None) -> Side:
    """Return scaled rows and labels as tensors, at most so many.

    Raises:
        DataError: no labels.
    """
    if found.labels is None:
        raise DataError(f"data set {found.name!r} has no labels to predict; wanted data.label")
    x = torch.tensor(found.features, dtype=torch.float32)
    return take_rows((x, torch.tensor(found.labels)), rows)


def check_apart(members: Side, strangers: Side) -> None:
    """Refuse strangers that are members: the same file twice, or one that holds the other.

    Raises:
        DataError: more than half of the strangers are among the members.
    """
    known = {row.numpy().tobytes() for row in members[0]}
    both = sum(row.numpy().tobytes() in known for row in strangers[0])
    if both > _MOST_SHARED * len(strangers[0]):
        raise DataError(
            "wanted strangers that the model was not trained on, but "
            f"{both} of {len(strangers[0])} are among the members too"
        )
