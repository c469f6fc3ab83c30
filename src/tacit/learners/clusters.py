"""Learners by distances: KMeans by Lloyd's algorithm from k-means++, and nearest neighbours."""

from functools import reduce
from typing import Any

from torch import Tensor

from tacit.errors import ConfigError, DataError
from tacit.learners.arithmetic import fixed, group_means, lowered, public_coins
from tacit.learners.base import Array, Learner, positions
from tacit.learners.classify import Classifier
from tacit.learners.tables import Table
from tacit.mpc.walker import Values, Walker


class KMeans(Learner):
    """Clusters around means, of rows or columns that nobody shows.

    Assignments are never opened: neither who is in which cluster nor how many. A cluster that
    loses all its rows stays where it is, as in Lloyd's own algorithm.

    Args:
        n_clusters: how many.
        n_init: starts, of which the one with the smallest inertia is kept, on shares.
        max_iter: steps of each start; all are made, as stopping early would tell something.
        init: "k-means++" or "random" (rows at random places, which are public but not the rows).
        random_state: of the public coins of the start.

    Attributes:
        cluster_centers_: (n_clusters, columns).
        inertia_: the sum of squared distances to the nearest centre.
    """

    results = ("cluster_centers", "inertia")

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        n_init: int = 1,
        max_iter: int = 10,
        init: str = "k-means++",
        random_state: int = 0,
    ) -> None:
        self.n_clusters = n_clusters
        self.n_init = n_init
        self.max_iter = max_iter
        self.init = init
        self.random_state = random_state

    def _check(self, data: Table) -> None:
        super()._check(data)
        if self.init not in ("k-means++", "random"):
            raise ConfigError(f"init must be 'k-means++' or 'random', got {self.init!r}")
        if not 1 <= self.n_clusters <= data.shape[0]:
            raise DataError(
                f"n_clusters must be from 1 to the number of rows, got {self.n_clusters} for "
                f"{data.shape[0]} rows"
            )
        if min(self.n_init, self.max_iter) < 1:
            raise ConfigError("n_init and max_iter must be 1 at least")

    def _walk(self, walker: Walker, data: Table) -> None:
        x, name = data.load(walker), f"{self._name}/"
        coins = public_coins(self.random_state)
        for start in range(self.n_init):
            self._start(walker, x, name, data.shape[0], coins)
            for _ in range(self.max_iter):
                walker.run(_step, uses={"x": x, "centres": f"{name}centres"}, gives=name)
            walker.run(_inertia, uses={"x": x, "centres": f"{name}centres"}, gives=name)
            uses = {one: f"{name}{one}" for one in ("centres", "loss")}
            if start:
                uses |= {"best": f"{name}cluster_centers", "least": f"{name}inertia"}
            walker.run(_better, uses=uses, gives=name)

    def _start(self, walker: Walker, x: str, name: str, rows: int, coins: Any) -> None:
        first = int(coins.integers(rows))
        count = self.n_clusters
        if self.init == "random":
            chosen = tuple(int(at) for at in coins.choice(rows, count, replace=False))
            walker.run(_rows_at, uses={"x": x}, gives=name, places=chosen)
            return
        walker.run(_rows_at, uses={"x": x}, gives=name, places=(first,))
        for _ in range(count - 1):
            walker.run(
                _next_centre,
                uses={"x": x, "centres": f"{name}centres"},
                gives=name,
                coin=float(coins.random()),
            )

    def _answer(self, walker: Walker, data: Table, name: str) -> None:
        uses = {"x": data.load(walker), "centres": f"{name}/cluster_centers"}
        walker.run(_nearest, uses=uses, gives=f"{name}/")

    def _rate(self, walker: Walker, data: Table, name: str) -> None:
        uses = {"x": data.load(walker), "centres": f"{name}/cluster_centers"}
        walker.run(_score, uses=uses, gives=f"{name}/")

    def _worded(self, answers: Tensor) -> Array:
        return positions(answers)

    def _scored(self, opened: Tensor, data: Table) -> float:
        return -float(opened.reshape(-1)[0])


