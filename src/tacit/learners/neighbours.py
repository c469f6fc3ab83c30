"""Nearest neighbours: distances to all rows that are known, and a vote of the closest."""

from functools import reduce
from typing import Any

from tacit.errors import DataError
from tacit.learners.arithmetic import fixed
from tacit.learners.classify import Classifier
from tacit.learners.tables import Table
from tacit.mpc.walker import Values, Walker


class KNeighbors(Classifier):
    """Classes by the vote of the nearest rows; which rows those are is never shown.

    Args:
        n_neighbors: how many vote.
    """

    chances = "none"

    def __init__(self, n_neighbors: int = 5) -> None:
        self.n_neighbors = n_neighbors

    def _check(self, data: Table) -> None:
        super()._check(data)
        if not 1 <= self.n_neighbors <= data.shape[0]:
            raise DataError(
                f"n_neighbors must be from 1 to {data.shape[0]} rows, got {self.n_neighbors}"
            )

    def _walk(self, walker: Walker, data: Table) -> None:
        uses = {"x": data.load(walker), "y": data.load_labels(walker)}
        walker.run(_remember, uses=uses, gives=f"{self._name}/")

    def _scores(self, walker: Walker, data: Table, name: str) -> None:
        uses = {"x": data.load(walker)}
        uses |= {one: f"{name}/{one}" for one in ("known", "half_squares", "y")}
        walker.run(_votes, uses=uses, gives=f"{name}/", count=self.n_neighbors)


def _remember(ops: Any, values: Values) -> Values:
    x = fixed(ops, values["x"])
    half = fixed(ops, ops.scale(ops.total(ops.square(x), dim=1), 0.5))
    return {"known": x, "half_squares": half, "y": values["y"]}


def _votes(ops: Any, values: Values, *, count: int) -> Values:
    """Add up the classes of the rows with the largest x·k - |k|²/2."""
    x, known, y = values["x"], values["known"], values["y"]
    ops.cache_openings(known)
    products = fixed(ops, ops.matmul(x, ops.transpose(known, 0, 1)))
    closeness = fixed(ops, ops.sub(products, ops.reshape(values["half_squares"], (1, -1))))
    rows, others = ops.shape(closeness)
    classes = ops.shape(y)[1]
    spread = [
        ops.add(ops.scale(closeness, 0.0), ops.reshape(ops.take(y, (at,), dim=1), (1, others)))
        for at in range(classes)
    ]
    _, *best = ops.top(closeness, count=count, payload=spread)
    votes = [ops.reshape(ops.sum(fixed(ops, one), dim=1), (rows, 1)) for one in best]
    # Of equal votes the first class wins, as in scikit-learn.
    votes = [ops.shift(one, -(2.0**-6) * at / classes) for at, one in enumerate(votes)]
    return {"scores": reduce(lambda a, b: ops.concatenate([a, b], dim=1), votes)}
