"""Shadow models of a user's own scikit-learn classifier."""

from dataclasses import dataclass
from typing import final

from torch import Tensor

from tacit.audit import SklearnTrainer
from tacit.audit.target import SklearnClassifier
from tacit.cli.jobs.code import OwnModel


@final
@dataclass(frozen=True, kw_only=True)
class OwnTrainer:
    """Fits a user's own scikit-learn classifier.

    It travels as the file's text: a worker could not look up a class that the file defines.
    """

    own: OwnModel
    classes: int

    @property
    def recipe(self) -> str:
        """Return the estimator with all its settings, and the code."""
        return self._trainer().recipe

    def __call__(self, x: Tensor, y: Tensor, *, seed: int) -> SklearnClassifier:
        """Return a copy fitted to these rows alone."""
        return self._trainer()(x, y, seed=seed)

    def _trainer(self) -> SklearnTrainer:
        return SklearnTrainer(estimator=self.own.make(), classes=self.classes)
