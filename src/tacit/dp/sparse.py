"""The sparse vector technique, corrected: which queries lie above a threshold, at most c times.

Many published variants are not private (Lyu, Su and Li, "Understanding the Sparse Vector
Technique", 2017). This is their algorithm 7: noise on the threshold and fresh noise on every query,
stop after c answers, and a number that is released costs extra.
"""

import math
from dataclasses import dataclass
from fractions import Fraction

import torch
from torch import Tensor

from tacit.dp.check import at_least_one, budget, positive
from tacit.dp.event import Pure, Relation
from tacit.errors import ConfigError, DataError
from tacit.ring import Prg, discrete_laplace

_CELLS = 2.0**24  # of the grid per sensitivity, at most
_FEWEST_CELLS = 16.0  # rounding to the grid then counts as an eighth of the sensitivity
_LARGEST_SCALE = 2.0**39  # in cells; the exact sampler ends at 2^40


@dataclass(frozen=True, kw_only=True)
class SparseVector:
    """The settings of one use.

    Args:
        epsilon: of everything that is answered.
        answers: c, how many times "above" may be said.
        sensitivity: how far one neighbour moves any query.
        is_monotone: a neighbour moves all queries in the same direction; halves the noise.
        relation: the neighbouring relation of the sensitivity.
    """

    epsilon: float
    answers: int
    sensitivity: float
    relation: Relation
    is_monotone: bool = False

    def __post_init__(self) -> None:
        budget("epsilon", self.epsilon)
        at_least_one("answers", self.answers)
        positive("sensitivity", self.sensitivity)
        if self.cells < _FEWEST_CELLS:
            raise ConfigError(
                f"ε = {self.epsilon:g} for {self.answers} answers asks for more noise than can be "
                "drawn exactly; wanted a larger ε or fewer answers"
            )

    @property
    def cells(self) -> float:
        """Cells of the noise's grid per sensitivity: as fine as the largest noise lets it be."""
        threshold, queries = self.shares
        return min(_CELLS, _LARGEST_SCALE / 3 * min(threshold, queries / self.factor))

    @property
    def factor(self) -> int:
        """How much more noise a query needs than one answer alone."""
        return self.answers if self.is_monotone else 2 * self.answers

    @property
    def shares(self) -> tuple[float, float]:
        """The parts of ε for the threshold and for the queries, in the ratio of least variance."""
        threshold = self.epsilon / (1 + self.factor ** (2 / 3))
        return threshold, self.epsilon - threshold


def select_above(
    queries: Tensor, *, threshold: float, settings: SparseVector, prg: Prg
) -> tuple[Tensor, Pure]:
    """Say which of the queries, in their order, lie above the threshold, until c have.

    Returns the indices that were answered "above", at most c; what comes after the c-th was not
    asked. The order of the queries must not depend on the data.

    Guarantee: ε-private as the event says; discrete noise on a grid that the sensitivity includes.
    Cost: about 90 bytes of the stream per query.
    """
    if queries.ndim != 1 or not bool(torch.isfinite(queries).all()):
        raise DataError(f"queries are a finite vector, got shape {tuple(queries.shape)}")
    if not math.isfinite(threshold):
        raise ConfigError(f"the threshold must be finite, got {threshold}")
    cell = 2.0 ** math.floor(math.log2(settings.sensitivity / settings.cells))
    moved = math.ceil(settings.sensitivity / cell) + 1
    first, second = settings.shares
    noise = discrete_laplace(prg, queries.numel(), scale=_scale(settings.factor * moved / second))
    bar = round(threshold / cell) + int(discrete_laplace(prg, 1, scale=_scale(moved / first))[0])
    above = torch.nonzero(_cells(queries, cell) + noise >= bar).view(-1)
    event = Pure(
        epsilon=settings.epsilon, relation=settings.relation, mechanism="sparse vector technique"
    )
    return above[: settings.answers], event


def _scale(wanted: float) -> Fraction:
    return Fraction(math.ceil(wanted))


def _cells(queries: Tensor, cell: float) -> Tensor:
    cells = torch.round(queries.detach().to(torch.float64) / cell)
    if queries.numel() and float(cells.abs().max()) > 2.0**60:
        raise DataError("a query is too large for its sensitivity; clip queries first")
    return cells.to(torch.int64)
