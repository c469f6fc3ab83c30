"""Private matching of rows over a session."""

from collections.abc import Mapping, Sequence

import torch

from tacit.crypto import Matcher
from tacit.crypto.matching import POINT_BYTES, Report
from tacit.errors import ConfigError, DataError, InputError, PartyError
from tacit.learn.rows import none_in_common
from tacit.mpc.cost import Message, Round
from tacit.party import Session
from tacit.result import Leak

_CHUNK = 1 << 16  # points per message
_MOST_IDS = 1 << 26


def align_rows(session: Session, owners: Sequence[str], ids: Sequence[str]) -> list[int]:
    """Find the rows whose ids all owners have, in the order of the ids, the same for all of them.

    Every owner's points travel once round the ring of owners, who each multiply them; then
    everyone shows the outcome to everyone.

    Args:
        session: my end of the job; only owners call this.
        owners: who takes part, in the same order everywhere.
        ids: of my rows.

    Returns:
        The positions of my common rows.

    Guarantee: see `tacit.crypto.Matcher`. Cost: n + 1 rounds for n owners; 32 bytes per id and
        message.

    Raises:
        DataError: an id is empty or doubled here or elsewhere, or no id is common.
    """
    if session.me not in owners or len(owners) < 2:
        raise ConfigError(f"wanted two owners or more and me among them, got {', '.join(owners)}")
    matcher = Matcher(ids)
    counts = _exchange_counts(session, owners, len(ids))
    done, total = 0, sum(counts.values())
    me = list(owners).index(session.me)
    after, before = owners[(me + 1) % len(owners)], owners[me - 1]
    with session.progress.stage("match ids", total) as advance:
        points, done = matcher.blind(_reporting(advance, 0)), len(ids)
        for turn in range(1, len(owners)):
            _send(session, after, f"match {turn}", points)
            source = owners[me - turn]
            got = _recv(session, before, f"match {turn}", counts[source])
            points = _raised(matcher, got, before, _reporting(advance, done))
            done += counts[source]
        # What I hold now are the points of the owner after me.
        finals = _share_finals(session, owners, counts, points)
    common = matcher.match(finals.pop(session.me), list(finals.values()))
    if not common:
        raise DataError(none_in_common(owners))
    in_order = {owner: counts[owner] for owner in owners}
    session.ledger.record(*leaks_of_matching(in_order, len(common)))
    return common


def announce_ids(session: Session, owners: Sequence[str], ids: Sequence[str]) -> dict[str, int]:
    """Tell and learn how many ids every owner brings; all parties call this, others with none.

    Guarantee: only these numbers are told; what the matching sends follows from them.
    Cost: 8 bytes from every owner to every party, before the first round.
    """
    if session.me in owners:
        session.publish("id count", (len(ids),))
    counts = {
        owner: len(ids) if owner == session.me else session.learn(owner, "id count", 1)[0]
        for owner in owners
    }
    for owner, count in counts.items():
        _check_count(owner, count)
    session.ledger.record(
        *(
            Leak(
                to=party,
                what="how many ids every owner has",
                why="points are sent one by one",
                kind="size",
                elements=len(counts),
            )
            for party in session.parties
            if party not in owners  # who write it down when they have matched
        )
    )
    return counts


def declare_matching(counts: Mapping[str, int]) -> tuple[Round, ...]:
    """Say what `align_rows` sends, from how many ids every owner has, in their order."""
    owners = list(counts)
    rounds = []
    for turn in range(1, len(owners)):
        points = {owner: counts[owners[at - turn + 1]] for at, owner in enumerate(owners)}
        after = {owner: owners[(at + 1) % len(owners)] for at, owner in enumerate(owners)}
        rounds.append([(owner, after[owner], points[owner]) for owner in owners])
    rounds.append(
        [
            (owner, other, counts[owners[(at + 1) % len(owners)]])
            for at, owner in enumerate(owners)
            for other in owners
            if other != owner
        ]
    )
    return tuple(
        tuple(
            Message(sender, receiver, POINT_BYTES * min(_CHUNK, count - at))
            for sender, receiver, count in sent
            for at in range(0, count, _CHUNK)
        )
        for sent in rounds
    )


def _check_count(owner: str, count: int) -> None:
    if not 0 < count <= _MOST_IDS:
        raise PartyError(owner, f"says it has {count} ids")


def _exchange_counts(session: Session, owners: Sequence[str], count: int) -> dict[str, int]:
    for owner in owners:
        if owner != session.me:
            session.send(owner, "setup/ids", torch.tensor([count]), phase="setup")
    counts = {session.me: count}
    for owner in owners:
        if owner != session.me:
            counts[owner] = int(session.recv(owner, "setup/ids", (1,))[0])
            _check_count(owner, counts[owner])
    return counts


def _share_finals(
    session: Session, owners: Sequence[str], counts: dict[str, int], points: bytes
) -> dict[str, bytes]:
    """Show everyone the points that came all the way round to me."""
    me = list(owners).index(session.me)
    finals = {owners[(me + 1) % len(owners)]: points}
    others = [owner for owner in owners if owner != session.me]
    for owner in others:
        _send(session, owner, "match end", points)
    for owner in others:
        whose = owners[(list(owners).index(owner) + 1) % len(owners)]
        finals[whose] = _recv(session, owner, "match end", counts[whose])
    return finals


def _raised(matcher: Matcher, points: bytes, sender: str, report: Report) -> bytes:
    try:
        return matcher.raise_points(points, report)
    except InputError as error:
        raise PartyError(sender, f"sent ids that cannot be matched: {error}") from error


def _send(session: Session, to: str, tag: str, points: bytes) -> None:
    data = torch.frombuffer(bytearray(points), dtype=torch.uint8).view(-1, POINT_BYTES)
    for at in range(0, len(data), _CHUNK):
        session.send(to, f"{tag}/{at}", data[at : at + _CHUNK].contiguous())


def _recv(session: Session, sender: str, tag: str, count: int) -> bytes:
    parts = []
    for at in range(0, count, _CHUNK):
        shape = (min(_CHUNK, count - at), POINT_BYTES)
        part = session.recv(sender, f"{tag}/{at}", shape, dtype=torch.uint8)
        parts.append(part.numpy().tobytes())
    return b"".join(parts)


def _reporting(advance: Report, before: int) -> Report:
    return lambda at: advance(before + at)


def leaks_of_matching(counts: Mapping[str, int], common: int) -> tuple[Leak, ...]:
    """List what owners learn who match their ids, of which they have so many in common."""
    owners = list(counts)
    entries = [
        Leak(
            to=owner,
            what="which of its ids all owners have",
            why="rows must be matched",
            kind="output",
            elements=common,
        )
        for owner in owners
    ]
    entries += [
        Leak(
            to=owner,
            what="how many ids every owner has",
            why="points are sent one by one",
            kind="size",
            elements=len(counts),
        )
        for owner in owners
    ]
    if len(owners) > 2:
        entries += [
            Leak(
                to=owner,
                what="which of its ids each other owner has",
                why="points of all owners are compared",
                kind="protocol",
                elements=counts[owner] * (len(owners) - 1),
            )
            for owner in owners
        ]
        entries += [
            Leak(
                to=owner,
                what="how many ids any two owners have in common",
                why="points of all owners are compared",
                kind="protocol",
                elements=len(owners) * (len(owners) - 1) // 2,
            )
            for owner in owners
        ]
    return tuple(entries)
