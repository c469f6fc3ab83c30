"""Preparing features: means and variances that nobody sees, and principal components."""

from dataclasses import replace
from math import ceil, log2
from typing import Any

import numpy as np
import torch

from tacit.errors import DataError
from tacit.learners.arithmetic import (
    diagonal,
    excess_bits,
    fixed,
    gram,
    inverse,
    mean,
    public_coins,
    reduced,
)
from tacit.learners.base import Learner
from tacit.learners.tables import Table, check_alike
from tacit.mpc.walker import Values, Walker

LARGEST_SCALED = 16.0
"""Scaled features saturate at so many standard deviations."""


START = 4.0
"""Length of the public vector that a power is applied to, which makes none longer."""


class StandardScaler(Learner):
    """Bring features to mean 0 and variance 1, without showing either.

    Owners of columns can do that alone; owners of rows cannot without telling their means.

    Attributes:
        mean_: (1, columns).
        scale_: the inverse of the standard deviations, (1, columns); at most 16.
    """

    results = ("mean", "scale")

    def _walk(self, walker: Walker, data: Table) -> None:
        walker.run(_spread, uses={"x": data.load(walker)}, gives=f"{self._name}/")

    def transform(self, data: Table) -> Table:
        """Return the table with scaled features, which stay shares; labels come along."""
        name, parties = self._fitted(), self.parties_
        check_alike(self.data_, data)
        made = replace(
            data,
            name=parties.name("scaled table"),
            holdings=tuple(replace(one, bound=LARGEST_SCALED) for one in data.holdings),
            values={},
            is_shared=True,
        )

        def work(walker: Walker) -> None:
            uses = {"x": data.load(walker), "mean": f"{name}/mean", "scale": f"{name}/scale"}
            walker.run(_scaled, uses=uses, gives=f"{made.name}/")

        self._try(data, "scaled", work)
        parties.do(work)
        if data.name in parties.classes:
            parties.classes[made.name] = parties.classes[data.name]
        return made

    def fit_transform(self, data: Table, parties: Any) -> Table:
        """Fit, and return the scaled table."""
        return self.fit(data, parties).transform(data)


def _spread(ops: Any, values: Values) -> Values:
    x = fixed(ops, values["x"])
    rows, bound = ops.shape(x)[0], ops.number(x, "scaling").bound
    centre = ops.restate(mean(ops, ops.sum(x, dim=0), rows), bound=bound)
    centre = ops.reshape(centre, (1, -1))
    off = fixed(ops, ops.sub(x, centre))
    spread = mean(ops, ops.sum(fixed(ops, ops.square(off)), dim=0), rows)
    spread = ops.restate(spread, bound=4 * bound**2)
    return {"mean": centre, "scale": ops.reshape(fixed(ops, ops.rsqrt(spread)), (1, -1))}


def _scaled(ops: Any, values: Values) -> Values:
    off = fixed(ops, ops.sub(values["x"], values["mean"]))
    scaled = fixed(ops, ops.mul(off, values["scale"]))
    return {"x": ops.cap(scaled, bound=LARGEST_SCALED)}


class PCA(Learner):
    """Principal components, strongest first.

    Each is the direction to which repeated squaring of the covariance leads; then it is taken
    out. Variances that differ by less than a few per cent give directions that mix.

    Args:
        n_components: how many.
        squarings: of the covariance; 2^squarings is its power.
        random_state: of the public vector that the power is applied to.

    Attributes:
        components_: (n_components, columns).
        explained_variance_: (n_components, 1).
        mean_: (1, columns).
    """

    results = ("components", "explained_variance", "mean")

    def __init__(self, n_components: int = 2, *, squarings: int = 9, random_state: int = 0) -> None:
        self.n_components = n_components
        self.squarings = squarings
        self.random_state = random_state

    def _check(self, data: Table) -> None:
        super()._check(data)
        if not 1 <= self.n_components <= data.shape[1]:
            raise DataError(
                f"n_components must be from 1 to {data.shape[1]} columns, got {self.n_components}"
            )

    def _walk(self, walker: Walker, data: Table) -> None:
        name = f"{self._name}/"
        walker.run(_covariance, uses={"x": data.load(walker)}, gives=name)
        coins = public_coins(self.random_state)
        rest = f"{name}covariance"
        for at in range(self.n_components):
            drawn = coins.normal(size=data.shape[1])
            start = tuple((START / np.linalg.norm(drawn) * drawn).tolist())
            here = f"{name}{at}/"
            uses = {"rest": rest, "covariance": f"{name}covariance"}
            walker.run(_strongest, uses=uses, gives=here, squarings=self.squarings, start=start)
            rest = f"{here}rest"
        uses = {
            f"{what} {at}": f"{name}{at}/{what}"
            for at in range(self.n_components)
            for what in ("vector", "variance")
        }
        rows = data.shape[0]
        walker.run(_stacked, uses=uses, gives=name, factor=rows / (rows - 1))

    def transform(self, data: Table, *, to: tuple[str, ...] | None = None) -> Any:
        """Open the coordinates of rows to their owners, or to ``to``."""
        return self.predict(data, to=to)

    def _answer(self, walker: Walker, data: Table, name: str) -> None:
        uses = {"x": data.load(walker)}
        uses |= {one: f"{name}/{one}" for one in ("components", "mean")}
        walker.run(_coordinates, uses=uses, gives=f"{name}/")


