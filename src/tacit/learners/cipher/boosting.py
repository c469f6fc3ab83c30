"""SecureBoost: what all owners agree on, what comes out; what it sends, shows and promises."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil, log2

import numpy as np

from tacit.crypto.cipher import BITS, CipherLayout, Numbers, Scheme, wire_bytes
from tacit.errors import ConfigError
from tacit.learners.boosting import GradientBoosting, GradientBoostingClassifier
from tacit.learners.cipher.exchange import FOLLOWS, KEY, PART, Floats, messages, shown
from tacit.party.cost import CostedMessage, Round
from tacit.result import Claim, Leak

Split = tuple[str, int, int] | None
"""Of a node: the owner, its column and its edge; None sends all rows left."""
SUMS = "sums of gradients and Hessians in every bin of every column of {}, by node"
LEFT = "which rows a split of a column of {} sends left"
NODES = "which rows lie in which node of every tree"
SPLITS = "which of its columns and bins a tree splits on"
SIDES = "which side of splits of {} rows lie on"
_ROOM = (1 << 47) - 1
"""What a sum may reach: below the least room of a cipher that weighs."""


@dataclass(frozen=True, kw_only=True)
class Boosting:
    """What all owners agree on.

    Attributes:
        active: who has the labels.
        passive: the other owners, in the order of their columns after those of the active party.
        classes: how many there are; 0 learns numbers by squared errors.
        cipher: how gradients are encrypted.
        learner: its parameters, but ``edges``, ``categorical`` and ``class_weight``.
    """

    active: str
    passive: tuple[str, ...]
    classes: int = 2
    cipher: Scheme = "bfv"
    learner: GradientBoosting = field(default_factory=GradientBoostingClassifier)

    def __post_init__(self) -> None:
        if not self.passive or len(set(self.owners)) < len(self.owners):
            found = f"got {self.owners}"
            raise ConfigError(f"wanted one passive owner at least, all different, {found}")
        if self.classes == 1 or self.classes < 0:
            raise ConfigError(f"wanted two classes at least, or 0 for numbers, got {self.classes}")
        depth, bins = self.learner.max_depth, self.learner.max_bins
        if not (1 <= depth <= 12 and 2 <= bins <= 256):
            raise ConfigError(
                f"wanted a depth of 1 to 12 and 2 to 256 bins, got {depth} and {bins}"
            )

    @property
    def owners(self) -> tuple[str, ...]:
        """Return all owners, the active one first."""
        return (self.active, *self.passive)

    @property
    def width(self) -> int:
        """Return how many trees a step has."""
        return self.classes if self.classes > 2 else 1

    def frac_bits(self, rows: int) -> int:
        """Return the precision of gradients: as much as the room for sums over all rows gives."""
        # |gradient| ≤ 1, so that a sum over all rows is at most 2^46 in units: half of `_ROOM`.
        return min(32, 46 - ceil(log2(rows)))

    def layout(self, rows: int) -> CipherLayout:
        """Return how the gradients of all rows are encrypted."""
        bound = 1 << self.frac_bits(rows)
        return CipherLayout(rows=rows, width=2, bound=bound, room=_ROOM, by_owner=True)


@dataclass(frozen=True, kw_only=True, eq=False)
class CipherTrees:
    """One party's part of what was learned: trees of the active party, everyone's own edges.

    Attributes:
        task: agreed by all.
        edges: of my columns.
        splits: (trees, nodes, 3), of every node, level by level, the place of the owner among the
            owners, its column and its edge; −1 sends all left.
        leaves: (trees, leaves), what is added for the rows of each.
        columns: how many every owner has.
    """

    task: Boosting
    edges: Floats
    splits: Numbers
    leaves: Floats
    columns: Mapping[str, int]

    def splits_of(self, owner: str) -> list[tuple[int, int]]:
        """List columns and edges of an owner on which any tree splits, in order."""
        mine = self.splits[self.splits[..., 0] == self.task.owners.index(owner)]
        return sorted({(column, edge) for _, column, edge in mine.tolist()})

    def asked_of(self, owner: str) -> list[tuple[int, int]]:
        """List `splits_of` an owner, filled up with −1 to as many as there can be."""
        found = self.splits_of(owner)
        most = most_splits(self.task, self.columns[owner])
        return found + [(-1, -1)] * (most - len(found))


def most_splits(task: Boosting, columns: int) -> int:
    """Return on how many edges of an owner trees can split."""
    nodes: int = task.learner.n_estimators * task.width * (2**task.learner.max_depth - 1)
    return min(nodes, columns * (task.learner.max_bins - 1))


def leaks_of_boosting(
    task: Boosting, rows: int, columns: Mapping[str, int], *, asked: int = 0
) -> tuple[Leak, ...]:
    """List what the published protocol shows, at most: trees may end before their depth.

    ``asked`` are rows that are answered for.
    """
    trees = task.learner.n_estimators * task.width
    nodes = trees * (2**task.learner.max_depth - 1)
    owners = task.owners
    found = [*PART.leaks_of_all(owners, owners), *KEY.leaks(task.active, owners)]
    for owner in task.passive:
        sums = nodes * columns[owner] * task.learner.max_bins * 2
        found += [
            shown(task.active, SUMS.format(owner), sums),
            shown(task.active, LEFT.format(owner), trees * rows * task.learner.max_depth),
            shown(owner, NODES, trees * rows * task.learner.max_depth),
            shown(owner, SPLITS, nodes * 2),
        ]
        if asked:
            splits = most_splits(task, columns[owner])
            found.append(shown(task.active, SIDES.format(owner), asked * splits))
    return tuple(found)


def claims_of_boosting(active: str, passive: Sequence[str], cipher: str) -> tuple[Claim, ...]:
    """Return what SecureBoost promises, and what it does not."""
    others = ", ".join(passive)
    return (
        Claim(
            subject=f"labels of {active}, towards {others}",
            guarantee="no guarantee",
            assumptions=(
                "gradients are encrypted, but everyone sees which rows lie in which node, and rows "
                "of a node are alike in their labels",
            ),
        ),
        Claim(
            subject=f"columns of {others}, towards {active}",
            guarantee="no guarantee",
            assumptions=(
                "it sees how gradients add up in every bin of every column, node by node; values, "
                "names and edges are not sent",
            ),
        ),
        Claim(
            subject=f"gradients of single rows, towards {others}",
            guarantee="hidden",
            assumptions=(FOLLOWS, f"the cipher {cipher} holds"),
        ),
    )


def declare_boosting(
    task: Boosting,
    rows: int,
    columns: Mapping[str, int],
    *,
    asked: int = 0,
    done: int = 0,
    bits: int = BITS,
) -> tuple[Round, ...]:
    """Say what SecureBoost sends; keys and sizes, which come before, are not counted.

    Args:
        task: agreed by all.
        rows: that are learned from.
        columns: of every owner.
        asked: rows that are answered for.
        done: steps that an earlier start has made.
        bits: of a Paillier key.
    """

    def to_all(size: int) -> Round:
        return tuple(one for owner in task.passive for one in messages(task.active, owner, size))

    def from_all(size: int, times: Mapping[str, int]) -> Round:
        return tuple(
            one
            for owner in task.passive
            for _ in range(times[owner])
            for one in messages(owner, task.active, size)
        )

    tree = [to_all(wire_bytes(task.cipher, task.layout(rows), bits=bits))]
    for level in range(task.learner.max_depth):
        nodes = 2 ** max(0, level - 1)  # of two siblings one
        sums = wire_bytes(
            task.cipher, sums_layout(task, rows, nodes * task.learner.max_bins), bits=bits
        )
        tree += [
            to_all(8 * rows),
            from_all(sums, columns),
            to_all(16 * 2**level),
            from_all(-(-rows // 8), dict.fromkeys(task.passive, 1)),
        ]
    tree.append(to_all(8 * rows))
    rounds = tuple(tree) * ((task.learner.n_estimators - done) * task.width)
    if not asked:
        return rounds
    splits = {owner: most_splits(task, columns[owner]) for owner in task.passive}
    pairs = tuple(CostedMessage(task.active, owner, 16 * count) for owner, count in splits.items())
    sides = {owner: asked * -(-count // 8) for owner, count in splits.items()}
    return (
        *rounds,
        pairs,
        tuple(CostedMessage(one, task.active, size) for one, size in sides.items()),
    )


def asked_nodes(node: Numbers, level: int) -> Numbers:
    """Return which nodes are added up: of two children the one with fewer rows.

    Also where there are none: what is sent depends on the depth alone.
    """
    if level == 0:
        return np.zeros(1, dtype=np.int64)
    pairs = np.bincount(node[node >= 0], minlength=2**level).reshape(-1, 2)
    found: Numbers = 2 * np.arange(len(pairs)) + (pairs[:, 1] < pairs[:, 0])
    return found


def sums_layout(task: Boosting, rows: int, outputs: int) -> CipherLayout:
    """Return how sums come back to the active party."""
    fresh = task.layout(rows)
    return replace(fresh, rows=outputs, bound=fresh.room, form="released", by_owner=False)
