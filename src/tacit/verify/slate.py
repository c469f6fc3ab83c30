"""Compiled: the words that halving works on, in one array that is made once for many rows."""

from typing import Any, NamedTuple

from tacit.verify.jit import compiled, inlined

MOST_LEAVES = 1024
LISTS = 6
"""Room for so many copies of all leaves."""
LEVELS = 64
"""Boxes that wait at a time: no more than bits in four fields, and one."""


class Slate(NamedTuple):
    """What is known of features, leaves and boxes; all unsigned."""

    card: Any  # (features, 8 words)
    chosen: Any  # (4): where the words of the widest features begin
    stack: Any  # (ways, 3 words)
    leaves: Any  # (leaves, 3 words)
    room: Any  # lists of leaves, as long as fit
    waiting: Any  # (boxes, 5 words)


@compiled
def count_slate(index: Any) -> Any:
    """Count the words."""
    n_features, depth = index.cut_start.size - 1, index.trees.depth
    return 8 * n_features + 4 + 3 * depth + 3 + 3 * MOST_LEAVES * (1 + LISTS) + 5 * LEVELS


@inlined
def lay_slate(index: Any, words: Any) -> Any:
    """Lay the words out."""
    chosen = 8 * (index.cut_start.size - 1)
    stack = chosen + 4
    leaves = stack + 3 * index.trees.depth + 3
    room = leaves + 3 * MOST_LEAVES
    waiting = room + 3 * MOST_LEAVES * LISTS
    return Slate(
        words[:chosen],
        words[chosen:stack],
        words[stack:leaves],
        words[leaves:room],
        words[room:waiting],
        words[waiting:],
    )
