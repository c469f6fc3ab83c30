"""Matching of rows by a helper who is trusted not to work with an owner: fast, exact or fuzzy.

Owners share a key that the helper has not, and send it keyed tags of their ids; the helper says
which rows belong together. Fuzzy tags are Bloom filters of letter pairs (Schnell, Bachteler and
Reiher 2009), as Hardy et al. (2017) match, and `hidden` is their way to keep the outcome from the
owners: the helper puts rows that match side by side, fills up with others, and alone knows which
is which.
"""

from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
import torch

from tacit.crypto.cipher import Numbers
from tacit.crypto.matching import (
    FILTER_BYTES,
    TAG_BYTES,
    check_ids,
    make_filters,
    make_tags,
    match_filters,
)
from tacit.errors import ConfigError, DataError, PartyError
from tacit.matching.align import none_in_common
from tacit.party import Session
from tacit.party.cost import CostedMessage, Round
from tacit.result import Claim, Leak
from tacit.ring import Prg

Helped = Literal["helper", "fuzzy", "hidden"]
LEAST_LIKENESS = 0.8
_KEY_BYTES = 32
_ONCE = (
    "these rows are matched once: an owner who has more of them and sees several matchings learns "
    "which match"
)


def align_by_helper(
    session: Session,
    owners: Sequence[str],
    helper: str,
    counts: Mapping[str, int],
    ids: Sequence[str] = (),
    *,
    kind: Helped = "helper",
    least: float = LEAST_LIKENESS,
) -> Numbers:
    """Find rows that belong together; every owner and the helper call this.

    Args:
        session: my end of the job.
        owners: who has rows; two of them where matching is fuzzy or hidden.
        helper: who compares; not an owner.
        counts: how many ids every owner brings, as `announce_ids` told everyone.
        ids: of my rows; none for the helper.
        kind: ``helper`` compares exactly, ``fuzzy`` by letter pairs, ``hidden`` as ``fuzzy`` and
            tells nobody but the helper which rows match.
        least: likeness from which two ids count as one, where matching is fuzzy.

    Returns:
        For an owner the positions of its rows, in an order that is the same for all owners; for
        the helper 1 for places where rows match and 0 for those that were filled up.

    Guarantee: semi-honest, and the helper works with no owner: together they could try every id
        that they can guess. Owners learn which of their rows match (with ``hidden`` only which
        were left over; over many matchings of the same rows that tells which match), nothing of
        other ids. The helper learns how many match, and of fuzzy keys
        what Bloom filters tell: no guarantee.
    Cost: 2 rounds; 16 bytes for each id (128 if fuzzy), 8 bytes back.
    """
    if helper in owners or (kind != "helper" and len(owners) != 2):
        raise ConfigError("wanted a helper who owns no rows, and two owners for fuzzy matching")
    size = TAG_BYTES if kind == "helper" else FILTER_BYTES
    if session.me == helper:
        return _help(session, owners, counts, size, kind, least)
    check_ids(ids)
    if session.me == owners[0]:  # draws a key for all owners
        key = Prg.from_os().bytes(_KEY_BYTES)
        for owner in owners[1:]:
            session.send(owner, "tag key", torch.frombuffer(bytearray(key), dtype=torch.uint8))
    else:
        words = session.recv(owners[0], "tag key", (_KEY_BYTES,), dtype=torch.uint8)
        key = words.numpy().tobytes()
    order = np.argsort(Prg.from_os().words(len(ids)).numpy())  # rows are sent in no order
    mixed = [ids[at] for at in order.tolist()]
    tags = make_tags(mixed, key) if kind == "helper" else make_filters(mixed, key)
    session.send(helper, "tags", torch.from_numpy(tags.copy()))
    places = session.recv(helper, "places", (len(ids),)).numpy()
    chosen = np.flatnonzero(places >= 0)
    if sorted(places[chosen].tolist()) != list(range(len(chosen))):
        raise PartyError(helper, "gave rows places that are not in a row")
    session.ledger.record(*leaks_of_helped(counts, len(chosen), helper, kind, to=session.me))
    if not len(chosen):
        raise DataError(none_in_common(owners))
    found: Numbers = order[chosen[np.argsort(places[chosen])]]
    return found


