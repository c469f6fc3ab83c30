"""Tables that several owners hold together: rows, columns or both cut between them, never joined.

Everyone learns the public facts of a table (who has how many rows and columns, whether there are
labels, how large values can be to a quarter of an octave); they are in the leakage ledger.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor

from tacit.data.memory import check_names, mark_of, numbers_of, to_array
from tacit.data.rows import Holding, Target
from tacit.errors import ConfigError, DataError, DisagreementError
from tacit.mpc.walker import Values, Walker
from tacit.nn import quarters_of, size_of
from tacit.party import Fact, Session

Split = Literal["rows", "columns", "both"]
LARGEST_ROWS = 1 << 24
LARGEST_COLUMNS = 1 << 16
LARGEST_CLASSES = 1 << 10
_FACTS = 7
PART = Fact(
    tag="table",
    count=_FACTS,
    what="rows, columns (with a hash of their names), classes and sizes of the part of {owner}",
)
_NOTHING = (0,) * _FACTS
"""What an owner announces who has no part of a table."""
_LARGEST_QUARTERS = 160
LARGEST = size_of(_LARGEST_QUARTERS)
"""How large features and labels can be: 2^40."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Table:
    """A table that no party has whole. Made by the methods of `Parties`.

    ``values`` and ``labels`` hold what lies in this process: one's own part, or all parts where
    all parties are threads of it. ``is_shared`` marks features that are shares already, so that
    no owner can make anything else of them; ``has_missing`` that features may be NaN. Where rows
    and columns are both divided, ``tables`` of columns lie below each other.
    """

    name: str
    split: Split
    holdings: tuple[Holding, ...]
    values: Mapping[str, Tensor]
    labels: Mapping[str, Tensor]
    is_shared: bool = False
    has_missing: bool = False
    tables: tuple["Table", ...] = ()

    def taking(self, name: str, places: Mapping[str, Sequence[int]]) -> "Table":
        """Return some rows under another name; see `Parties.part_of`."""
        at = {owner: torch.tensor(list(rows), dtype=torch.int64) for owner, rows in places.items()}
        return replace(
            self,
            name=name,
            holdings=tuple(replace(one, rows=len(at[one.owner])) for one in self.holdings),
            values={owner: x[at[owner]] for owner, x in self.values.items()},
            labels={owner: y[at[owner]] for owner, y in self.labels.items()},
        )

    def without_rows(self) -> "Table":
        """Return the public facts alone."""
        tables = tuple(one.without_rows() for one in self.tables)
        return replace(self, values={}, labels={}, tables=tables)

    @property
    def shape(self) -> tuple[int, int]:
        """Return rows and columns of the whole."""
        if self.tables:
            return sum(one.shape[0] for one in self.tables), self.tables[0].shape[1]
        if self.split == "rows":
            return sum(one.rows for one in self.holdings), self.holdings[0].columns
        return self.holdings[0].rows, sum(one.columns for one in self.holdings)

    @property
    def pieces(self) -> tuple["Table", ...]:
        """Return tables that are divided by rows or columns alone."""
        return self.tables or (self,)

    @property
    def owners(self) -> tuple[str, ...]:
        """Return who has a part of it."""
        return tuple(dict.fromkeys(one.owner for one in self.holdings))

    @property
    def bound(self) -> float:
        """Return how large a feature can be."""
        return max(one.bound for one in self.holdings if one.columns)

    @property
    def classes(self) -> int:
        """Return how many classes the labels name; 0 for numbers, or without labels."""
        return max((one.classes for one in self.holdings), default=0)

    @property
    def has_labels(self) -> bool:
        """Tell whether somebody has labels."""
        return any(one.has_labels for one in self.holdings)

    def load(
        self,
        walker: Walker,
        kind: str = "x",
        make: Callable[[Tensor], Tensor] | None = None,
        *,
        width: int = 1,
        columns: int | None = None,
        bound: float | None = None,
        is_whole: bool = False,
    ) -> str:
        """Share features, or what each owner makes of its own, once; return the name they keep.

        Args:
            walker: whose walk needs them.
            kind: names what is made; "x" are the features themselves.
            make: from (rows, columns) to (rows, columns · width), done by the owner alone.
            width: how many numbers come of one feature; or
            columns: how many come of all of them together, where owners have rows.
            bound: how large they can be; that of the features if not given.
            is_whole: whether they are whole numbers.
        """
        name = f"{self.name}/{kind}"
        if name in walker.facts:
            return name
        if self.is_shared:
            raise DataError(
                "this learner wants raw features, and these are shares already, e.g. scaled ones; "
                "fit it on the table that the owners gave (trees need no scaling)"
            )
        if self.tables:
            found = [
                one.load(walker, kind, make, width=width, bound=bound, is_whole=is_whole)
                for one in self.tables
            ]
            return join_rows(walker, found, name)
        parts = tuple(
            (one.owner, one.rows, columns or one.columns * width) for one in self.holdings
        )
        mine = {}
        if walker.me in self.values:
            x = self.values[walker.me]
            mine = {f"{name} of {walker.me}": x if make is None else make(x)}
        self.enter(walker, name, parts, mine, self.bound if bound is None else bound, is_whole)
        return name

    def load_labels(self, walker: Walker, classes: int | None = None) -> str:
        """Share labels, as one-hot rows or as numbers, once; return the name they keep.

        Args:
            walker: whose walk needs them.
            classes: how many there are; as many as the labels of the table name, if not given.
        """
        classes = self.classes if classes is None else classes
        name = f"{self.name}/y" if classes == self.classes else f"{self.name}/y of {classes}"
        if name in walker.facts:
            return name
        if self.tables:
            found = [one.load_labels(walker, classes) for one in self.tables]
            return join_rows(walker, found, name)
        if not self.has_labels:
            raise DataError("this learner wants labels, and no owner of the table has any")
        parts = tuple(
            (one.owner, one.rows, classes or 1) for one in self.holdings if one.has_labels
        )
        mine = {}
        if walker.me in self.labels:
            y = self.labels[walker.me]
            wide = torch.nn.functional.one_hot(y.long(), classes) if classes else y.reshape(-1, 1)
            mine = {f"{name} of {walker.me}": wide.to(torch.float64)}
        bound = 1.0 if classes else max(one.label_bound for one in self.holdings)
        self.enter(walker, name, parts, mine, bound, bool(classes), along=0)
        return name

    def enter(
        self,
        walker: Walker,
        name: str,
        parts: tuple[tuple[str, int, int], ...],
        mine: Mapping[str, Tensor],
        bound: float,
        is_whole: bool,
        *,
        along: int | None = None,
    ) -> None:
        """Share what owners made: (owner, rows, columns) of each part, and mine by its name."""
        dim = (0 if self.split == "rows" else 1) if along is None else along
        walker.run(
            _enter,
            gives=name,
            inputs=mine,
            name=name,
            parts=parts,
            bound=bound,
            is_whole=is_whole,
            dim=dim,
        )


