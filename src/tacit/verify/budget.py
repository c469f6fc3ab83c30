"""A budget while it is being spent."""

import math

from tacit.verify.kernels.jit import wall_time

CHUNK_NODES = 50
"""Nodes of a search between two looks at the clock."""


class Purse:
    """What is left of a budget of nodes and seconds; ``None`` means no limit."""

    def __init__(self, nodes: int | None, seconds: float | None) -> None:
        self.nodes = 0
        """How many were spent."""
        self._most = math.inf if nodes is None else nodes
        self._end = math.inf if seconds is None else wall_time() + seconds

    def take(self, most: int = CHUNK_NODES) -> int:
        """Say how many nodes may be visited until the next look at the clock; 0 at the end."""
        left = min(most, self._most - self.nodes)
        return int(left) if left > 0 and wall_time() < self._end else 0
