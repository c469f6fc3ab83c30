"""Recover the secrets that the survivors gave up shares of, and take the masks off the sum."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice

import numpy as np

from tacit.crypto import ShamirShare, recover
from tacit.federated.contract import VoidRound
from tacit.federated.secagg.messages import (
    SEED_BYTES,
    SERVER,
    Roster,
    client_name,
    commit_seed,
    key_pair_of,
    pair_key,
    self_key,
)
from tacit.federated.secagg.plan import Words, add_masks

_AT_ONCE = 128  # masks in one pass over the sum: it is read 128 times less, their keys are few
_CHUNK = 7  # bytes of a secret in one field element of 61 bits, as `share_bytes` cuts them


@dataclass
class Held:
    """What the server keeps of every client, by position: small, whatever the dimension."""

    commitments: dict[int, bytes] = field(default_factory=dict)
    parcels: dict[int, dict[int, bytes]] = field(default_factory=dict)
    shares: dict[int, dict[int, bytes]] = field(default_factory=dict)


def remove_masks(
    total: Words, roster: Roster, held: Held, present: frozenset[int], alive: frozenset[int]
) -> None:
    """Take off the sum the own masks of those who stayed and the pairs' of those who left.

    Guarantee: every secret that is used fits its owner's commitment or public key, or the round is
    void.
    Cost: 0 rounds; one mask for every survivor, and one for every neighbour left behind.

    Raises:
        VoidRound: a secret has too few shares, or is not what its owner committed to.
    """
    # Round 4 at the server: Σ_{U3} y_u less PRG(b_u) of all in U3, and less ± PRG(s_{u,v}) of all
    # pairs of u in U3 with v in U2 \ U3; pairs within U3 have cancelled. Who left before U2 put
    # no mask on anybody. What is recovered is checked against what its owner showed in round 0
    # or 1: a client that shared garbage would else turn the sum into garbage that nobody notices.
    lost = [
        position
        for position in sorted(present - alive)
        if any(other in alive for other in roster.holders(position))
    ]
    seeds = _recover_seeds(roster, held, [*sorted(alive), *lost])
    _in_batches(total, (_own(roster, held, place, seeds[place]) for place in sorted(alive)))
    _in_batches(
        total, (key for place in lost for key in _left_behind(roster, place, seeds[place], alive))
    )


def _in_batches(total: Words, signed: Iterator[tuple[bool, bytes]]) -> None:
    while batch := list(islice(signed, _AT_ONCE)):
        add_masks(
            total,
            plus=[key for is_plus, key in batch if is_plus],
            minus=[key for is_plus, key in batch if not is_plus],
        )


def _own(roster: Roster, held: Held, position: int, seed: bytes) -> tuple[bool, bytes]:
    index, session = roster.adverts[position].index, roster.plan.session
    if commit_seed(session, index, seed) != held.commitments[position]:
        raise VoidRound(client_name(index), "it shared another secret than it committed to")
    return False, self_key(seed, session)


def _left_behind(
    roster: Roster, position: int, seed: bytes, alive: frozenset[int]
) -> Iterator[tuple[bool, bytes]]:
    """Yield the masks that a client's neighbours put on for it, to be taken off again."""
    advert, session = roster.adverts[position], roster.plan.session
    pairs = key_pair_of(seed, session, b"mask")
    if pairs.public != advert.masking:
        raise VoidRound(client_name(advert.index), "it shared another key than it advertised")
    for other in roster.holders(position)[1:]:
        if other in alive:
            their = roster.adverts[other]
            key = pair_key(pairs, their.masking, session, between=(advert.index, their.index))
            yield their.index > advert.index, key


def _recover_seeds(roster: Roster, held: Held, wanted: Iterable[int]) -> dict[int, bytes]:
    """Recover many secrets; those with shares at the same points in one go."""
    threshold = roster.plan.neighbourhood.threshold
    groups: dict[tuple[int, ...], list[tuple[int, list[bytes]]]] = defaultdict(list)
    for position in wanted:
        given = held.shares.get(position, {})
        ranked = [
            (point, given[holder])
            for point, holder in enumerate(roster.holders(position), 1)
            if holder in given
        ][:threshold]  # any t points give the polynomial
        if len(ranked) < threshold:
            name = client_name(roster.adverts[position].index)
            raise VoidRound(
                SERVER, f"{len(ranked)} shares of {name} are left, recovery wants {threshold}"
            )
        points = tuple(point for point, _ in ranked)
        groups[points].append((position, [share for _, share in ranked]))
    seeds: dict[int, bytes] = {}
    for points, members in groups.items():
        seeds |= _recover_group(points, members, threshold)
    return seeds


def _recover_group(
    points: tuple[int, ...], members: list[tuple[int, list[bytes]]], threshold: int
) -> dict[int, bytes]:
    columns = zip(*(shares for _, shares in members), strict=True)
    stacked = [
        ShamirShare(
            point,
            threshold,
            np.frombuffer(b"".join(column), "<u8").astype(np.uint64).reshape(-1, 3),
        )
        for point, column in zip(points, columns, strict=True)
    ]
    octets = recover(stacked).astype("<u8").view(np.uint8).reshape(len(members), 3, 8)
    padded = octets[:, :, :_CHUNK].reshape(len(members), -1)
    return {
        position: row[:SEED_BYTES].tobytes()
        for (position, _), row in zip(members, padded, strict=True)
    }
