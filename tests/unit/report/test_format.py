import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tacit.report.format import (
    clean,
    shorten,
    show_bytes,
    show_count,
    show_difference,
    show_exact_bytes,
    show_interval,
    show_number,
    show_percent,
    show_quantity,
    show_seconds,
)


def plain(text):
    return text.replace("\u00a0", " ").replace("\u202f", "'").replace("\u2212", "-")


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (871, "871 B"),
        (999, "999 B"),
        (1000, "1 kB"),
        (45_600, "45.6 kB"),
        (999_499, "999 kB"),
        (999_500, "1 MB"),
        (1_200_000, "1.2 MB"),
        (1_234_567, "1.23 MB"),
        (2**63, "9.22 EB"),
        (-1500, "-1.5 kB"),
        (None, "not measured"),
    ],
)
def test_bytes_are_shown_to_three_figures(size, text):
    assert plain(show_bytes(size)) == text


@given(size=st.integers(0, 2**63))
def test_bytes_are_within_half_a_percent_of_what_they_are(size):
    number, unit = plain(show_bytes(size)).split()
    power = ["B", "kB", "MB", "GB", "TB", "PB", "EB"].index(unit)
    assert math.isclose(float(number) * 1000**power, size, rel_tol=0.006)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0 s"),
        (85e-6, "85 µs"),
        (0.0124, "12.4 ms"),
        (0.9996, "1 s"),
        (3.417, "3.42 s"),
        (59.96, "1 min 00 s"),
        (125.2, "2 min 05 s"),
        (3725.0, "1 h 02 min"),
        (-0.5, "-500 ms"),
        (math.nan, "not a number"),
        (None, "not measured"),
    ],
)
def test_seconds_come_in_the_unit_that_suits_them(seconds, text):
    assert plain(show_seconds(seconds)) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1e-5, "10⁻⁵"),
        (4.1e-7, "4.1 × 10⁻⁷"),
        (12345.1, "1.235 × 10⁴"),
        (2.0, "2"),
        (0.00041, "0.00041"),
        (1234567.0, "1'234'567"),
        (1e300, "10³⁰⁰"),
        (-math.inf, "-∞"),
        (None, "not measured"),
    ],
)
def test_numbers_are_shown_to_four_figures(value, text):
    assert plain(show_number(value)) == text


def test_counts_have_thin_separators():
    assert plain(show_count(1_234_567)) == "1'234'567"
    assert plain(show_exact_bytes(96_264)) == "96'264 B"
    assert show_count(None) == show_exact_bytes(None) == "not measured"


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0.9708, "fraction", "97.08 %"),
        (97.08, "%", "97.08 %"),
        (0.25, "s", "250 ms"),
        (1.5e6, "bytes", "1.5 MB"),
        (3.0, "", "3"),
        (math.nan, "fraction", "not a number"),
        (None, "fraction", "not measured"),
    ],
)
def test_a_quantity_carries_its_unit(value, unit, text):
    assert plain(show_quantity(value, unit)) == text


def test_a_difference_has_a_sign_and_fractions_differ_by_points():
    assert plain(show_difference(0.97, 0.98, "fraction")) == "-1 points"
    assert plain(show_difference(5.0, 3.5, "ms")) == "+1.5 ms"
    assert show_difference(1.0, 1.0, "") == "none"
    assert show_difference(None, 1.0, "") == show_difference(1.0, None, "") == "not measured"


def test_an_interval_is_shown_whole_or_not_at_all():
    assert plain(show_interval(0.9, 0.95, "fraction")) == "90 to 95 %"
    assert show_interval(0.9, None, "fraction") == "not measured"
    assert show_percent(None) == "not measured"


@given(text=st.text(st.characters()))
def test_no_control_character_or_direction_mark_survives_cleaning(text):
    assert not re.search(
        r"[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]", clean(text)
    )


def test_cleaning_leaves_ordinary_text_alone():
    assert clean("Charité – ε ≤ 1, 医院") == "Charité – ε ≤ 1, 医院"


def test_a_long_text_is_cut_with_an_ellipsis():
    assert shorten("abcdefgh", 5) == "abcd…"
    assert shorten("abcde", 5) == "abcde"
