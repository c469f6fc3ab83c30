"""Cross-validation over public folds: who is in which fold says nothing about what is in a row."""

from collections.abc import Iterator

import numpy as np
from sklearn.base import clone

from tacit.errors import ConfigError, DataError
from tacit.learners.arithmetic import public_coins
from tacit.learners.base import Array, Learner
from tacit.learners.parties import Parties
from tacit.learners.tables import Table


def cross_validate(
    model: Learner,
    data: Table,
    parties: Parties,
    *,
    folds: int = 5,
    to: tuple[str, ...] | None = None,
    random_state: int = 0,
) -> Array | None:
    """Fit on all folds but one and open the score of that one, for every fold.

    Args:
        model: its parameters; it is not fitted itself.
        data: a table that owners gave.
        parties: who learn together.
        folds: how many; rows are dealt to them by public coins, those of each owner evenly.
        to: who sees the scores; all owners of rows if not said.
        random_state: of the coins.

    Returns:
        One score per fold; None for a party that they are not opened to.

    Guarantee: that of a fit and a score for each fold; every score that is opened tells a little
        about rows of its fold.
    """
    found = [
        clone(model).fit(learned, parties).score(kept, to=to)
        for learned, kept in _folds(data, parties, folds, random_state)
    ]
    return None if None in found else np.array(found, dtype=np.float64)


def divide(
    data: Table, parties: Parties, *, test_share: float, random_state: int = 0
) -> tuple[Table, Table]:
    """Divide rows by public coins into those to learn from and those to measure on."""
    if data.split == "both":
        sides = [
            divide(one, parties, test_share=test_share, random_state=random_state)
            for one in data.pieces
        ]
        learned, asked = (parties.stack(side) for side in zip(*sides, strict=True))
        return learned, asked
    kept = held_out(data, test_share=test_share, random_state=random_state)
    rest = {one.owner: sorted(set(range(one.rows)) - set(kept[one.owner])) for one in data.holdings}
    if not all(rest.values()):
        raise DataError("a part has too few rows to learn from some and to measure on others")
    return parties.part_of(data, rest), parties.part_of(data, kept)


def held_out(data: Table, *, test_share: float, random_state: int = 0) -> dict[str, list[int]]:
    """Return the places of the rows that `divide` measures on, by owner."""
    if not 0 < test_share < 1:
        raise ConfigError(f"test_share must be between 0 and 1, got {test_share}")
    return {
        owner: sorted(rows[: max(1, round(test_share * len(rows)))])
        for owner, rows in _orders(data, random_state).items()
    }


def _folds(
    data: Table, parties: Parties, folds: int, random_state: int
) -> Iterator[tuple[Table, Table]]:
    least = min(one.rows for one in data.holdings)
    if not 2 <= folds <= least:
        raise ConfigError(
            f"folds must be from 2 to {least}, the rows of the smallest part, got {folds}"
        )
    orders = _orders(data, random_state)
    for fold in range(folds):
        kept = {owner: sorted(rows[fold::folds]) for owner, rows in orders.items()}
        rest = {owner: sorted(set(rows) - set(kept[owner])) for owner, rows in orders.items()}
        yield parties.part_of(data, rest), parties.part_of(data, kept)


def _orders(data: Table, random_state: int) -> dict[str, list[int]]:
    """Draw an order of every owner's rows; owners of columns have one in common."""
    is_rows = data.split == "rows"
    return {
        one.owner: public_coins(random_state, at if is_rows else 0).permutation(one.rows).tolist()
        for at, one in enumerate(data.holdings)
    }
