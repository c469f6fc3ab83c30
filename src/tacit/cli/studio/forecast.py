"""What a job will do, before it runs: traffic, seconds on three networks, who learns what, ε."""

from tacit.cli.studio.page import lay_facts
from tacit.cli.studio.words import Words
from tacit.jobs.config import Job
from tacit.jobs.kind import Outlook, timed
from tacit.report.format import show_bound, show_bytes, show_count, show_seconds
from tacit.report.ledger import lay_leak, lay_promised
from tacit.report.markup import Markup, concat, tag
from tacit.report.measures import lay_networks, lay_traffic
from tacit.result import NOTHING_SENT, Forecast, Leak, PartyReport, Result


def lay_forecast(words: Words, job: Job, outlook: Outlook) -> Markup:
    """Lay out a forecast."""
    planned = outlook.forecast and timed(outlook.forecast, None)
    shown = _as_result(job, outlook, planned)
    parts: list[str] = [
        tag("p", outlook.about, class_="eyebrow"),
        *(tag("p", line) for line in outlook.lines),
        *(tag("p", note) for note in (planned.notes if planned else ())),
        lay_facts(_figures(words, outlook, planned)),
    ]
    if planned is not None:
        parts += [tag("h3", words("Who sends what to whom")), lay_traffic(shown)]
        parts += [tag("h3", words("How long it takes on a network")), lay_networks(shown)]
    if outlook.leaks:
        parts += [tag("h3", words("What will be learned")), _lay_leaks(outlook.leaks)]
    if outlook.claims:
        parts += [tag("h3", words("What is promised")), lay_promised(shown)]
    return concat(parts)


def _figures(words: Words, outlook: Outlook, planned: Forecast | None) -> list[tuple[str, str]]:
    found = []
    if planned is not None:
        sent = dict.fromkeys(("offline", "online"), 0)
        for one in planned.cost.traffic:
            sent[one.phase] = sent.get(one.phase, 0) + one.payload_bytes
        found = [
            (words("Sent online"), show_bytes(sent["online"])),
            (words("Sent beforehand"), show_bytes(sent["offline"])),
            (words("Online rounds"), show_count(planned.cost.online_rounds)),
        ]
        if planned.computing_seconds is not None:
            found.append((words("Computing, about"), show_seconds(planned.computing_seconds)))
    for claim in outlook.claims:
        if claim.epsilon is not None:
            figure = f"ε = {show_bound(claim.epsilon)}"
            terms = f"δ = {show_bound(claim.delta)}, {claim.relation}, {claim.accountant}"
            found.append((words("At most, at {terms}", terms=terms), figure))
    return found


def _lay_leaks(leaks: tuple[Leak, ...]) -> Markup:
    by_party: dict[str, list[Leak]] = {}
    for leak in leaks:
        by_party.setdefault(leak.to, []).append(leak)
    cards = []
    for party, theirs in by_party.items():
        mood = "warn" if any(one.kind == "protocol" for one in theirs) else "good"
        entries = tag("ul", *map(lay_leak, theirs), class_="leaks")
        cards.append(tag("article", tag("h4", party), entries, class_=f"card {mood}"))
    return tag("div", *cards, class_="cards")


def _as_result(job: Job, outlook: Outlook, planned: Forecast | None) -> Result:
    """Write a forecast as the result of a run in which it came true: reports draw results."""
    parties = tuple(
        PartyReport(
            name=name,
            role=job.role(name),
            host="",
            seconds=0.0,
            cpu_seconds=0.0,
            peak_memory_bytes=0,
            spans=(),
        )
        for name in job.parties
    )
    return Result(
        kind=job.job.kind,
        name=job.job.name,
        protocol=outlook.about,
        launched="not yet",
        parties=parties,
        forecast=planned,
        metered=NOTHING_SENT if planned is None else planned.cost,
        leakage=outlook.leaks,
        claims=outlook.claims,
        utility=(),
    )
