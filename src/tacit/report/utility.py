"""How good the result is: metrics of one unit on one axis, with the numbers beside."""

from collections.abc import Sequence
from typing import NamedTuple

from tacit.report.format import (
    NOT_MEASURED,
    is_fraction,
    show_count,
    show_interval,
    show_quantity,
)
from tacit.report.headline import name_reference
from tacit.report.markup import Markup, concat, lay_legend, lay_table, tag
from tacit.report.plots import Scale, draw_axis, draw_interval, list_ticks
from tacit.report.words import compare_figures, name_sides
from tacit.result import Metric, Result

_NONE = "–"


class Axis(NamedTuple):
    """Metrics that can be compared by eye, and the scale that they share; None: only numbers."""

    title: str
    scale: Scale | None
    metrics: tuple[Metric, ...]


def lay_utility(result: Result) -> Markup:
    """Lay out every metric, those of one unit on one axis, and a table of all."""
    if not result.utility:
        return tag("p", f"Utility: {NOT_MEASURED}.")
    ours, theirs = name_sides(result)
    legend = [("private", ours)]
    if any(_has_interval(one) for one in result.utility):
        legend = [("private", f"{ours}, with its 95 % interval")]
    if any(one.reference is not None for one in result.utility):
        legend.append(("plain", theirs))
    axes = group_metrics(result.utility)
    return concat(
        [
            *(_lay_axis(result, axis, has_title=len(axes) > 1) for axis in axes),
            lay_legend(legend) if any(axis.scale for axis in axes) else "",
            _lay_all(result.utility, ours, theirs),
        ]
    )


def group_metrics(metrics: Sequence[Metric]) -> tuple[Axis, ...]:
    """Put metrics of one unit on one axis; figures with nothing to compare come last, without."""
    groups: dict[str, list[Metric]] = {}
    for one in metrics:
        groups.setdefault(_name_axis(one), []).append(one)
    drawn = [
        Axis(title, _fit_axis(title, group), tuple(group))
        for title, group in groups.items()
        if title in (_PERCENT, _SCORES) or sum(len(_known(one)) for one in group) > 1
    ]
    compared = {id(one) for axis in drawn for one in axis.metrics}
    rest = tuple(one for one in metrics if id(one) not in compared)
    return (*drawn, *([Axis("Figures", None, rest)] if rest else []))


_PERCENT, _SCORES = "In percent", "Scores from 0 to 1"


def _name_axis(metric: Metric) -> str:
    if is_fraction(metric.unit):
        return _PERCENT
    if metric.unit:
        return f"In {metric.unit}"
    # Without a unit two figures are alike only if both are scores, as an AUC and an F1 are.
    return _SCORES if all(0 <= value <= 1 for value in _known(metric)) else metric.name


def _fit_axis(title: str, metrics: Sequence[Metric]) -> Scale:
    known = [value for one in metrics for value in _known(one)]
    if title in (_PERCENT, _SCORES):
        return Scale(min([0.0, *known]), max([1.0, *known]))
    low, high = min([0.0, *known]), max([0.0, *known])
    return Scale(low, high) if high > low else Scale(low, low + 1.0)


def _known(metric: Metric) -> list[float]:
    values = (metric.low, metric.high, metric.value, metric.reference)
    return [value for value in values if value is not None]


def _has_interval(metric: Metric) -> bool:
    return metric.low is not None and metric.high is not None


def _lay_axis(result: Result, axis: Axis, *, has_title: bool) -> Markup:
    rows = [_lay_row(result, one, axis.scale) for one in axis.metrics]
    if axis.scale is not None:
        unit = _brief(axis.metrics[0].unit)
        ticks = [(tick, show_quantity(tick, unit)) for tick in list_ticks(axis.scale, 5)]
        line = draw_axis(axis.scale, ticks, label=f"axis: {axis.title}")
        rows.append(tag("div", tag("span"), line, tag("span"), class_="bar-row axis-row"))
    return tag("div", tag("h3", axis.title) if has_title else "", *rows, class_="metrics")


def _brief(unit: str) -> str:
    """Leave out a unit that the title of the axis has, unless it decides how numbers look."""
    return unit if is_fraction(unit) or len(unit) <= 3 else ""


def _lay_row(result: Result, metric: Metric, scale: Scale | None) -> Markup:
    beside, unit = [], metric.unit if scale is None else _brief(metric.unit)
    if _has_interval(metric):
        beside.append(show_interval(metric.low, metric.high, unit))
    if metric.reference is not None:
        beside.append(f"{name_reference(result, metric)}: {show_quantity(metric.reference, unit)}")
    plot = draw_interval(metric, scale) if scale is not None and _known(metric) else ""
    return tag(
        "div",
        tag("span", metric.name, class_="bar-label"),
        tag("span", plot, class_="bar"),
        tag(
            "span",
            tag("strong", show_quantity(metric.value, unit)),
            *(tag("small", text) for text in beside),
            class_="bar-value",
        ),
        class_="bar-row",
    )


def _lay_all(metrics: Sequence[Metric], ours: str, theirs: str) -> Markup:
    """Lay out the table; columns in which nothing stands are left out."""
    heads = ["Metric", f"#{ours.capitalize()}", "#n"]
    has_interval = any(map(_has_interval, metrics))
    has_reference = any(one.reference is not None for one in metrics)
    heads += ["#95 % interval"] if has_interval else []
    heads += [f"#{theirs.capitalize()}", "#Difference"] if has_reference else []
    rows = []
    for one in metrics:
        note = tag("span", one.note, class_="why") if one.note else ""
        cells = [
            tag("span", one.name, tag("br") if note else "", note),
            show_quantity(one.value, one.unit),
            _NONE if one.samples is None else show_count(one.samples),
        ]
        if has_interval:
            shown = show_interval(one.low, one.high, one.unit)
            cells.append(shown if _has_interval(one) else _NONE)
        if has_reference:
            cells += compare_figures(one)
        rows.append(cells)
    return lay_table(heads, rows)
