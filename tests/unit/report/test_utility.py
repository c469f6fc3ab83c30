import re
from dataclasses import replace

from tacit.report import render
from tacit.report.utility import group_metrics, lay_utility
from tacit.result import Metric


def _metric(name, value, unit="fraction", **more):
    return Metric(name=name, value=value, unit=unit, **more)


def test_metrics_of_one_unit_share_one_axis():
    shares = _metric("accuracy", 0.89, low=0.86, high=0.92), _metric("robust", 1.0)
    scores = _metric("F1", 0.9, ""), _metric("AUC", 0.99, "")
    errors = _metric("a", 4.0, "dB", reference=8.0), _metric("b", 2.0, "dB")
    count, rounds = _metric("questions", 12.0, ""), _metric("void", 3.0, "rounds")
    mixed = (shares[0], scores[0], errors[0], count, scores[1], shares[1], rounds, errors[1])
    axes = group_metrics(mixed)
    assert [axis.metrics for axis in axes] == [shares, scores, errors, (count, rounds)]
    scales = [axis.scale and (axis.scale.low, axis.scale.high) for axis in axes]
    assert scales == [(0, 1), (0, 1), (0, 8), None]


def test_equal_values_stand_at_equal_places(example):
    utility = (_metric("x", 0.25, low=0.1, high=0.4), _metric("y", 0.25), _metric("z", 1.0))
    page = lay_utility(replace(example, utility=utility))
    assert re.findall(r'cx="([\d.]+%)"', page) == ["25%", "25%", "100%"]
    ticks = re.findall(r'class="tick">([^<]*)<', page)
    assert [tick.replace("\u00a0", " ") for tick in ticks] == [f"{n} %" for n in range(0, 101, 20)]


def test_a_reference_is_drawn_where_there_is_one_and_named_nowhere_else(example):
    compared = _metric("x", 0.5, reference=0.6)
    page = lay_utility(replace(example, utility=(compared, _metric("y", 0.7))))
    assert page.count('class="reference"') == 1
    assert page.count("plaintext: 60") == 1
    bare = lay_utility(replace(example, utility=(_metric("y", 0.7),)))
    assert "plaintext" not in bare.casefold()
    assert "not measured" not in bare


def test_an_interval_can_be_read_off_beside_its_mark(example):
    page = render(replace(example, utility=(_metric("x", 0.5, low=0.41, high=0.59),)))
    assert "<strong>50 %</strong><small>41 to 59 %</small>" in page.replace("\u00a0", " ")
