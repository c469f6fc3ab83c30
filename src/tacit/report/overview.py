"""The first screen of the HTML report: verdict, checks, key figures, and its last line."""

from tacit.report.format import (
    HARD_SPACE,
    NOT_MEASURED,
    clean,
    show_bound,
    show_bytes,
    show_count,
    show_interval,
    show_quantity,
    show_samples,
    show_seconds,
)
from tacit.report.headline import (
    find_majority,
    find_strongest_on_split,
    name_reference,
    pick_headline_metric,
    pick_private_claim,
    state_headline,
)
from tacit.report.markup import Markup, concat, tag
from tacit.report.tally import compare_costs, find_slowest, is_alone, time_at_work
from tacit.report.words import MARKS, Check, list_checks, state_coverage, state_guarantee, state_run
from tacit.result import Claim, Metric, Phase, Result

_MOST_TILES = 4
_MOST_CLAIMS = 2


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
    return tag("section", *_list_tiles(result), class_="tiles", aria_label="Key figures")


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
    if result.kind == "verify" and result.claims:
        return Markup("")  # the headline is the guarantee
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
        tag("span", MARKS[check.mood], class_="mark", aria_hidden="true"),
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


def _list_tiles(result: Result) -> list[Markup]:
    """List what matters for this kind of job; a network only where there was one."""
    first, claim = pick_headline_metric(result), pick_private_claim(result)
    tiles = [] if first is None else [_metric_tile(result, first)]
    tiles += [] if claim is None else [_epsilon_tile(claim)]
    if (attack := find_strongest_on_split(result)) is not None:
        figure = show_quantity(attack.value, attack.unit)
        notes = clean(attack.name), show_samples(attack.samples)
        tiles.append(_lay_tile("Strongest attack", figure, *notes))
    if is_alone(result):
        rest = [one for one in result.utility if one.unit != "ε" and not _extends(one, first)]
        tiles += [_metric_tile(result, one) for one in rest[: _MOST_TILES - 1 - len(tiles)]]
    else:
        tiles += [_payload_tile(result), _rounds_tile(result)]
    return [*tiles, _time_tile(result)]


def _extends(metric: Metric, first: Metric | None) -> bool:
    """Say whether a metric is the first one again, or for a part of the rows."""
    return first is not None and f"{metric.name},".startswith(f"{first.name},")


def _metric_tile(result: Result, metric: Metric) -> Markup:
    name = clean(metric.name)
    notes = []
    if metric.low is not None and metric.high is not None:
        interval = show_interval(metric.low, metric.high, metric.unit)
        notes.append(f"95{HARD_SPACE}%: {interval.replace(' ', HARD_SPACE)}")
    if metric.reference is not None:
        reference = show_quantity(metric.reference, metric.unit)
        notes.append(f"{name_reference(result, metric)}: {reference}")
    if (found := find_majority(result)) is not None and metric is found[0]:
        notes.append(f"{found[1].name}: {show_quantity(found[1].value, found[1].unit)}")
    return _lay_tile(
        f"{name[:1].upper()}{name[1:]}",
        show_quantity(metric.value, metric.unit),
        *notes,
        show_samples(metric.samples),
    )


def _epsilon_tile(claim: Claim) -> Markup:
    return _lay_tile(
        "Privacy spent, at most",
        f"ε = {show_bound(claim.epsilon)}",
        f"δ = {show_bound(claim.delta)}, {clean(claim.relation or 'relation not stated')}",
        f"accountant: {clean(claim.accountant or 'not stated')}",
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
    """Show the time of the job itself, and beside it what came before and between its stages."""
    slowest = find_slowest(result)
    if slowest is None:
        return _lay_tile("Wall time", NOT_MEASURED)
    at_work = time_at_work(slowest)
    if at_work is None:
        return _lay_tile(
            "Wall time", show_seconds(slowest.seconds), "start to end, set-up included"
        )
    rest = show_seconds(max(slowest.seconds - at_work, 0.0))
    return _lay_tile(
        "Time at work",
        show_seconds(at_work),
        f"set-up and waiting besides: {rest}",
        *([f"longest: {clean(slowest.name)}"] if len(result.parties) > 1 else []),
    )


def _look_up(result: Result, phase: Phase, quantity: str) -> int | None:
    rows = compare_costs(result)
    return next(
        (row.metered for row in rows if row.phase == phase and row.quantity == quantity), None
    )
