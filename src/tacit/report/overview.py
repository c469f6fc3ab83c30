"""The first screen of the HTML report: verdict, checks, key figures, and its last line."""

from tacit.report.format import (
    NOT_MEASURED,
    clean,
    show_bytes,
    show_count,
    show_quantity,
    show_seconds,
)
from tacit.report.markup import Markup, concat, tag
from tacit.report.tally import compare_costs, find_slowest
from tacit.report.words import (
    Check,
    list_checks,
    name_reference,
    name_sides,
    pick_headline_metric,
    state_coverage,
    state_guarantee,
    state_headline,
    state_run,
)
from tacit.result import Phase, Result

_MOST_CLAIMS = 2
_MARKS = {"good": "✓", "warn": "!", "bad": "✗", "quiet": "–"}


def lay_headline(result: Result) -> Markup:
    """Lay out the verdict in plain words and the three checks beneath it."""
    coverage = state_coverage(result)
    return tag(
        "header",
        tag("p", f"tacit report · {result.name}", class_="eyebrow"),
        tag("h1", f"{state_headline(result)}."),
        tag("p", state_run(result), class_="lead"),
        _lay_guarantee(result),
        tag("p", coverage, class_="notice") if coverage else "",
        tag("ul", *(_lay_check(check) for check in list_checks(result)), class_="checks"),
    )


def lay_tiles(result: Result) -> Markup:
    """Lay out the key figures."""
    tiles = (_metric_tile(result), _payload_tile(result), _rounds_tile(result), _time_tile(result))
    return tag("section", *tiles, class_="tiles", aria_label="Key figures")


def lay_footer(result: Result) -> Markup:
    """Lay out where the report comes from."""
    facts = (
        ("Written by", f"tacit {result.version}"),
        ("Run at", result.created),
        ("Plan", "none" if result.forecast is None else result.forecast.plan_hash),
        ("Schema", str(result.schema)),
    )
    items = [tag("div", tag("dt", name), tag("dd", text)) for name, text in facts]
    return tag(
        "footer",
        tag("dl", *items),
        tag("p", "This file is complete in itself: it loads nothing and runs no script."),
    )


def _lay_guarantee(result: Result) -> Markup:
    if not result.claims:
        return tag("p", "Guarantee: none is stated.", class_="lead guarantee")
    first, more = result.claims[:_MOST_CLAIMS], len(result.claims) - _MOST_CLAIMS
    lines = [
        tag("li", tag("strong", f"Guarantee for {claim.subject}: "), state_guarantee(claim))
        for claim in first
    ]
    if more > 0:
        lines.append(tag("li", f"{show_count(more)} more below."))
    return tag("div", tag("ul", *lines), class_="lead guarantee")


def _lay_check(check: Check) -> Markup:
    return tag(
        "li",
        tag("span", _MARKS[check.mood], class_="mark", aria_hidden="true"),
        tag("span", tag("strong", check.title), tag("br"), check.text),
        class_=f"check {check.mood}",
    )


def _lay_tile(label: str, figure: str, *notes: str) -> Markup:
    css = "figure unknown" if figure == NOT_MEASURED else "figure"
    return tag(
        "div",
        tag("p", label, class_="label"),
        tag("p", figure, class_=css),
        concat(tag("p", note, class_="beside") for note in notes),
        class_="tile",
    )


def _metric_tile(result: Result) -> Markup:
    metric = pick_headline_metric(result)
    if metric is None:
        return _lay_tile("Utility", NOT_MEASURED)
    name, (ours, _) = clean(metric.name), name_sides(result)
    reference = show_quantity(metric.reference, metric.unit)
    samples = f"n = {show_count(metric.samples)}" if metric.samples is not None else "n not stated"
    return _lay_tile(
        f"{name[:1].upper()}{name[1:]}, {ours}",
        show_quantity(metric.value, metric.unit),
        f"{name_reference(result, metric)}: {reference}",
        samples,
    )


def _payload_tile(result: Result) -> Markup:
    return _lay_tile(
        "Sent online",
        show_bytes(_look_up(result, "online", "payload")),
        f"beforehand: {show_bytes(_look_up(result, 'offline', 'payload'))}",
        "payload, all parties",
    )


def _rounds_tile(result: Result) -> Markup:
    return _lay_tile(
        "Online rounds",
        show_count(_look_up(result, "online", "rounds")),
        f"beforehand: {show_count(_look_up(result, 'offline', 'rounds'))}",
        "messages in sequence",
    )


def _time_tile(result: Result) -> Markup:
    slowest = find_slowest(result)
    if slowest is None:
        return _lay_tile("Wall time", NOT_MEASURED)
    return _lay_tile(
        "Wall time",
        show_seconds(slowest.seconds),
        f"longest: {clean(slowest.name)}",
        "start to end",
    )


def _look_up(result: Result, phase: Phase, quantity: str) -> int | None:
    rows = compare_costs(result)
    return next(
        (row.metered for row in rows if row.phase == phase and row.quantity == quantity), None
    )
