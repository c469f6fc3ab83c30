"""Features in bins, as unary codes: one bit per edge, set if the feature is at most the edge.

Sums over rows weighted by such bits are histograms that are cumulated already, and a product with
a one-hot column tells for every row on which side of a split it lies. Of a category the bits say
which it is. A missing value goes right with these bits; where there may be some, a second bit per
edge sends it left, and a last one splits missing from known: the better side is one more candidate.

Trees read them in blocks, a stretch of rows at a time. A block has parts that lie side by side, one
per owner. A computing owner has its part as codes and adds up by counting; the part of anyone else,
or under a protocol with tags, is shared.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from tacit.errors import ConfigError, DataError
from tacit.learners.tables import Table
from tacit.mpc import find_protocol
from tacit.mpc.arithmetic.coded import Codes
from tacit.mpc.secret_ops import Given
from tacit.mpc.share import Spec
from tacit.mpc.walker import Values, Walker

BLOCK_ROWS = 1 << 16
"""How many rows are worked on at a time: memory grows with these, not with all rows."""


@dataclass(frozen=True)
class Part:
    """Zeros and ones of some rows of one owner: (rows, columns); ``is_coded`` if it counts."""

    name: str
    owner: str
    rows: int
    columns: int
    is_coded: bool


@dataclass(frozen=True)
class Block:
    """Some rows: where they begin in the table, and the parts that lie side by side."""

    start: int
    parts: tuple[Part, ...]

    @property
    def rows(self) -> int:
        """Return how many."""
        return self.parts[0].rows

    @property
    def uses(self) -> dict[str, str]:
        """Return the names of parts that are kept as shares."""
        return {one.name: one.name for one in self.parts if not one.is_coded}


def enter_blocks(
    walker: Walker, data: Table, *, name: str, width: int, make: Callable[[Tensor], Codes] | None
) -> tuple[Block, ...]:
    """Bring in what owners make of their features, once; return the blocks.

    Args:
        walker: whose walk needs them.
        data: the table.
        name: of what is made.
        width: how many zeros and ones come of one feature.
        make: from features to codes, if I am an owner.
    """
    if data.is_shared:
        raise DataError(
            "this learner wants raw features, and these are shares already, e.g. scaled ones; "
            "fit it on the table that the owners gave (trees need no scaling)"
        )
    blocks = tuple(_blocks(walker, data, name, width))
    for block in blocks:
        first = block.parts[0]
        is_entered = first.name in walker.facts
        if first.is_coded:
            spec = Spec.of(shape=(first.rows, first.columns), frac_bits=0, bound=1.0)
            found = walker.cache.find(first.name, spec, walker.roles.role(first.owner))
            is_entered = found is not None
        if is_entered:
            continue
        walker.run(_enter, inputs=_mine(walker, data, block, make), block=block)
    return blocks


def _blocks(walker: Walker, data: Table, name: str, width: int) -> Iterator[Block]:
    protocol = find_protocol(walker.protocol)

    def part(owner: str, start: int, rows: int, columns: int) -> Part:
        is_coded = owner in walker.roles.computing and not protocol.is_checked
        place = f"{data.name}/{name} of {owner} from {start}"
        return Part(place, owner, rows, columns * width, is_coded)

    if data.split == "columns":
        for start in range(0, data.shape[0], BLOCK_ROWS):
            rows = min(BLOCK_ROWS, data.shape[0] - start)
            parts = (part(h.owner, start, rows, h.columns) for h in data.holdings if h.columns)
            yield Block(start, tuple(parts))
        return
    above = 0
    for one in data.holdings:
        for start in range(0, one.rows, BLOCK_ROWS):
            rows = min(BLOCK_ROWS, one.rows - start)
            yield Block(above + start, (part(one.owner, start, rows, one.columns),))
        above += one.rows


def _mine(
    walker: Walker, data: Table, block: Block, make: Callable[[Tensor], Codes] | None
) -> dict[str, Given]:
    if walker.me not in data.values or make is None:
        return {}
    found: dict[str, Given] = {}
    for part in block.parts:
        if part.owner == walker.me:
            start = int(part.name.rsplit(" ", 1)[1])
            codes = make(data.values[walker.me][start : start + part.rows])
            found[part.name] = codes if part.is_coded else codes.matrix(0, part.rows).double()
    return found


def _enter(ops: Any, values: Values, *, block: Block) -> Values:
    kept = {}
    for part in block.parts:
        shape = (part.rows, part.columns)
        if part.is_coded:
            ops.coded(part.name, owner=part.owner, shape=shape)
        else:
            kept[part.name] = ops.input(
                part.name, owner=part.owner, shape=shape, bound=1.0, frac_bits=0
            )
    return kept


def sum_by_column(ops: Any, values: Values, block: Block, rows: Any) -> list[Any]:
    """Add rows (n, w) up over the ones of every column, part by part: (columns, w) each."""
    found = []
    for part in block.parts:
        if part.is_coded:
            coded = ops.coded(part.name, owner=part.owner, shape=(part.rows, part.columns))
            found.append(ops.sum_coded(coded, rows))
        else:
            bits = values[part.name]
            ops.cache_openings(bits)
            found.append(ops.pick(ops.transpose(bits, 0, 1), rows))
    return found


def times_columns(ops: Any, values: Values, block: Block, matrix: Any) -> Any:
    """Multiply zeros and ones with whole numbers (columns, w): (n, w)."""
    total, start = None, 0
    for part in block.parts:
        mine = ops.take(matrix, range(start, start + part.columns), dim=0)
        start += part.columns
        if part.is_coded:
            coded = ops.coded(part.name, owner=part.owner, shape=(part.rows, part.columns))
            found = ops.look_up_coded(coded, mine)
        else:
            bits = values[part.name]
            ops.cache_openings(bits)
            found = ops.matmul_whole(bits, mine)
        total = found if total is None else ops.add(total, found)
    return total


@dataclass(frozen=True, eq=False)
class Binning:
    """Where features are cut.

    Owners of columns cut between quantiles of their own columns, which nobody else learns. Owners
    of rows cut alike: at public edges that the user gives, or in equal steps over the public range;
    where rows and columns are divided these are everyone's, under an empty name.
    """

    name: str
    bins: int
    edges: Mapping[str, Tensor]
    categories: Mapping[str, tuple[int, ...]]
    has_missing: bool = False

    @property
    def width(self) -> int:
        """Return how many candidates a column has."""
        return 2 * self.bins - 1 if self.has_missing else self.bins - 1

    def firsts(self, columns: int, categorical: Sequence[int]) -> tuple[int, ...]:
        """Return candidates whose rows do not include those of the candidate before."""
        found: list[int] = []
        for column in range(columns):
            start = column * self.width
            if column in categorical:
                found += range(start, start + self.width)
            else:  # below each edge, then below or missing, then missing
                found += range(start, start + self.width, self.bins - 1)
        return tuple(found)

    def load(self, walker: Walker, data: Table) -> tuple[Block, ...]:
        """Bring the codes of a table in, once: blocks of (rows, columns · width)."""
        found, above = [], 0
        for piece in data.pieces:
            for block in self._enter(walker, piece):
                found.append(replace(block, start=above + block.start))
            above += piece.shape[0]
        return tuple(found)

    def _enter(self, walker: Walker, data: Table) -> tuple[Block, ...]:
        make = None
        me = getattr(walker, "me", "")
        edges, categories = self.edges.get(me), self.categories.get(me, ())
        if "" in self.edges and me in data.values:
            edges = self.edges[""]
            categories = categories_of(data, self.categories[""])[me]
            if data.split == "columns":
                edges = edges[_columns_of(data)[me]]
        if edges is not None:
            make = partial(
                unary_codes, edges=edges, categories=categories, has_missing=self.has_missing
            )
        return enter_blocks(walker, data, name=f"bins of {self.name}", width=self.width, make=make)


def unary_codes(
    x: Tensor, *, edges: Tensor, categories: Sequence[int] = (), has_missing: bool = False
) -> Codes:
    """Say by a code which of [x ≤ edge] hold for every column, and which [x = k] of categories."""
    columns, cuts = edges.shape
    values = cuts + 1 + has_missing
    codes = torch.empty(x.shape, dtype=torch.int16)
    bits = torch.empty((columns, values, cuts), dtype=torch.int64)
    for at in range(columns):
        column, own = x[:, at], edges[at].contiguous()
        if at in categories:
            is_known = (column == column.round()) & (column >= 0) & (column < cuts)
            codes[:, at] = torch.where(is_known, column, float(cuts)).to(torch.int16)
            bits[at] = torch.eye(values, cuts, dtype=torch.int64)
            continue
        # x ≤ e holds for an edge e if no more edges lie below x than below e.
        ranked = own.sort().values
        codes[:, at] = torch.searchsorted(ranked, column.contiguous()).to(torch.int16)
        below = torch.searchsorted(ranked, own)
        bits[at] = (torch.arange(values).unsqueeze(1) <= below).to(torch.int64)
    if not has_missing:
        return Codes(codes, bits)
    missing = torch.zeros((values, 1), dtype=torch.int64)
    missing[-1] = 1
    bits[:, -1] = 0
    codes[torch.isnan(x)] = values - 1
    together = [bits, bits | missing, missing.expand(columns, -1, -1)]
    return Codes(codes, torch.cat(together, 2))


def cut(
    data: Table,
    *,
    name: str,
    bins: int,
    edges: Sequence[Sequence[float]] | None,
    categorical: Sequence[int] = (),
) -> Binning:
    """Choose edges for the parts of a table that lie in this process."""
    if not 2 <= bins <= 256:
        raise ConfigError(f"max_bins must be from 2 to 256, got {bins}")
    own = categories_of(data, categorical) if data.split != "both" else {"": tuple(categorical)}
    if data.split == "columns":
        if edges is not None:
            raise ConfigError("owners of columns cut at their own quantiles; give no edges")
        cuts = {owner: quantile_cuts(x, bins) for owner, x in data.values.items()}
        return Binning(name, bins, cuts, own, data.has_missing)
    columns = data.shape[1]
    if edges is None:
        steps = np.linspace(-data.bound, data.bound, bins + 1)[1:-1]
        common = torch.from_numpy(np.tile(steps, (columns, 1)))
    else:
        common = torch.as_tensor(np.asarray(edges, dtype=np.float64))
        if tuple(common.shape) != (columns, bins - 1):
            raise ConfigError(
                f"edges must be {columns} columns of {bins - 1} numbers for {bins} bins, got "
                f"{tuple(common.shape)}"
            )
    owners = ("",) if data.split == "both" else data.owners
    return Binning(name, bins, dict.fromkeys(owners, common), own, data.has_missing)


def _columns_of(data: Table) -> dict[str, slice]:
    """Return which columns of the whole each owner has."""
    found, start = {}, 0
    for one in data.holdings:
        found[one.owner] = slice(start, start + one.columns)
        start += one.columns
    return found


def categories_of(data: Table, categorical: Sequence[int]) -> dict[str, tuple[int, ...]]:
    """Return which of its own columns are categories, by owner."""
    if data.split == "rows":
        return dict.fromkeys(data.owners, tuple(categorical))
    return {
        owner: tuple(at - part.start for at in categorical if part.start <= at < part.stop)
        for owner, part in _columns_of(data).items()
    }


def check_categories(data: Table, categorical: Sequence[int], bins: int) -> None:
    """Refuse columns that are not there, and categories that have no bit; nothing is sent yet."""
    beyond = [at for at in categorical if not 0 <= at < data.shape[1]]
    if beyond:
        raise ConfigError(f"categorical: there is no column {beyond[0]} of {data.shape[1]}")
    owned = (
        (owner, piece.values[owner], columns)
        for piece in data.pieces
        for owner, columns in categories_of(piece, categorical).items()
        if columns and owner in piece.values
    )
    for owner, x, columns in owned:
        known = x[:, list(columns)].nan_to_num()
        if bool((known != known.round()).any() or (known < 0).any() or (known >= bins - 1).any()):
            raise DataError(
                f"{owner!r} has a categorical column that is no whole number from 0 to {bins - 2}; "
                "number its categories, or raise max_bins"
            )


def quantile_cuts(x: Tensor, bins: int) -> Tensor:
    """Return where an owner of columns cuts them: (columns, bins − 1)."""
    return torch.from_numpy(np.stack([_column_cuts(one, bins) for one in x.numpy().T]))


def _column_cuts(column: npt.NDArray[np.float64], bins: int) -> npt.NDArray[np.float64]:
    """Cut half-way between a quantile and the next value: rounding then moves no row across."""
    known = np.unique(column[~np.isnan(column)])
    if not len(known):
        return np.zeros(bins - 1)
    levels = np.linspace(0, 1, bins + 1)[1:-1]
    found = np.quantile(column[~np.isnan(column)], levels, method="lower")
    after = known[np.minimum(np.searchsorted(known, found, side="right"), len(known) - 1)]
    return np.where(after > found, (found + after) / 2, found + 1.0)
