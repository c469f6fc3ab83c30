"""Jobs of kind "fit": one party's part, from its rows to its view of what was learned."""

import io
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray

from tacit.data.metrics import add_majority, put_beside
from tacit.data.rows import Rows
from tacit.errors import RangeError
from tacit.extras import check_extra
from tacit.jobs import folder
from tacit.jobs.fit_cipher import take_part_by_cipher
from tacit.jobs.fit_data import (
    divided,
    joined,
    load_rows,
    names_of_rows,
    put_below,
    whole,
)
from tacit.jobs.fit_job import FitJob
from tacit.jobs.fit_matching import match_rows, matching_claims, matching_rounds
from tacit.jobs.fit_resume import FitState
from tacit.jobs.fit_summary import Found, claims_beyond, measure, sheets
from tacit.jobs.kind import Part, Place
from tacit.learners import (
    Connected,
    Learner,
    Parties,
    Planned,
    StandardScaler,
    Table,
    to_xgboost,
)
from tacit.learners.boosting import GradientBoosting
from tacit.learners.exported import counterpart
from tacit.mpc import Plan
from tacit.party import Session
from tacit.result import Result


class Fitting:
    """The steps of a fit, the same for every party and for who plans them."""

    def __init__(self, job: FitJob, parties: Parties, data: Table) -> None:
        self._job = job
        self._parties = parties
        self.model: Learner = job.learner.make()
        self.learned, self.kept = divided(job, data, parties)
        self.found: dict[str, Any] = {}
        """What was opened to me, by the words of [reveal]."""

    def steps(self) -> Iterator[tuple[str, Callable[[], None]]]:
        """Yield the stages in their order, and what is done in each."""
        if self._job.learner.standardise:
            yield "standardise", self._standardise
        yield "fit", self._fit
        for what, receivers in self._job.reveal.named().items():
            if receivers:
                yield what, partial(self._open, what, receivers)

    def _standardise(self) -> None:
        scaler = StandardScaler().fit(self.learned, self._parties)
        is_same = self.kept is self.learned
        self.learned = scaler.transform(self.learned)
        self.kept = self.learned if is_same else scaler.transform(self.kept)

    def _fit(self) -> None:
        self.model.fit(self.learned, self._parties)

    def _open(self, what: str, to: tuple[str, ...]) -> None:
        if what == "coefficients":
            self.model.reveal(to)
            values = {name: getattr(self.model, f"{name}_") for name in self.model.results}
            opened = {n: one for n, one in values.items() if isinstance(one, np.ndarray)}
            self.found[what] = opened or None
            return
        if what == "trees":
            assert isinstance(self.model, GradientBoosting)  # noqa: S101 - others are refused
            self.found[what] = to_xgboost(self.model, to)
            return
        method = "predict" if what == "answers" else what
        self.found[what] = getattr(self.model, method)(self.kept, to=to)


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
    if job.is_by_cipher:
        return take_part_by_cipher(session, job, place)
    mine, is_owner = None, session.me in job.data.owners
    place.given.check(session.me, rows=is_owner, model=False)
    if is_owner:
        with session.progress.stage("load"):
            mine = load_rows(job, session.me, place.search, place.given)
    counts: dict[str, int] = {}
    if job.matched:
        counts, mine, _ = match_rows(session, job, mine)
    parties = Connected(
        session,
        owners=job.owners,
        dealer=job.roles.dealer,
        protocol=job.protocol.kind,
        frac_bits=job.ring.frac_bits,
    )
    data = _table(job, parties, mine)
    with session.progress.stage("plan"):
        planned, ends = plan(job, parties.planned(), data)
    walker, programs = parties.walker, planned.walker.passed
    state = FitState(session, job, place, mine, planned.walker)
    if begun := state.begin(walker):
        session.progress.tell(f"resumed after {begun} of {programs} programs", begun, programs)
    else:  # plans name openings by the number of the run that made them
        walker.plans.update(planned.walker.plans)
    fitting = Fitting(job, parties, data)
    for (stage, step), (start, end) in zip(fitting.steps(), ends, strict=True):
        with session.progress.stage(stage, end - start) as advance:
            keeps = stage in ("standardise", "fit")  # what is opened after them is opened again

            def look(passed: int, plan: Plan | None) -> None:
                advance(passed - start)  # noqa: B023 - looked at in this turn alone
                if keeps:  # noqa: B023
                    state.watch(walker, passed, plan)

            walker.look = look
            step()
    found = cast("Found", fitting.found)  # by verbs of the same names
    result = Result(
        kind="fit",
        name=job.job.name,
        protocol=job.protocol.kind,
        launched=place.launched,
        parties=(place.report(),),
        forecast=walker.forecast(before=matching_rounds(job, counts)),
        metered=session.cost(),
        leakage=session.ledger.entries(),
        claims=(*parties.claims(), *matching_claims(job, counts), *claims_beyond(job)),
        utility=measure(job, found, fitting.kept.shape[0]),
        sheets=sheets(job, found, data),
    )
    values = fitting.found.get("answers")
    return Part(
        result=result,
        files=_files(job, fitting, data, mine),
        values=None if values is None else torch.from_numpy(np.asarray(values)),
        checkpoints=(state.folder.path,),
    )


