"""What a question may cost, and what is answered."""

import math
from dataclasses import dataclass

import numpy as np

from tacit.errors import ConfigError
from tacit.notebook import Lines, Shown
from tacit.verify.box import Box, Domain
from tacit.verify.kernels.clock import wall_time
from tacit.verify.kernels.tables import Floats, Outcome

CHUNK_NODES = 50
"""Nodes of a search between two looks at the clock."""

ANYWHERE = Domain()


@dataclass(frozen=True)
class Budget:
    """How much work a question may cost; ``None`` means no limit.

    The clock is looked at every fifty nodes, so `seconds` may be overrun by as much.
    """

    nodes: int | None = None
    seconds: float | None = 60.0

    def __post_init__(self) -> None:
        if (self.nodes is not None and self.nodes < 1) or (
            self.seconds is not None and not self.seconds > 0
        ):
            raise ConfigError(f"a budget must be positive, got {self}")

    def less(self, seconds: float) -> "Budget | None":
        """Say what is left after some seconds, if anything is."""
        if self.seconds is None:
            return self
        left = self.seconds - seconds
        return Budget(self.nodes, left) if left > 0 else None


PATIENCE = Budget()


class Spending:
    """A budget while it is being spent."""

    def __init__(self, budget: Budget) -> None:
        self.nodes = 0
        """How many were spent."""
        self._most = math.inf if budget.nodes is None else budget.nodes
        self._end = math.inf if budget.seconds is None else wall_time() + budget.seconds

    def take(self, most: int = CHUNK_NODES) -> int:
        """Say how many nodes may be visited until the next look at the clock; 0 at the end."""
        left = min(most, self._most - self.nodes)
        return int(left) if left > 0 and wall_time() < self._end else 0


@dataclass(frozen=True, eq=False, repr=False)
class _Answered(Shown):
    """What was asked, and the work that it took."""

    box: Box
    prediction: float
    rho: float | None
    nodes: int

    def _lines(self) -> list[tuple[str, ...]]:
        box = self.box
        moves = box.center - box.low, box.high - box.center
        down, up = (f"{np.fmax.reduce(one, initial=0.0):g}" for one in moves)  # NaN does not move
        radius = f"±{up}" if up == down else f"−{down}, +{up}"
        return [
            ("prediction", f"{self.prediction:g}"),
            ("within", f"{radius} at most, in every feature"),
            ("nodes", f"{self.nodes:,}"),
        ]


@dataclass(frozen=True, eq=False, repr=False)
class Robust(_Answered):
    """No input of the box changes the prediction: the verdict of an exact search.

    It is not a certificate: `prove` writes one, for `check_proof` to follow without the search.
    """

    @property
    def outcome(self) -> Outcome:
        """Always ROBUST."""
        return Outcome.ROBUST

    def _shown(self) -> tuple[str, Lines]:
        return "Robust", self._lines()


@dataclass(frozen=True, eq=False, repr=False)
class Counterexample(_Answered):
    """An input of the box that changes the prediction; replayed in the library's arithmetic."""

    x: Floats
    changed: float
    """What the ensemble predicts at `x`."""

    @property
    def outcome(self) -> Outcome:
        """Always COUNTEREXAMPLE."""
        return Outcome.COUNTEREXAMPLE

    def _shown(self) -> tuple[str, Lines]:
        moved = int(((self.x != self.box.center) & ~np.isnan(self.x)).sum())
        changed = f"{self.changed:g}, by a change of {moved} of {self.x.size} features"
        return "Counterexample", [*self._lines(), ("changes to", changed)]


@dataclass(frozen=True, eq=False, repr=False)
class Unknown(_Answered):
    """The budget ran out, or the library's rounding of a near tie cannot be told."""

    reason: str
    outcome: Outcome = Outcome.UNDECIDED

    def _shown(self) -> tuple[str, Lines]:
        return "Unknown", [*self._lines(), ("reason", self.reason)]


Verdict = Robust | Counterexample | Unknown


@dataclass(frozen=True, eq=False)
class Timed:
    """A verdict and the processor time that it took."""

    verdict: Verdict
    seconds: float
    """From the input to the verdict, in Python."""
    inside: float
    """Of it, inside the compiled search; the first row of a call carries what is set up for all.

    What is compiled for a row, once, counts for none.
    """
