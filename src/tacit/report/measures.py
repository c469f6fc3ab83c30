"""The HTML report's measurements: traffic, cost, networks, curves."""

from tacit.report.format import (
    NOT_MEASURED,
    show_bytes,
    show_count,
    show_exact_bytes,
    show_interval,
    show_number,
    show_quantity,
    show_seconds,
)
from tacit.report.layout import lay_bar, lay_legend, lay_table
from tacit.report.markup import Markup, concat, tag
from tacit.report.network import draw_network
from tacit.report.plots import draw_bar, draw_lines, name_colour
from tacit.report.tally import (
    CostRow,
    Link,
    compare_costs,
    compare_links,
    group_curves,
    sum_received,
    sum_sent,
    time_at_work,
)
from tacit.report.words import state_computing
from tacit.result import Curve, Result, Timing

_AT = ": TPR at "
"""How an audit names a true-positive rate, between the attack and the false-positive rate."""


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
    show = show_exact_bytes if row.quantity == "payload" else show_count
    return (
        tag("span", row.phase, class_=f"phase {row.phase}"),
        row.quantity,
        "not forecast" if row.forecast is None else show(row.forecast),
        show(row.metered),
        _mark(row.agrees),
    )


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
            "Party",
            "Host",
            "Device",
            "#At work",
            "#Wall time",
            "#CPU time",
            "#Memory",
            "#Sent",
            "#Received",
        ),
        [
            (
                party.name,
                party.host,
                party.device,
                "–" if (at_work := time_at_work(party)) is None else show_seconds(at_work),
                show_seconds(party.seconds),
                show_seconds(party.cpu_seconds),
                show_bytes(party.peak_memory_bytes),
                show_bytes(sum_sent(result, party.name)),
                show_bytes(sum_received(result, party.name)),
            )
            for party in result.parties
        ],
        caption="What each party spent. At work is without connecting, loading, planning, "
        "compiling and waiting; memory is the peak of the process.",
    )


def _timing_cells(timing: Timing, longest: float) -> tuple[str, ...]:
    offline, online = timing.offline_seconds, timing.online_seconds
    parts = [(offline / longest, "offline"), (online / longest, "online")] if longest > 0 else []
    label = f"offline {show_seconds(offline)}, online {show_seconds(online)}"
    return (
        f"{show_number(timing.rtt_ms)} ms",
        f"{show_number(timing.mbit_per_s)} Mbit/s",
        show_seconds(offline),
        show_seconds(online),
        draw_bar(parts, label=label),
    )


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
