"""Jobs of kind "fit" by a cipher: match rows, learn in a published way, measure at the labels."""

import io
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import torch

from tacit.crypto.cipher import Numbers
from tacit.data.metrics import ACCURACY, AUC, MAJORITY, measure_odds
from tacit.data.rows import Rows
from tacit.errors import DataError
from tacit.jobs import folder
from tacit.jobs.fit_data import load_rows
from tacit.jobs.fit_job import FitJob
from tacit.jobs.fit_matching import match_rows, matching_claims, matching_rounds
from tacit.jobs.fit_resume import CipherState, HiddenState
from tacit.jobs.kind import Part, Place
from tacit.learners.cipher.boosting import Boosting, claims_of_boosting, declare_boosting
from tacit.learners.cipher.regression import (
    LARGEST_FEATURE,
    Regression,
    claims_of_regression,
    coordinate,
    declare_regression,
    partial_scores,
    regress,
    regress_masked,
)
from tacit.learners.cipher.secureboost import answer, boost
from tacit.mpc import sum_forecasts
from tacit.party import Fact, Session
from tacit.result import Claim, Forecast, Metric, Result
from tacit.ring import Prg

Floats = npt.NDArray[np.float64]
COLUMNS = Fact(
    tag="columns", count=1, what="how many columns {owner} has", why="sums are sized by it"
)


def take_part_by_cipher(session: Session, job: FitJob, place: Place) -> Part:
    """Do one party's part."""
    mine, is_owner = None, session.me in job.data.owners
    place.given.check(session.me, rows=is_owner, model=False)
    if is_owner:
        with session.progress.stage("load"):
            mine = load_rows(job, session.me, place.search, place.given)
    hidden = HiddenState(session, job, place, mine) if job.data.matching == "hidden" else None
    if hidden is not None:
        hidden.agree()
    is_matched = hidden is not None and hidden.has_begun
    counts, mine, matched = match_rows(session, job, mine, hidden)
    columns = _told_columns(session, job, mine)
    margins, kept = None, None
    rows = len(mine.features) if mine is not None else 0 if matched is None else len(matched)
    files: dict[str, str | bytes] = {}
    state = hidden or CipherState(session, job, place, mine)
    if mine is not None:
        margins, kept, files = _owned(session, job, mine, state)
    elif matched is not None and hidden is not None:
        learned, _ = divided(job, len(matched))
        coordinate(session, regression(job, len(learned)), matched[learned], kept=state)
    else:
        state.begin()
    labels = None if mine is None or mine.labels is None else mine.labels.astype(float)[kept]
    utility: tuple[Metric, ...] = ()
    if margins is not None and labels is not None:
        utility = _measured(job, margins, labels)
        if session.me in job.reveal.answers and mine is not None and kept is not None:
            names = [mine.ids[at] for at in kept.tolist()]
            files[folder.PREDICTIONS] = _to_csv(names, _answers(job, margins))
    result = Result(
        kind="fit",
        name=job.job.name,
        protocol=f"cipher ({job.protocol.cipher})",
        launched=place.launched,
        parties=(place.report(),),
        forecast=cipher_forecast(
            job, rows, columns, {} if is_matched else counts, done=state.start
        ),
        metered=session.cost(),
        leakage=session.ledger.entries(),
        claims=(*way_claims(job), *matching_claims(job, counts)),
        utility=utility,
    )
    values = None if margins is None else torch.from_numpy(_answers(job, margins))
    return Part(result=result, files=files, values=values, checkpoints=(state.folder.path,))


