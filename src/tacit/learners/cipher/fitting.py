"""A fit by a cipher: one party's part, and what is known of all parts before anything is sent."""

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tacit.crypto.cipher import Numbers
from tacit.data.metrics import ACCURACY, AUC, KS, MAJORITY, measure_odds
from tacit.data.rows import Rows
from tacit.errors import DataError
from tacit.learners.boosting import GradientBoosting
from tacit.learners.cipher.boosting import (
    Boosting,
    claims_of_boosting,
    declare_boosting,
    leaks_of_boosting,
)
from tacit.learners.cipher.exchange import Floats, MatchStore, StepStore
from tacit.learners.cipher.regression import (
    LARGEST_FEATURE,
    Regression,
    claims_of_regression,
    coordinate,
    declare_regression,
    leaks_of_regression,
    partial_scores,
    regress,
    regress_masked,
)
from tacit.learners.cipher.secureboost import answer, boost
from tacit.learners.columns import columns_of, labelled, scaled
from tacit.learners.rows import match_rows, matching_claims, matching_rounds
from tacit.learners.shown import Fitted
from tacit.learners.spec import FitSpec
from tacit.mpc import sum_forecasts
from tacit.party import Fact, Session
from tacit.result import Claim, Forecast, Leak, Metric, Result
from tacit.ring import Prg

if TYPE_CHECKING:
    from tacit.learners.fitting import Keeper

COLUMNS = Fact(
    tag="columns", count=1, what="how many columns {owner} has", why="sums are sized by it"
)


def fit_by_cipher(
    session: Session, spec: FitSpec, mine: Rows | None, keep: "Keeper | None"
) -> Fitted:
    """Do one party's part; see `tacit.learners.fitting.take_part`."""
    is_hidden = spec.data.matching == "hidden"
    store: MatchStore | None = None
    if is_hidden and keep is not None:
        store = keep.steps(mine)
        store.agree()
    is_matched = store is not None and store.has_begun
    counts, mine, matched = match_rows(session, spec, mine, store)
    columns = _told_columns(session, spec, mine)
    if not is_hidden and keep is not None:
        store = keep.steps(mine)
    margins: Floats | None = None
    weights: Floats | None = None
    kept, rows = np.arange(0), 0
    if mine is not None:
        rows = len(mine.features)
        learned, kept = divided(spec, rows)
        margins, weights = _learn(session, spec, mine, learned, kept, store)
    elif matched is not None:
        rows = len(matched)
        if is_hidden:
            learned, _ = divided(spec, rows)
            coordinate(session, regression(spec, len(learned)), matched[learned], kept=store)
        elif store is not None:
            store.begin()
    utility: tuple[Metric, ...] = ()
    if margins is not None and mine is not None and mine.labels is not None:
        utility = _measured(spec, margins, mine.labels.astype(float)[kept])
    forecast = foresee(
        spec,
        rows,
        columns,
        {} if is_matched else counts,
        done=0 if store is None else store.start,
    )
    result = Result(
        kind="fit",
        name="fit",
        protocol=spec.way,
        launched="threads",
        parties=(),
        forecast=forecast,
        metered=session.cost(),
        leakage=session.ledger.entries(),
        claims=(*way_claims(spec), *matching_claims(spec, counts)),
        utility=utility,
    )
    shown: dict[str, Any] = {}
    if weights is not None and mine is not None and session.me in spec.reveal.coefficients:
        own = {session.me: mine.features[divided(spec, len(mine.features))[0]]}
        known = scaled(spec, columns_of(session.me, mine), own=own, opened=None)
        shown = labelled(spec.learner, {"coef": weights}, known)
    return Fitted(
        result=result,
        answers=None if margins is None else _answers(spec, margins),
        names=() if mine is None else tuple(mine.ids[at] for at in kept.tolist()),
        coefficients=shown,
    )


