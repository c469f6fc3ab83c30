"""Sums and groupings for display, and the comparison of metered traffic with the forecast."""

from dataclasses import dataclass
from typing import Literal

from tacit.result import Curve, Leak, PartyReport, Phase, Result, Traffic

ORDER: tuple[Phase, ...] = ("offline", "online", "setup")  # what matters most comes first

SETUP_STAGES = frozenset({"connect", "agree", "load", "plan", "compile", "finish"})
"""Stages that a party spends on getting ready and on writing down, whatever the job is."""

_Key = tuple[str, str, Phase]
_Volume = tuple[int, int]  # messages, payload bytes


@dataclass(frozen=True, kw_only=True)
class Link:
    """Forecast and metered traffic of one direction in one phase; None is "not measured"."""

    sender: str
    receiver: str
    phase: Phase
    forecast: _Volume | None
    metered: _Volume | None

    @property
    def agrees(self) -> bool | None:
        """Whether both are known and equal; None when one is not known."""
        return _agree(self.forecast, self.metered)


@dataclass(frozen=True, kw_only=True)
class CostRow:
    """One quantity, forecast beside metered."""

    phase: Phase
    quantity: Literal["payload", "messages", "rounds"]
    forecast: int | None
    metered: int | None
    agrees: bool | None


def list_parties(result: Result) -> tuple[str, ...]:
    """List every party that reported, was forecast to talk, or did."""
    names = [party.name for party in result.parties]
    for traffic in (*_planned(result), *result.metered.traffic):
        names += [traffic.sender, traffic.receiver]
    return tuple(dict.fromkeys(names))


def list_absent(result: Result) -> tuple[str, ...]:
    """List the parties that took part but whose own report is not in this result."""
    reported = {party.name for party in result.parties}
    return tuple(name for name in list_parties(result) if name not in reported)


def is_alone(result: Result) -> bool:
    """Say whether one party did everything by itself, with nobody to reveal anything to."""
    return len(list_parties(result)) == len(result.parties) == 1 and not result.leakage


def compare_links(result: Result) -> tuple[Link, ...]:
    """Put forecast and metered traffic of every link side by side.

    A party vouches for what it sent, and for what it received if its meter says so. A link that
    no reporting party vouches for is not measured, which is not the same as silent.
    """
    forecast, metered = _collect(_planned(result)), _collect(result.metered.traffic)
    reported = {party.name for party in result.parties}
    unplanned = _list_unplanned(result)
    return tuple(
        Link(
            sender=key[0],
            receiver=key[1],
            phase=key[2],
            forecast=None if key[2] in unplanned else forecast.get(key, (0, 0)),
            metered=metered.get(key, (0, 0) if key[0] in reported else None),
        )
        for key in sorted(dict.fromkeys((*forecast, *metered)), key=lambda key: ORDER.index(key[2]))
    )


def compare_costs(result: Result) -> tuple[CostRow, ...]:
    """Put forecast and metered totals side by side: payload and messages per phase, rounds.

    A row agrees only if every link in it does, so two errors cannot cancel. If some links were
    not measured, both sums run over those that were.
    """
    rows: list[CostRow] = []
    links = compare_links(result)
    for phase in ORDER:
        here = [link for link in links if link.phase == phase]
        if phase == "setup" and not here:
            continue
        rows += [_sum_links(result, phase, "payload", here, 1)]
        rows += [_sum_links(result, phase, "messages", here, 0)]
        if phase != "setup":
            rows += [_compare_rounds(result, phase)]
    return tuple(rows)


def judge_costs(result: Result) -> bool | None:
    """Say whether the meter equals the forecast: None when something was not measured."""
    verdicts = [row.agrees for row in compare_costs(result) if row.forecast is not None]
    if result.forecast is None:
        return None
    verdicts += [None for link in compare_links(result) if link.metered is None]
    if False in verdicts:
        return False
    return None if None in verdicts else True


def sum_sent(result: Result, name: str) -> int:
    """Add up the metered payload that a party sent."""
    return sum(t.payload_bytes for t in result.metered.traffic if t.sender == name)


