"""What the ways of a fit ask of a job file: shares want a dealer, a cipher wants columns."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tacit.spec import Problem

if TYPE_CHECKING:
    from tacit.jobs.fit_job import FitJob

BOOSTED = ("gradient-boosting", "gradient-boosting-regression")
REGRESSED = ("logistic-regression", "linear-regression", "ridge")
_PARAMETERS = {
    "n_estimators", "learning_rate", "max_depth", "max_bins", "reg_lambda", "min_child_weight",
    "gamma",
}  # fmt: skip


def check_way(job: "FitJob") -> Iterator[Problem]:
    """Yield what a job asks for that its way does not have."""
    yield from _check_matching(job)
    protocol = job.protocol
    if not job.is_by_cipher:
        if protocol.dealer is None:
            yield Problem("protocol.dealer", "missing; learning on shares takes one")
        if protocol.helper is not None:
            yield Problem("protocol.helper", "on shares the dealer helps; leave it out")
        if job.data.matching == "hidden":
            text = "rows that nobody knows to match are for a cipher with a helper"
            yield Problem("data.matching", text)
        return
    for key in ("dealer", "compute"):
        if getattr(protocol, key) is not None:
            yield Problem(f"protocol.{key}", "a cipher needs none; leave it out")
    if protocol.helper in job.data.owners:
        yield Problem("protocol.helper", "must not own data")
    if job.data.split != "columns":
        yield Problem("data.split", 'by a cipher columns are split: wanted "columns"')
    yield from _check_learner(job)
    yield from _check_shown(job)


def _check_matching(job: "FitJob") -> Iterator[Problem]:
    data = job.data
    if data.matching == "exact":
        return
    if data.split != "columns":
        yield Problem("data.matching", "rows are matched where columns are split")
    if job.helper is None:
        yield Problem("data.matching", "wanted someone who matches: name protocol.helper")
    if data.is_named and len(data.owners) != 2:
        yield Problem(
            "data.matching", f"names are matched between two owners, got {len(data.owners)}"
        )
    for name, owner in data.owners.items():
        if data.is_named and (owner.set is not None or owner.id is None):
            yield Problem(f"data.owners.{name}.id", "wanted a column of names in a described file")


def _check_learner(job: "FitJob") -> Iterator[Problem]:
    kind, given = job.learner.kind, set(job.learner.parameters)
    if kind not in (*BOOSTED, *REGRESSED):
        known = ", ".join((*BOOSTED, *REGRESSED))
        yield Problem("learner.kind", f"by a cipher there are {known}, not {kind}")
        return
    allowed = _PARAMETERS if kind in BOOSTED else {"C", "alpha", "max_iter"}
    for name in sorted(given - allowed):
        yield Problem(f"learner.parameters.{name}", "not by a cipher; leave it out")
    if kind in REGRESSED and len(job.data.owners) != 2:
        yield Problem("data.owners", f"{kind} by a cipher is for two owners")
    is_hidden = job.data.matching == "hidden"
    if is_hidden and kind in BOOSTED:
        yield Problem("data.matching", "boosting must know which rows match")
    if is_hidden and job.protocol.cipher != "paillier":
        yield Problem("protocol.cipher", 'hidden matches take "paillier", which scales row by row')


def _check_shown(job: "FitJob") -> Iterator[Problem]:
    is_hidden = job.data.matching == "hidden"
    if is_hidden and job.data.test_share:
        text = "where matches are hidden nobody can measure: wanted 0"
        yield Problem("data.test_share", text)
    for what, names in job.reveal.named().items():
        if is_hidden and what != "coefficients" and names:
            text = "scores would tell which rows match; open coefficients alone"
            yield Problem(f"reveal.{what}", text)
        allowed = set(job.data.owners) if what == "coefficients" else {job.data.labels}
        if what == "coefficients" and job.learner.kind in BOOSTED and names:
            yield Problem("reveal.coefficients", f"{job.learner.kind} has none")
        if what in ("trees", "calibration", "confusion") and names:
            yield Problem(f"reveal.{what}", "not by a cipher")
        elif not set(names) <= allowed:
            yield Problem(f"reveal.{what}", f"by a cipher {job.data.labels} alone gets it")
