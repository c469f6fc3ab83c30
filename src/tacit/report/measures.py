"""The HTML report's measurements: traffic, cost, networks, curves, and where the time went."""

from tacit.report.format import (
    NOT_MEASURED,
    show_bytes,
    show_count,
    show_exact_bytes,
    show_interval,
    show_quantity,
    show_seconds,
)
from tacit.report.markup import Markup, concat, lay_bar, lay_legend, lay_table, tag
from tacit.report.network import draw_network
from tacit.report.plots import (
    Scale,
    draw_axis,
    draw_bar,
    draw_lines,
    draw_span,
    list_ticks,
    name_colour,
)
from tacit.report.tally import (
    SETUP_STAGES,
    CostRow,
    Link,
    compare_costs,
    compare_links,
    group_curves,
    time_at_work,
)
from tacit.report.words import cost_figures, party_figures, state_computing, timing_figures
from tacit.result import Curve, PartyReport, Result, Span, Timing

_AT = ": TPR at "
"""How an audit names a true-positive rate, between the attack and the false-positive rate."""
_MOST_SPANS = 16  # per party; the shortest go first


def lay_traffic(result: Result) -> Markup:
    """Lay out the picture of the parties."""
    if not compare_links(result):
        return concat([draw_network(result), tag("p", "No traffic was forecast or metered.")])
    legend = lay_legend((("offline", "offline, before the data is needed"), ("online", "online")))
    return tag("figure", draw_network(result), tag("figcaption", legend))


def lay_cost(result: Result) -> Markup:
    """Lay out forecast beside metered: in all, and for every link."""
    rows = compare_costs(result)
    payloads = [row for row in rows if row.quantity == "payload" and row.forecast is not None]
    most = max((max(row.forecast or 0, row.metered or 0) for row in payloads), default=0) or 1
    return concat(
        [
            tag("div", *(_lay_pair(row, most) for row in payloads), class_="bars"),
            lay_table(
                ("Phase", "Quantity", "#Forecast", "#Metered", "Equal"),
                [_cost_cells(row) for row in rows],
            ),
            lay_table(
                ("From", "To", "Phase", "#Messages", "#Payload", "#Forecast", "Equal"),
                [_link_cells(link) for link in compare_links(result)],
                caption="Payload to the byte; framing and TLS come on top.",
            ),
        ]
    )


def lay_networks(result: Result) -> Markup:
    """Lay out the seconds that the plan forecasts for other networks."""
    if result.forecast is None or not result.forecast.timings:
        return tag("p", "No network was asked about.")
    timings = result.forecast.timings
    longest = max(timing.offline_seconds + timing.online_seconds for timing in timings)
    return lay_table(
        ("#Round trip", "#Bandwidth", "#Offline", "#Online", "Offline, then online"),
        [_timing_cells(timing, longest) for timing in timings],
        caption="Computed from the plan, not measured on such a network. "
        + state_computing(result.forecast),
    )


def lay_curves(curves: tuple[Curve, ...]) -> Markup:
    """Lay out one chart per title and axes."""
    return tag("div", *map(_lay_chart, group_curves(curves)), class_="charts")


def lay_rates(result: Result) -> Markup:
    """Lay out what is read off ROC curves, with intervals: a row per attack; empty if none is."""
    rates: dict[str, None] = {}
    rows: dict[str, dict[str, str]] = {}
    for metric in result.utility:
        attack, found, rate = metric.name.partition(_AT)
        if not found:
            continue
        rates[rate] = None
        interval = show_interval(metric.low, metric.high, metric.unit)
        value = show_quantity(metric.value, metric.unit)
        rows.setdefault(attack, {})[rate] = f"{value} ({interval})"
    if not rows:
        return Markup("")
    return lay_table(
        ("Attack", *(f"#TPR at {rate}" for rate in rates)),
        [(name, *(cells.get(rate, "–") for rate in rates)) for name, cells in rows.items()],
        caption="Read off the curves: true-positive rates at low false-positive rates, with the "
        "95 % interval of each.",
    )


def _mark(agrees: bool | None) -> Markup:
    if agrees is None:
        return tag("span", "–", class_="same unknown", title="not comparable")
    word, sign = ("equal", "✓") if agrees else ("differs", "✗")
    return tag("span", f"{sign} {word}", class_=f"same {word}")


def _link_cells(link: Link) -> tuple[str, ...]:
    messages, payload = link.metered or (None, None)
    forecast = "not forecast" if link.forecast is None else show_exact_bytes(link.forecast[1])
    return (
        link.sender,
        link.receiver,
        tag("span", link.phase, class_=f"phase {link.phase}"),
        show_count(messages),
        show_exact_bytes(payload),
        forecast,
        _mark(link.agrees),
    )


