"""SecureBoost (Cheng et al., 2019): boosted trees over columns of several owners, by a cipher.

The owner of the labels (active) encrypts gradients and Hessians of all rows; every other owner
(passive) adds them up by node, column and bin without seeing any (algorithm 1 of the paper); the
active party decrypts the sums, chooses the splits (algorithm 2), and the owner of a split's column
says which rows go left. Trees are those of XGBoost on the same bins. It is the published protocol,
with what that shows: see `leaks_of_boosting`.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import torch

from tacit.crypto.cipher import Ciphertext, Numbers, SecretKey, make_key
from tacit.errors import ConfigError, DataError, PartyError
from tacit.learners.bins import quantile_cuts
from tacit.learners.cipher.boosting import (
    LEFT,
    NODES,
    SIDES,
    SPLITS,
    SUMS,
    Boosting,
    CipherTrees,
    Split,
    asked_nodes,
    most_splits,
    sums_layout,
)
from tacit.learners.cipher.exchange import (
    PART,
    Floats,
    StepStore,
    recv_key,
    recv_sealed,
    send_key,
    send_sealed,
    shown,
)
from tacit.party import Session
from tacit.ring import Prg

_LEAST_GAIN = 1e-6
"""What XGBoost asks of a split."""


def boost(
    session: Session,
    task: Boosting,
    x: Floats,
    y: Floats | None = None,
    *,
    kept: StepStore | None = None,
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
    edges = (
        quantile_cuts(torch.from_numpy(x), task.learner.max_bins).numpy() if x.shape[1] else x[:0]
    )
    # The bin of every value: how many edges lie below it.
    bins = [np.searchsorted(cuts, column) for column, cuts in zip(x.T, edges, strict=True)]
    places = np.stack(bins, axis=1) if bins else np.zeros((len(x), 0), dtype=np.int64)
    start = 0 if kept is None else kept.begin()
    if session.me == task.active and y is not None:
        splits, leaves = Active(session, task, places, columns).run(y, start, kept)
    else:
        Passive(session, task, places).run(start, kept)
        splits, leaves = no_trees(task)
    return CipherTrees(task=task, edges=edges, splits=splits, leaves=leaves, columns=columns)


def no_trees(task: Boosting) -> tuple[Numbers, Floats]:
    """Return splits and leaves of no tree."""
    leaves = 2**task.learner.max_depth
    return np.zeros((0, leaves - 1, 3), dtype=np.int64), np.zeros((0, leaves))


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
        session.ledger.record(shown(task.active, SIDES.format(owner), said.size))
    for column, edge in model.splits_of(task.active):
        sides[task.active, column, edge] = x[:, column] <= model.edges[column, edge]
    margins = np.zeros((rows, task.width))
    for at, (tree, leaves) in enumerate(zip(model.splits, model.leaves, strict=True)):
        node = np.zeros(rows, dtype=np.int64)
        for level in range(task.learner.max_depth):
            right = np.zeros(rows, dtype=np.int64)
            nodes = tree[2**level - 1 : 2 ** (level + 1) - 1].tolist()
            for place, (owner, column, edge) in enumerate(nodes):
                if owner >= 0:
                    right |= (node == place) & ~sides[task.owners[owner], column, edge]
            node = 2 * node + right
        margins[:, at % task.width] += leaves[node]
    return margins


def _check(session: Session, task: Boosting, x: Floats, y: Floats | None) -> None:
    """Refuse what cannot be learned from, before anything is sent."""
    if session.me not in task.owners:
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
    owners = task.owners
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


class Active:
    """The owner of the labels: encrypts gradients, decrypts sums, chooses splits."""

    def __init__(
        self, session: Session, task: Boosting, places: Numbers, columns: Mapping[str, int]
    ) -> None:
        self._session, self._task, self._places = session, task, places
        self._columns, self._rows = columns, len(places)
        self._key: SecretKey = make_key(task.cipher, Prg.from_os().bytes)
        self._draw = Prg.from_os().bytes
        self._units = np.full(2, 2.0 ** task.frac_bits(self._rows))
        for owner in task.passive:
            send_key(session, owner, self._key.public)

    def run(
        self, y: Floats, start: int = 0, kept: StepStore | None = None
    ) -> tuple[Numbers, Floats]:
        """Grow all trees, after those of the first steps, which were kept; see `CipherTrees`."""
        task, (splits, leaves) = self._task, no_trees(self._task)
        margins = np.zeros((self._rows, task.width))
        known: Mapping[str, Floats | Numbers]
        if start and kept is not None:
            known = kept.load(start)
            margins, leaves = (known[one].astype(np.float64) for one in ("margins", "leaves"))
            splits = known["splits"].astype(np.int64)
        if not task.classes:  # numbers are brought to 1 by whoever knows them
            self._units[0] /= 4 * max(float(np.abs(y).max()), 1e-9)
        with self._session.progress.stage("boost", task.learner.n_estimators) as advance:
            for step in range(start, task.learner.n_estimators):
                moves = np.zeros_like(margins)
                for column in range(task.width):
                    both = np.rint(_gradients(task, margins, y, column) * self._units)
                    tree, leaf, node = self._grow(both.astype(np.int64))
                    splits = np.concatenate([splits, tree[None]])
                    leaves = np.concatenate([leaves, leaf[None]])
                    moves[:, column] = leaf[node]
                margins += moves
                if kept is not None:
                    known = {"margins": margins, "splits": splits, "leaves": leaves}
                    kept.save(step + 1, known)
                advance(step + 1)
        return splits, leaves

    def _grow(self, both: Numbers) -> tuple[Numbers, Floats, Numbers]:
        """Grow one tree from whole-number gradients and Hessians (rows, 2).

        Returns:
            Its splits and leaves, and the leaf of every row.
        """
        task, session = self._task, self._session
        sealed = self._key.encrypt(both, task.layout(self._rows), self._draw)
        for owner in task.passive:
            send_sealed(session, owner, "gradients", self._key.public, sealed)
        node = np.zeros(self._rows, dtype=np.int64)
        is_open = np.ones(1, dtype=bool)
        splits: list[tuple[int, int, int]] = []
        above: dict[str, Numbers] = {}
        for level in range(task.learner.max_depth):
            told = np.where(is_open[node], node, -1)
            asked = asked_nodes(told, level)
            for owner in task.passive:
                session.send(owner, "nodes", torch.from_numpy(told))
            sums = self._sums(both, node, asked, above, is_open)
            chosen = self._choose(both, node, is_open, sums)
            splits += [
                (-1, -1, -1) if one is None else (task.owners.index(one[0]), *one[1:])
                for one in chosen
            ]
            node, is_open = self._divide(node, chosen)
            above = sums
        for owner in task.passive:
            session.send(owner, "nodes", torch.full((self._rows,), -1, dtype=torch.int64))
        learner = task.learner
        totals = np.stack([np.bincount(node, one, 2**learner.max_depth) for one in both.T], axis=1)
        totals = totals / self._units
        leaves = -learner.learning_rate * totals[:, 0] / (totals[:, 1] + learner.reg_lambda)
        return np.array(splits), leaves, node

    def _sums(
        self,
        both: Numbers,
        node: Numbers,
        asked: Numbers,
        above: Mapping[str, Numbers],
        is_open: npt.NDArray[np.bool_],
    ) -> dict[str, Numbers]:
        """Return sums by bin: (nodes, columns, bins, 2) of every owner; siblings by subtraction."""
        task, nodes, bins = self._task, len(is_open), self._task.learner.max_bins
        found = {}
        own = np.zeros((nodes, self._places.shape[1], bins, 2), dtype=np.int64)
        for column in range(self._places.shape[1]):
            np.add.at(own[:, column], (node, self._places[:, column]), both)
        found[task.active] = own
        for owner in task.passive:
            columns = self._columns[owner]
            whole = np.zeros((nodes, columns, bins, 2), dtype=np.int64)
            layout = sums_layout(task, self._rows, len(asked) * bins)
            for column in range(columns):
                tag = f"sums {column}"
                sealed = recv_sealed(self._session, owner, tag, self._key.public, layout)
                whole[asked, column] = self._key.decrypt(sealed).reshape(len(asked), bins, 2)
            seen = 2 * len(asked) * columns * bins
            self._session.ledger.record(shown(task.active, SUMS.format(owner), seen))
            if above:
                # Of two children the one with fewer rows was asked for; the other is the rest.
                other = asked ^ 1
                whole[other] = above[owner][asked // 2] - whole[asked]
            found[owner] = whole
        return found

    def _choose(
        self,
        both: Numbers,
        node: Numbers,
        is_open: npt.NDArray[np.bool_],
        sums: Mapping[str, Numbers],
    ) -> tuple[Split, ...]:
        """Choose the best split of every node as XGBoost does, first of equals."""
        task = self._task
        order = task.owners
        places = [
            (owner, column, edge)
            for owner in order
            for column in range(sums[owner].shape[1])
            for edge in range(task.learner.max_bins - 1)
        ]
        left = np.concatenate(
            [np.cumsum(sums[one], axis=2)[:, :, :-1].reshape(len(is_open), -1, 2) for one in order],
            axis=1,
        )
        totals = np.stack([np.bincount(node, one, len(is_open)) for one in both.T], axis=1)
        worth = _gains(task, left / self._units, totals / self._units)
        found: list[Split] = []
        for place in range(len(is_open)):
            best = int(worth[place].argmax()) if is_open[place] else 0
            is_split = is_open[place] and worth[place, best] > max(task.learner.gamma, _LEAST_GAIN)
            found.append(places[best] if is_split else None)
        return tuple(found)

    def _divide(
        self, node: Numbers, chosen: Sequence[Split]
    ) -> tuple[Numbers, npt.NDArray[np.bool_]]:
        """Send rows to children; owners of columns say which rows go left."""
        task, session = self._task, self._session
        right = np.zeros(len(node), dtype=np.int64)
        for owner in task.passive:
            pairs = [one[1:] if one and one[0] == owner else (-1, -1) for one in chosen]
            session.send(owner, "splits", torch.tensor(pairs))
        for owner in task.passive:
            mine = [at for at, one in enumerate(chosen) if one is not None and one[0] == owner]
            size = (-(-len(node) // 8),)
            packed = session.recv(owner, "left", size, dtype=torch.uint8).numpy()
            said, is_here = np.unpackbits(packed, count=len(node)), np.isin(node, mine)
            right[is_here] = said[is_here] == 0
            if mine:
                session.ledger.record(shown(task.active, LEFT.format(owner), is_here.sum()))
        for at, one in enumerate(chosen):
            if one is not None and one[0] == task.active:
                right[(node == at) & (self._places[:, one[1]] > one[2])] = 1
        children = np.repeat([one is not None for one in chosen], 2)
        return 2 * node + right, children


def _gains(task: Boosting, left: Floats, totals: Floats) -> Floats:
    """Return what every candidate of every node gains, −∞ where a side weighs too little.

    Chen and Guestrin (2016), equation 7, without the half and before γ, as XGBoost compares it.
    """
    both = totals[:, None, :]
    right = both - left
    with np.errstate(divide="ignore", invalid="ignore"):
        damping = task.learner.reg_lambda
        worth = [one[..., 0] ** 2 / (one[..., 1] + damping) for one in (left, right, both)]
    gain = np.nan_to_num(worth[0] + worth[1] - worth[2], nan=-np.inf)
    light = np.minimum(left[..., 1], right[..., 1]) < task.learner.min_child_weight
    return np.where(light, -np.inf, gain)


def _gradients(task: Boosting, margins: Floats, y: Floats, column: int) -> Floats:
    """Return gradients and Hessians (rows, 2) of the loss."""
    if task.classes == 0:
        # Clipped where `_units` has room: a gradient is at most 1 when it is encrypted.
        reach = 4 * np.abs(y).max()
        return np.stack([np.clip(margins[:, 0] - y, -reach, reach), np.ones(len(y))], axis=1)
    if task.width == 1:
        chance = 1 / (1 + np.exp(-margins[:, 0]))
        return np.stack([chance - y, chance * (1 - chance)], axis=1)
    # Twice the diagonal of the Hessian of a softmax, which XGBoost takes as its bound.
    powers = np.exp(margins - margins.max(axis=1, keepdims=True))
    chance = powers[:, column] / powers.sum(axis=1)
    return np.stack([chance - (y == column), 2 * chance * (1 - chance)], axis=1)


class Passive:
    """An owner of columns: adds up ciphertexts by node, column and bin."""

    def __init__(self, session: Session, task: Boosting, places: Numbers) -> None:
        self._session, self._task, self._places = session, task, places
        self._draw = Prg.from_os().bytes
        self._key = recv_key(session, task.active, task.cipher)

    def run(self, start: int = 0, kept: StepStore | None = None) -> None:
        """Help to grow all trees, after those of the first steps."""
        task = self._task
        with self._session.progress.stage("boost", task.learner.n_estimators) as advance:
            for step in range(start, task.learner.n_estimators):
                for _ in range(task.width):
                    self._grow()
                if kept is not None:
                    kept.save(step + 1, {})
                advance(step + 1)

    def _grow(self) -> None:
        task, session, rows = self._task, self._session, len(self._places)
        sealed = recv_sealed(session, task.active, "gradients", self._key, task.layout(rows))
        for level in range(task.learner.max_depth + 1):
            node = session.recv(task.active, "nodes", (rows,)).numpy()
            if level == task.learner.max_depth:
                return
            if node.min() < -1 or node.max() >= 2**level:
                raise PartyError(task.active, "sent nodes that are not in the tree")
            session.ledger.record(shown(session.me, NODES, rows))
            asked = asked_nodes(node, level)
            self._send_sums(sealed, node, asked)
            pairs = recv_pairs(session, task, "splits", 2**level, self._places.shape[1])
            mine = np.flatnonzero(pairs[:, 0] >= 0)
            # A bit for every row, also of nodes that others split: sizes tell nothing.
            left, chosen = np.zeros(rows, dtype=bool), np.flatnonzero(np.isin(node, mine))
            column, edge = pairs[node[chosen]].T
            left[chosen] = self._places[chosen, column] <= edge
            session.send(task.active, "left", torch.from_numpy(np.packbits(left)))
            if len(mine):
                session.ledger.record(shown(session.me, SPLITS, 2 * len(mine)))

    def _send_sums(self, sealed: Ciphertext, node: Numbers, asked: Numbers) -> None:
        """Add up by who lies in which bin, column after column."""
        task, key, columns = self._task, self._key, self._places.shape[1]
        order = np.full(2**task.learner.max_depth + 1, -1)
        order[asked] = np.arange(len(asked))
        at = order[node]  # a node that is not asked for, and −1, have no place
        for column in range(columns):
            places = np.where(at < 0, -1, at * task.learner.max_bins + self._places[:, column])
            sums = key.gather(places, len(asked) * task.learner.max_bins, sealed)
            found = key.release(sums, self._draw)
            send_sealed(self._session, task.active, f"sums {column}", key, found)


def send_pairs(session: Session, to: str, tag: str, pairs: Sequence[tuple[int, int]]) -> None:
    """Send columns and edges of the receiver's, −1 for none."""
    session.send(to, tag, torch.tensor(pairs, dtype=torch.int64).reshape(-1, 2))


def recv_pairs(session: Session, task: Boosting, tag: str, count: int, columns: int) -> Numbers:
    """Receive columns and edges of mine, −1 for none."""
    pairs = session.recv(task.active, tag, (count, 2)).numpy()
    limits = np.array([columns, task.learner.max_bins - 1])
    if np.any(pairs < -1) or np.any(pairs >= limits):
        raise PartyError(task.active, "names columns or edges that are not there")
    return pairs