def sum_received(result: Result, name: str) -> int | None:
    """Add up the metered payload that a party received; None if nobody metered a link to it."""
    inbound = [link for link in compare_links(result) if link.receiver == name]
    known = [link.metered[1] for link in inbound if link.metered is not None]
    return sum(known) if known or not inbound else None


def find_slowest(result: Result) -> PartyReport | None:
    """Find the party that worked longest; of those without timed stages, that ran longest."""
    return max(
        result.parties, key=lambda one: (time_at_work(one) or 0.0, one.seconds), default=None
    )


def time_at_work(party: PartyReport) -> float | None:
    """Add up a party's stages but those of set-up, overlaps once; None if no stage was timed."""
    stages = sorted((s.start_s, s.end_s) for s in party.spans if s.name not in SETUP_STAGES)
    total, done = 0.0, float("-inf")
    for start, end in stages:
        total += max(end - max(start, done), 0.0)
        done = max(done, end)
    return total if stages else None


def group_leaks(result: Result) -> dict[str, tuple[Leak, ...]]:
    """Group the ledger by the party that learned, parties without an entry included."""
    names = dict.fromkeys((*list_parties(result), *(leak.to for leak in result.leakage)))
    return {name: tuple(leak for leak in result.leakage if leak.to == name) for name in names}


def group_curves(curves: tuple[Curve, ...]) -> tuple[tuple[Curve, ...], ...]:
    """Group the curves that belong in one chart: same title, same axes."""
    charts: dict[tuple[str, ...], list[Curve]] = {}
    for curve in curves:
        key = (curve.title, curve.x_label, curve.y_label, curve.x_axis, curve.y_axis)
        charts.setdefault(key, []).append(curve)
    return tuple(tuple(chart) for chart in charts.values())


def _planned(result: Result) -> tuple[Traffic, ...]:
    return () if result.forecast is None else result.forecast.cost.traffic


def _list_unplanned(result: Result) -> set[Phase]:
    """List the phases that the plan says nothing about."""
    if result.forecast is None:
        return set(ORDER)
    plans_setup = any(traffic.phase == "setup" for traffic in result.forecast.cost.traffic)
    return set() if plans_setup else {"setup"}


def _collect(traffics: tuple[Traffic, ...]) -> dict[_Key, _Volume]:
    volumes: dict[_Key, _Volume] = {}
    for traffic in traffics:
        key = (traffic.sender, traffic.receiver, traffic.phase)
        messages, payload = volumes.get(key, (0, 0))
        volumes[key] = (messages + traffic.messages, payload + traffic.payload_bytes)
    return volumes


def _agree(forecast: object, metered: object) -> bool | None:
    return None if forecast is None or metered is None else forecast == metered


def _sum_links(
    result: Result,
    phase: Phase,
    quantity: Literal["payload", "messages"],
    links: list[Link],
    field: int,
) -> CostRow:
    known = [link for link in links if link.metered is not None]
    planned = [link.forecast[field] for link in known or links if link.forecast is not None]
    counted = [link.metered[field] for link in known if link.metered is not None]
    pairs = [
        _agree(link.forecast and link.forecast[field], link.metered and link.metered[field])
        for link in known
    ]
    was_metered = bool(known) or (bool(result.parties) and not links)
    is_silent = not links and result.forecast is not None  # the plan says that nothing is sent
    is_told = was_metered and (bool(links) or is_silent)
    return CostRow(
        phase=phase,
        quantity=quantity,
        forecast=sum(planned) if planned or is_silent else None,
        metered=sum(counted) if was_metered else None,
        agrees=False if False in pairs else None if None in pairs or not is_told else True,
    )


def _compare_rounds(result: Result, phase: Phase) -> CostRow:
    meter, is_online = result.metered, phase == "online"
    forecast = None
    if result.forecast is not None:
        plan = result.forecast.cost
        forecast = plan.online_rounds if is_online else plan.offline_rounds
    counted = meter.online_rounds if is_online else meter.offline_rounds
    metered = counted if result.parties else None
    agrees = _agree(forecast, metered)
    if agrees is False and counted < (forecast or 0) and list_absent(result):
        agrees = None  # the longest chain may run through a party that is not in this view
    return CostRow(
        phase=phase, quantity="rounds", forecast=forecast, metered=metered, agrees=agrees
    )
