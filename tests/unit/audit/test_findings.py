"""What was found, laid out: the best attack of every threat, claims beside measurements."""

from dataclasses import replace

import pytest

from tacit import report
from tacit.audit import (
    Finding,
    Power,
    Threat,
    Verdict,
    beats_guess,
    best_findings,
    build_result,
    check_verdicts,
)
from tacit.audit.findings import BY_DP, EARLIER, strength
from tacit.errors import ClaimError
from tacit.result import Claim, Metric

THREAT = Threat(name="t", who="w", sees="s", knows="k")


def finding(attack, value, *, threat=THREAT, is_found=False):
    headline = Metric(
        name=f"{attack}: AUC", value=value, unit="AUC", low=value - 0.1, high=1.0, reference=0.5
    )
    return Finding(
        threat=threat,
        attack=attack,
        headline=headline,
        metrics=(headline,),
        is_found=is_found,
        remedies=("stop earlier",),
    )


def verdict(measured, *, claimed=2.0):
    claim = Claim(
        subject="each record",
        guarantee="(ε, δ)-differential privacy",
        assumptions=(),
        epsilon=claimed,
        delta=1e-5,
        relation="add or remove a record",
        accountant="pld",
    )
    return Verdict(
        claim=claim,
        measured_epsilon=measured,
        confidence=0.95,
        attack="canaries",
        trials=100,
        is_contradicted=measured > claimed,
        power=Power(factor=0.719, probability=0.95),
    )


def test_the_best_attack_stands_for_its_threat():
    other = Threat(name="u", who="w", sees="s", knows="k")
    found = best_findings([finding("a", 0.6), finding("b", 0.8), finding("c", 0.1, threat=other)])
    assert [one.attack for one in found] == ["b", "c"]


def test_the_strongest_attack_is_the_first_row_and_the_headline():
    threats = [Threat(name=name, who="w", sees="s", knows="k") for name in "uvw"]
    weak, strong = (
        finding(name, value, threat=threat, is_found=True)
        for name, value, threat in (("weak", 0.65, threats[0]), ("strong", 0.9, threats[1]))
    )
    general = replace(finding("classes", 1.0, threat=threats[2], is_found=True), is_general=True)
    result = build_result("job", [general, weak, strong], verdicts=[verdict(1.0)])
    assert [row[0] for row in result.sheets[0].rows] == ["v", "u", "w"]
    assert "Strongest attack: strong: AUC 0.9" in report.render(result).replace("\u202f", " ")


@pytest.mark.parametrize(
    ("unit", "value", "blind", "far"),
    [
        ("fraction", 1.0, 0.1, 1.0),
        ("AUC", 0.75, 0.5, 0.5),
        ("squared error", 0.5, 2.0, 0.75),
        ("bits", 3.0, 1.0, 0.75),
        ("fraction", None, 0.1, 0.0),
    ],
)
def test_attacks_in_different_units_are_compared_by_how_far_they_came(unit, value, blind, far):
    assert strength(Metric(name="x", value=value, unit=unit, reference=blind)) == far


def test_a_guess_is_beaten_only_beyond_the_interval():
    assert beats_guess(finding("a", 0.7).headline)
    assert not beats_guess(finding("a", 0.55).headline)
    assert not beats_guess(Metric(name="x", value=0.9, unit=""))


def test_a_result_survives_its_json_and_its_page():
    result = build_result("job", [finding("a", 0.9, is_found=True)], verdicts=[verdict(1.0)])
    assert report.from_json(report.to_json(result), source="test") == result
    page = report.render(result)
    assert "What would help" in page
    assert "stop earlier" in page
    titles = [sheet.title for sheet in result.sheets]
    assert titles == ["Threats", "Claims and measurements", "What would help"]
    assert result.sheets[1].rows[0][-2:] == ("stands", "noise × 0.71 or less (95%)")


def test_nothing_is_advised_where_nothing_was_found():
    result = build_result("job", [finding("a", 0.5)])
    assert [sheet.title for sheet in result.sheets] == ["Threats"]


def test_who_trained_with_dp_is_not_told_to_and_nothing_is_advised_twice():
    found = replace(finding("a", 0.9, is_found=True), remedies=(BY_DP, EARLIER))
    other = replace(finding("b", 0.9, is_found=True), remedies=(EARLIER, BY_DP))

    def advised(verdicts):
        result = build_result("job", [found, other], verdicts=verdicts)
        (sheet,) = (one for one in result.sheets if one.title == "What would help")
        return [row[0] for row in sheet.rows]

    assert advised(()) == [BY_DP, EARLIER]
    less, *rest = advised([verdict(1.0)])
    assert less == "train with a smaller ε: an attack found something under 2"
    assert rest == [EARLIER]


def test_a_contradicted_claim_says_by_what():
    check_verdicts([verdict(1.9)])
    with pytest.raises(ClaimError, match=r"claimed ε ≤ 2 .* canaries shows ε ≥ 3 "):
        check_verdicts([verdict(1.0), verdict(3.0)])