def plan(job: FitJob, planned: Planned, data: Table) -> tuple[Planned, list[tuple[int, int]]]:
    """Plan all steps, and say between which runs each lies."""
    ends = []
    try:
        for _, step in Fitting(job, planned, data).steps():
            start = planned.walker.passed
            step()
            ends.append((start, planned.walker.passed))
    except RangeError as error:
        # How large an owner's values are is public: all plan with it.
        sizes = ", ".join(f"{one.owner} ±{one.bound:.3g}" for one in data.holdings if one.columns)
        raise RangeError(
            f"{error}. Columns go to {sizes}: divide them by data.owners.NAME.scale, so that they "
            "keep within about ±1; standardise comes after it"
        ) from error
    return planned, ends


def complete(job: FitJob, result: Result, stage: Path, search: Sequence[Path]) -> Result:
    """Put scikit-learn's score on the same rows beside the private one, if the job wants it."""
    plain = counterpart(job.learner.make())
    if job.is_by_cipher:
        return result
    if job.report.compare != "plain" or plain is None or not job.reveal.score:
        return result
    loaded = {owner: load_rows(job, owner, search) for owner in job.owners}
    planned, data, _ = joined(job, loaded)
    (x, y), (asked, truth) = (whole(one) for one in divided(job, data, planned))
    if job.learner.standardise:
        centre, spread = x.mean(0), x.std(0)
        x, asked = (x - centre) / spread, (asked - centre) / spread
    score = plain.fit(x, y).score(asked, truth)
    utility = put_beside(result.utility, measure(job, {"score": score}, len(asked)))
    if job.learner.target == "classes" and truth is not None:
        utility = add_majority(utility, truth)
    return replace(result, utility=utility)


def _table(job: FitJob, parties: Connected, mine: Rows | None) -> Table:
    parts = {} if mine is None else {parties.me: mine}
    classes = job.classes
    options: dict[str, Any] = {
        "classes": None if not classes else range(classes),
        "is_classification": job.learner.target != "numbers",
    }
    if job.data.split != "both":
        return parties.table(job.data.split, parts, **options)
    tables = [
        parties.columns(parts if parties.me in block.owners else {}, **options)
        for _, block in job.blocks
    ]
    return put_below(job, parties, tables)


def _files(job: FitJob, fitting: Fitting, data: Table, mine: Rows | None) -> dict[str, str | bytes]:
    files: dict[str, str | bytes] = {}
    opened = fitting.found.get("coefficients")
    if opened is not None:
        content = io.BytesIO()
        np.savez(content, allow_pickle=False, **opened)
        files["coefficients.npz"] = content.getvalue()
    if (trees := fitting.found.get("trees")) is not None:
        files["trees.json"] = trees
    values = fitting.found.get("answers")
    if values is not None:
        files[folder.PREDICTIONS] = _to_csv(np.asarray(values), names_of_rows(job, data, mine))
    return files


def _to_csv(answers: NDArray[np.float64], ids: Sequence[str]) -> str:
    """Write a line per row; rows are named by their ids, or numbered from 1 in order of owners."""
    wide = answers.reshape(len(answers), -1)
    heads = ["answer"] if wide.shape[1] == 1 else [f"answer {at}" for at in range(wide.shape[1])]
    names = list(ids) or [str(row) for row in range(1, len(wide) + 1)]
    lines = [",".join(["id" if ids else "row", *heads])]
    for name, row in zip(names, wide.tolist(), strict=True):
        lines.append(",".join([name, *(f"{one:.9g}" for one in row)]))
    return "\n".join(lines) + "\n"
