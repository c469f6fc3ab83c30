"""A fit from its spec: one party's part over a session, its plan, or all of it in this process."""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial, reduce
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np

from tacit.data.memory import Handed
from tacit.data.rows import Rows
from tacit.data.source import Given
from tacit.errors import RangeError
from tacit.learners.base import Learner
from tacit.learners.boosting import GradientBoosting
from tacit.learners.cipher.exchange import MatchStore
from tacit.learners.cipher.fitting import fit_by_cipher
from tacit.learners.classify import Classifier
from tacit.learners.columns import labelled, most_known, scaled, tell_columns
from tacit.learners.exported import to_xgboost
from tacit.learners.parties import Connected, Parties, Planned
from tacit.learners.rows import (
    divided,
    load_rows,
    match_rows,
    matching_claims,
    matching_rounds,
    names_of_rows,
    put_below,
)
from tacit.learners.scaling import StandardScaler
from tacit.learners.shown import Fitted, claims_beyond, measure, sheets
from tacit.learners.spec import FitSpec
from tacit.learners.tables import Table
from tacit.mpc import Plan
from tacit.mpc.walker import Walker
from tacit.party import Meeting, Session, Usage, merge_results, run_threads
from tacit.result import Result
from tacit.spec import check_record, to_tables


class ShareStore(Protocol):
    """Where a computing party keeps its shares, so that a fit that was stopped goes on."""

    def begin(self, walker: Walker) -> int:
        """Agree on where to go on, hand the walker what was kept, and return how far that is."""
        ...

    def watch(self, walker: Walker, passed: int, plan: Plan | None) -> None:
        """Look at what a run has left, and keep it if it is time."""
        ...


class Keeper(Protocol):
    """Makes one party's store for a fit, once it knows the rows that are learned from."""

    def shares(self, mine: Rows | None, planned: Walker) -> ShareStore:
        """Return where shares are kept."""
        ...

    def steps(self, mine: Rows | None) -> MatchStore:
        """Return where a party keeps what it knows after every step by a cipher."""
        ...


RANKED: Mapping[str, Literal["auc", "ks"]] = {"auc": "auc", "ks": "ks"}
"""Measures that are opened with how exact they are."""


class _Steps:
    """The steps of a fit on shares, the same for every party and for who plans them."""

    def __init__(self, spec: FitSpec, parties: Parties, data: Table) -> None:
        self._spec = spec
        self._parties = parties
        self.model: Learner = spec.learner.make()
        self.learned, self.kept = divided(spec, data, parties)
        self.found: dict[str, Any] = {}
        """What was opened to me, by the words of [reveal]; None is what others alone got."""

    def __iter__(self) -> Iterator[tuple[str, Callable[[], object]]]:
        """Yield the stages in their order, and what is done in each."""
        if self._spec.learner.standardise:
            yield "standardise", self._standardise
        yield "fit", lambda: self.model.fit(self.learned, self._parties)
        for what, receivers in self._spec.reveal.named().items():
            if receivers:
                yield what, partial(self._open, what, receivers)

    def _standardise(self) -> None:
        self._scaler = StandardScaler().fit(self.learned, self._parties)
        is_same = self.kept is self.learned
        self.learned = self._scaler.transform(self.learned)
        self.kept = self.learned if is_same else self._scaler.transform(self.kept)

    def _open(self, what: str, to: tuple[str, ...]) -> None:
        if what in ("coefficients", "scaling"):
            learner = self.model if what == "coefficients" else self._scaler
            learner.reveal(to)
            values = {name: getattr(learner, f"{name}_") for name in learner.results}
            opened = {n: one for n, one in values.items() if isinstance(one, np.ndarray)}
            self.found[what] = opened or None
            return
        if what == "trees":
            assert isinstance(self.model, GradientBoosting)  # noqa: S101 - others are refused
            self.found[what] = to_xgboost(self.model, to)
            return
        if isinstance(self.model, Classifier) and what in RANKED:
            self.found[what] = self.model.ranked(self.kept, RANKED[what], to=to)
            return
        method = "predict" if what == "answers" else what
        self.found[what] = getattr(self.model, method)(self.kept, to=to)


