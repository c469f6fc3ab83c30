"""Rows of owners of columns, matched as a job says: what is done, sent, shown and promised."""

from collections.abc import Mapping

from tacit.cli.jobs.fit_job import FitJob
from tacit.crypto.cipher import Numbers
from tacit.learn.rows import Rows
from tacit.learn.vertical import (
    align_rows,
    announce_ids,
    claims_of_matching,
    declare_matching,
    leaks_of_matching,
)
from tacit.learn.vertical.helped import (
    Helped,
    align_by_helper,
    claims_of_helped,
    declare_helped,
    leaks_of_helped,
)
from tacit.mpc.cost import Round
from tacit.party import Session
from tacit.result import Claim, Leak


def match_rows(
    session: Session, job: FitJob, mine: Rows | None
) -> tuple[dict[str, int], Rows | None, Numbers | None]:
    """Match ids, and return how many each owner had, my rows, and the helper's matches."""
    ids = () if mine is None else mine.ids
    counts = announce_ids(session, job.owners, ids)
    asked = _helped(job)
    if asked is None:
        if mine is not None:
            mine = mine.take(align_rows(session, job.owners, ids))
        return counts, mine, None
    helper, kind = asked
    if session.me != helper and mine is None:
        return counts, None, None
    found = align_by_helper(
        session, job.owners, helper, counts, ids, kind=kind, least=job.data.likeness
    )
    if mine is None:
        return counts, None, found
    return counts, mine.take(found.tolist()), None


def matching_rounds(job: FitJob, counts: Mapping[str, int]) -> tuple[Round, ...]:
    """Say what matching sends."""
    if not counts:
        return ()
    asked = _helped(job)
    return declare_matching(counts) if asked is None else declare_helped(counts, *asked)


def matching_claims(job: FitJob, counts: Mapping[str, int]) -> tuple[Claim, ...]:
    """Say what matching promises."""
    asked = _helped(job) if counts else None
    return claims_of_matching(counts) if asked is None else claims_of_helped(*asked)


def matching_leaks(job: FitJob, counts: Mapping[str, int], common: int) -> tuple[Leak, ...]:
    """Say what matching shows."""
    if not counts:
        return ()
    asked = _helped(job)
    if asked is None:
        return leaks_of_matching(counts, common)
    return leaks_of_helped(counts, common, *asked)


def _helped(job: FitJob) -> tuple[str, Helped] | None:
    """Return who helps to match, and how."""
    if job.data.matching == "exact" or job.helper is None:
        return None
    return job.helper, job.data.matching
