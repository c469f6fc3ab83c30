"""Compiled: the words that halving works on, in one array that is made once for many rows."""

from typing import Any, NamedTuple

from tacit.verify.jit import compiled, inlined

LANE = 8
"""Leaves that are looked at by one instruction; rows of leaves are filled up to whole lanes."""
MOST_LEAVES, MOST_NODES = 1024, 6144
"""Leaves that are listed, and nodes that are looked at for that."""
MOST_ROWS = 256
"""Leaves of one tree."""
MOST_SLOTS = MOST_LEAVES + (LANE - 1) * MOST_ROWS
"""Places for leaves in rows, each filled up to whole lanes."""
LEVELS = 64
"""Boxes that wait at a time: no more than bits in four fields, and one."""


class Slate(NamedTuple):
    """What is known of features, leaves and boxes; all unsigned."""

    card: Any  # (features, 4 words)
    chosen: Any  # (4): where the cards of the widest features begin
    count: Any  # (trees): how many leaves an undecided tree has
    rank: Any  # (trees): its place in a row; those with most leaves come first
    below: Any  # (trees, and some to spare): its least leaf in lower halves
    above: Any  # and in upper halves
    greatest: Any  # and its greatest
    lanes: Any  # (rows, and one): how long a row is
    start: Any  # (rows, and one): where it begins
    leaves: Any  # (leaves, 3 words)
    queue: Any  # (nodes, 3 words)
    low: Any  # (slots): leaves in rows; these three stand where nodes have waited
    high: Any
    excess: Any
    waiting: Any  # (boxes, 2 words)


@compiled
def count_slate(index: Any) -> Any:
    """Count the words."""
    n_features, n_trees = index.cut_start.size - 1, index.trees.roots.size + LANE
    small = 4 * n_features + 4 + 5 * n_trees + 2 * (MOST_ROWS + 1)
    return small + 3 * MOST_LEAVES + 3 * MOST_NODES + 2 * LEVELS


@inlined
def lay_slate(index: Any, words: Any) -> Any:
    """Lay the words out."""
    n_trees = index.trees.roots.size + LANE
    chosen = 4 * (index.cut_start.size - 1)
    count = chosen + 4
    rank = count + n_trees
    below = rank + n_trees
    above = below + n_trees
    greatest = above + n_trees
    lanes = greatest + n_trees
    start = lanes + MOST_ROWS + 1
    leaves = start + MOST_ROWS + 1
    low = leaves + 3 * MOST_LEAVES
    high = low + MOST_SLOTS
    excess = high + MOST_SLOTS
    waiting = low + 3 * MOST_NODES
    return Slate(
        words[:chosen],
        words[chosen:count],
        words[count:rank],
        words[rank:below],
        words[below:above],
        words[above:greatest],
        words[greatest:lanes],
        words[lanes:start],
        words[start:leaves],
        words[leaves:low],
        words[low:waiting],
        words[low:high],
        words[high:excess],
        words[excess : excess + MOST_SLOTS],
        words[waiting:],
    )
