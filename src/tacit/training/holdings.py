"""How much data every owner has, told to everyone before a training is planned."""

from collections.abc import Sequence

from tacit.data.memory import mark_of
from tacit.data.rows import Rows
from tacit.errors import DataError
from tacit.party import Fact, Session
from tacit.training.task import Holding

_MOST_DIMENSIONS = 4
HOLDING = Fact(
    tag="data",
    count=_MOST_DIMENSIONS + 2,
    what="how many rows {owner} has, their shape, a hash of its columns' names where rows are "
    "divided, and whether it has labels",
)


def exchange_holdings(
    session: Session, owners: Sequence[str], mine: Rows | None, *, split: str
) -> tuple[Holding, ...]:
    """Tell everyone how much data I have, and hear it from the others.

    Args:
        session: with the others.
        owners: who has data.
        mine: my own, if I have some.
        split: owners of rows say what their columns are called, by a hash.

    Raises:
        DataError: an owner announces an impossible shape.
    """
    if mine is not None:
        own = tuple(mine.features.shape)
        padded = (*own, *(0,) * (_MOST_DIMENSIONS - len(own)))
        known = holding_of(session.me, mine, split=split)
        session.publish(HOLDING, (*padded, int(known.has_labels), known.names))
    holdings = []
    for owner in owners:
        if owner == session.me and mine is not None:
            holdings.append(known)
            continue
        rows, *shape, has_labels, names = session.learn(owner, HOLDING)
        # An owner of labels may have no columns.
        sizes = tuple(size for size in shape if size) or (0,)
        if rows < 1 or any(size < 0 for size in sizes):
            raise DataError(f"{owner!r} says its data has the shape {(rows, *shape)}")
        holdings.append(Holding(owner, rows, sizes, bool(has_labels), names))
    return tuple(holdings)


def holding_of(owner: str, rows: Rows, *, split: str) -> Holding:
    """Say how much data an owner has."""
    shape = tuple(rows.features.shape)
    names = mark_of(rows.columns) if split == "rows" else 0
    return Holding(owner, shape[0], shape[1:], rows.labels is not None, names)
