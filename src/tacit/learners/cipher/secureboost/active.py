"""The active party of SecureBoost: encrypts gradients, decrypts sums, chooses splits."""

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import torch

from tacit.crypto.cipher import Numbers, SecretKey, make_key
from tacit.learners.cipher.exchange import Kept, recv_sealed, send_key, send_sealed
from tacit.learners.cipher.secureboost.task import (
    Boosting,
    Floats,
    GrownTree,
    asked_nodes,
    note_leak,
    pack_trees,
    sums_layout,
    unpack_trees,
)
from tacit.party import Session
from tacit.ring import Prg

_LEAST_GAIN = 1e-6
"""What XGBoost asks of a split."""


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

    def run(self, y: Floats, start: int = 0, kept: Kept | None = None) -> tuple[GrownTree, ...]:
        """Grow all trees, after those of the first steps, which were kept."""
        task = self._task
        trees: list[GrownTree] = []
        margins = np.zeros((self._rows, task.width))
        if start and kept is not None:
            known = kept.load(start)
            margins, trees = known["margins"].astype(np.float64), unpack_trees(task, known)
        if not task.classes:  # numbers are brought to 1 by whoever knows them
            self._units[0] /= 4 * max(float(np.abs(y).max()), 1e-9)
        with self._session.progress.stage("boost", task.n_estimators) as advance:
            for step in range(start, task.n_estimators):
                moves = np.zeros_like(margins)
                for column in range(task.width):
                    both = np.rint(_gradients(task, margins, y, column) * self._units)
                    tree, moves[:, column] = self._grow(both.astype(np.int64))
                    trees.append(tree)
                margins += moves
                if kept is not None:
                    kept.save(step + 1, {"margins": margins, **pack_trees(task, trees)})
                advance(step + 1)
        return tuple(trees)

    def _grow(self, both: Numbers) -> tuple[GrownTree, Floats]:
        """Grow one tree from whole-number gradients and Hessians (rows, 2)."""
        task, session = self._task, self._session
        sealed = self._key.encrypt(both, task.layout(self._rows), self._draw)
        for owner in task.passive:
            send_sealed(session, owner, "gradients", self._key.public, sealed)
        node = np.zeros(self._rows, dtype=np.int64)
        is_open = np.ones(1, dtype=bool)
        splits: list[tuple[tuple[str, int, int] | None, ...]] = []
        above: dict[str, Numbers] = {}
        for level in range(task.max_depth):
            shown = np.where(is_open[node], node, -1)
            asked = asked_nodes(shown, level)
            for owner in task.passive:
                session.send(owner, "nodes", torch.from_numpy(shown))
            sums = self._sums(both, node, asked, above, is_open)
            chosen = self._choose(both, node, is_open, sums)
            splits.append(chosen)
            node, is_open = self._divide(node, chosen)
            above = sums
        for owner in task.passive:
            session.send(owner, "nodes", torch.full((self._rows,), -1, dtype=torch.int64))
        totals = np.stack([np.bincount(node, one, 2**task.max_depth) for one in both.T], axis=1)
        totals = totals / self._units
        leaves = -task.learning_rate * totals[:, 0] / (totals[:, 1] + task.reg_lambda)
        return GrownTree(splits=tuple(splits), leaves=leaves), leaves[node]

    def _sums(
        self,
        both: Numbers,
        node: Numbers,
        asked: Numbers,
        above: Mapping[str, Numbers],
        is_open: npt.NDArray[np.bool_],
    ) -> dict[str, Numbers]:
        """Return sums by bin: (nodes, columns, bins, 2) of every owner; siblings by subtraction."""
        task, nodes, bins = self._task, len(is_open), self._task.max_bins
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
                sealed = recv_sealed(
                    self._session, owner, f"sums {column}", self._key.public, layout
                )
                given = self._key.decrypt(sealed).reshape(len(asked), bins, 2)
                whole[asked, column] = given
            what = f"sums of gradients and Hessians in every bin of every column of {owner}"
            shown = 2 * len(asked) * columns * bins
            note_leak(self._session, (task.active,), f"{what}, by node", shown)
            if above:
                # Of two children the one with fewer rows was asked for.
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
    ) -> tuple[tuple[str, int, int] | None, ...]:
        """Choose the best split of every node as XGBoost does, first of equals."""
        task = self._task
        order = (task.active, *task.passive)
        places = [
            (owner, column, edge)
            for owner in order
            for column in range(sums[owner].shape[1])
            for edge in range(task.max_bins - 1)
        ]
        left = np.concatenate(
            [np.cumsum(sums[one], axis=2)[:, :, :-1].reshape(len(is_open), -1, 2) for one in order],
            axis=1,
        )
        totals = np.stack([np.bincount(node, one, len(is_open)) for one in both.T], axis=1)
        worth = _gains(task, left / self._units, totals / self._units)
        found: list[tuple[str, int, int] | None] = []
        for place in range(len(is_open)):
            best = int(worth[place].argmax()) if is_open[place] else 0
            is_split = is_open[place] and worth[place, best] > max(task.gamma, _LEAST_GAIN)
            found.append(places[best] if is_split else None)
        return tuple(found)

    def _divide(
        self, node: Numbers, chosen: Sequence[tuple[str, int, int] | None]
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
            if not mine:
                continue
            count = int(is_here.sum())
            note_leak(
                session,
                (task.active,),
                f"which rows a split of a column of {owner} sends left",
                count,
            )
        for at, one in enumerate(chosen):
            if one is not None and one[0] == task.active:
                right[(node == at) & (self._places[:, one[1]] > one[2])] = 1
        children = np.repeat([one is not None for one in chosen], 2)
        return 2 * node + right, children


def _gains(task: Boosting, left: Floats, totals: Floats) -> Floats:
    """Return what every candidate of every node gains, −∞ where a side weighs too little."""
    both = totals[:, None, :]
    right = both - left
    with np.errstate(divide="ignore", invalid="ignore"):
        worth = [one[..., 0] ** 2 / (one[..., 1] + task.reg_lambda) for one in (left, right, both)]
    gain = np.nan_to_num(worth[0] + worth[1] - worth[2], nan=-np.inf)
    light = np.minimum(left[..., 1], right[..., 1]) < task.min_child_weight
    return np.where(light, -np.inf, gain)


def _gradients(task: Boosting, margins: Floats, y: Floats, column: int) -> Floats:
    """Return gradients and Hessians (rows, 2) of the loss."""
    if task.classes == 0:
        reach = 4 * np.abs(y).max()
        return np.stack([np.clip(margins[:, 0] - y, -reach, reach), np.ones(len(y))], axis=1)
    if task.width == 1:
        chance = 1 / (1 + np.exp(-margins[:, 0]))
        return np.stack([chance - y, chance * (1 - chance)], axis=1)
    powers = np.exp(margins - margins.max(axis=1, keepdims=True))
    chance = powers[:, column] / powers.sum(axis=1)
    return np.stack([chance - (y == column), 2 * chance * (1 - chance)], axis=1)
