"""What a result says, in sentences, shared by the terminal and the HTML view."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from tacit.report.format import clean, show_count, show_number, show_quantity, show_seconds
from tacit.report.tally import is_alone, judge_costs, list_absent, list_parties
from tacit.result import Claim, Forecast, Leak, LeakKind, Metric, Result

Mood = Literal["good", "warn", "bad", "quiet"]

WEAK_EPSILON = 10.0
"""Above this an ε is shown as a warning: e^10 is 22,000, which bounds next to nothing."""

KIND_NAMES: dict[LeakKind, str] = {
    "output": "declared result",
    "protocol": "seen on the way",
    "size": "size only",
}


_GAMES = ("audit", "leakage")
"""Kinds of results in which whoever holds everything plays the attacker."""


@dataclass(frozen=True)
class Check:
    """One thing a reader wants to know first, and whether it is as it should be."""

    title: str
    text: str
    mood: Mood


def enumerate_names(names: Sequence[str]) -> str:
    """Write a list as "a, b and c"."""
    shown = [clean(name) for name in names]
    if len(shown) < 2:
        return "".join(shown) or "nobody"
    return f"{', '.join(shown[:-1])} and {shown[-1]}"


def state_computing(forecast: Forecast) -> str:
    """Say that seconds of a network are not all, and about how many come on top."""
    if forecast.computing_seconds is None:
        return "These seconds are of the network alone; computing is not estimated."
    return (
        "These seconds are of the network alone; each computing party computes for about "
        f"{show_seconds(forecast.computing_seconds)} besides (estimate from a short calibration "
        "on this machine, not a measurement)."
    )


def state_headline(result: Result) -> str:
    """Say in one sentence what was revealed, as the ledger has it."""
    if result.kind in _GAMES:
        return _state_attack(result)
    if is_alone(result):
        return "Computed by one party alone: nothing was sent, nothing was revealed"
    text = _state_revealed(result)
    if not result.parties:
        return (
            f"No party reported; the plan says: {text}" if result.leakage else "No party reported"
        )
    if list_absent(result):
        names = enumerate_names([party.name for party in result.parties])
        return f"As far as {names} can tell, {text[0].lower()}{text[1:]}"
    return text


def name_sides(result: Result) -> tuple[str, str]:
    """Name what was measured and what it is compared with."""
    if result.kind == "audit":
        return "attack", "blind guess, or claimed ε"
    if result.kind == "leakage":
        return "attack", "chance"
    is_plain = is_alone(result) or result.kind == "split"  # whose references are attackers' own
    return ("value", "reference") if is_plain else ("private", "plaintext")


def name_reference(result: Result, metric: Metric) -> str:
    """Name what one metric is compared with."""
    if result.kind in _GAMES:
        return "claimed" if metric.unit == "ε" else "blind guess"
    return name_sides(result)[1]


def state_run(result: Result) -> str:
    """Say who ran what together, and how."""
    parties = list_parties(result)
    if not parties:
        return f"No party is recorded for {clean(result.name)} ({clean(result.kind)})."
    who, together = ("The parties", " together") if len(parties) > 1 else ("The party", "")
    if is_alone(result):
        return (
            f"{clean(result.name)} ({clean(result.kind)}) was computed by one party alone, "
            f"{enumerate_names(parties)}: {clean(result.protocol)}, {clean(result.launched)}."
        )
    return (
        f"{who} {enumerate_names(parties)} computed {clean(result.name)} "
        f"({clean(result.kind)}){together}, under the protocol {clean(result.protocol)}, "
        f"launched as {clean(result.launched)}."
    )


def state_coverage(result: Result) -> str | None:
    """Say whose view is missing, or None if every party reported."""
    absent = list_absent(result)
    if not absent:
        return None
    present = enumerate_names([party.name for party in result.parties])
    return (
        f"This result covers {present} only. What {enumerate_names(absent)} measured "
        "and learned is not in it."
    )


def state_learned(result: Result, party: str, leaks: Sequence[Leak]) -> tuple[str, Mood]:
    """Say in one sentence what a party learned."""
    if is_alone(result):
        return "Worked alone, on what it had.", "quiet"
    kinds = {leak.kind for leak in leaks}
    if party in list_absent(result):
        known = "; this much is known from the others:" if leaks else "."
        return f"Did not report to this view{known}", "warn" if "protocol" in kinds else "quiet"
    if "protocol" in kinds:
        return "Learned more on the way than the declared result.", "warn"
    if "output" in kinds:
        beyond = "nothing else but sizes" if "size" in kinds else "nothing else"
        return f"Learned the declared result and {beyond}.", "good"
    if kinds:
        return "Learned nothing but sizes.", "good"
    return "Learned nothing.", "good"


def list_checks(result: Result) -> tuple[Check, ...]:
    """List the three things to look at first: what was shown, the cost, the guarantee."""
    return (_check_revealed(result), _check_costs(result), _check_claims(result))


def is_unprotected(claim: Claim) -> bool:
    """Say whether a claim claims nothing."""
    return "no guarantee" in claim.guarantee.casefold()


def is_weak(claim: Claim) -> bool:
    """Say whether an ε is so large that it promises next to nothing."""
    return claim.epsilon is not None and claim.epsilon > WEAK_EPSILON


def mood_of(claim: Claim) -> Mood:
    """Say in which colour a claim is shown."""
    return "warn" if is_unprotected(claim) or is_weak(claim) else "good"


def state_privacy(claim: Claim) -> str | None:
    """Write ε with δ, relation, accountant and meaning; None if the claim is not about them."""
    parts = (claim.epsilon, claim.delta, claim.relation, claim.accountant)
    if all(part is None for part in parts):
        return None
    epsilon, delta = (
        "not stated" if value is None else show_number(value) for value in (parts[0], parts[1])
    )
    relation, accountant = (
        "not stated" if text is None else clean(text) for text in (parts[2], parts[3])
    )
    meaning = f". {state_detection(claim)}" if claim.detection is not None else ""
    return f"ε = {epsilon}, δ = {delta}; relation: {relation}; accountant: {accountant}{meaning}"


def state_guarantee(claim: Claim) -> str:
    """Write a guarantee for the top of a page; ε stands there with δ and what it means."""
    if claim.epsilon is None or claim.delta is None:
        return claim.guarantee
    meaning = f". {state_detection(claim)}" if claim.detection is not None else ""
    return (
        f"{claim.guarantee}, ε = {show_number(claim.epsilon)} at δ = {show_number(claim.delta)} "
        f"for {claim.relation}{meaning}"
    )


def state_detection(claim: Claim) -> str:
    """Say in one sentence what the best attacker can do in spite of a claim."""
    if claim.detection is None:
        return "What an attacker can do is not bounded."
    # Rounded up: the sentence is a bound.
    share = f"{math.ceil(1000 * min(max(claim.detection, 0.0), 1.0)) / 10:g} %"
    if claim.relation and claim.relation.startswith("adding"):
        return (
            "An attacker who wrongly names 1 % of those whose data was not used can name up to "
            f"{share} of those whose data was."
        )
    return (
        "An attacker who takes other data for the true data 1 % of the time can recognise the "
        f"true data up to {share} of the time."
    )


def pick_headline_metric(result: Result) -> Metric | None:
    """Pick the metric to show first: one with a plaintext reference, else the first.

    What a split job compares are attacks, which are not what it was run for. An audit was run for
    nothing else, and lists the strongest first: a claim that an ε contradicts, then that attack.
    """
    compared = [metric for metric in result.utility if metric.reference is not None]
    if result.kind in _GAMES:
        attacks = [one for one in compared if one.unit != "ε"]
        compared = [one for one in compared if one.unit == "ε" and _is_beyond(one)] + attacks
    if result.kind == "split":
        compared = []
    return next(iter((*compared, *result.utility)), None)


def _state_attack(result: Result) -> str:
    """Say how well the strongest attack did."""
    metric = pick_headline_metric(result)
    if metric is None or metric.reference is None:
        return "Attacked by its owner: the tables say what each view tells"
    shown, blind = (show_quantity(one, metric.unit) for one in (metric.value, metric.reference))
    what = f"{clean(metric.name)}, {shown} ({name_reference(result, metric)}: {blind})"
    if _is_beyond(metric):
        return f"Strongest attack: {what}"
    return f"No attack tried did better than a guess, which proves nothing; the best: {what}"


def _is_beyond(metric: Metric) -> bool:
    """Say whether a measurement lies beyond its reference, with its whole interval."""
    if metric.reference is None or metric.value is None:
        return False
    if metric.unit == "squared error":
        return (metric.value if metric.high is None else metric.high) < metric.reference
    return (metric.value if metric.low is None else metric.low) > metric.reference


def _state_revealed(result: Result) -> str:
    outputs = [leak for leak in result.leakage if leak.kind == "output"]
    leaks = [leak for leak in result.leakage if leak.kind == "protocol"]
    shown = _describe(outputs)
    if leaks:
        return f"Revealed: {shown}; and on the way, {_describe(leaks)}"
    has_sizes = any(leak.kind == "size" for leak in result.leakage)
    if not outputs:
        return f"{'Nothing but sizes' if has_sizes else 'Nothing'} was revealed to anyone"
    return f"Nothing but {shown}{' and sizes' if has_sizes else ''} was revealed"


def _describe(leaks: Sequence[Leak]) -> str:
    if not leaks:
        return "no declared result"
    if len(leaks) > 3:
        return f"{show_count(len(leaks))} entries of the ledger"
    shown = (
        f"{leak.what} ({show_count(leak.elements)} {'value' if leak.elements == 1 else 'values'}, "
        f"to {leak.to})"
        for leak in leaks
    )
    return enumerate_names(list(shown))


def _check_revealed(result: Result) -> Check:
    title = "What was shown"
    if result.kind in _GAMES:
        metric = pick_headline_metric(result)
        if metric is None or metric.reference is None:
            return Check(title, "The tables say what each view tells", "quiet")
        if _is_beyond(metric):
            return Check(title, "An attack found something; see the strongest", "warn")
        return Check(title, "No attack tried found anything; others may", "quiet")
    if is_alone(result):
        return Check(title, "One party worked alone; nobody else saw anything", "quiet")
    leaks = sum(leak.kind == "protocol" for leak in result.leakage)
    if leaks:
        noun = "entry" if leaks == 1 else "entries"
        return Check(title, f"{show_count(leaks)} {noun} beyond the declared result", "warn")
    if list_absent(result) or not result.parties:
        return Check(title, "Only part of the ledger is here", "quiet")
    return Check(title, "Declared results and sizes, nothing else", "good")


def _check_costs(result: Result) -> Check:
    title = "What it cost"
    if is_alone(result):
        return Check(title, "No traffic; time and memory are below", "quiet")
    match judge_costs(result):
        case True:
            return Check(title, "Metered traffic equals the forecast", "good")
        case False:
            return Check(title, "Metered traffic differs from the forecast", "bad")
    if result.forecast is None:
        return Check(title, "Metered; no plan could tell beforehand", "quiet")
    return Check(title, "Only part of the traffic was metered", "quiet")


def _check_claims(result: Result) -> Check:
    title = "What is promised"
    bare = [claim for claim in result.claims if is_unprotected(claim)]
    if not result.claims:
        return Check(title, "Nothing is promised", "warn")
    if bare:
        return Check(title, f"No guarantee for {enumerate_names([bare[0].subject])}", "warn")
    weak = [claim for claim in result.claims if is_weak(claim)]
    if weak:
        shown, subject = show_number(weak[0].epsilon), enumerate_names([weak[0].subject])
        text = f"ε = {shown} for {subject}: above {WEAK_EPSILON:g}, next to no promise"
        return Check(title, text, "warn")
    assumptions = len({text for claim in result.claims for text in claim.assumptions})
    promises = "1 guarantee" if len(result.claims) == 1 else f"{len(result.claims)} guarantees"
    under = "1 assumption" if assumptions == 1 else f"{assumptions or 'no'} assumptions"
    return Check(title, f"{promises} under {under}", "good")
