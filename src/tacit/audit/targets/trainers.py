"""Trainers of models like the target, beyond plain gradient descent: DP-SGD, own estimators."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, final

import torch
from torch import Tensor, nn

from tacit.audit.target import (
    SklearnClassifier,
    SklearnTrainer,
    TorchClassifier,
    code_of,
    code_of_module,
    fresh,
)
from tacit.audit.views import prg_of
from tacit.dp import DpSgd, train_dp_sgd
from tacit.federated import build_model


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