def _enter(
    ops: Any,
    values: Values,
    *,
    name: str,
    parts: tuple[tuple[str, int, int], ...],
    bound: float,
    is_whole: bool,
    dim: int,
) -> Values:
    bits = 0 if is_whole else None
    shares = [
        ops.input(
            f"{name} of {owner}", owner=owner, shape=(rows, columns), bound=bound, frac_bits=bits
        )
        for owner, rows, columns in parts
        if columns
    ]
    return {"": shares[0] if len(shares) == 1 else ops.concatenate(shares, dim=dim)}


def join_rows(walker: Walker, names: Sequence[str], gives: str) -> str:
    """Put values one below the other under one name, and return it."""
    walker.run(_below, uses={str(at): one for at, one in enumerate(names)}, gives=gives)
    return gives


def _below(ops: Any, values: Values) -> Values:
    return {"": ops.concatenate(list(values.values()), dim=0)}


def stack(name: str, tables: Sequence[Table]) -> Table:
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
    return Table(
        name=name,
        split="both",
        holdings=holdings,
        values={},
        labels={},
        has_missing=any(one.has_missing for one in tables),
        tables=tuple(parts),
    )


def features_of(owner: str, values: Any, *, has_missing: bool = False) -> Tensor:
    """Bring an owner's features to a matrix of double precision, or say what is wrong with them."""
    # A copy: what an owner does to its array later is no part of the table.
    x = torch.from_numpy(np.ascontiguousarray(numbers_of(values, whose=f"features of {owner!r}")))
    if x.dim() != 2 or not x.shape[0]:
        raise DataError(
            f"{owner!r} gave features of shape {tuple(x.shape)}; wanted rows and columns, one row "
            "at least"
        )
    if bool(torch.isinf(x).any()) or (not has_missing and bool(torch.isnan(x).any())):
        raise DataError(
            f"{owner!r} gave features with NaN or infinite values; fill them in or leave the rows "
            "out first (trees take NaN, where the table is made with has_missing=True)"
        )
    large = (x.abs() > LARGEST).any(dim=0).nonzero().flatten().tolist()
    if large:
        raise DataError(
            f"{owner!r} gave features beyond ±{LARGEST:.3g}, which no ring of 64 bits holds, in "
            f"{len(large)} columns, the first of them at place {large[0]}; bring them "
            "within it first, in a job by data.prepare"
        )
    return x


