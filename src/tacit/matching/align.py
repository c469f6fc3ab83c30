"""Private matching of rows over a session, by points of Curve25519 that every owner raises once.

Meadows (1986), and Huberman, Franklin and Hogg (1999): raising commutes, so that ids that all have
end in one point, whatever way round they went; an id that is not common stays behind the keys of
the others, by the Diffie–Hellman assumption.
"""

from collections.abc import Iterable, Mapping, Sequence

import torch

from tacit.crypto import Matcher
from tacit.crypto.matching import POINT_BYTES, Report, check_ids
from tacit.data.rows import Rows
from tacit.errors import ConfigError, DataError, InputError, PartyError
from tacit.party import Fact, Session
from tacit.party.cost import CostedMessage, Round
from tacit.result import Claim, Leak, LeakKind

_CHUNK = 1 << 16
"""Points of a message: 2 MiB."""
_MOST_IDS = 1 << 26
_WHY = {"output": "rows must be matched", "protocol": "points of all owners are compared"}
IDS = Fact(
    tag="id count", count=1, what="how many ids {owner} has", why="points are sent one by one"
)


def align_rows(
    session: Session,
    owners: Sequence[str],
    ids: Sequence[str],
    counts: Mapping[str, int] | None = None,
) -> list[int]:
    """Find the rows whose ids all owners have, in the order of the ids, the same for all of them.

    Every owner's points travel once round the ring of owners, who each multiply them; then
    everyone shows the outcome to everyone.

    Args:
        session: my end of the job; only owners call this.
        owners: who takes part, in the same order everywhere.
        ids: of my rows.
        counts: how many ids every owner brings, as `announce_ids` told everyone; without it the
            owners tell each other.

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
    if counts is None:
        counts = announce_ids(session, owners, ids, to=owners)
    done, total = 0, sum(counts.values())
    me = list(owners).index(session.me)
    after, before = owners[(me + 1) % len(owners)], owners[me - 1]
    with session.progress.stage("match ids", total) as advance:
        points, done = matcher.blind(advance), len(ids)
        for turn in range(1, len(owners)):
            _send(session, after, f"match {turn}", points)
            source = owners[me - turn]
            got = _recv(session, before, f"match {turn}", counts[source])
            try:
                points = matcher.raise_points(got, _reporting(advance, done))
            except InputError as error:
                raise PartyError(before, f"sent ids that cannot be matched: {error}") from error
            done += counts[source]
        # What I hold now are the points of the owner after me: everyone shows them to everyone.
        finals = {after: points}
        others = [(at, owner) for at, owner in enumerate(owners) if owner != session.me]
        for _, owner in others:
            _send(session, owner, "match end", points)
        for at, owner in others:
            whose = owners[(at + 1) % len(owners)]
            finals[whose] = _recv(session, owner, "match end", counts[whose])
    common = matcher.match(finals.pop(session.me), list(finals.values()))
    if not common:
        raise DataError(none_in_common(owners))
    session.ledger.record(*_seen({owner: counts[owner] for owner in owners}, len(common)))
    return common


def announce_ids(
    session: Session,
    owners: Sequence[str],
    ids: Sequence[str],
    *,
    to: Sequence[str] | None = None,
) -> dict[str, int]:
    """Tell and learn how many ids every owner brings; all parties call this, others with none.

    ``to`` are those who are told, if not all.

    Guarantee: only these numbers are told; what the matching sends follows from them.
    Cost: 8 bytes from every owner to every party, before the first round.
    """
    if session.me in owners:
        session.publish(IDS, (len(ids),), to=to)
    counts = {
        owner: len(ids) if owner == session.me else session.learn(owner, IDS, to=to)[0]
        for owner in owners
    }
    for owner, count in counts.items():
        if not 0 < count <= _MOST_IDS:
            raise PartyError(owner, f"says it has {count} ids")
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
            CostedMessage(sender, receiver, POINT_BYTES * min(_CHUNK, count - at))
            for sender, receiver, count in sent
            for at in range(0, count, _CHUNK)
        )
        for sent in rounds
    )


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


def leaks_of_matching(
    counts: Mapping[str, int], common: int, parties: Sequence[str] = ()
) -> tuple[Leak, ...]:
    """List what is learned when owners match their ids, of which they have so many in common.

    ``parties`` are told how many ids there are; the owners alone, if none is given.
    """
    return (*IDS.leaks_of_all(counts, parties or tuple(counts)), *_seen(counts, common))


def _seen(counts: Mapping[str, int], common: int) -> tuple[Leak, ...]:
    """List what the points show their owners."""
    owners = list(counts)
    shown: list[tuple[str, str, LeakKind, int]] = [
        (owner, "which of its ids all owners have", "output", common) for owner in owners
    ]
    if len(owners) > 2:
        pairs = len(owners) * (len(owners) - 1) // 2
        for owner, count in counts.items():
            others = count * (len(owners) - 1)
            shown += [
                (owner, "which of its ids each other owner has", "protocol", others),
                (owner, "how many ids any two owners have in common", "protocol", pairs),
            ]
    return tuple(
        Leak(to=to, what=what, why=_WHY[kind], kind=kind, elements=elements)
        for to, what, kind, elements in shown
    )


def align_in_the_clear(rows: Mapping[str, Rows]) -> dict[str, Rows]:
    """Order the common rows alike, as a matching does, for who has them all on one machine.

    Raises:
        DataError: what a matching refuses: ids that are doubled, or none in common; names every
            owner whose ids cannot be used.
    """
    check_all_ids(rows)
    common = sorted(set.intersection(*(set(one.ids) for one in rows.values())))
    if not common:
        raise DataError(none_in_common(rows))
    places = {name: {row: at for at, row in enumerate(one.ids)} for name, one in rows.items()}
    return {name: one.take([places[name][row] for row in common]) for name, one in rows.items()}


def check_all_ids(rows: Mapping[str, Rows]) -> None:
    """Refuse ids that are doubled, for who has the rows of all owners; names each such owner."""
    wrong = []
    for owner, one in rows.items():
        try:
            check_ids(one.ids)
        except DataError as error:
            wrong.append(f"{owner!r}: {error}")
    if wrong:
        raise DataError("; ".join(wrong))


def none_in_common(owners: Iterable[str]) -> str:
    """Say that a matching found nothing."""
    return f"{', '.join(owners)} have no id in common; are the ids written alike?"


def claims_of_matching(matched: Mapping[str, int]) -> tuple[Claim, ...]:
    """Return what a matching promises, by how many ids every owner had; nothing if none did."""
    if not matched:
        return ()
    guarantee = "hidden, but for how many there are"
    if len(matched) > 2:
        guarantee += (
            "; each learns which of its own ids every single other party has, and how many ids "
            "others have in common"
        )
    return (
        Claim(
            subject="ids that not all parties have, towards the other parties",
            guarantee=guarantee,
            assumptions=(
                "the parties follow the protocol; ids that one only guesses can be tried by "
                "putting them into its file",
                "Diffie–Hellman is hard on Curve25519; SHA-256 behaves like a random function",
            ),
        ),
    )
