"""Rows and columns both divided: tables of columns, one below the other."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from tacit.errors import DataError
from tacit.learners.tables import Table, alike
from tacit.mpc.walker import Values, Walker


@dataclass(frozen=True, kw_only=True, eq=False)
class Stacked(Table):
    """Rows of several tables of columns, whose owners may differ; made by `Parties.stack`."""

    tables: tuple[Table, ...] = ()

    def without_rows(self) -> "Stacked":
        """Return the public facts alone."""
        return replace(self, tables=tuple(one.without_rows() for one in self.tables))

    @property
    def shape(self) -> tuple[int, int]:
        """Return rows and columns of the whole."""
        return sum(one.shape[0] for one in self.tables), self.tables[0].shape[1]

    @property
    def owners(self) -> tuple[str, ...]:
        """Return who has a part of it."""
        return tuple(dict.fromkeys(super().owners))

    @property
    def pieces(self) -> tuple[Table, ...]:
        """Return the tables."""
        return self.tables

    def load(
        self,
        walker: Walker,
        kind: str = "x",
        make: Callable[[Tensor], Tensor] | None = None,
        *,
        width: int = 1,
        bound: float | None = None,
        is_whole: bool = False,
    ) -> str:
        """Share features of all tables, once; see `Table.load`."""
        name = f"{self.name}/{kind}"
        if name in walker.facts or self.is_shared:
            return super().load(walker, kind)
        options: dict[str, Any] = {"width": width, "bound": bound, "is_whole": is_whole}
        _join(walker, [one.load(walker, kind, make, **options) for one in self.tables], name)
        return name

    def load_labels(self, walker: Walker, classes: int | None = None) -> str:
        """Share labels of all tables, once; see `Table.load_labels`."""
        classes = self.classes if classes is None else classes
        name = f"{self.name}/y" if classes == self.classes else f"{self.name}/y of {classes}"
        if name not in walker.facts:
            _join(walker, [one.load_labels(walker, classes) for one in self.tables], name)
        return name


def stack(name: str, tables: Sequence[Table]) -> Stacked:
    """Put tables of columns below each other, under a name; refuse those that do not fit."""
    if len(tables) < 2 or any(one.split != "columns" or one.is_shared for one in tables):
        raise DataError("wanted two tables at least, made by `columns`, to put below each other")
    if len({one.shape[1] for one in tables}) > 1:
        counts = ", ".join(str(one.shape[1]) for one in tables)
        raise DataError(f"tables below each other must have the same columns, got {counts}")
    kinds = {frozenset(h.labels for h in one.holdings) - {"none"} for one in tables}
    if len(kinds) > 1:
        raise DataError("some tables have classes and some numbers as labels, or none")
    holdings = alike([holding for one in tables for holding in one.holdings])
    parts, at = [], 0
    for place, one in enumerate(tables):
        own = holdings[at : at + len(one.holdings)]
        parts.append(replace(one, name=f"{name} part {place}", holdings=own))
        at += len(own)
    return Stacked(
        name=name,
        split="both",
        holdings=holdings,
        values={},
        labels={},
        has_missing=any(one.has_missing for one in tables),
        tables=tuple(parts),
    )


def _join(walker: Walker, names: Sequence[str], gives: str) -> None:
    uses = {str(at): one for at, one in enumerate(names)}
    walker.run(_below, uses=uses, gives=gives)


def _below(ops: Any, values: Values) -> Values:
    return {"": ops.concatenate(list(values.values()), dim=0)}
