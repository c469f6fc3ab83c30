"""SecureBoost (Cheng et al., 2019): boosted trees over columns of several owners, by a cipher.

The owner of the labels (active) encrypts gradients and Hessians of all rows; every other owner
(passive) adds them up by node, column and bin without seeing any; the active party decrypts the
sums, chooses the splits, and the owner of a split's column says which rows go left. Trees are those
of XGBoost on the same bins. It is the published protocol, with what that shows: see
`leaks_of_boosting`.
"""

import numpy as np
import numpy.typing as npt
import torch

from tacit.crypto.cipher import Numbers
from tacit.errors import ConfigError, DataError, PartyError
from tacit.learners.bins import quantile_cuts
from tacit.learners.cipher.exchange import PART, Kept
from tacit.learners.cipher.secureboost.active import Active
from tacit.learners.cipher.secureboost.passive import Passive, recv_pairs, send_pairs
from tacit.learners.cipher.secureboost.task import (
    SIDES,
    Boosting,
    CipherTrees,
    Floats,
    leaks_of_boosting,
    most_splits,
    note_leak,
)
from tacit.party import Session


def boost(
    session: Session,
    task: Boosting,
    x: Floats,
    y: Floats | None = None,
    *,
    kept: Kept | None = None,
) -> CipherTrees:
    """Learn boosted trees; every owner calls this with its own columns of the same rows.

    Args:
        session: my end of the job; parties that own nothing do not call this.
        task: agreed by all.
        x: my columns; the active party may have none.
        y: labels, of the active party alone: classes from 0 on, or numbers.
        kept: where I keep what I know after every step, to go on from there.

    Guarantee: semi-honest. Passive owners learn no gradient and no label, if the cipher holds, but
        see which rows lie in which node, and rows of a node are alike in their labels: no guarantee
        for labels against that. The active party sees, of every node, how gradients add up in every
        bin of every column of the others: no guarantee for these columns. Names, values and edges
        of columns are not sent. `leaks_of_boosting` lists all of it.
    Cost: per tree one ciphertext of all rows to every passive owner and, level by level, sums for
        half of the nodes; 3 rounds per level.
    """
    _check(session, task, x, y)
    columns = _columns(session, task, x)
    edges = quantile_cuts(torch.from_numpy(x), task.max_bins).numpy() if x.shape[1] else x[:0]
    places = _places(x, edges)
    start = 0 if kept is None else kept.begin()
    if session.me == task.active and y is not None:
        trees = Active(session, task, places, columns).run(y, start, kept)
        return CipherTrees(task=task, edges=edges, trees=trees, columns=columns)
    Passive(session, task, places).run(start, kept)
    return CipherTrees(task=task, edges=edges, trees=(), columns=columns)


def answer(session: Session, model: CipherTrees, x: Floats) -> Floats | None:
    """Return margins (rows, 1 or classes) for rows of which every owner has its columns.

    Guarantee: the active party learns, for every split of another owner that a tree uses, on which
        side of it each row lies. Others learn which of their edges are used. Cost: 2 rounds.
    """
    task, rows = model.task, len(x)
    if session.me != task.active:
        count = most_splits(task, x.shape[1])
        asked = recv_pairs(session, task, "asked", count, x.shape[1])
        bits = x[:, asked[:, 0]] <= model.edges[asked[:, 0], asked[:, 1]][None, :]
        bits[:, asked.min(axis=1) < 0] = False
        session.send(task.active, "sides", torch.from_numpy(np.packbits(bits, axis=1)))
        return None
    sides: dict[tuple[str, int, int], npt.NDArray[np.bool_]] = {}
    for owner in task.passive:
        send_pairs(session, owner, "asked", model.asked_of(owner))
    for owner in task.passive:
        pairs = model.splits_of(owner)
        size = (rows, -(-most_splits(task, model.columns[owner]) // 8))
        packed = session.recv(owner, "sides", size, dtype=torch.uint8).numpy()
        said = np.unpackbits(packed, axis=1, count=len(pairs))
        for at, (column, edge) in enumerate(pairs):
            sides[owner, column, edge] = said[:, at] != 0
        note_leak(session, (task.active,), SIDES.format(owner), said.size)
    for column, edge in model.splits_of(task.active):
        sides[task.active, column, edge] = x[:, column] <= model.edges[column, edge]
    margins = np.zeros((rows, task.width))
    for at, tree in enumerate(model.trees):
        node = np.zeros(rows, dtype=np.int64)
        for level in tree.splits:
            right = np.zeros(rows, dtype=np.int64)
            for place, one in enumerate(level):
                if one is not None:
                    right |= (node == place) & ~sides[one]
            node = 2 * node + right
        margins[:, at % task.width] += tree.leaves[node]
    return margins


def _places(x: Floats, edges: Floats) -> Numbers:
    """Return the bin of every value: how many edges lie below it."""
    found = [np.searchsorted(cuts, column) for column, cuts in zip(x.T, edges, strict=True)]
    return np.stack(found, axis=1) if found else np.zeros((len(x), 0), dtype=np.int64)


def _check(session: Session, task: Boosting, x: Floats, y: Floats | None) -> None:
    """Refuse what cannot be learned from, before anything is sent."""
    if session.me not in (task.active, *task.passive):
        raise ConfigError(f"{session.me!r} owns none of the columns")
    if x.ndim != 2 or len(x) < 2 or not np.isfinite(x).all():
        raise DataError(
            f"wanted two rows or more of finite features, got shape {x.shape}; fill missing values "
            "in, or learn in the sealed way, whose trees take them"
        )
    if session.me != task.active:
        if y is not None or not x.shape[1]:
            raise DataError("a passive owner has columns, and no labels")
        return
    if y is None or y.shape != (len(x),) or not np.isfinite(y).all():
        raise DataError("the active party wants a finite label for every row")
    if task.classes and (np.any(y != np.rint(y)) or y.min() < 0 or y.max() >= task.classes):
        raise DataError(f"wanted classes from 0 to {task.classes - 1} as labels")
    if task.classes and len(np.unique(y)) < 2:
        raise DataError("all labels are of one class: there is nothing to tell apart")


def _columns(session: Session, task: Boosting, x: Floats) -> dict[str, int]:
    """Tell and learn how many rows and columns every owner has."""
    owners = (task.active, *task.passive)
    found = {session.me: x.shape[1]}
    for owner in owners:
        if owner != session.me:
            session.publish(PART, x.shape, to=(owner,))
    for owner in owners:
        if owner != session.me:
            rows, columns = session.learn(owner, PART, to=(session.me,))
            if rows != len(x) or not 0 <= columns <= 1 << 16:
                raise PartyError(
                    owner, f"has {rows} rows of {columns} columns, wanted {len(x)}; match ids first"
                )
            found[owner] = columns
    return {owner: found[owner] for owner in owners}


__all__ = ["Boosting", "CipherTrees", "answer", "boost", "leaks_of_boosting"]