def take_part(
    session: Session, spec: FitSpec, mine: Rows | None = None, *, keep: Keeper | None = None
) -> Fitted:
    """Do one party's part of a fit.

    Args:
        session: my end of it; all parties call this with the same spec.
        spec: what all have agreed on.
        mine: my rows, as `load_rows` gives them; None for who owns none.
        keep: makes where I keep what a start after this one goes on from.

    Guarantee: that of the protocol; by a cipher that of `boost`, `regress` or `regress_masked`.
    """
    if spec.is_by_cipher:
        return fit_by_cipher(session, spec, mine, keep)
    counts: dict[str, int] = {}
    if spec.matched:
        counts, mine, _ = match_rows(session, spec, mine)
    parties = Connected(
        session,
        owners=spec.owners,
        dealer=spec.roles.dealer,
        protocol=spec.protocol.kind,
        frac_bits=spec.ring.frac_bits,
    )
    data = _table(spec, parties, mine)
    columns = tell_columns(session, spec, data, mine)
    with session.progress.stage("plan"):
        planned, ends = plan(spec, parties.planned(), data)
    walker, programs = parties.walker, planned.walker.passed
    store = None if keep is None else keep.shares(mine, planned.walker)
    if store is not None and (begun := store.begin(walker)):
        session.progress.tell(f"resumed after {begun} of {programs} programs", begun, programs)
    else:  # plans name openings by the number of the run that made them
        walker.plans.update(planned.walker.plans)
    steps = _Steps(spec, parties, data)
    own = {} if spec.data.split != "columns" else steps.learned.values
    for stage, step in steps:
        start, end = ends[stage]
        with session.progress.stage(stage, end - start) as advance:
            keeps = stage in ("standardise", "fit")  # what is opened after them is opened again

            def look(passed: int, plan: Plan | None) -> None:
                advance(passed - start)  # noqa: B023 - looked at in this turn alone
                if keeps and store is not None:  # noqa: B023
                    store.watch(walker, passed, plan)

            walker.look = look
            step()
    found = steps.found
    if (learned := found.get("coefficients")) is not None:
        mine_too = {owner: x.numpy() for owner, x in own.items()}
        known = scaled(spec, columns, own=mine_too, opened=found.get("scaling"))
        found["coefficients"] = labelled(spec.learner, learned, known)
    result = Result(
        kind="fit",
        name="fit",
        protocol=spec.way,
        launched="threads",
        parties=(),
        forecast=walker.forecast(before=matching_rounds(spec, counts)),
        metered=session.cost(),
        leakage=session.ledger.entries(),
        claims=(*parties.claims(), *matching_claims(spec, counts), *claims_beyond(spec)),
        utility=measure(spec, found, steps.kept.shape[0]),
        sheets=sheets(spec, found, data),
    )
    return Fitted(
        result=result,
        answers=found.get("answers"),
        names=tuple(names_of_rows(spec, data, mine)),
        coefficients=found.get("coefficients") or {},
        trees=found.get("trees"),
    )


def plan(
    spec: FitSpec, planned: Planned, data: Table
) -> tuple[Planned, dict[str, tuple[int, int]]]:
    """Plan all steps, and say between which runs each stage lies."""
    ends = {}
    try:
        for stage, step in _Steps(spec, planned, data):
            start = planned.walker.passed
            step()
            ends[stage] = start, planned.walker.passed
    except RangeError as error:
        # How large an owner's values are is public: all plan with it.
        sizes = ", ".join(f"{one.owner} ±{one.bound:.3g}" for one in data.holdings if one.columns)
        raise RangeError(
            f"{error}. Columns go to {sizes}: bring them within about ±1 by "
            "data.prepare (of divided columns data.owners.NAME.prepare); standardise comes after it"
        ) from error
    return planned, ends


def _table(spec: FitSpec, parties: Connected, mine: Rows | None) -> Table:
    parts = {} if mine is None else {parties.me: mine}
    options: dict[str, Any] = {
        "classes": None if not spec.classes else range(spec.classes),
        "is_classification": spec.learner.target != "numbers",
    }
    if spec.data.split != "both":
        return parties.table(spec.data.split, parts, **options)
    tables = [
        parties.columns(parts if parties.me in block.owners else {}, **options)
        for _, block in spec.blocks
    ]
    return put_below(spec, parties, tables)


def fit(
    spec: FitSpec, rows: Mapping[str, Handed] | None = None, *, search: Sequence[Path] = ()
) -> Fitted:
    """Fit a learner with every party a thread of this process.

    Between hosts the same fit is a job of kind "fit", whose file has the tables of ``spec``.

    Args:
        spec: what a job file says: data, learner, protocol, reveal, ring.
        rows: by owner, features, or a pair of features and labels, of whoever names neither a set
            nor a file in ``data.owners``; ``id`` and ``label`` there name columns of these.
        search: folders that may hold known sets.

    Returns:
        What all parties have of it.

    Guarantee: none towards this process, which holds everything; what each party sends and sees is
    what it would between hosts.

    Raises:
        ConfigError: something in the spec does not go together.
        DataError: rows cannot be read, matched or learned from.
    """
    spec = check_record(spec, source="the spec")
    given = {}
    for owner in spec.owners:
        mine = (rows or {}).get(owner)
        x, y = mine if isinstance(mine, tuple) and len(mine) == 2 else (mine, None)
        given[owner] = load_rows(spec, owner, search, Given(x=x, y=y))

    def party(session: Session) -> Fitted:
        usage = Usage()
        found = take_part(session, spec, given.get(session.me))
        report = usage.report(
            name=session.me, role=spec.role(session.me), progress=session.progress
        )
        return replace(found, result=replace(found.result, parties=(report,)))

    text = json.dumps(to_tables(spec, is_shared=True), sort_keys=True)
    meeting = Meeting(parties=spec.members, job_digest=hashlib.sha256(text.encode()).digest())
    found = tuple(run_threads(dict.fromkeys(spec.members, party), meeting).values())
    first = {
        name: next((value for one in found if (value := getattr(one, name)) is not None), None)
        for name in ("answers", "trees")
    }
    return Fitted(
        result=merge_results(tuple(one.result for one in found)),
        names=next((one.names for one in found if one.answers is not None), ()),
        coefficients=reduce(most_known, (one.coefficients for one in found), {}),
        **first,
    )