def _help(
    session: Session,
    owners: Sequence[str],
    counts: Mapping[str, int],
    size: int,
    kind: Helped,
    least: float,
) -> Numbers:
    tags = {
        owner: session.recv(owner, "tags", (counts[owner], size), dtype=torch.uint8).numpy()
        for owner in owners
    }
    places = {owner: np.full(counts[owner], -1, dtype=np.int64) for owner in owners}
    if kind == "helper":
        common = _common(tags)
        for owner in owners:
            places[owner][common[owner]] = np.arange(len(common[owner]))
        matched = np.ones(len(common[owners[0]]), dtype=np.int64)
    else:
        pairs = match_filters(tags[owners[0]], tags[owners[1]], least=least)
        rows = {owner: [pair[at] for pair in pairs] for at, owner in enumerate(owners)}
        matched = np.ones(len(pairs), dtype=np.int64)
        if kind == "hidden":
            matched = _fill(rows, counts)
        for owner in owners:
            places[owner][rows[owner]] = np.arange(len(matched))
    for owner in owners:
        session.send(owner, "places", torch.from_numpy(places[owner]))
    leaks = leaks_of_helped(counts, int(matched.sum()), session.me, kind, to=session.me)
    session.ledger.record(*leaks)
    if not len(matched):
        raise DataError(none_in_common(owners))
    return matched


def _common(tags: Mapping[str, np.ndarray]) -> dict[str, list[int]]:
    """Return where the tags that all have stand, in one order."""
    listed = {owner: [row.tobytes() for row in rows] for owner, rows in tags.items()}
    shared = sorted(set.intersection(*map(set, listed.values())))
    for owner, rows in listed.items():
        if len(set(rows)) < len(rows):
            raise PartyError(owner, "sent the same id twice; remove doubles there")
    found = {}
    for owner, rows in listed.items():
        at = {tag: place for place, tag in enumerate(rows)}
        found[owner] = [at[tag] for tag in shared]
    return found


def _fill(rows: dict[str, list[int]], counts: Mapping[str, int]) -> Numbers:
    """Fill up with rows that do not match, mix all places, and return which match."""
    size = min(counts.values())
    mixed = np.argsort(Prg.from_os().words(size).numpy())
    matched = (mixed < min(map(len, rows.values()))).astype(np.int64)
    for owner, chosen in rows.items():
        left = np.setdiff1d(np.arange(counts[owner]), chosen)
        left = left[np.argsort(Prg.from_os().words(len(left)).numpy())]
        whole = np.concatenate([np.array(chosen, dtype=np.int64), left[: size - len(chosen)]])
        rows[owner] = whole[mixed].tolist()
    return matched


def declare_helped(counts: Mapping[str, int], helper: str, kind: Helped) -> tuple[Round, ...]:
    """Say what `align_by_helper` sends."""
    owners, size = list(counts), TAG_BYTES if kind == "helper" else FILTER_BYTES
    return (
        tuple(CostedMessage(owners[0], owner, _KEY_BYTES) for owner in owners[1:]),
        tuple(CostedMessage(owner, helper, size * counts[owner]) for owner in owners),
        tuple(CostedMessage(helper, owner, 8 * counts[owner]) for owner in owners),
    )


def leaks_of_helped(
    counts: Mapping[str, int], common: int, helper: str, kind: Helped, *, to: str | None = None
) -> tuple[Leak, ...]:
    """List what a matching by a helper shows, to everyone or to one party."""
    total = sum(counts.values())
    found = [
        Leak(
            to=helper,
            what="how many rows match, and which of those it was sent",
            why="it compares tags of ids",
            kind="protocol",
            elements=common,
        )
    ]
    if kind != "helper":
        found.append(
            Leak(
                to=helper,
                what="a Bloom filter of letter pairs of every id, under a key that it has not",
                why="ids that are spelt alike must look alike",
                kind="protocol",
                elements=total,
            )
        )
    words = "which of its rows all owners have"
    if kind == "hidden":
        words = "which of its rows were left over, if it has more than the other owner"
    found += [
        Leak(to=owner, what=words, why="rows must be matched", kind="output", elements=common)
        for owner in counts
    ]
    return tuple(one for one in found if to is None or one.to == to)


def claims_of_helped(helper: str, kind: Helped) -> tuple[Claim, ...]:
    """Return what a matching by a helper promises."""
    fuzzy = Claim(
        subject=f"ids, towards {helper!r}",
        guarantee="no guarantee",
        assumptions=(
            "Bloom filters of like names are alike: published attacks recover many of them by "
            "frequencies, without the key",
        ),
    )
    exact = Claim(
        subject=f"ids, towards {helper!r}",
        guarantee="hidden, all but how many match and which of the tags that it was sent do",
        assumptions=(
            "the parties follow the protocol, and the helper works with no owner: together they "
            "could try every id that they can guess",
            "BLAKE2b is a pseudo-random function",
        ),
    )
    others = Claim(
        subject="ids that not all owners have, towards the other owners",
        guarantee="hidden, but for how many there are",
        assumptions=(
            "the parties follow the protocol, and the helper works with no owner",
            *((_ONCE,) if kind == "hidden" else ()),
        ),
    )
    return (exact if kind == "helper" else fuzzy, others)
