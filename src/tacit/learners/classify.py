"""What classifiers have in common: scores per class in, classes and accuracy out."""

from abc import abstractmethod
from functools import partial
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from tacit.errors import ConfigError, DataError, InputError
from tacit.learners.arithmetic import fixed, inverse, mean
from tacit.learners.base import Learner, positions
from tacit.learners.tables import Table
from tacit.mpc.walker import Program, Values, Walker

PAIRS = 1 << 20
"""How many pairs of rows are compared at once."""


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
        """Open the area under the ROC curve of two classes, and no count beside it.

        Every pair of rows is compared, so that equal scores count one half, as they should.
        Cost: a comparison for each of rows² pairs, `PAIRS` of them at a time.
        Range: to about 2e-3 where the rarer class has 1 % of the rows or more; NaN where the rows
        are all of one class, which is the only other thing that this tells.
        """
        self._two_classes("auc")
        self._check_labels(data)
        found = self._opened(self._area, data, "auc", to, "the declared AUC")
        if found is None:
            return None
        area = float(found.reshape(-1)[0])
        return area if area > -0.5 else float("nan")

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

    def _area(self, walker: Walker, data: Table, name: str) -> None:
        self._scores(walker, data, name)
        uses = {"scores": f"{name}/scores", "y": self._labels(walker, data)}
        rows = data.shape[0]
        step = max(1, PAIRS // rows)
        for at in range(0, rows, step):
            kept = {"pairs": f"{name}/pairs"} if at else {}
            end = min(at + step, rows)
            walker.run(_pairs, uses=uses | kept, gives=f"{name}/", first=at, end=end)
        walker.run(_area_of, uses={"pairs": f"{name}/pairs", "y": uses["y"]}, gives=f"{name}/")

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


def _pairs(ops: Any, values: Values, *, first: int, end: int) -> Values:
    """Count pairs of classes 1 and 0 in the right order, of some rows with all; ties count half.

    With g the outcome of s ≥ t, a pair (s, t) is worth (g(s, t) + 1 - g(t, s)) / 2.
    """
    scores, y = values["scores"], values["y"]
    rows = ops.shape(y)[0]
    margin = ops.sub(*(ops.take(scores, (at,), dim=1) for at in (1, 0)))
    some = ops.reshape(ops.take(margin, range(first, end), dim=0), (end - first, 1))
    beyond = ops.sub(some, ops.reshape(margin, (1, rows)))
    both = ops.concatenate([beyond, ops.scale(beyond, -1.0)], dim=1)
    is_above = ops.indicate(fixed(ops, both))
    ahead = ops.sub(
        ops.shift(ops.take(is_above, range(rows), dim=1), 1.0),
        ops.take(is_above, range(rows, 2 * rows), dim=1),
    )
    others = ops.take(y, (0,), dim=1)
    beaten = ops.restate(ops.matmul_whole(ahead, others), bound=2.0 * rows)  # (some, 1)
    mine = ops.take(ops.take(y, (1,), dim=1), range(first, end), dim=0)
    # In shares of all rows: sums of whole numbers would not leave room for digits.
    worth = ops.gate(mine, fixed(ops, ops.scale(beaten, 0.5 / rows)))
    total = mean(ops, ops.sum(fixed(ops, worth), dim=0), rows)
    if "pairs" in values:
        total = ops.add(total, values["pairs"])
    return {"pairs": ops.restate(fixed(ops, ops.reshape(total, (1,))), bound=1.0)}


def _area_of(ops: Any, values: Values) -> Values:
    """Divide by the share of pairs of both classes, brought near 1 by a factor of 4; -1 of none."""
    y = values["y"]
    rows = ops.shape(y)[0]
    share = mean(ops, ops.sum(ops.take(y, (1,), dim=1), dim=0), rows)
    share = ops.restate(fixed(ops, share), bound=1.01)
    mixed = fixed(ops, ops.mul(share, ops.shift(ops.scale(share, -1.0), 1.0)))
    found = ops.mul(
        fixed(ops, ops.scale(values["pairs"], 4.0)), inverse(ops, ops.scale(mixed, 4.0))
    )
    # One row of the other class makes a share of (rows - 1) / rows².
    is_none = ops.indicate(ops.shift(ops.scale(mixed, -1.0), 0.5 / rows))
    area = ops.restate(fixed(ops, found), bound=1.01)
    return {"auc": fixed(ops, ops.sub(area, fixed(ops, is_none)))}


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
    one = ops.shift(ops.scale(ops.take(is_above, (0,), dim=1), 0.0), 1.0)
    zero = ops.scale(one, 0.0)
    hot = ops.sub(ops.concatenate([one, is_above], dim=1), ops.concatenate([is_above, zero], dim=1))
    parts = [fixed(ops, part) for part in (one, chance, ops.take(y, (1,), dim=1))]
    across = ops.transpose(ops.restate(hot, bound=1.0), 0, 1)
    found = ops.pick(across, ops.concatenate(parts, dim=1))
    return {"calibration": ops.restate(fixed(ops, found), bound=1.01 * rows)}