def labels_of(owner: str, values: Any, classes: Sequence[Any] | None) -> Tensor:
    """Bring an owner's labels to numbers, or to positions in the public list of classes."""
    y = to_array(values)
    if y.ndim != 1 or not len(y):
        raise DataError(f"{owner!r} gave labels of shape {y.shape}; wanted one label per row")
    if classes is not None:
        places = {label: at for at, label in enumerate(classes)}
        unknown = sorted({str(one) for one in y.tolist() if one not in places})
        if unknown:
            raise DataError(
                f"{owner!r} has labels that are not among the {len(classes)} classes: "
                f"{len(unknown)} kinds of them; name all classes in classes="
            )
        return torch.tensor([places[one] for one in y.tolist()], dtype=torch.float64)
    try:
        numbers = torch.from_numpy(y.astype(np.float64).copy(order="C"))
    except (TypeError, ValueError) as error:
        raise DataError(
            f"{owner!r} has labels that are not numbers; name the classes in classes="
        ) from error
    if not bool(torch.isfinite(numbers).all()):
        raise DataError(f"{owner!r} has labels that are NaN or infinite; leave those rows out")
    if bool((numbers.abs() > LARGEST).any()):
        raise DataError(f"{owner!r} has labels beyond ±{LARGEST:.3g}; divide them first")
    return numbers


def facts_of(
    x: Tensor | None, y: Tensor | None, classes: int | None, names: Sequence[str] = ()
) -> tuple[int, ...]:
    """Return the public facts of a part, as everyone is told them.

    Args:
        x: features.
        y: labels.
        classes: how many classes there are, 0 if labels are numbers; None to find out.
        names: of the columns, if other owners must have the same ones.
    """
    if classes is None:
        classes = int(y.max()) + 1 if y is not None and is_classes(y) else 0
    labels: Target = "none" if y is None else "classes" if classes else "numbers"
    sizes = (
        0 if one is None else quarters_of(float(one.nan_to_num().abs().max())) for one in (x, y)
    )
    rows = next(len(one) for one in (x, y) if one is not None)
    wide, counted = 0 if x is None else x.shape[1], classes if labels == "classes" else 0
    return rows, wide, get_args(Target).index(labels), counted, *sizes, mark_of(names)


def is_classes(y: Tensor) -> bool:
    """Tell whether labels look like classes: few whole numbers from 0 on."""
    is_whole = bool((y == y.round()).all()) and float(y.min()) >= 0
    return is_whole and float(y.max()) < LARGEST_CLASSES


