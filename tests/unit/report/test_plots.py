import math
import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tacit.report.plots import draw_bar, draw_interval, draw_lines, fit_scale, list_ticks
from tacit.result import Curve, Metric

finite = st.floats(allow_nan=False, allow_infinity=False)


@given(values=st.lists(finite, min_size=1, max_size=6), margin=st.floats(0, 1))
@example(values=[0.0, 5e-324], margin=0.0)
@example(values=[-1.7e308, 1.7e308], margin=1.0)
def test_a_scale_places_every_value_between_its_ends(values, margin):
    scale = fit_scale(values, margin=margin)
    places = [scale.place(value) for value in sorted(values)]
    assert all(0 <= place <= 1 for place in places)
    assert places == sorted(places)


@given(values=st.lists(finite, min_size=2, max_size=6))
def test_ticks_lie_on_the_scale_and_are_few(values):
    scale = fit_scale(values)
    ticks = list_ticks(scale)
    assert 1 <= len(ticks) <= 12
    slack = 1e-9 * max(abs(scale.low), abs(scale.high))
    assert all(scale.low - slack <= tick <= scale.high + slack for tick in ticks)


def test_ticks_are_round_numbers():
    assert list_ticks(fit_scale([0.0, 1.0])) == (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)


def test_a_fraction_is_never_drawn_beyond_one():
    scale = fit_scale([0.98, 1.0], margin=0.5)
    assert (scale.low, scale.high) == (pytest.approx(0.97), 1.0)


def test_a_bar_is_as_long_as_its_parts():
    bar = draw_bar([(0.25, "offline"), (0.5, "online")], label="x")
    assert re.findall(r'<rect x="([^"]*)" y="0" width="([^"]*)"', bar) == [
        ("0%", "25%"),
        ("25%", "50%"),
    ]


def test_an_interval_shows_value_band_and_reference_where_they_are():
    metric = Metric(name="m", value=5.0, unit="", low=2.5, high=7.5, reference=10.0)
    drawn = draw_interval(metric, fit_scale([0.0, 10.0]))
    assert 'x="25%" y="9" width="50%"' in drawn
    assert 'cx="50%"' in drawn
    assert 'x1="100%" x2="100%" y1="3"' in drawn


def _curve(*points, name="a"):
    return Curve(title="t", x_label="x", y_label="y", name=name, points=points)


def test_a_line_runs_from_its_first_point_to_its_last():
    drawn = draw_lines([_curve((0.0, 0.0), (1.0, 1.0))])
    assert 'd="M0.0 1000.0h0 L1000.0 0.0"' in drawn


def test_a_point_that_is_no_number_breaks_the_line():
    drawn = draw_lines([_curve((0.0, 0.0), (1.0, math.nan), (2.0, 1.0))])
    assert drawn.count("M") == 2
    assert "nan" not in drawn


def test_each_curve_of_a_chart_has_its_own_colour():
    drawn = draw_lines([_curve((0.0, 0.0), name=str(n)) for n in range(10)])
    classes = re.findall(r'class="(line [^"]*)"', drawn)
    assert len(set(classes)) == 10
