"""What an audit found: threats in words, the best attack on each, and the result of the whole."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from tacit.errors import ClaimError
from tacit.result import NOTHING_SENT, Claim, Curve, Metric, PartyReport, Picture, Result, Sheet

BY_DP = "train with DP-SGD and state ε: it bounds every attack here, known or not"
EARLIER = "stop earlier, or regularise (weight decay, dropout, augmentation): less to remember"
BY_CLASS = "answer with the class alone, or with rounded confidences: helps against weaker attacks"
"""Remedies of more than one attack; said once."""


@dataclass(frozen=True, kw_only=True)
class Threat:
    """A threat model in words: who looks, at what, knowing what."""

    name: str
    who: str
    sees: str
    knows: str


@dataclass(frozen=True, kw_only=True)
class Finding:
    """What one attack achieved under one threat.

    Attributes:
        threat: the threat model of the view that the attack was given.
        attack: its name in the table.
        headline: the number by which attacks of a threat are compared; larger is worse.
        metrics: all that was measured, the headline included if it is to be shown.
        claimed: what was promised about this threat, in words; empty if nothing was.
        is_found: whether it does better than a blind guess beyond its interval.
        remedies: what would help.
        is_general: whether it is about what the model is for, as pictures of its classes are, and
            not about anyone's row: such a finding is never the headline.
    """

    threat: Threat
    attack: str
    headline: Metric
    metrics: tuple[Metric, ...] = ()
    claimed: str = ""
    is_found: bool = False
    curves: tuple[Curve, ...] = ()
    pictures: tuple[Picture, ...] = ()
    sheets: tuple[Sheet, ...] = ()
    remedies: tuple[str, ...] = ()
    is_general: bool = False


@dataclass(frozen=True, kw_only=True)
class Power:
    """What an audit would have caught: noise of this share of the claimed one, so often.

    ``factor`` 0 is noise that is missing altogether.
    """

    factor: float
    probability: float

    def __str__(self) -> str:
        if self.probability < 0.005:
            return "nothing, not even missing noise"
        if self.factor <= 0:
            return f"missing noise ({self.probability:.0%})"
        # Rounded down: less noise than this is caught at least as often.
        shown = math.floor(100 * self.factor) / 100
        return f"noise × {shown:g} or less ({self.probability:.0%})"


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """A claimed ε beside the ε that an attack proves to be spent at least.

    ``power`` is the smallest shortfall of noise that would have been caught; None if not known.
    """

    claim: Claim
    measured_epsilon: float
    confidence: float
    attack: str
    trials: int
    is_contradicted: bool
    """Not always measured > claimed: a test may refute a whole curve of (ε, δ) at another point."""
    note: str = ""
    power: Power | None = None


def beats_guess(metric: Metric) -> bool:
    """Tell whether a metric's interval lies above its reference, a blind guess."""
    return None not in (metric.low, metric.reference) and metric.low > metric.reference  # type: ignore[operator]


def beside_chance(metric: Metric, chance: float) -> Metric:
    """Put what a blind guess gets beside what an attack got."""
    return replace(metric, reference=chance, note="reference: blind guess")


def judge(
    threat: Threat,
    attack: str,
    *metrics: Metric,
    remedies: tuple[str, ...],
    curves: tuple[Curve, ...] = (),
    pictures: tuple[Picture, ...] = (),
) -> Finding:
    """Judge an attack by the first of its metrics: found is what beats a blind guess."""
    return Finding(
        threat=threat,
        attack=attack,
        headline=metrics[0],
        metrics=metrics,
        is_found=beats_guess(metrics[0]),
        curves=curves,
        pictures=pictures,
        remedies=remedies,
    )


def draw_sweep(
    name: str,
    findings: Sequence[Finding],
    strengths: Sequence[float],
    utilities: Sequence[float],
    *,
    titles: tuple[str, str],
    y_label: str,
) -> tuple[Curve, Curve]:
    """Draw the headlines under a defence against its strength, and against what it left."""
    got = [one.headline.value or 0.0 for one in findings]
    by_strength = tuple(zip(map(float, strengths), got, strict=True))
    front = tuple(zip(utilities, got, strict=True))
    draw = partial(Curve, name=name, y_label=y_label)
    return (
        draw(title=titles[0], x_label="strength", points=by_strength),
        draw(title=titles[1], x_label="utility", points=front, style="dots"),
    )


def strength(metric: Metric) -> float:
    """Return how far an attack came on the way from a blind guess, 0, to certainty, 1."""
    value, blind = metric.value, metric.reference
    if value is None or blind is None:
        return 0.0
    if metric.unit == "squared error":
        return 1 - value / blind if blind > 0 else 0.0
    if metric.unit == "bits":
        return 1 - math.exp2(-max(value - blind, 0.0))
    return (value - blind) / (1 - blind) if blind < 1 else 0.0