def _learn(
    session: Session,
    spec: FitSpec,
    mine: Rows,
    learned: Numbers,
    kept: Numbers,
    store: StepStore | None,
) -> tuple[Floats | None, Floats | None]:
    """Learn as an owner; return margins where I have the labels, and my weights."""
    x = mine.features
    y = None if mine.labels is None else mine.labels.astype(float)[learned]
    if spec.learner.is_boosted:
        model = boost(session, boosting(spec), x[learned], y, kept=store)
        return answer(session, model, x[kept]), None
    if spec.learner.standardise:
        spread = x[learned].std(axis=0)
        x = (x - x[learned].mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    x = np.clip(x, -LARGEST_FEATURE, LARGEST_FEATURE)
    task = regression(spec, len(learned))
    if task.coordinator is not None:  # scores would tell which rows match
        return None, regress_masked(session, task, x[learned], y, kept=store)
    weights = regress(session, task, x[learned], y, kept=store)
    return partial_scores(session, task, x[kept], weights), weights


def _told_columns(session: Session, spec: FitSpec, mine: Rows | None) -> dict[str, int]:
    """Tell everyone how many columns I have: what is sent is sized by it."""
    own = 0 if mine is None else mine.features.shape[1]
    if mine is not None:
        session.publish(COLUMNS, (own,))
    return {
        one: own if one == session.me else session.learn(one, COLUMNS)[0] for one in spec.owners
    }


def foresee(
    spec: FitSpec,
    rows: int,
    columns: Mapping[str, int],
    counts: Mapping[str, int],
    *,
    done: int = 0,
) -> Forecast | None:
    """Forecast what matching and the published protocol send; None for who does not know rows."""
    if not rows:
        return None
    learned, asked = (len(part) for part in divided(spec, rows))
    if spec.learner.is_boosted:
        sent = declare_boosting(boosting(spec), learned, columns, asked=asked, done=done)
    else:
        task = regression(spec, learned)
        asked = 0 if task.coordinator is not None else asked
        sent = declare_regression(task, learned, columns, asked=asked, done=done)
    forecast = sum_forecasts((), before=(*matching_rounds(spec, counts), *sent))
    return replace(forecast, computing_seconds=None)  # nobody has measured ciphers here


def way_leaks(spec: FitSpec, rows: int, columns: Mapping[str, int]) -> tuple[Leak, ...]:
    """List what the published protocol shows."""
    learned, asked = (len(part) for part in divided(spec, rows))
    if spec.learner.is_boosted:
        return leaks_of_boosting(boosting(spec), learned, columns, asked=asked)
    task = regression(spec, learned)
    asked = 0 if task.coordinator is not None else asked
    return leaks_of_regression(task, learned, columns, asked=asked)


def way_claims(spec: FitSpec) -> tuple[Claim, ...]:
    """Say what the published protocol promises."""
    labelled = spec.data.labels or ""
    others = tuple(one for one in spec.owners if one != labelled)
    if spec.learner.is_boosted:
        return claims_of_boosting(labelled, others, spec.protocol.cipher)
    coordinator = spec.protocol.helper if spec.data.matching == "hidden" else None
    return claims_of_regression(labelled, others[0], coordinator, spec.protocol.cipher)


def divided(spec: FitSpec, rows: int) -> tuple[Numbers, Numbers]:
    """Return which rows are learned from and which are measured on, by public coins."""
    everyone = np.arange(rows)
    if not spec.data.test_share:
        return everyone, everyone
    coins = Prg(spec.data.seed.to_bytes(16, "big", signed=True)).fork("rows measured on")
    order = np.argsort(coins.words(rows).numpy(), kind="stable")
    count = round(spec.data.test_share * rows)
    if not 0 < count < rows - 1:
        raise DataError(f"{rows} rows are too few to learn from some and to measure on others")
    return np.sort(order[count:]), np.sort(order[:count])


def boosting(spec: FitSpec) -> Boosting:
    """Return what the owners of a boosting agree on."""
    active, learner = spec.data.labels or "", spec.learner.make()
    assert isinstance(learner, GradientBoosting)  # noqa: S101 - others are no boosting
    return Boosting(
        active=active,
        passive=tuple(one for one in spec.owners if one != active),
        classes=0 if spec.learner.target == "numbers" else spec.data.classes or 2,
        cipher=spec.protocol.cipher,
        learner=learner,
    )


def regression(spec: FitSpec, rows: int) -> Regression:
    """Return what the owners of a regression agree on."""
    given, labelled = spec.learner.parameters, spec.data.labels or ""
    is_numbers = spec.learner.target == "numbers"
    penalty = 1 / (given.get("C", 1.0) * rows)
    if is_numbers:
        penalty = given.get("alpha", 1.0) / rows if spec.learner.kind == "ridge" else 0.0
    return Regression(
        labelled=labelled,
        other=next(one for one in spec.owners if one != labelled),
        coordinator=spec.protocol.helper if spec.data.matching == "hidden" else None,
        loss="squares" if is_numbers else "taylor",
        cipher=spec.protocol.cipher,
        max_iter=given.get("max_iter", 30),
        rate=0.1 if is_numbers else 0.5,
        penalty=penalty,
        seed=abs(spec.data.seed),
    )


def _answers(spec: FitSpec, margins: Floats) -> Floats:
    wide = margins.reshape(len(margins), -1)
    if spec.learner.target == "numbers":
        return wide[:, 0]
    found = (wide[:, 0] > 0) if wide.shape[1] == 1 else wide.argmax(axis=1)
    return found.astype(np.float64)


def _measured(spec: FitSpec, margins: Floats, labels: Floats) -> tuple[Metric, ...]:
    """Say how good answers are, as far as [reveal] names it."""
    labelled, wide = spec.data.labels or "", margins.reshape(len(margins), -1)
    if spec.learner.target == "numbers":
        if labelled not in spec.reveal.score:
            return ()
        left = ((wide[:, 0] - labels) ** 2).sum() / ((labels - labels.mean()) ** 2).sum()
        return (Metric(name="R²", value=float(1 - left), unit="", samples=len(labels)),)
    if wide.shape[1] == 1:
        odds = 1 / (1 + np.exp(-wide[:, 0]))
    else:
        powers = np.exp(wide - wide.max(axis=1, keepdims=True))
        odds = powers / powers.sum(axis=1, keepdims=True)
    # Whoever measures has the labels: how often each class is there is its own.
    wanted = {
        ACCURACY: spec.reveal.score,
        MAJORITY: spec.reveal.score,
        AUC: spec.reveal.auc,
        KS: spec.reveal.ks,
    }
    return tuple(
        one
        for one in measure_odds(odds, labels.astype(np.int64))
        if labelled in wanted.get(one.name, ())
    )
