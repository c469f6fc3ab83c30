"""What a result says, in sentences, shared by the terminal and the HTML view."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from tacit.report.format import (
    clean,
    enumerate_names,
    show_bound,
    show_bytes,
    show_count,
    show_difference,
    show_exact_bytes,
    show_number,
    show_quantity,
    show_seconds,
)
from tacit.report.headline import (
    GAMES,
    IDLE,
    find_majority,
    is_beyond,
    is_idle,
    pick_headline_metric,
)
from tacit.report.tally import (
    CostRow,
    is_alone,
    judge_costs,
    list_absent,
    list_parties,
    sum_received,
    sum_sent,
    time_at_work,
)
from tacit.result import Claim, Forecast, Leak, LeakKind, Metric, PartyReport, Result, Timing

Mood = Literal["good", "warn", "bad", "quiet"]

STAGES = {
    "start": "starting",
    "load": "reading its input",
    "connect": "connecting",
    "agree": "comparing the job",
    "plan": "planning",
    "attest": "attesting",
    "keys": "making keys",
    "prepare": "preparing",
    "encrypt": "encrypting",
    "evaluate": "computing on ciphertexts",
    "wait": "waiting for answers",
    "compute": "computing",
    "attend": "serving",
    "deal": "dealing",
    "match ids": "matching ids",
    "train": "training",
    "standardise": "bringing columns to one scale",
    "fit": "learning",
    "score": "measuring",
    "auc": "ranking scores",
    "ks": "ranking scores of both classes",
    "confusion": "counting answers",
    "calibration": "counting chances",
    "answers": "answering",
    "coefficients": "opening what was learned",
    "scaling": "opening means and deviations",
    "trees": "opening trees",
    "serve": "asking and answering",
    "finish": "waiting for the others",
    "done": "done",
    "failed": "failed",
}
"""The stages of a party, in words."""

WEAK_EPSILON = 10.0
"""Above this an ε is shown as a warning: e^10 is 22,000, which bounds next to nothing."""

MARKS: dict[Mood, str] = {"good": "✓", "warn": "!", "bad": "✗", "quiet": "–"}

KIND_NAMES: dict[LeakKind, str] = {
    "output": "declared result",
    "protocol": "seen on the way",
    "size": "size only",
}


@dataclass(frozen=True)
class Check:
    """One thing a reader wants to know first, and whether it is as it should be."""

    title: str
    text: str
    mood: Mood


def state_computing(forecast: Forecast) -> str:
    """Say that seconds of a network are not all, and about how many come on top."""
    if forecast.computing_seconds is None:
        return "These seconds are of the network alone; computing is not estimated."
    return (
        "These seconds are of the network alone; each computing party computes for about "
        f"{show_seconds(forecast.computing_seconds)} besides (estimate from a short calibration "
        "on this machine, of products, words and steps alone: runs took up to six times that)."
    )


def compare_figures(metric: Metric) -> tuple[str, str]:
    """Write what a metric is compared with, and how far it is from it."""
    if metric.reference is None:
        return "–", "–"
    return (
        show_quantity(metric.reference, metric.unit),
        show_difference(metric.value, metric.reference, metric.unit),
    )


def cost_figures(row: CostRow) -> tuple[str, str]:
    """Write what was forecast and what was metered."""
    show = show_exact_bytes if row.quantity == "payload" else show_count
    return "not forecast" if row.forecast is None else show(row.forecast), show(row.metered)


def party_figures(result: Result, party: PartyReport) -> tuple[str, ...]:
    """Write time at work, wall and processor time, memory, and what was sent and received."""
    at_work = time_at_work(party)
    return (
        "–" if at_work is None else show_seconds(at_work),
        show_seconds(party.seconds),
        show_seconds(party.cpu_seconds),
        show_bytes(party.peak_memory_bytes),
        show_bytes(sum_sent(result, party.name)),
        show_bytes(sum_received(result, party.name)),
    )


def timing_figures(timing: Timing) -> tuple[str, ...]:
    """Write round trip and bandwidth of a network, and the seconds that it takes there."""
    return (
        f"{show_number(timing.rtt_ms)} ms",
        f"{show_number(timing.mbit_per_s)} Mbit/s",
        show_seconds(timing.offline_seconds),
        show_seconds(timing.online_seconds),
    )


def name_sides(result: Result) -> tuple[str, str]:
    """Name what was measured and what it is compared with."""
    if result.kind == "audit":
        return "attack", "blind guess, or claimed ε"
    if result.kind == "leakage":
        return "attack", "chance"
    if result.kind == "text":
        return "this model", "no protection"
    is_plain = is_alone(result) or result.kind == "split"  # whose references are attackers' own
    return ("value", "reference") if is_plain else ("private", "plaintext")


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
    """List what to look at first: what was shown, the cost where there is one, the guarantee.

    Before them stands an accuracy that is none.
    """
    costs = () if is_alone(result) else (_check_costs(result),)
    return (*_check_worth(result), _check_revealed(result), *costs, _check_claims(result))


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
        "not stated" if value is None else show_bound(value) for value in (parts[0], parts[1])
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
        f"{claim.guarantee}, ε = {show_bound(claim.epsilon)} at δ = {show_bound(claim.delta)} "
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


def _check_revealed(result: Result) -> Check:
    title = "What was shown"
    if result.kind in GAMES:
        metric = pick_headline_metric(result)
        if metric is None or metric.reference is None:
            return Check(title, "The tables say what each view tells", "quiet")
        if is_beyond(metric):
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


def _check_worth(result: Result) -> tuple[Check, ...]:
    void = next((one for one in result.utility if one.name == "void rounds"), None)
    if void is not None and void.value and void.value == void.samples:
        return (Check("What it is worth", "No round gave a model: nothing was learned", "bad"),)
    found = find_majority(result)
    if found is None or result.kind in GAMES:
        return ()
    title, share = "What it is worth", show_quantity(found[1].value, found[1].unit)
    if is_idle(result):
        return (Check(title, f"{IDLE.capitalize()}, {share}", "warn"),)
    low, often = found[0].low, found[1].value
    if low is not None and often is not None and low <= often:
        text = f"Not clearly better than the most frequent class, {share}"
        return (Check(title, text, "quiet"),)
    return ()


def _check_costs(result: Result) -> Check:
    title = "What it cost"
    match judge_costs(result):
        case True:
            return Check(title, "Metered traffic equals the forecast", "good")
        case False:
            return Check(title, "Metered traffic differs from the forecast", "bad")
    if result.forecast is None:
        return Check(title, "Metered; not compared with a forecast", "quiet")
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
