"""Who masks with whom: everybody with everybody, or a random ring of many neighbours.

Whoever falls silent, or is left off the list, is taken to be chosen by an enemy. Up to a hundred
clients, and wherever the server may do anything, the graph is the complete one of Bonawitz et al.
(CCS 2017). The sparse one is that of Bell, Bonawitz, Gascón, Lepoint and Raykova, "Secure
Single-Server Aggregation with (Poly)Logarithmic Overhead" (CCS 2020): clients in random order on a
ring, each joined to the k / 2 next on either side, with a threshold of which no drop-outs, however
they are chosen, cut the ring.
"""

import math
from dataclasses import dataclass
from typing import Literal

from tacit.errors import ConfigError
from tacit.ring import Prg

Server = Literal["curious", "malicious"]
"""What the server is assumed to do: follow the protocol and look, or anything at all."""

LOSS_BITS = 40  # too few shares are left with a probability of at most 2^-40
SECRECY_BITS = 80  # 2^-40 is left after 2^40 lists of clients were tried
_COMPLETE = 100  # up to here fewer neighbours would save next to nothing


@dataclass(frozen=True, kw_only=True)
class Neighbourhood:
    """How many others a client masks with, and how many shares recover one of its secrets."""

    neighbours: int
    threshold: int


def share_of(clients: int, share: float) -> int:
    """Return how many clients a share is; 0.29 of 100 is 29, though its double is a little less."""
    # Shares beyond 0 to 1 are refused where they are told; rules of several keys run before that.
    return int(min(max(share, 0.0), 1.0) * clients + 1e-9)


def plan_neighbourhood(
    clients: int,
    *,
    minimum: int,
    drop_rate: float,
    colluding_share: float,
    server: Server = "malicious",
) -> Neighbourhood:
    """Find a neighbourhood of which no drop-outs show the sum of a part.

    Args:
        clients: how many are asked.
        minimum: the fewest that may be listed: all who collude can be among them.
        drop_rate: the share of them that may fall silent, at any stage, for a sum to be found.
        colluding_share: the share that may tell the server all they know.
        server: one that may do anything tries out lists and tells each client another story, so
            everybody masks with everybody; towards one that follows the protocol a ring suffices.

    Guarantee: whatever clients are silent, at whatever stages, the server finds out the sum of all
    who stayed or of nobody. In the complete graph the threshold is above half of all and the
    colluding ones, so that one list at most is answered. On the ring it is above one side, the
    client itself and the colluding ones of the other side: who can be recovered has an honest
    client that stayed on either side, and so on around the ring; `secrecy_bits` says how surely.
    Cost: 0 rounds, 0 bits.

    Raises:
        ConfigError: not even the complete graph withstands what is asked.
    """
    _check(clients, drop_rate, colluding_share)
    dropped, colluding = share_of(clients, drop_rate), share_of(clients, colluding_share)
    if server == "curious" and clients > _COMPLETE:
        secrecy, loss = (
            -bits * math.log(2) - math.log(clients) for bits in (SECRECY_BITS, LOSS_BITS)
        )
        # The fewest neighbours that do, by a union bound over the clients (− log n above): the ring
        # is cut if it is cut at any of them. In logarithms, as the binomials overflow doubles.
        # The bound is over places, of which each has a uniform sample of the list beside it: hence
        # all of the list is the population, though the client itself is honest.
        for side in range(1, (clients - 1) // 2):
            population = max(minimum, side)
            most = _largest_plausible(population, min(colluding, population), side, secrecy)
            # Of t holders that answer, `side` can be on one side, one is the client itself and
            # `most` collude: t = side + most + 2 leaves one honest one on the other. All who stay
            # within its reach are its neighbours, so such steps join everybody on the ring.
            threshold = side + most + 2
            lost = _largest_plausible(clients - 1, dropped, 2 * side, loss)
            # For a client that stayed. Of one that left its own share is gone too: with exactly
            # `lost` others silent its pair secret lacks one, which makes 2^-40 up to 2^-38.
            if 2 * side + 1 - lost >= threshold:
                return Neighbourhood(neighbours=2 * side, threshold=threshold)
    # 2 t > n + colluding, the condition of Bonawitz et al. (2017) for active adversaries: two lists
    # of survivors would need t holders each, and only the colluding ones answer both.
    threshold = (clients + colluding) // 2 + 1
    if clients - dropped < threshold:
        raise ConfigError(
            f"of {clients} clients, {dropped} may drop out and {colluding} collude with the "
            f"server: recovery would need {threshold} shares and {clients - dropped} are left; "
            "lower drop_rate or colluding_share"
        )
    return Neighbourhood(neighbours=clients - 1, threshold=threshold)


def secrecy_bits(
    near: Neighbourhood, clients: int, *, minimum: int, colluding_share: float
) -> float:
    """Return b where one list of clients, the worst, shows the sum of a part with chance 2^-b.

    Infinite in the complete graph, where no list does. Whoever tries 2^a lists has 2^(a - b).
    """
    colluding = share_of(clients, colluding_share)
    if near.neighbours >= clients - 1:
        return math.inf if 2 * near.threshold > clients + colluding else 0.0
    side = near.neighbours // 2
    # Of any side at most so many may collude: the others that are needed there are honest.
    most, tail = near.threshold - side - 2, -math.inf
    population = max(minimum, side)
    marked = min(colluding, population)
    for count in range(max(most, -1) + 1, min(marked, side) + 1):
        tail = _log_add(tail, _log_hypergeometric(population, marked, side, count))
    return max(0.0, -(tail + math.log(clients)) / math.log(2))


def holders(place: int, count: int, neighbours: int) -> list[int]:
    """List the places on a ring of ``count`` that hold shares of ``place``: itself first."""
    if neighbours >= count - 1:
        return [(place + step) % count for step in range(count)]
    half = neighbours // 2
    offsets = (0, *range(1, half + 1), *range(-half, 0))
    return [(place + step) % count for step in offsets]


def draw_order(seed: bytes, count: int) -> list[int]:
    """Draw the order of the clients on the ring from a public seed."""
    order: list[int] = Prg(seed[:16]).permutation(count).tolist()
    return order


def _largest_plausible(population: int, marked: int, drawn: int, log_failure: float) -> int:
    """Return the least c with P[more than c of those drawn are marked] ≤ exp(log_failure)."""
    top = min(marked, drawn)
    total = -math.inf
    for count in range(top, 0, -1):
        total = _log_add(total, _log_hypergeometric(population, marked, drawn, count))
        if total > log_failure:
            return count
    return 0


def _log_hypergeometric(population: int, marked: int, drawn: int, count: int) -> float:
    if drawn - count > population - marked:
        return -math.inf
    return (
        _log_choose(marked, count)
        + _log_choose(population - marked, drawn - count)
        - _log_choose(population, drawn)
    )


def _log_choose(n: int, k: int) -> float:
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)


def _log_add(x: float, y: float) -> float:
    high, low = max(x, y), min(x, y)
    return high if low == -math.inf else high + math.log1p(math.exp(low - high))


def _check(clients: int, drop_rate: float, colluding_share: float) -> None:
    if clients < 2:
        raise ConfigError(f"clients must be at least 2 for a sum to hide anyone, got {clients}")
    for name, share in (("drop_rate", drop_rate), ("colluding_share", colluding_share)):
        if not 0 <= share < 1:
            raise ConfigError(f"{name} must be at least 0 and below 1, got {share}")
