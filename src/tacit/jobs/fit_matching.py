"""Rows of owners of columns, matched as a job says: what is done, sent, shown and promised."""

from collections.abc import Mapping, Sequence
from itertools import zip_longest

from tacit.crypto.cipher import Numbers
from tacit.data.rows import Rows
from tacit.jobs.fit_job import FitJob
from tacit.jobs.fit_resume import HiddenState
from tacit.learners import Table
from tacit.matching import (
    align_rows,
    announce_ids,
    claims_of_matching,
    declare_matching,
    leaks_of_matching,
)
from tacit.matching.align import IDS
from tacit.matching.helped import (
    align_by_helper,
    claims_of_helped,
    declare_helped,
    leaks_of_helped,
)
from tacit.party import Session
from tacit.party.cost import Round
from tacit.result import Claim, Leak


def match_rows(
    session: Session, job: FitJob, mine: Rows | None, kept: HiddenState | None = None
) -> tuple[dict[str, int], Rows | None, Numbers | None]:
    """Match ids, and return how many each owner had, my rows, and the helper's matches.

    Args:
        session: my end of the job.
        job: says who matches, and how.
        mine: my rows, as I have them.
        kept: where hidden matches are kept: they are taken up if the job was begun before.
    """
    ids = () if mine is None else mine.ids
    counts: dict[str, int] = {}
    for owners in job.matched:
        counts |= announce_ids(session, owners, ids if session.me in owners else ())
    asked = job.helped
    if asked is None:
        for owners in job.matched:
            if mine is not None and session.me in owners:
                mine = mine.take(align_rows(session, owners, ids, _within(counts, owners)))
        return counts, mine, None
    helper, kind = asked
    if session.me != helper and mine is None:
        return counts, None, None
    if kept is not None and kept.places is not None:
        found = kept.places
        common = int(found.sum()) if mine is None else len(found)
        session.ledger.record(*leaks_of_helped(counts, common, helper, kind, to=session.me))
    else:
        found = align_by_helper(
            session, job.owners, helper, counts, ids, kind=kind, least=job.data.likeness
        )
        if kept is not None:
            kept.keep_places(found)
    if mine is None:
        return counts, None, found
    return counts, mine.take(found.tolist()), None


def matching_rounds(job: FitJob, counts: Mapping[str, int]) -> tuple[Round, ...]:
    """Say what matching sends."""
    if not counts:
        return ()
    asked = job.helped
    if asked is not None:
        return declare_helped(counts, *asked)
    groups = [declare_matching(_within(counts, owners)) for owners in job.matched]
    # Blocks are matched at the same time.
    return tuple(sum(rounds, ()) for rounds in zip_longest(*groups, fillvalue=()))


def matching_claims(job: FitJob, counts: Mapping[str, int]) -> tuple[Claim, ...]:
    """Say what matching promises."""
    asked = job.helped if counts else None
    if asked is not None:
        return claims_of_helped(*asked)
    groups = [claims_of_matching(_within(counts, owners)) for owners in job.matched if counts]
    return tuple(dict.fromkeys(claim for claims in groups for claim in claims))


def matching_leaks(job: FitJob, counts: Mapping[str, int], data: Table) -> tuple[Leak, ...]:
    """Say what matching shows."""
    if not counts:
        return ()
    asked = job.helped
    if asked is not None:
        told = IDS.leaks_of_all(counts, tuple(job.parties))
        return (*told, *leaks_of_helped(counts, data.shape[0], *asked))
    common = {one.owner: one.rows for one in data.holdings}
    groups = [(_within(counts, owners), common[owners[0]]) for owners in job.matched]
    return tuple(leak for group in groups for leak in leaks_of_matching(*group, tuple(job.parties)))


def _within(counts: Mapping[str, int], owners: Sequence[str]) -> dict[str, int]:
    return {owner: counts[owner] for owner in owners}
