"""Jobs of kind "fit": the job file, one party's part with its files, and the forecast.

What is learned, matched and promised is `tacit.learners.fitting`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from tacit.data.ids import quoted
from tacit.data.metrics import add_majority, put_beside
from tacit.errors import InputError
from tacit.extras import check_extra
from tacit.jobs import folder
from tacit.jobs.config import Job, binding_of
from tacit.jobs.fit_resume import FitKeeper
from tacit.jobs.kind import Asked, Kind, Outlook, Part, Place, matched, to_npz, unread
from tacit.learners.cipher.fitting import COLUMNS, foresee, way_claims, way_leaks
from tacit.learners.columns import leaks_of_columns
from tacit.learners.exported import counterpart
from tacit.learners.fitting import plan
from tacit.learners.fitting import take_part as fit
from tacit.learners.rows import (
    assumed,
    divided,
    joined,
    load_rows,
    matching_claims,
    matching_leaks,
    matching_rounds,
    whole,
)
from tacit.learners.shown import Fitted, claims_beyond, measure
from tacit.learners.spec import FitSpec
from tacit.learners.tables import PART
from tacit.mpc import find_protocol, sum_forecasts
from tacit.mpc.walker import Walker
from tacit.party import Session, merge
from tacit.report.format import show_bytes
from tacit.result import Result
from tacit.spec import refuse_together
from tacit.training import StateFolder
from tacit.training.loop import BEGUN

ASSUMED = "Assumed, as the data is not here: values within ±1, and {} classes."


@dataclass(frozen=True, kw_only=True)
class FitJob(FitSpec, Job):
    """A whole job file of kind "fit"."""

    def __post_init__(self) -> None:
        refuse_together(super().__post_init__, self.check_parties)


def check_inputs(job: FitJob, parties: Sequence[str]) -> None:
    """Make sure that the owners among these parties say where their data is, and that it is.

    And that the cipher is installed: it is needed only once ids are matched, minutes later.
    """
    if job.is_by_cipher:
        wanted = {"bfv": ("tenseal", "zstandard"), "paillier": ("gmpy2",)}[job.protocol.cipher]
        check_extra("he", f"protocol.cipher: {job.protocol.cipher!r}", *wanted)
    for name, owner in job.data.owners.items():
        if name in parties:
            owner.source(name).check()


def take_part(session: Session, job: FitJob, place: Place) -> Part:
    """Do one party's part."""
    mine, is_owner = None, session.me in job.data.owners
    place.given.check(session.me, rows=is_owner, model=False)
    if is_owner:
        with session.progress.stage("load"):
            mine = load_rows(job, session.me, place.search, place.given)
    state = StateFolder(folder.state_of(place.out, session.me), binding_of(job, session.me))
    keep = FitKeeper(session, job, state, place.is_fresh)
    found = fit(session, job, mine, keep=keep)
    result = replace(
        found.result, name=job.job.name, launched=place.launched, parties=(place.report(),)
    )
    return Part(
        result=result,
        files=_files(found, is_told=session.me in job.reveal.answers),
        values=None if found.answers is None else torch.from_numpy(np.asarray(found.answers)),
        checkpoints=(keep.folder.path,),
    )


def complete(job: FitJob, result: Result, stage: Path, search: Sequence[Path]) -> Result:
    """Put scikit-learn's score on the same rows beside the private one, if the job wants it."""
    plain = counterpart(job.learner.make())
    if job.is_by_cipher or job.report.compare != "plain" or plain is None or not job.reveal.score:
        return result
    planned, data, _ = joined(job, {owner: load_rows(job, owner, search) for owner in job.owners})
    (x, y), (asked, truth) = (whole(one) for one in divided(job, data, planned))
    if job.learner.standardise:
        centre, spread = x.mean(0), x.std(0)
        x, asked = (x - centre) / spread, (asked - centre) / spread
    score = plain.fit(x, y).score(asked, truth)
    utility = put_beside(result.utility, measure(job, {"score": score}, len(asked)))
    if job.learner.target == "classes" and truth is not None:
        utility = add_majority(utility, truth)
    return replace(result, utility=utility)


