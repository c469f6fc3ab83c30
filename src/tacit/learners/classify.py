"""What classifiers have in common: scores per class in, classes and accuracy out."""

from abc import abstractmethod
from functools import partial
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from tacit.errors import ConfigError, DataError, InputError
from tacit.learners.arithmetic import fixed, ones_like_rows
from tacit.learners.base import Learner, positions
from tacit.learners.ranking import STRETCH, count_bins, in_steps, rank
from tacit.learners.tables import Table
from tacit.mpc.walker import Program, Values, Walker


class Classifier(Learner):
    """A learner of classes; one subclass says how to score them."""

    chances: Literal["logits", "shares", "none"] = "logits"
    """What scores are: logarithms of chances up to a constant, chances, or neither."""

    def _check(self, data: Table) -> None:
        super()._check(data)
        if data.classes < 2:
            raise DataError(
                f"{type(self).__name__} wants labels that name two classes at least, got "
                + ("numbers or none" if not data.classes else "a single class")
            )

    def _check_labels(self, data: Table) -> None:
        super()._check_labels(data)
        known, names = self.classes_.tolist(), self.parties_.classes.get(data.name)
        if not data.classes:
            raise DataError("wanted rows with labels that name classes, got numbers or none")
        if data.classes > len(known):
            raise DataError(
                f"the labels name {data.classes} classes, and {len(known)} were learned"
            )
        if names is not None and list(names) != known:
            raise DataError(
                f"wanted labels of the classes {known}, in this order, as they were learned; got "
                f"{list(names)}"
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
        self._compare(walker, data, name, program=_right)

    def _compare(
        self, walker: Walker, data: Table, name: str, *, program: Program, **public: Any
    ) -> None:
        """Run a program on scores and labels."""
        self._scores(walker, data, name)
        uses = {"scores": f"{name}/scores", "y": self._labels(walker, data)}
        walker.run(program, uses=uses, gives=f"{name}/", **public)

    def _labels(self, walker: Walker, data: Table) -> str:
        """Share labels with a column for every class that was learned, also where few occur."""
        return data.load_labels(walker, len(self.classes_))

    def confusion(
        self, data: Table, *, to: tuple[str, ...] | None = None
    ) -> npt.NDArray[Any] | None:
        """Open how many rows of each class (down) are taken for which class (across)."""
        self._check_labels(data)
        walk = partial(self._compare, program=_confused)
        found = self._opened(walk, data, "confusion", to, "the declared confusion matrix")
        return None if found is None else torch.round(found.double()).long().numpy()

    def auc(self, data: Table, *, to: tuple[str, ...] | None = None) -> float | None:
        """Open the area under the ROC curve of two classes and its error, and no count beside it.

        Scores are put into 1,024 bins (`tacit.learners.ranking`); rows of one bin count as equal.
        `ranked` gives the bound of that error too.
        Cost: 62 comparisons for each row, and KS after it next to nothing more.
        Range: NaN where the rows are all of one class, which this tells as well.
        """
        found = self.ranked(data, "auc", to=to)
        return None if found is None else found[0]

    def ks(self, data: Table, *, to: tuple[str, ...] | None = None) -> float | None:
        """Open how far apart the shares of both classes above a score get (Kolmogorov, Smirnov).

        Cost, range and error: as `auc`, with whose bins it begins.
        """
        found = self.ranked(data, "ks", to=to)
        return None if found is None else found[0]

    def ranked(
        self, data: Table, what: Literal["auc", "ks"], *, to: tuple[str, ...] | None = None
    ) -> tuple[float, float] | None:
        """Open AUC or KS, and by how much at most the bins of scores have moved it."""
        self._two_classes(what)
        self._check_labels(data)
        why = f"the declared {what.upper()}, and how exact it is"
        found = self._opened(partial(self._rank, what=what), data, what, to, why)
        if found is None:
            return None
        value, error = found.double().reshape(-1).tolist()
        return (value, max(error, 0.0)) if value > -0.5 else (float("nan"), 0.0)

    def calibration(
        self, data: Table, *, bins: int = 10, to: tuple[str, ...] | None = None
    ) -> npt.NDArray[Any] | None:
        """Open, for equal steps of the chance given to class 1, what came of it.

        Returns:
            One line per step: how many rows, their mean chance, and the share of class 1.
        """
        self._two_classes("calibration")
        if self.chances == "none":
            raise InputError(f"{type(self).__name__} gives margins, which are no chances")
        if not 2 <= bins <= 100:
            raise ConfigError(f"bins must be from 2 to 100, got {bins}")
        walk = partial(self._compare, program=_by_chance, bins=bins, chances=self.chances)
        self._check_labels(data)
        found = self._opened(walk, data, "calibration", to, "the declared calibration")
        if found is None:
            return None
        counts, chances, classes = found.double().T.numpy()
        whole = np.maximum(counts, 1)
        return np.stack([counts, chances / whole, classes / whole], axis=1)

    def _two_classes(self, what: str) -> None:
        self._fitted()
        if len(self.classes_) != 2:
            raise InputError(f"{what} wants a learner of two classes, got {len(self.classes_)}")

    def _rank(self, walker: Walker, data: Table, name: str, *, what: str) -> None:
        kept, rows = f"{name}/{data.name}/", data.shape[0]
        if f"{kept}bins" not in walker.facts:
            self._scores(walker, data, name)
            uses = {"scores": f"{name}/scores", "y": self._labels(walker, data)}
            for at in range(0, rows, STRETCH):
                end = min(at + STRETCH, rows)
                walker.run(
                    count_bins, uses=uses, gives=kept, first=at, end=end, chances=self.chances
                )
                uses["bins"] = f"{kept}bins"
        walker.run(rank, uses={"bins": f"{kept}bins"}, gives=f"{name}/", rows=rows, what=what)

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


def _confused(ops: Any, values: Values) -> Values:
    hot = ops.argmax_one_hot(values["scores"], dim=1)
    return {"confusion": ops.pick(ops.transpose(values["y"], 0, 1), hot)}


def _by_chance(ops: Any, values: Values, *, bins: int, chances: str) -> Values:
    """Sum rows, chances and classes over steps of the chance of class 1: (bins, 3)."""
    scores, y = values["scores"], values["y"]
    rows = ops.shape(y)[0]
    first, second = (ops.take(scores, (at,), dim=1) for at in (0, 1))
    chance = second if chances == "shares" else ops.sigmoid(fixed(ops, ops.sub(second, first)))
    chance = ops.restate(fixed(ops, chance), bound=1.01)
    edges = torch.arange(1, bins, dtype=torch.float64).reshape(1, -1) / bins
    wide = ops.take(chance, [0] * (bins - 1), dim=1)
    is_above = ops.indicate(fixed(ops, ops.offset(wide, -edges)))  # (rows, bins - 1)
    one = ones_like_rows(ops, chance)
    parts = [fixed(ops, part) for part in (one, chance, ops.take(y, (1,), dim=1))]
    across = ops.transpose(in_steps(ops, is_above), 0, 1)
    found = ops.pick(across, ops.concatenate(parts, dim=1))
    return {"calibration": ops.restate(fixed(ops, found), bound=1.01 * rows)}
