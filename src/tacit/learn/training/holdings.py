"""How much data every owner has, told to everyone before a training is planned."""

from collections.abc import Sequence

from tacit.errors import DataError
from tacit.learn.rows import Rows
from tacit.learn.training.task import Holding
from tacit.party import Fact, Session

_MOST_DIMENSIONS = 4
HOLDING = Fact(
    tag="data",
    count=_MOST_DIMENSIONS + 1,
    what="how many rows {owner} has, their shape, and whether they have labels",
)


def exchange_holdings(
    session: Session, owners: Sequence[str], mine: Rows | None
) -> tuple[Holding, ...]:
    """Tell everyone how much data I have, and hear it from the others.

    Raises:
        DataError: an owner announces an impossible shape.
    """
    if mine is not None:
        own = tuple(mine.features.shape)
        padded = (*own, *(0,) * (_MOST_DIMENSIONS - len(own)))
        session.publish(HOLDING, (*padded, int(mine.labels is not None)))
    holdings = []
    for owner in owners:
        if owner == session.me and mine is not None:
            holdings.append(holding_of(owner, mine))
            continue
        rows, *shape, has_labels = session.learn(owner, HOLDING)
        # An owner of labels may have no columns.
        sizes = tuple(size for size in shape if size) or (0,)
        if rows < 1 or any(size < 0 for size in sizes):
            raise DataError(f"{owner!r} says its data has the shape {(rows, *shape)}")
        holdings.append(Holding(owner, rows, sizes, bool(has_labels)))
    return tuple(holdings)


def holding_of(owner: str, rows: Rows) -> Holding:
    """Say how much data an owner has."""
    shape = tuple(rows.features.shape)
    return Holding(owner, shape[0], shape[1:], rows.labels is not None)
