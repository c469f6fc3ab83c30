"""Who masks with whom: how many neighbours a client needs, and a random ring of them.

The graph is that of Bell, Bonawitz, Gascón, Lepoint and Raykova, "Secure Single-Server Aggregation
with (Poly)Logarithmic Overhead" (CCS 2020): clients in random order on a ring, each joined to the
k / 2 next on either side; with k = n − 1 it is the complete graph of Bonawitz et al. (CCS 2017).
"""

import math
from dataclasses import dataclass
from typing import Literal

from tacit.errors import ConfigError
from tacit.ring import Prg

Server = Literal["curious", "malicious"]
"""What the server is assumed to do: follow the protocol and look, or anything at all."""

FAILURE_BITS = 40


@dataclass(frozen=True, kw_only=True)
class Neighbourhood:
    """How many others a client masks with, and how many shares recover one of its secrets."""

    neighbours: int
    threshold: int


def share_of(clients: int, share: float) -> int:
    """Return how many clients a share is; 0.29 of 100 is 29, though its double is a little less."""
    return int(share * clients + 1e-9)


def plan_neighbourhood(
    clients: int,
    *,
    drop_rate: float,
    colluding_share: float,
    failure_bits: int = FAILURE_BITS,
) -> Neighbourhood:
    """Find the smallest neighbourhood that is secure and survives drop-outs.

    Args:
        clients: how many take part.
        drop_rate: the share of them that may fall silent, at any stage.
        colluding_share: the share that may tell the server all they know.
        failure_bits: the graph fails with probability at most 2^-failure_bits: in secrecy (too
            many of a client's neighbours collude, or the honest ones fall into parts whose sums
            would show) or in recovery (too few of a client's neighbours are left).

    Guarantee: the threshold is above half of the holders plus the colluding ones, so that no
    answers of the others, each to one of the two questions, give both secrets of a client: not to
    a server that shows different lists to different clients either.
    Cost: 0 rounds, 0 bits.

    Raises:
        ConfigError: not even the complete graph withstands what is asked.
    """
    _check(clients, drop_rate, colluding_share)
    dropped, colluding = share_of(clients, drop_rate), share_of(clients, colluding_share)
    budget = -(failure_bits + math.log2(3)) * math.log(2)
    for k in range(2, clients - 1, 2):
        # Two runs of k/2 neighbours on the ring must vanish for it to fall into parts.
        share = (dropped + colluding) / clients
        if share > 0 and 2 * math.log(clients) + k * math.log(share) > budget:
            continue
        most = _largest_plausible(clients - 1, colluding, k, budget - math.log(clients))
        threshold = _threshold(k, most)
        lost = _largest_plausible(clients - 1, dropped, k, budget - math.log(clients))
        if k - lost >= threshold:
            return Neighbourhood(neighbours=k, threshold=threshold)
    threshold = _threshold(clients - 1, colluding)
    if clients - dropped < threshold:
        raise ConfigError(
            f"of {clients} clients, {dropped} may drop out and {colluding} collude with the "
            f"server: recovery would need {threshold} shares and {clients - dropped} are left; "
            "lower drop_rate or colluding_share"
        )
    return Neighbourhood(neighbours=clients - 1, threshold=threshold)


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


def _threshold(neighbours: int, colluding: int) -> int:
    # A client holds a share of its own secrets: there are neighbours + 1 holders, and the client
    # itself answers once. Colluding holders answer both questions.
    return (neighbours + 1 + colluding) // 2 + 1


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
