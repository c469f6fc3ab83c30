"""What a party has when a fit is done, and what it may say: measures, tables, and no promises."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.data.metrics import ACCURACY, AUC, KS, proportion
from tacit.learners.columns import BESIDE, IN_UNITS
from tacit.learners.ranking import BINS
from tacit.learners.spec import FitSpec
from tacit.learners.tables import Table
from tacit.notebook import Lines
from tacit.result import Claim, Metric, Reported, Result, Sheet

MOST_CELLS = 2_000
"""Larger results are not laid out."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Fitted(Reported):
    """What a party has when a fit is done; in Python, what all of them have together.

    Attributes:
        result: metrics, cost, ledger and claims.
        answers: one for every row that is measured on, where they are shown.
        names: of these rows, where they are matched; else they stand in the order of owners.
        coefficients: what was learned, by name, where it is shown; beside it "columns", their names
            with "intercept" last, and of linear models "coef_in_units", for rows as their owners
            have them (NaN where a divisor, a mean or a deviation is not known to who is shown it);
            after ``standardise`` "column_means" and "column_deviations" as well.
        trees: a model file of XGBoost, where trees are shown.
    """

    result: Result
    answers: NDArray[np.float64] | None = None
    names: tuple[str, ...] = ()
    coefficients: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    trees: str | None = None

    def _shown(self) -> tuple[str, Lines]:
        return "Fitted", self.result.headline()


def measure(spec: FitSpec, found: Mapping[str, Any], rows: int) -> tuple[Metric, ...]:
    """Say how good answers are, as far as that was opened to me."""
    metrics = []
    if (score := found.get("score")) is not None:
        if spec.learner.target == "classes":
            metrics.append(proportion(ACCURACY, round(score * rows), rows))
        elif spec.learner.kind == "kmeans":
            metrics.append(Metric(name="inertia", value=-score, unit="", samples=rows))
        else:
            metrics.append(Metric(name="R²", value=score, unit="", samples=rows))
    for what, name in (("auc", AUC), ("ks", KS)):
        if (ranked := found.get(what)) is not None:
            value, error = ranked
            note = f"within ±{error:.2g}: scores in {BINS:,} bins"
            if np.isnan(value):
                value, note = None, "the rows are all of one class"
            metrics.append(Metric(name=name, value=value, unit="", samples=rows, note=note))
    if (steps := found.get("calibration")) is not None:
        counts, chances, shares = steps.T
        error = float((counts * np.abs(chances - shares)).sum() / counts.sum())
        metrics.append(Metric(name="calibration error", value=error, unit="", samples=rows))
    return tuple(metrics)


def sheets(spec: FitSpec, found: Mapping[str, Any], data: Table) -> tuple[Sheet, ...]:
    """Lay out what was opened to me: coefficients, confusion and calibration."""
    made = list(_tables(spec, found.get("coefficients") or {}, data.shape[1]))
    if (matrix := found.get("confusion")) is not None:
        heads = ("class", *(f"#taken for {at}" for at in range(len(matrix))))
        lines = tuple((str(at), *map(str, row)) for at, row in enumerate(matrix.tolist()))
        made.append(Sheet(title="confusion", heads=heads, rows=lines))
    if (steps := found.get("calibration")) is not None:
        heads = ("#rows", "#mean chance of class 1", "#share of class 1")
        lines = tuple((f"{n:.0f}", f"{p:.3f}", f"{q:.3f}") for n, p, q in steps.tolist())
        made.append(Sheet(title="calibration", heads=heads, rows=lines))
    return tuple(made)


def _tables(spec: FitSpec, found: Mapping[str, NDArray[Any]], columns: int) -> Iterator[Sheet]:
    """Lay out what was learned, a line or a column for every column of the table.

    Of two classes there is one column: what speaks for class 1.
    """
    labels = found.get("columns", np.array([]))
    one = "class 1" if spec.learner.target == "classes" else "value"

    def named(count: int) -> list[str]:
        is_known = count > 1 and len(labels) and count in (columns, columns + 1)
        return labels[:count].tolist() if is_known else [str(at) for at in range(count)]

    for name, value in found.items():
        wide = value.reshape(len(value), -1) if value.ndim else value.reshape(1, 1)
        is_beside = name in BESIDE or name.endswith(IN_UNITS)
        if is_beside or value.size > MOST_CELLS or (name == "intercept" and "coef" in found):
            continue
        across = [one] if wide.shape[1] == 1 else named(wide.shape[1])
        if name == "coef":
            if "intercept" in found:
                wide = np.vstack([wide, found["intercept"].reshape(1, -1)])
            units = [found[n] for n in (f"coef{IN_UNITS}", f"intercept{IN_UNITS}") if n in found]
            if units:
                beside = np.vstack([part.reshape(-1, wide.shape[1]) for part in units])
                if not np.isnan(beside).all() and not np.array_equal(beside, wide):
                    wide = np.hstack([wide, beside])
                    across += [f"{head}, in units of the rows" for head in across]
        rows = tuple(
            (at, *("–" if np.isnan(cell) else f"{cell:.6g}" for cell in line))
            for at, line in zip(named(len(wide)), wide.tolist(), strict=True)
        )
        heads = ("", *(f"#{head}" for head in across))
        yield Sheet(title=f"{spec.learner.kind}: {name}", heads=heads, rows=rows)


def claims_beyond(spec: FitSpec) -> tuple[Claim, ...]:
    """Say what no protocol can hide: what follows from what is opened."""
    reasons = {
        "answers": "an answer is a function of the row and of what was learned from all rows",
        "coefficients": (
            "what was learned follows from the rows; only learning with differential privacy "
            "bounds how much it tells about one"
        ),
        "trees": "splits and leaves follow from the rows, and edges tell quantiles of columns",
    }
    named = spec.reveal.named()
    told = {what: named[what] for what in reasons}
    seen = [name for what, names in named.items() if what not in reasons for name in names]
    told["measures"] = tuple(dict.fromkeys(seen))
    reasons["measures"] = "a measure over few rows can tell about one of them"
    return tuple(
        Claim(
            subject=f"what the {what} shown to {', '.join(names)} tell about rows",
            guarantee="no guarantee",
            assumptions=(reasons[what],),
        )
        for what, names in told.items()
        if names
    )
