"""The forecast of a job of kind "fit", from public facts alone."""

from collections.abc import Mapping
from typing import Literal

from tacit.errors import ConfigError, InputError
from tacit.jobs.fit import plan
from tacit.jobs.fit_cipher import (
    COLUMNS,
    boosting,
    cipher_forecast,
    divided,
    regression,
    way_claims,
)
from tacit.jobs.fit_data import joined, load_rows, put_below, stand_ins
from tacit.jobs.fit_job import FitJob
from tacit.jobs.fit_matching import matching_claims, matching_leaks, matching_rounds
from tacit.jobs.fit_summary import claims_beyond
from tacit.jobs.kind import Asked, Outlook, unread
from tacit.learners import Planned, Table
from tacit.learners.cipher.boosting import leaks_of_boosting
from tacit.learners.cipher.regression import leaks_of_regression
from tacit.learners.tables import PART, Holding
from tacit.mpc import find_protocol
from tacit.party import merge
from tacit.training.resume import BEGUN

ASSUMED = "Assumed, as the data is not here: values within ±1, and {} classes."

_KINDS: Mapping[str, Literal["none", "real", "class"]] = {
    "classes": "class",
    "numbers": "real",
    "none": "none",
}


def forecast_fit(job: FitJob, asked: Asked) -> Outlook:
    """Forecast a whole fit, from matching ids to what is opened."""
    if job.is_by_cipher:
        return _by_cipher(job, asked)
    planned, data, counts, notes = _facts(job, asked)
    plan(job, planned, data)
    parts = ", ".join(f"{one.owner} {one.rows} × {one.columns}" for one in data.holdings)
    kind = f"{job.learner.kind}, {planned.walker.passed} programs"
    matched = ", ".join(f"{owner} {count}" for owner, count in counts.items())
    return Outlook(
        about=job.protocol.kind,
        lines=(f"{parts}; {kind}", *((f"ids to match: {matched}",) if counts else ()), *notes),
        forecast=planned.walker.forecast(before=matching_rounds(job, counts)),
        leaks=(
            *matching_leaks(job, counts, data),
            *planned.ledger(),
            # Of several blocks every owner tells its part, or that it has none.
            *merge(PART.leaks_of_all(job.owners, tuple(job.parties)) * max(len(job.blocks), 1)),
            *BEGUN.leaks_of_all(job.parties, tuple(job.parties)),
        ),
        claims=(
            *find_protocol(job.protocol.kind).claims,
            *matching_claims(job, counts),
            *claims_beyond(job),
        ),
    )


def _by_cipher(job: FitJob, asked: Asked) -> Outlook:
    """Say what a published protocol sends and shows."""
    _, data, counts, notes = _facts(job, asked)
    parties = tuple(job.parties)
    rows, columns = data.shape[0], {one.owner: one.columns for one in data.holdings}
    learned, asked_rows = (len(part) for part in divided(job, rows))
    if job.learner.is_boosted:
        shown = leaks_of_boosting(boosting(job), learned, columns, asked=asked_rows)
    else:
        steps = regression(job, learned)
        if steps.coordinator is not None:
            asked_rows = 0
        shown = leaks_of_regression(steps, learned, columns, asked=asked_rows)
    parts = ", ".join(f"{one.owner} {one.rows} × {one.columns}" for one in data.holdings)
    return Outlook(
        about=f"cipher ({job.protocol.cipher})",
        lines=(f"{parts}; {job.learner.kind}", *notes),
        forecast=cipher_forecast(job, rows, columns, counts),
        leaks=(
            *matching_leaks(job, counts, data),
            *COLUMNS.leaks_of_all(job.owners, parties),
            *BEGUN.leaks_of_all(parties, parties),
            *shown,
        ),
        claims=(*way_claims(job), *matching_claims(job, counts)),
    )


def _facts(job: FitJob, asked: Asked) -> tuple[Planned, Table, dict[str, int], tuple[str, ...]]:
    """Return the table by its public facts: those of files that are here, or of sizes given."""
    if asked.rows is None or asked.features is None:
        try:
            loaded = {owner: load_rows(job, owner, asked.search) for owner in job.owners}
        except InputError as error:
            raise unread(error, "--rows and --features, of all owners together") from error
        return *joined(job, loaded), ()
    planned, is_columns = stand_ins(job), job.data.split == "columns"
    notes = (ASSUMED.format((job.data.classes or 2) if _has_classes(job) else "no"),)
    if job.data.split == "both":
        return *_blocks(job, planned, asked.rows, asked.features), notes
    rows, columns = (_evenly(one, len(job.owners)) for one in (asked.rows, asked.features))
    holdings = [
        _holding(
            job,
            owner,
            rows=asked.rows if is_columns else rows[at],
            columns=columns[at] if is_columns else asked.features,
        )
        for at, owner in enumerate(job.owners)
    ]
    counts = dict.fromkeys(job.owners, asked.rows) if is_columns else {}
    return planned, planned.planned_table(job.data.split, holdings), counts, notes


def _blocks(
    job: FitJob, planned: Planned, rows: int, features: int
) -> tuple[Planned, Table, dict[str, int]]:
    """Divide rows evenly between blocks; who has which columns the job says."""
    width = job.blocks[0][1].width
    if features != width:
        raise ConfigError(f"--features: data.blocks have {width} columns, got {features}")
    tables = []
    counts: dict[str, int] = {}
    for (_, block), count in zip(job.blocks, _evenly(rows, len(job.blocks)), strict=True):
        spans = {owner: block.columns.get(owner, (0, 0)) for owner in block.owners}
        holdings = [_holding(job, o, rows=count, columns=b - a) for o, (a, b) in spans.items()]
        tables.append(planned.planned_table("columns", holdings))
        if block.owners in job.matched:
            counts |= dict.fromkeys(block.owners, count)
    return planned, put_below(job, planned, tables), counts


def _has_classes(job: FitJob) -> bool:
    return job.learner.target == "classes"


def _holding(job: FitJob, owner: str, *, rows: int, columns: int) -> Holding:
    is_labelled = job.wants_labels(owner)
    return Holding(
        owner=owner,
        rows=rows,
        columns=columns,
        bound=1.0,
        labels=_KINDS[job.learner.target] if is_labelled else "none",
        classes=(job.data.classes or 2) if is_labelled and _has_classes(job) else 0,
        label_bound=1.0,
    )


def _evenly(total: int, parts: int) -> list[int]:
    each, more = divmod(total, parts)
    return [each + (at < more) for at in range(parts)]