def _owned(
    session: Session, job: FitJob, mine: Rows, state: CipherState
) -> tuple[Floats | None, Numbers, dict[str, str | bytes]]:
    """Learn as an owner; return margins of rows measured on where I have the labels."""
    x = mine.features
    y = None if mine.labels is None else mine.labels.astype(float)
    learned, kept = divided(job, len(x))
    if job.learner.is_boosted:
        task = boosting(job)
        labels = None if y is None else y[learned]
        model = boost(session, task, x[learned], labels, kept=state)
        return answer(session, model, x[kept]), kept, {}
    if job.learner.standardise:
        spread = x[learned].std(axis=0)
        x = (x - x[learned].mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    x = np.clip(x, -LARGEST_FEATURE, LARGEST_FEATURE)
    steps = regression(job, len(learned))
    labels = None if y is None else y[learned]
    if steps.coordinator is None:
        weights = regress(session, steps, x[learned], labels, kept=state)
    else:
        weights = regress_masked(session, steps, x[learned], labels, kept=state)
    files: dict[str, str | bytes] = {}
    if session.me in job.reveal.coefficients:
        content = io.BytesIO()
        np.savez(content, allow_pickle=False, coef=weights)
        files["coefficients.npz"] = content.getvalue()
    if steps.coordinator is not None:  # scores would tell which rows match
        return None, kept, files
    return partial_scores(session, steps, x[kept], weights), kept, files


def _told_columns(session: Session, job: FitJob, mine: Rows | None) -> dict[str, int]:
    """Tell everyone how many columns I have: what is sent is sized by it."""
    own = 0 if mine is None else mine.features.shape[1]
    if mine is not None:
        session.publish(COLUMNS, (own,))
    return {one: own if one == session.me else session.learn(one, COLUMNS)[0] for one in job.owners}


def cipher_forecast(
    job: FitJob,
    rows: int,
    columns: Mapping[str, int],
    counts: Mapping[str, int],
    *,
    done: int = 0,
) -> Forecast | None:
    """Forecast what matching and the published protocol send; None for who does not know rows."""
    if not rows:
        return None
    learned, asked = (len(part) for part in divided(job, rows))
    if job.learner.is_boosted:
        sent = declare_boosting(boosting(job), learned, columns, asked=asked, done=done)
    else:
        steps = regression(job, learned)
        asked = 0 if steps.coordinator is not None else asked
        sent = declare_regression(steps, learned, columns, asked=asked, done=done)
    forecast = sum_forecasts((), before=(*matching_rounds(job, counts), *sent))
    return replace(forecast, computing_seconds=None)  # nobody has measured ciphers here


def divided(job: FitJob, rows: int) -> tuple[Numbers, Numbers]:
    """Return which rows are learned from and which are measured on, by public coins."""
    everyone = np.arange(rows)
    if not job.data.test_share:
        return everyone, everyone
    coins = Prg(job.data.seed.to_bytes(16, "big", signed=True)).fork("rows measured on")
    order = np.argsort(coins.words(rows).numpy(), kind="stable")
    count = round(job.data.test_share * rows)
    if not 0 < count < rows - 1:
        raise DataError(f"{rows} rows are too few to learn from some and to measure on others")
    return np.sort(order[count:]), np.sort(order[:count])


def boosting(job: FitJob) -> Boosting:
    """Return what the owners of a job for boosting agree on."""
    active = job.data.labels or ""
    classes = 0 if job.learner.target == "numbers" else job.data.classes or 2
    return Boosting(
        active=active,
        passive=tuple(one for one in job.owners if one != active),
        classes=classes,
        cipher=job.protocol.cipher,
        **dict(job.learner.parameters),
    )


def regression(job: FitJob, rows: int) -> Regression:
    """Return what the owners of a job for regression agree on."""
    given, labelled = job.learner.parameters, job.data.labels or ""
    penalty = 1 / (given.get("C", 1.0) * rows)
    if job.learner.target == "numbers":
        penalty = given.get("alpha", 1.0) / rows if job.learner.kind == "ridge" else 0.0
    return Regression(
        labelled=labelled,
        other=next(one for one in job.owners if one != labelled),
        coordinator=job.protocol.helper if job.data.matching == "hidden" else None,
        loss="squares" if job.learner.target == "numbers" else "taylor",
        cipher=job.protocol.cipher,
        max_iter=given.get("max_iter", 30),
        learning_rate=0.1 if job.learner.target == "numbers" else 0.5,
        penalty=penalty,
        seed=abs(job.data.seed),
    )


def way_claims(job: FitJob) -> tuple[Claim, ...]:
    """Say what the published protocol promises."""
    labelled = job.data.labels or ""
    others = tuple(one for one in job.owners if one != labelled)
    if job.learner.is_boosted:
        return claims_of_boosting(labelled, others, job.protocol.cipher)
    coordinator = job.protocol.helper if job.data.matching == "hidden" else None
    return claims_of_regression(labelled, others[0], coordinator, job.protocol.cipher)


def _answers(job: FitJob, margins: Floats) -> Floats:
    wide = margins.reshape(len(margins), -1)
    if job.learner.target == "numbers":
        return wide[:, 0]
    found = (wide[:, 0] > 0) if wide.shape[1] == 1 else wide.argmax(axis=1)
    return found.astype(np.float64)


def _measured(job: FitJob, margins: Floats, labels: Floats) -> tuple[Metric, ...]:
    """Say how good answers are, as far as [reveal] names it."""
    labelled, wide = job.data.labels or "", margins.reshape(len(margins), -1)
    if job.learner.target == "numbers":
        if labelled not in job.reveal.score:
            return ()
        left = ((wide[:, 0] - labels) ** 2).sum() / ((labels - labels.mean()) ** 2).sum()
        return (Metric(name="R²", value=float(1 - left), unit="", samples=len(labels)),)
    if wide.shape[1] == 1:
        odds = 1 / (1 + np.exp(-wide[:, 0]))
    else:
        powers = np.exp(wide - wide.max(axis=1, keepdims=True))
        odds = powers / powers.sum(axis=1, keepdims=True)
    # Whoever measures has the labels: how often each class is there is its own.
    wanted = {ACCURACY: job.reveal.score, MAJORITY: job.reveal.score, AUC: job.reveal.auc}
    return tuple(
        one
        for one in measure_odds(odds, labels.astype(np.int64))
        if labelled in wanted.get(one.name, ())
    )


def _to_csv(names: list[str], answers: Floats) -> str:
    lines = ["id,answer"]
    lines += [f"{name},{one:.9g}" for name, one in zip(names, answers.tolist(), strict=True)]
    return "\n".join(lines) + "\n"
