"""The HTML report's timeline: the stages of each party's run on one axis."""

from tacit.report.format import show_count, show_seconds
from tacit.report.layout import lay_bar, lay_legend
from tacit.report.markup import Markup, tag
from tacit.report.plots import Scale, draw_axis, draw_span, list_ticks, name_colour
from tacit.report.tally import SETUP_STAGES, time_at_work
from tacit.result import PartyReport, Result, Span

_MOST_SPANS = 16  # per party; the shortest go first


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