def best_findings(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return the attack with the largest headline for every threat, in order of appearance."""
    best: dict[str, Finding] = {}
    for one in findings:
        known = best.get(one.threat.name)
        if known is None or _size(one) > _size(known):
            best[one.threat.name] = one
    return tuple(best.values())


def build_result(
    name: str,
    findings: Sequence[Finding],
    *,
    verdicts: Sequence[Verdict] = (),
    utility: Sequence[Metric] = (),
    sheets: Sequence[Sheet] = (),
    curves: Sequence[Curve] = (),
    notes: Sequence[str] = (),
    reports: Sequence[PartyReport] = (),
    settings: Sequence[Sheet] = (),
) -> Result:
    """Lay findings out as one result: threats first, then the measurements, settings last.

    The threat whose best attack came furthest is first, in every list. Of the best attack on a
    threat everything is shown, of the others the headline.
    """
    best = sorted(
        best_findings(findings),
        key=lambda one: (not one.is_general, one.is_found, strength(one.headline)),
        reverse=True,
    )
    remedies = dict.fromkeys(text for one in findings if one.is_found for text in one.remedies)
    if BY_DP in remedies and (spent := [one.claim for one in verdicts if one.claim.epsilon]):
        # It was trained so: what is left is to train with less.
        less = (
            f"train with a smaller ε: an attack found something under {_number(spent[0].epsilon)}"
        )
        remedies = dict.fromkeys(less if text == BY_DP else text for text in remedies)
    return Result(
        kind="audit",
        name=name,
        protocol="audit",
        launched="here",
        parties=tuple(reports),
        forecast=None,
        metered=NOTHING_SENT,
        leakage=(),
        claims=tuple(one.claim for one in verdicts),
        utility=(
            *utility,
            *(metric for one in verdicts for metric in _epsilon_metrics(one)),
            *(metric for one in best for metric in one.metrics),
            *(one.headline for one in findings if one not in best),
        ),
        curves=(*(curve for one in best for curve in one.curves), *curves),
        pictures=tuple(picture for one in best for picture in one.pictures),
        sheets=(
            _threat_sheet(best),
            *(_verdict_sheets(verdicts)),
            *(sheet for one in findings for sheet in one.sheets),
            *sheets,
            *_remedy_sheets(tuple(remedies)),
            *settings,
        ),
        notes=tuple(notes),
    )


def check_verdicts(verdicts: Iterable[Verdict]) -> None:
    """Raise if a claim does not stand.

    Raises:
        ClaimError: names every claim that was contradicted, and by what.
    """
    broken = [_in_words(one) for one in verdicts if one.is_contradicted]
    if broken:
        raise ClaimError("; ".join(broken))


def _in_words(verdict: Verdict) -> str:
    claim = verdict.claim
    return (
        f"claimed ε ≤ {_number(claim.epsilon)} at δ = {_number(claim.delta)} for {claim.subject}, "
        f"but {verdict.attack} shows ε ≥ {verdict.measured_epsilon:.3g} with confidence "
        f"{verdict.confidence:.7g}" + (f" ({verdict.note})" if verdict.note else "")
    )


def _size(finding: Finding) -> float:
    return -math.inf if finding.headline.value is None else finding.headline.value


def _epsilon_metrics(verdict: Verdict) -> tuple[Metric, ...]:
    return (
        Metric(
            name=f"ε lower bound, {verdict.attack}",
            value=verdict.measured_epsilon,
            unit="ε",
            samples=verdict.trials,
            low=verdict.measured_epsilon,
            reference=verdict.claim.epsilon,
            note=(
                f"one-sided, confidence {verdict.confidence:.7g}; reference: claimed; would have "
                f"caught: {_power(verdict)}"
            ),
        ),
    )


def _threat_sheet(best: Sequence[Finding]) -> Sheet:
    return Sheet(
        title="Threats",
        heads=(
            *("threat", "who looks", "at what", "knowing what"),
            *("best attack", "measured", "claimed"),
        ),
        rows=tuple(
            (
                *(one.threat.name, one.threat.who, one.threat.sees, one.threat.knows),
                one.attack,
                _in_interval(one.headline),
                one.claimed or "no guarantee",
            )
            for one in best
        ),
        caption="Of every threat the attack that did best, the strongest first; the others are "
        "among the measurements.",
    )


def _verdict_sheets(verdicts: Sequence[Verdict]) -> tuple[Sheet, ...]:
    if not verdicts:
        return ()
    rows = tuple(
        (
            one.claim.subject,
            _number(one.claim.epsilon),
            _number(one.claim.delta),
            f"{one.measured_epsilon:.3g}",
            f"{one.confidence:.7g}",
            one.attack,
            "contradicted" if one.is_contradicted else "stands",
            _power(one),
        )
        for one in verdicts
    )
    heads = ("claim about", "# ε claimed", "# δ", "# ε at least", "# confidence", "attack")
    return (
        Sheet(
            title="Claims and measurements",
            heads=(*heads, "verdict", "would have caught"),
            rows=rows,
            caption=(
                "A claim that stands is worth what the audit would have caught. A lower bound far "
                "below the claim proves nothing: the attack may be weak."
            ),
        ),
    )


def _power(verdict: Verdict) -> str:
    return "not known" if verdict.power is None else str(verdict.power)


def _remedy_sheets(remedies: tuple[str, ...]) -> tuple[Sheet, ...]:
    if not remedies:
        return ()
    return (
        Sheet(title="What would help", heads=("remedy",), rows=tuple((text,) for text in remedies)),
    )


def _in_interval(metric: Metric) -> str:
    if metric.value is None:
        return "not measured"
    interval = ""
    if metric.low is not None and metric.high is not None:
        interval = f" [{metric.low:.3g}, {metric.high:.3g}]"
    return f"{metric.name.rsplit(': ', 1)[-1]} {metric.value:.3g}{interval}"


def _number(value: float | None) -> str:
    if value is None:
        return "none"
    # What a search left of zero is zero to the reader.
    return f"{0.0 if abs(value) < 1e-9 else value:.3g}"