def _cost_cells(row: CostRow) -> tuple[str, ...]:
    phase = tag("span", row.phase, class_=f"phase {row.phase}")
    return (phase, row.quantity, *cost_figures(row), _mark(row.agrees))


def _lay_pair(row: CostRow, most: int) -> Markup:
    lines = []
    for name, value in (("forecast", row.forecast), ("metered", row.metered)):
        shown = show_bytes(value)
        label = f"{row.phase} payload, {name}: {shown}"
        bar = draw_bar([((value or 0) / most, f"{name} {row.phase}")], label=label)
        lines.append(lay_bar(f"{row.phase}, {name}", bar, shown))
    return tag("div", *lines, class_="pair")


def lay_parties(result: Result) -> Markup:
    """Lay out what each party spent."""
    if not result.parties:
        return tag("p", "No party reported its time and memory.")
    return lay_table(
        (
            *("Party", "Host", "Device", "#At work", "#Wall time", "#CPU time", "#Memory"),
            *("#Sent", "#Received"),
        ),
        [
            (party.name, party.host, party.device, *party_figures(result, party))
            for party in result.parties
        ],
        caption="What each party spent. At work is without connecting, loading, planning, "
        "compiling and waiting; memory is the peak of the process.",
    )


def _timing_cells(timing: Timing, longest: float) -> tuple[str, ...]:
    offline, online = timing.offline_seconds, timing.online_seconds
    parts = [(offline / longest, "offline"), (online / longest, "online")] if longest > 0 else []
    label = f"offline {show_seconds(offline)}, online {show_seconds(online)}"
    return *timing_figures(timing), draw_bar(parts, label=label)


def _lay_chart(curves: tuple[Curve, ...]) -> Markup:
    first = curves[0]
    keys = [(name_colour(index), curve.name) for index, curve in enumerate(curves)]
    points = sum(len(curve.points) for curve in curves)
    plot = draw_lines(curves) if points else tag("p", f"No points: {NOT_MEASURED}.")
    return tag(
        "figure",
        tag("h3", first.title),
        tag("p", first.y_label, class_="axis-name"),
        plot,
        tag("p", first.x_label, class_="axis-name across"),
        tag("figcaption", lay_legend(keys)),
        class_="chart",
    )


def lay_timeline(result: Result) -> Markup:
    """Lay out the spans of every party as a Gantt chart, each on that party's own clock."""
    spans = [span for party in result.parties for span in party.spans]
    if not spans:
        return tag("p", "No stage was timed.")
    scale = Scale(0.0, max(max(span.end_s, span.start_s) for span in spans) or 1.0)
    names = dict.fromkeys(s.name for s in spans if s.name not in SETUP_STAGES)
    colours = {name: name_colour(index) for index, name in enumerate(names)}
    ticks = [(tick, show_seconds(tick)) for tick in list_ticks(scale, 4)]
    axis = tag("div", tag("span"), draw_axis(scale, ticks), tag("span"), class_="bar-row axis-row")
    groups = [_lay_party(party, scale, colours) for party in result.parties]
    clocks = tag("p", "Each party is on its own clock, from its own start.", class_="why")
    grey = lay_legend((("setup", "set-up: not the job's own time"),))
    legend = grey if any(span.name in SETUP_STAGES for span in spans) else ""
    return tag("div", *groups, axis, legend, clocks, class_="gantt")


def _lay_party(party: PartyReport, scale: Scale, colours: dict[str, str]) -> Markup:
    kept = sorted(party.spans, key=lambda span: span.start_s - span.end_s)[:_MOST_SPANS]
    rows = [
        _lay_span(span, scale, colours.get(span.name, "setup"))
        for span in sorted(kept, key=lambda span: (span.start_s, span.end_s))
    ]
    hidden = len(party.spans) - len(kept)
    note = f"{show_count(hidden)} more, none of them longer, are not drawn." if hidden else ""
    if not party.spans:
        note = "No stage was timed."
    return tag(
        "div",
        tag("h3", party.name, tag("span", _state_time(party), class_="role")),
        *rows,
        tag("p", note, class_="why") if note else "",
        class_="party",
    )


def _state_time(party: PartyReport) -> str:
    at_work, whole = time_at_work(party), show_seconds(party.seconds)
    return f" {whole}" if at_work is None else f" {show_seconds(at_work)} at work, {whole} in all"


def _lay_span(span: Span, scale: Scale, css: str) -> Markup:
    took = show_seconds(span.end_s - span.start_s)
    label = f"{span.name}: {show_seconds(span.start_s)} to {show_seconds(span.end_s)}"
    bar = draw_span(scale.place(span.start_s), scale.place(span.end_s), css=css, label=label)
    return lay_bar(span.name, bar, took)