def exchange_facts(
    session: Session, holders: Sequence[str], mine: tuple[int, ...] | None
) -> tuple[Holding, ...]:
    """Tell everyone the facts of my part, and learn those of others."""
    if mine is None and session.me in holders:
        mine = _NOTHING
    if mine is not None:
        session.publish(PART, mine)
    told = {
        owner: mine if owner == session.me and mine is not None else session.learn(owner, PART)
        for owner in holders
    }
    found = [holding_of(owner, facts) for owner, facts in told.items() if facts != _NOTHING]
    return alike(found)


def holding_of(owner: str, facts: tuple[int, ...]) -> Holding:
    """Read the public facts of a part, as `facts_of` gives them."""
    rows, columns, kind, classes, size, label_size, names = facts
    if not (0 < rows <= LARGEST_ROWS and 0 <= columns <= LARGEST_COLUMNS and kind in (0, 1, 2)):
        raise DisagreementError(owner, f"announced an impossible table of {rows} × {columns}")
    if not 0 <= classes <= LARGEST_CLASSES or max(abs(size), abs(label_size)) > _LARGEST_QUARTERS:
        raise DisagreementError(owner, "announced impossible labels or sizes")
    return Holding(
        owner=owner,
        rows=rows,
        features=(columns,),
        bound=size_of(size),
        labels=get_args(Target)[kind],
        classes=classes,
        label_bound=size_of(label_size),
        names=names,
    )


def alike(holdings: Sequence[Holding]) -> tuple[Holding, ...]:
    """Give all parts the bounds of the largest, and all labels as many classes as any has."""
    return tuple(
        replace(
            one,
            bound=max(other.bound for other in holdings),
            classes=max(other.classes for other in holdings) if one.labels == "classes" else 0,
            label_bound=max(other.label_bound for other in holdings),
        )
        for one in holdings
    )


def check_weights(given: Sequence[float] | None, data: Table) -> None:
    """Refuse class weights that are not one number above 0 for every class."""
    if given is not None and (len(given) != data.classes or min(given) <= 0):
        wanted = data.classes or "no"
        raise ConfigError(f"class_weight wants {wanted} numbers above 0, got {given}")


def check_alike(known: Table, asked: Table) -> None:
    """Refuse rows with other columns than those that were learned from, before any is shared.

    Raises:
        DataError: says which.
    """
    if asked.shape[1] != known.shape[1]:
        raise DataError(
            f"the rows have {asked.shape[1]} columns, and {known.shape[1]} were learned from"
        )
    if known.split == asked.split == "columns":
        widths = [
            ", ".join(f"{h.owner} {h.columns}" for h in one.holdings if h.columns)
            for one in (known, asked)
        ]
        if widths[0] != widths[1]:
            raise DataError(f"wanted columns of {widths[0]}, as they were learned, got {widths[1]}")
    if known.split == asked.split == "rows":
        learned = {"the owners that it was learned from": max(h.names for h in known.holdings)}
        check_names({**learned, **{one.owner: one.names for one in asked.holdings}})


def check_together(split: Split, holdings: Sequence[Holding]) -> None:
    """Refuse parts that do not fit together, before any row is shared."""
    featured = [one for one in holdings if one.columns]
    if not featured:
        raise DataError("no owner gave features")
    if split == "rows" and len({one.columns for one in holdings}) > 1:
        counts = ", ".join(f"{one.owner}: {one.columns}" for one in holdings)
        raise DataError(f"owners of rows must have the same columns, got {counts}")
    if split == "rows":
        check_names({one.owner: one.names for one in holdings})
    if split == "columns" and len({one.rows for one in holdings}) > 1:
        counts = ", ".join(f"{one.owner}: {one.rows}" for one in holdings)
        raise DataError(
            f"owners of columns must have the same rows in the same order, got {counts}; match "
            "their ids first"
        )
    labelled = [one for one in holdings if one.has_labels]
    if len({one.labels for one in labelled}) > 1:
        raise DataError("some owners have classes and some have numbers as labels")
    if split == "rows" and labelled and len(labelled) < len(holdings):
        names = ", ".join(one.owner for one in holdings if not one.has_labels)
        raise DataError(f"these owners gave rows without labels: {names}")
    if split == "columns" and len(labelled) > 1:
        raise DataError("labels of the same rows belong to one owner, got several")
