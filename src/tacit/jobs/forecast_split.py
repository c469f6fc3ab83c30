"""The forecast of a split job, apart from the others: they need nothing of what it imports."""

from pathlib import Path

import numpy as np

from tacit.data import Rows
from tacit.errors import InputError
from tacit.jobs.kind import Asked, Outlook, unread
from tacit.jobs.split_data import divide_own, load_own, load_whole, top_of
from tacit.jobs.split_job import SplitJob
from tacit.matching import align_in_the_clear, claims_of_matching, leaks_of_matching
from tacit.split import forecast
from tacit.split.serve import SERVE_ROWS
from tacit.split.summary import leaks_of_split


def forecast_split(job: SplitJob, asked: Asked) -> Outlook:
    """Forecast training at a cut layer and one question, or the question alone."""
    asked.refuse("features")
    common, matched = _split_rows(job, asked)
    trained, questions, classes = _divided(job, common, asked.search)
    task, parties = job.task(classes), tuple(job.parties)
    widths = top_of(job, task, asked.search)[1]
    found = forecast(
        task,
        widths=widths,
        rows=trained,
        questions=(questions, SERVE_ROWS),
        matched=matched,
    )
    cuts = ", ".join(f"{owner} {width}" for owner, width in widths.items())
    lines = [f"{trained} rows to train on, {questions} to ask about; width of the cut: {cuts}"]
    if found is None:
        lines.append(
            f"No forecast of bytes: under {task.compression.kind!r} the size of a message depends "
            "on the values in it."
        )
    return Outlook(
        about=task.about,
        lines=tuple(lines),
        forecast=found,
        leaks=(
            *(leaks_of_matching(matched, common, parties) if matched else ()),
            *leaks_of_split(task, widths, trained, questions, parties),
        ),
        claims=(*claims_of_matching(matched), *task.claims()),
    )


def _split_rows(job: SplitJob, asked: Asked) -> tuple[int, dict[str, int]]:
    """Return how many rows all owners have, and how many ids each, if rows are matched."""
    if job.data.set is not None:
        asked.refuse("rows")
        return 0, {}  # a known set says it itself
    owners = job.data.parties
    is_matched = job.data.match is not None and job.serve is None
    if asked.rows is not None:
        return asked.rows, dict.fromkeys(owners, asked.rows) if is_matched else {}
    try:
        if not is_matched:
            return len(load_own(job, job.data.features[0])), {}
        found = {owner: load_own(job, owner) for owner in owners}
    except InputError as error:
        raise unread(error, "--rows") from error
    common = align_in_the_clear(found)[owners[0]]
    return len(common.ids), {owner: len(one.ids) for owner, one in found.items()}


def _divided(job: SplitJob, rows: int, search: tuple[Path, ...]) -> tuple[int, int, int]:
    """Return rows to train on, rows to ask about, and classes."""
    if job.data.set is not None:
        whole = load_whole(job, search)
        trained = 0 if job.serve is not None else len(whole.train_x)
        return trained, len(whole.test_x), whole.classes
    classes = job.data.classes or 0
    if job.serve is not None:
        return 0, rows, classes
    labels_alone = Rows(features=np.empty((rows, 0)), labels=np.zeros(rows))
    return *divide_own(job, labels_alone).counts, classes