def _covariance(ops: Any, values: Values) -> Values:
    x = fixed(ops, values["x"])
    rows, bound = ops.shape(x)[0], ops.number(x, "averaging").bound
    centre = ops.restate(mean(ops, ops.sum(x, dim=0), rows), bound=bound)
    centre = ops.reshape(centre, (1, -1))
    outer = fixed(ops, ops.mul(ops.transpose(centre, 0, 1), centre))
    spread = fixed(ops, ops.sub(gram(ops, x, x), outer))
    return {"covariance": ops.restate(spread, bound=bound**2 + 1.0), "mean": centre}


def _unit_trace(ops: Any, matrix: Any, factor: float) -> Any:
    """Divide a positive matrix by its trace, which lies within 2^-8 and 2^8 times 1/factor."""
    larger = fixed(ops, ops.scale(matrix, factor))
    trace = ops.reshape(fixed(ops, ops.sum(diagonal(ops, larger), dim=0)), (1, 1))
    found = ops.mul(larger, inverse(ops, ops.restate(trace, bound=260.0)))
    return ops.restate(fixed(ops, found), bound=1.1)


def _strongest(ops: Any, values: Values, *, squarings: int, start: tuple[float, ...]) -> Values:
    """Find the strongest direction of what is left, its variance, and what is left without it."""
    rest = values["rest"]
    size = ops.shape(rest)[0]
    # No direction of a positive matrix has more than its trace, and taking one out adds none.
    trace = 1.1 * size * ops.number(values["covariance"], "normalising").bound
    factor = 2.0 ** -max(0, ceil(log2(trace)) - 8)
    # Rounding could leave no positive matrix where little or nothing varies: this much is added.
    floor = size**0.5 * 2.0**-13 / factor * torch.eye(size, dtype=torch.float64)
    power = _unit_trace(ops, fixed(ops, ops.offset(rest, floor)), factor)
    for _ in range(squarings):
        # By its transpose: rounding leaves matrices not quite symmetric, which would grow.
        square = ops.matmul(power, ops.transpose(power, 0, 1))
        squared = ops.restate(fixed(ops, square), bound=1.2)
        # The trace of the square of a matrix of unit trace lies between 1/size and 1.
        power = _unit_trace(ops, squared, 2.0 ** min(7, ceil(log2(size))))
    vector = ops.weigh(power, torch.tensor([start], dtype=torch.float64))
    vector = ops.reshape(fixed(ops, ops.sum(fixed(ops, vector), dim=1)), (size, 1))
    vector = _unit_length(ops, vector)
    along = _product(ops, values["covariance"], vector, limit=trace)
    variance = _product(ops, ops.transpose(vector, 0, 1), along, limit=trace)
    return {
        "vector": vector,
        "variance": variance,
        "rest": _without(ops, rest, vector, trace=trace),
    }


def _product(ops: Any, left: Any, right: Any, *, limit: float) -> Any:
    """Multiply matrices whose product is known to be small, dropping digits that do not fit."""
    bits = excess_bits(ops, left, right, terms=ops.shape(left)[1])
    product = fixed(
        ops, ops.matmul(reduced(ops, left, bits - bits // 2), reduced(ops, right, bits // 2))
    )
    return ops.restate(fixed(ops, ops.scale(product, 2.0**bits)), bound=limit)


def _without(ops: Any, rest: Any, vector: Any, *, trace: float) -> Any:
    """Give (I - vvᵀ) rest (I - vvᵀ), which stays positive however well v was found."""
    across = ops.transpose(vector, 0, 1)
    along = _product(ops, rest, vector, limit=trace)
    within = _product(ops, across, along, limit=trace)
    # rest - v·aᵀ - a·vᵀ + v·vᵀ·s is rest - v·bᵀ - b·vᵀ for b = a - v·s/2.
    half = fixed(ops, ops.scale(fixed(ops, ops.mul(vector, within)), 0.5))
    part = fixed(ops, ops.mul(ops.restate(fixed(ops, ops.sub(along, half)), bound=trace), across))
    left = ops.sub(rest, fixed(ops, ops.add(part, ops.transpose(part, 0, 1))))
    return ops.restate(fixed(ops, left), bound=trace)


def _unit_length(ops: Any, vector: Any) -> Any:
    """Bring a column to length 1; the second time takes away what rounding left."""
    vector = ops.restate(fixed(ops, vector), bound=1.1 * START)
    for _ in range(2):
        length = fixed(ops, ops.total(ops.square(vector), dim=0))
        length = ops.restate(length, bound=(1.1 * START) ** 2)
        root = fixed(ops, ops.rsqrt(ops.reshape(length, (1, 1))))
        vector = ops.restate(fixed(ops, ops.mul(vector, root)), bound=1.1)
    return vector


def _stacked(ops: Any, values: Values, *, factor: float) -> Values:
    count = len(values) // 2
    vectors = [ops.transpose(values[f"vector {at}"], 0, 1) for at in range(count)]
    variances = [values[f"variance {at}"] for at in range(count)]
    return {
        "components": ops.concatenate(vectors, dim=0),
        "explained_variance": fixed(ops, ops.scale(ops.concatenate(variances, dim=0), factor)),
    }


def _coordinates(ops: Any, values: Values) -> Values:
    off = fixed(ops, ops.sub(values["x"], values["mean"]))
    return {"answers": ops.matmul(off, ops.transpose(values["components"], 0, 1))}
