"""The plan: all that will happen, in order, with what it costs: dealer's list and forecast."""

import hashlib
from dataclasses import dataclass
from functools import cached_property

from tacit.mpc.contract import Declares, Roles
from tacit.mpc.material.randomness import Need
from tacit.mpc.share import AnySpec, OpeningSpec
from tacit.party.cost import Round, forecast_seconds
from tacit.result import Cost, Forecast, Leak, Phase

NETWORKS = ((0.2, 10_000.0), (10.0, 1_000.0), (40.0, 80.0))
"""Round-trip milliseconds and Mbit/s of a data centre, a city and a slow line."""


@dataclass(frozen=True)
class Step:
    """One use of a kernel: public facts only."""

    kernel: Declares
    operands: tuple[AnySpec, ...]
    needs: tuple[Need, ...]


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Everything that will happen, in order, with what it costs.

    ``handed`` are pairs of steps: an input, and a step for which P1 hands its share of it over.
    ``grown`` are tensors to which entries are added, by the names under which they are kept.
    """

    protocol: str
    roles: Roles
    frac_bits: int
    steps: tuple[Step, ...]
    cost: Cost
    leaks: tuple[Leak, ...]
    kept_openings: tuple[tuple[str, OpeningSpec], ...] = ()
    grown: tuple[tuple[str, OpeningSpec], ...] = ()
    handed: tuple[tuple[int, int], ...] = ()
    flow: tuple[tuple[Phase, Round], ...] = ()
    least_mean_square: float = 0.0
    """Of rows in front of norms: what is shorter comes out too small, and nothing notices it."""

    def notes(self) -> tuple[str, ...]:
        """Say for which values a result is wrong, where nothing in the run can tell."""
        if not self.least_mean_square:
            return ()
        return (
            f"norms: rows that vary by less than {self.least_mean_square**0.5:.2g} (root mean "
            "square) in front of a norm come out of it too small, unnoticed; lower the bound of "
            "the input, cap hidden values, or take a permuted protocol",
        )

    def digest(self) -> bytes:
        """Return a hash that two parties share only if they will do the same things."""
        return self._digest

    @cached_property
    def _digest(self) -> bytes:
        # Every part is a frozen dataclass of public numbers and names, so repr is canonical.
        lines = [self.protocol, repr(self.roles), str(self.frac_bits), *map(repr, self.steps)]
        return hashlib.sha256("\n".join(lines).encode()).digest()

    def forecast(self, networks: tuple[tuple[float, float], ...] = NETWORKS) -> Forecast:
        """Return rounds, bytes and network seconds for a few networks."""
        timings = tuple(
            forecast_seconds(self.cost, rtt_ms=rtt, mbit_per_s=mbit) for rtt, mbit in networks
        )
        return Forecast(
            cost=self.cost,
            timings=timings,
            plan_hash=self.digest().hex(),
            notes=self.notes(),
        )
