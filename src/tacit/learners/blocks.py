"""Blocks of rows: what trees read of a table, a stretch of rows at a time.

A block has parts that lie side by side, one per owner. A computing owner has its part as codes and
adds up by counting; the part of anyone else, or under a protocol with tags, is shared.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from tacit.errors import DataError
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