def _closeness(ops: Any, x: Any, centres: Any) -> Any:
    """Give x·c - |c|²/2, which is largest for the nearest centre: (rows, centres)."""
    ops.cache_openings(x)
    products = ops.matmul(x, ops.transpose(centres, 0, 1))
    squares = ops.scale(ops.total(ops.square(centres), dim=1), 0.5)
    return fixed(ops, ops.sub(products, ops.reshape(squares, (1, -1))))


def _rows_at(ops: Any, values: Values, *, places: tuple[int, ...]) -> Values:
    return {"centres": ops.take(values["x"], places, dim=0)}


def _next_centre(ops: Any, values: Values, *, coin: float) -> Values:
    """Add the row at which running sums of squared distances pass a share of their total."""
    x, centres = values["x"], values["centres"]
    rows, bound = ops.shape(x)[0], ops.number(x, "clustering").bound
    nearest = ops.max(_closeness(ops, x, centres), dim=1)
    squares = ops.total(ops.square(x), dim=1)
    distances = ops.relu(ops.sub(ops.scale(squares, 0.5), nearest))
    running = ops.cumsum(lowered(ops, distances, rows), dim=0)
    total = ops.take(running, (rows - 1,), dim=0)
    passed = ops.indicate(ops.sub(running, fixed(ops, ops.scale(total, coin))))
    # The first row that passes: ones from it on, minus the same ones moved on by one row.
    before = ops.concatenate(
        [ops.scale(ops.take(passed, (0,), dim=0), 0.0), ops.take(passed, range(rows - 1), dim=0)],
        dim=0,
    )
    hot = ops.reshape(ops.sub(passed, before), (1, rows))
    row = ops.restate(ops.pick(ops.restate(hot, bound=1.0), x), bound=bound)
    return {"centres": ops.concatenate([centres, fixed(ops, row)], dim=0)}


def _step(ops: Any, values: Values) -> Values:
    """Assign every row to its nearest centre, and move centres to the means of their rows."""
    x, centres = values["x"], values["centres"]
    rows, bound = ops.shape(x)[0], ops.number(x, "clustering").bound
    hot = ops.argmax_one_hot(_closeness(ops, x, centres), dim=1)
    across = ops.transpose(hot, 0, 1)
    counts = ops.reshape(ops.sum(across, dim=1), (-1, 1))
    sums = ops.restate(ops.pick(across, x), bound=rows * bound)
    means = group_means(ops, sums, counts, rows=rows, bound=bound)
    is_filled = ops.indicate(ops.shift(counts, -0.5))
    moved = ops.add(centres, ops.gate(is_filled, ops.sub(means, centres)))
    return {"centres": ops.restate(fixed(ops, moved), bound=1.05 * bound + 2.0**-6)}


def _inertia(ops: Any, values: Values) -> Values:
    return {"loss": _loss(ops, values)}


def _loss(ops: Any, values: Values) -> Any:
    x = values["x"]
    nearest = ops.max(_closeness(ops, x, values["centres"]), dim=1)
    squares = ops.total(ops.square(x), dim=1)
    distances = fixed(ops, ops.sub(squares, ops.scale(nearest, 2.0)))
    return ops.reshape(fixed(ops, ops.sum(distances, dim=0)), (1,))


def _better(ops: Any, values: Values) -> Values:
    """Keep the start with the smaller loss; which one it is stays hidden."""
    centres, loss = values["centres"], values["loss"]
    if "best" not in values:
        return {"cluster_centers": centres, "inertia": loss}
    best, least = values["best"], values["least"]
    is_better = ops.indicate(ops.sub(least, loss))
    chosen = ops.add(best, ops.gate(ops.reshape(is_better, (1, 1)), ops.sub(centres, best)))
    smallest = ops.add(least, ops.gate(is_better, ops.sub(loss, least)))
    facts = ops.number(best, "clustering"), ops.number(least, "clustering")
    return {
        "cluster_centers": ops.restate(fixed(ops, chosen), bound=facts[0].bound),
        "inertia": ops.restate(fixed(ops, smallest), bound=facts[1].bound),
    }


def _nearest(ops: Any, values: Values) -> Values:
    return {"answers": ops.argmax(_closeness(ops, values["x"], values["centres"]), dim=1)}


def _score(ops: Any, values: Values) -> Values:
    return {"score": _loss(ops, values)}


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
