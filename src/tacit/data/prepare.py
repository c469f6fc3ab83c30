"""Preparation of rows: stated in a job, agreed by all parties, done where the rows are.

Each value is changed by itself and by stated numbers alone. So nothing about the rows is shown, no
ε is spent, and a row that is asked about later goes through the same as those trained on.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, dataclass, fields, replace
from itertools import pairwise
from typing import Annotated, Any, Literal

import numpy as np

from tacit.data.rows import Floats, Rows, few_names
from tacit.errors import ConfigError, DataError
from tacit.spec import Check, Positive, refuse, to_tables

ALL = "*"
"""In place of the name of a column: what holds for all that are not named."""


def _check_rising(values: tuple[float, ...]) -> None:
    if not values or any(low >= high for low, high in pairwise(values)):
        raise ConfigError(f"wanted rising numbers, each once, got {list(values)}")


def _check_bounds(values: tuple[float, ...]) -> None:
    _check_rising(values)
    if len(values) != 2:
        raise ConfigError(f"wanted two numbers, low < high, got {list(values)}")


Rising = Annotated[tuple[float, ...], Check(_check_rising)]
Bounds = Annotated[tuple[float, ...], Check(_check_bounds)]


@dataclass(frozen=True, kw_only=True)
class ColumnTable:
    """[data.prepare.COLUMN]: what is done to each value of a column, in the order of these keys.

    The column "*" stands for all that are not named. The numbers are stated, never taken from the
    rows: whoever reads the job learns them. At most one of the keys from ``divide`` on; without any
    key a column stays as it is.

    Attributes:
        skip: leave the column out.
        impute: what stands for a missing value; without it rows that miss one are refused.
        clip: two numbers; what is below the first or above the second becomes that number.
        log: take log(1 + x).
        divide: by this.
        scale: two numbers, which become 0 and 1.
        mean: subtract this and divide by ``deviation``: public statistics, for instance published.
        deviation: goes with ``mean``.
        bins: rising edges: one 0/1 feature for what is below the first, from each edge to below the
            next, and from the last on.
        categories: numbers: one 0/1 feature for each.
        others: what is none of ``categories``: refused, or one more feature.
    """

    skip: bool = False
    impute: float | None = None
    clip: Bounds | None = None
    log: bool = False
    divide: Positive | None = None
    scale: Bounds | None = None
    mean: float | None = None
    deviation: Positive | None = None
    bins: Rising | None = None
    categories: Rising | None = None
    others: Literal["refuse", "feature"] = "refuse"

    def __post_init__(self) -> None:
        if (self.mean is None) != (self.deviation is None):
            refuse("deviation", "wanted both 'mean' and 'deviation', or neither")
        last = ("divide", "scale", "mean", "bins", "categories")
        named = [key for key in last if getattr(self, key) is not None]
        if len(named) > 1:
            refuse(named[1], f"wanted one of {', '.join(last)}, got {' and '.join(named)}")
        if self.others != "refuse" and self.categories is None:
            refuse("others", "goes with 'categories'")
        if self.skip and len(_stated(self)) > 1:
            refuse("skip", "leaves the column out; leave the other keys out")

    @property
    def is_wider(self) -> bool:
        """Tell whether several features, or none, come out of the column."""
        return self.skip or self.bins is not None or self.categories is not None


Prepare = Mapping[str, ColumnTable]
"""By the name of a column, or `ALL`; nothing is done without any."""
NOT_PREPARED: Prepare = {}
PREPARED: Mapping[str, str] = {"before": "scale"}
"""Marks the key of a table that has taken the place of divisors by position."""


def prepare_rows(rows: Rows, tables: Prepare, key: str) -> Rows:
    """Do what a job states to rows, in their own units.

    Args:
        rows: features may be missing, NaN.
        tables: what is done to each column.
        key: where the tables stand, in errors.

    Raises:
        DataError: a column is not there, or not named; or a value cannot be used. Names row and
            column, never a value.
    """
    if not tables:
        return rows
    flat, usual = rows.unscaled(), tables.get(ALL)
    if not rows.columns:  # pictures: all values are of one kind
        if usual is None or usual.is_wider or len(tables) > 1:
            raise DataError(
                f'{key}: the columns have no names: wanted "{ALL}" alone, without skip, bins and '
                "categories"
            )
        found = _prepared(flat.reshape(len(flat), -1), "any", usual, key)
        scale = 1.0 if usual.log else usual.divide or 1.0
        return replace(rows, features=found.reshape(flat.shape), scale=scale)
    _check_columns(rows, tables, key)
    parts: dict[str, Floats] = {}
    divisors: list[float] = []
    for at, name in enumerate(rows.columns):
        table = tables.get(name, usual)
        if table is not None and not table.skip:
            column = _prepared(flat[:, at : at + 1], name, table, key)
            made = dict(_features(column[:, 0], name, table, key))
            if twice := [one for one in made if one in parts]:
                raise DataError(f"{key}.{name}: there is a feature {twice[0]!r} already")
            parts |= made
            divisors += [1.0 if table.log else table.divide or 1.0] * len(made)
    if not parts:
        raise DataError(f"{key}: no columns are left")
    features = np.stack(list(parts.values()), axis=1)
    scales = divisors[0] if len(set(divisors)) == 1 else tuple(divisors)
    return replace(rows, features=features, columns=tuple(parts), scale=scales)


def state_prepare(tables: Prepare) -> dict[str, Any]:
    """Return the tables as a file of weights keeps them: what is stated, and no default."""
    return {name: _stated(table) for name, table in tables.items()}


def check_prepare(tables: Mapping[str, Any], trained: Mapping[str, Any], key: str) -> None:
    """Refuse rows that go through something else than those that a model was trained on.

    Args:
        tables: what the job states, as `state_prepare` returns it.
        trained: what the file of the model says.
        key: of the job.

    Raises:
        ConfigError: says what the job should state.
    """
    for name in [*trained, *tables]:
        if tables.get(name) != trained.get(name):
            wanted = "nothing" if name not in trained else write_table(trained[name])
            raise ConfigError(
                f"{key}.{json.dumps(name)}: the model was trained on rows prepared otherwise: "
                f"wanted {wanted}, as in the job of its training"
            )


def write_table(stated: Mapping[str, Any]) -> str:
    """Write what is stated of a column as a job file does."""
    return "{ " + ", ".join(f"{key} = {json.dumps(one)}" for key, one in stated.items()) + " }"


def _stated(table: ColumnTable) -> dict[str, Any]:
    usual = {one.name: one.default for one in fields(table) if one.default is not MISSING}
    found: dict[str, Any] = to_tables(table)
    return {name: value for name, value in found.items() if value != usual[name]}


def _check_columns(rows: Rows, tables: Prepare, key: str) -> None:
    strange = [name for name in tables if name != ALL and name not in rows.columns]
    if strange:
        raise DataError(
            f"{key}: the rows have no column {strange[0]!r}; they have {', '.join(rows.columns)}"
        )
    left = [name for name in rows.columns if name not in tables]
    if left and ALL not in tables:
        raise DataError(
            f"{key}: the rows have {few_names(left)} as well: say what is done to them "
            f'({{}} is nothing, skip = true leaves one out), or with "{ALL}" what is done to all '
            "that are not named"
        )


def _prepared(values: Floats, name: str, table: ColumnTable, key: str) -> Floats:
    """Change numbers into numbers."""
    key, is_missing = f"{key}.{name}", np.isnan(values)
    if table.impute is not None:
        values = np.where(is_missing, table.impute, values)
    elif is_missing.any():
        raise DataError(
            f"{_row_of(is_missing)}, column {name!r}: the value is missing "
            f"({int(is_missing.sum())} such in all); say what stands for it: {key}.impute"
        )
    if table.clip is not None:
        least, most = table.clip
        values = np.clip(values, least, most)
    if table.log:
        if (values <= -1).any():
            raise DataError(
                f"{_row_of(values <= -1)}, column {name!r}: log(1 + x) wants x above -1; bring it "
                f"there by {key}.clip"
            )
        values = np.log1p(values)
    if table.divide is not None:
        values = values / table.divide
    if table.scale is not None:
        low, high = table.scale
        values = (values - low) / (high - low)
    if table.mean is not None and table.deviation is not None:
        values = (values - table.mean) / table.deviation
    return values


def _features(
    values: Floats, name: str, table: ColumnTable, key: str
) -> Iterator[tuple[str, Floats]]:
    """Name the features that come out of a column."""
    if table.bins is not None:
        edges, places = table.bins, np.searchsorted(table.bins, values, side="right")
        heads = (f"{name} < {edges[0]:g}", *(f"{name} >= {edge:g}" for edge in edges))
        for at, head in enumerate(heads):
            below = f" and < {edges[at]:g}" if 0 < at < len(edges) else ""
            yield head + below, (places == at).astype(np.float64)
    elif table.categories is not None:
        is_other = ~np.isin(values, table.categories)
        if table.others == "refuse" and is_other.any():
            raise DataError(
                f"{_row_of(is_other)}, column {name!r}: a value that {key}.{name}.categories does "
                f'not list ({int(is_other.sum())} such in all); list it, or say others = "feature"'
            )
        for one in table.categories:
            yield f"{name} = {one:g}", (values == one).astype(np.float64)
        if table.others == "feature":
            yield f"{name} = other", is_other.astype(np.float64)
    else:
        yield name, values


def _row_of(is_bad: Any) -> str:
    return f"row {int(np.argmax(is_bad.reshape(len(is_bad), -1).any(axis=1))) + 1}"
