"""Who takes part in a federated run, and how many of them a claim counts on."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Crowd:
    """Who takes part: how many each round, how few suffice, how many of those are not honest.

    One at least is not counted on, whatever ``colluding`` says: a fellow client that sees the
    models knows its own noise and its own reports, and hides nobody from itself.

    Attributes:
        clients: how many are asked.
        minimum: fewest whose mean is shown.
        colluding: how many of them may work with the server.
        rounds: how many at most.
        dimension: numbers in an update.
        knows_shuffler: the job pins the shuffler's key, so that no server can put in its own.
    """

    clients: int
    minimum: int
    colluding: int
    rounds: int
    dimension: int
    knows_shuffler: bool = False

    @property
    def lost(self) -> int:
        """The clients of a round whose noise and reports somebody else knows."""
        return max(1, self.colluding)

    @property
    def honest(self) -> int:
        """The fewest clients in a round that counts whose noise nobody else knows."""
        return self.minimum - self.lost
