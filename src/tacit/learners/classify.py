"""What classifiers have in common: scores per class in, classes and accuracy out."""

from abc import abstractmethod
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor

from tacit.errors import DataError
from tacit.learners.arithmetic import fixed
from tacit.learners.base import Learner, positions
from tacit.learners.engine import Values, Walker
from tacit.learners.tables import Table


class Classifier(Learner):
    """A learner of classes; one subclass says how to score them."""

    def _check(self, data: Table) -> None:
        super()._check(data)
        if data.classes < 2:
            raise DataError(
                f"{type(self).__name__} wants labels that name two classes at least, got "
                + ("numbers or none" if not data.classes else "a single class")
            )

    def _set_results(self, data: Table) -> None:
        super()._set_results(data)
        names = self.parties_.classes.get(data.name, tuple(range(data.classes)))
        self.classes_ = np.asarray(names)

    @abstractmethod
    def _scores(self, walker: Walker, data: Table, name: str) -> None:
        """Keep scores (rows, classes) under ``name/scores``."""

    def _answer(self, walker: Walker, data: Table, name: str) -> None:
        self._scores(walker, data, name)
        walker.run(_classes, uses={"scores": f"{name}/scores"}, gives=f"{name}/")

    def _rate(self, walker: Walker, data: Table, name: str) -> None:
        self._scores(walker, data, name)
        uses = {"scores": f"{name}/scores", "y": data.load_labels(walker)}
        walker.run(_right, uses=uses, gives=f"{name}/")

    def _worded(self, answers: Tensor) -> npt.NDArray[Any]:
        found: npt.NDArray[Any] = self.classes_[positions(answers).astype(int)]
        return found


def _classes(ops: Any, values: Values) -> Values:
    return {"answers": ops.argmax(values["scores"], dim=1)}


def _right(ops: Any, values: Values) -> Values:
    """Count the rows whose class has the largest score."""
    hot = ops.argmax_one_hot(values["scores"], dim=1)
    right = ops.sum(ops.gate(hot, values["y"]), dim=1)
    return {"score": ops.reshape(ops.sum(fixed(ops, right), dim=0), (1,))}
