"""How much ε the runs on one data set have claimed together.

Releases about the same records compose: their ε add up, and their δ (basic composition), whatever
each run saw of those before it. That is an upper bound for runs under one neighbouring relation;
runs that claim no ε are not bounded by any sum.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tacit.cli.studio.index import Summary
from tacit.report.headline import GAMES


@dataclass(frozen=True)
class Spent:
    """What runs on one data set have claimed under one relation, the earliest first."""

    relation: str
    runs: tuple[Summary, ...]

    @property
    def epsilon(self) -> float:
        """Return the sum of all ε."""
        return sum(one.epsilon or 0.0 for one in self.runs)

    @property
    def delta(self) -> float:
        """Return the sum of all δ."""
        return sum(one.delta or 0.0 for one in self.runs)


def list_data(found: Iterable[Summary]) -> dict[str, list[Summary]]:
    """Group runs by the data that their job files name, the earliest first."""
    groups: dict[str, list[Summary]] = {}
    for one in sorted(found, key=lambda one: one.when):
        for name in one.data:
            if one.kind not in GAMES:
                groups.setdefault(name, []).append(one)
    return groups


def spent_on(runs: Sequence[Summary]) -> tuple[Spent, ...]:
    """Add up what runs on one data set claim, under each relation."""
    claimed = [one for one in runs if one.epsilon is not None]
    relations = dict.fromkeys(one.relation for one in claimed)
    return tuple(
        Spent(relation, tuple(one for one in claimed if one.relation == relation))
        for relation in relations
    )