def _files(found: Fitted, *, is_told: bool) -> dict[str, str | bytes]:
    files: dict[str, str | bytes] = {}
    if found.coefficients:
        files["coefficients.npz"] = to_npz(found.coefficients)
    if found.trees is not None:
        files["trees.json"] = found.trees
    if found.answers is not None and is_told:
        files[folder.PREDICTIONS] = _to_csv(np.asarray(found.answers), found.names)
    return files


def _to_csv(answers: NDArray[np.float64], ids: Sequence[str]) -> str:
    """Write a line per row; rows are named by their ids, or numbered from 1 in order of owners."""
    wide = answers.reshape(len(answers), -1)
    heads = ["answer"] if wide.shape[1] == 1 else [f"answer {at}" for at in range(wide.shape[1])]
    names = list(ids) or [str(row) for row in range(1, len(wide) + 1)]
    lines = [",".join(["id" if ids else "row", *heads])]
    for name, row in zip(names, wide.tolist(), strict=True):
        lines.append(",".join([quoted(name), *(f"{one:.9g}" for one in row)]))
    return "\n".join(lines) + "\n"


def forecast_fit(job: FitJob, asked: Asked) -> Outlook:
    """Forecast a whole fit, from matching ids to what is opened, by files or sizes given."""
    notes: tuple[str, ...] = ()
    if asked.rows is None or asked.features is None:
        try:
            loaded = {owner: load_rows(job, owner, asked.search) for owner in job.owners}
        except InputError as error:
            raise unread(error, "--rows and --features, of all owners together") from error
        planned, data, counts = joined(job, loaded)
    else:
        planned, data, counts = assumed(job, asked.rows, asked.features)
        known = (job.data.classes or 2) if job.learner.target == "classes" else "no"
        notes = (ASSUMED.format(known),)
    parties = tuple(job.parties)
    parts = ", ".join(f"{one.owner} {one.rows} × {one.columns}" for one in data.holdings)
    found = matching_leaks(job, counts, data, parties)
    begun = BEGUN.leaks_of_all(parties, parties)
    if job.is_by_cipher:
        rows, columns = data.shape[0], {one.owner: one.columns for one in data.holdings}
        told = COLUMNS.leaks_of_all(job.owners, parties)
        return Outlook(
            about=job.way,
            lines=(f"{parts}; {job.learner.kind}", *notes),
            forecast=foresee(job, rows, columns, counts),
            leaks=(*found, *told, *begun, *way_leaks(job, rows, columns)),
            claims=(*way_claims(job), *matching_claims(job, counts)),
        )
    _, ends = plan(job, planned, data)
    kind = f"{job.learner.kind}, {planned.walker.passed} programs"
    # Of several blocks every owner tells its part, or that it has none.
    told = merge(PART.leaks_of_all(job.owners, parties) * max(len(job.blocks), 1))
    return Outlook(
        about=job.way,
        lines=(f"{parts}; {kind}", *matched(counts), *notes, _amounts(planned.walker, ends)),
        forecast=planned.walker.forecast(before=matching_rounds(job, counts)),
        leaks=(*found, *planned.ledger(), *told, *leaks_of_columns(job, data), *begun),
        claims=(
            *find_protocol(job.protocol.kind).claims,
            *matching_claims(job, counts),
            *claims_beyond(job),
        ),
    )


def _amounts(walker: Walker, ends: Mapping[str, tuple[int, int]]) -> str:
    """Say which stage sends how much, so that a dear one can be left out."""
    runs = [plan for plan, times in walker.runs for _ in range(times)]
    said = []
    for stage, (start, end) in ends.items():
        if start == end:  # all of it was done by a stage before
            continue
        cost = sum_forecasts([(one, 1) for one in runs[start:end]]).cost
        sent = sum(one.payload_bytes for one in cost.traffic)
        said.append(f"{stage} {show_bytes(sent)}, rounds {cost.online_rounds}")
    return f"By stages: {'; '.join(said)}"


KIND = Kind(
    record=FitJob,
    check_inputs=check_inputs,
    take_part=take_part,
    complete=complete,
    forecast=forecast_fit,
    resumes=True,
    keeps=lambda job: True,
)
