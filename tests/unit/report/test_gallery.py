"""Pictures and tables of a run, runs without a plan, and charts with logarithmic axes."""

import base64
import re
import struct
import zlib
from dataclasses import replace

import pytest

from tacit.errors import DataError
from tacit.report.gallery import to_data_url
from tacit.report.html import render
from tacit.report.plots import draw_lines
from tacit.report.words import list_checks
from tacit.result import Curve, Picture, Sheet


def picture(**changes):
    pixels = base64.b64encode(bytes(range(12))).decode()
    whole = Picture(title="Found", caption="a 7", width=2, height=2, mode="rgb", pixels=pixels)
    return replace(whole, **changes)


def test_a_picture_becomes_a_png_with_the_same_pixels():
    raw = base64.b64decode(to_data_url(picture()).split(",")[1])
    assert struct.unpack(">II", raw[16:24]) == (2, 2)
    start = raw.index(b"IDAT")
    size = struct.unpack(">I", raw[start - 4 : start])[0]
    lines = zlib.decompress(raw[start + 4 : start + 4 + size])
    assert lines == b"\0" + bytes(range(6)) + b"\0" + bytes(range(6, 12))


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"width": 3}, "wanted 18 bytes of pixels, got 12"),
        ({"width": 0}, "wanted 1 to"),
        ({"width": 1 << 20, "height": 1 << 20}, "wanted 1 to"),
        ({"pixels": "§"}, "base64"),
    ],
)
def test_a_picture_whose_pixels_do_not_fit_its_size_is_refused(changes, problem):
    with pytest.raises(DataError, match=problem):
        to_data_url(picture(**changes))


def test_the_page_shows_pictures_by_title_and_escapes_captions(example):
    page = render(replace(example, pictures=(picture(caption='<b onload="x">'),)))
    assert page.count("<img ") == 1
    assert "<b onload" not in page
    assert "img-src data:" in page


def test_the_page_shows_a_table_as_it_is(example):
    sheet = Sheet(title="Rows", heads=("what", "#n"), rows=(("a<b", "3"),))
    assert "a&lt;b" in render(replace(example, sheets=(sheet,)))


def test_a_run_without_a_plan_says_so_and_compares_nothing(example):
    unplanned = replace(example, forecast=None)
    checks = {check.title: check for check in list_checks(unplanned)}
    assert checks["What it cost"].mood == "quiet"
    assert "not forecast" in render(unplanned)


def curve(points, **how):
    return Curve(title="t", x_label="x", y_label="y", name="n", points=points, **how)


def test_a_logarithmic_axis_spaces_decades_evenly_and_skips_what_it_cannot_show():
    drawn = draw_lines([curve(((0.0, 1.0), (0.01, 1.0), (1.0, 2.0), (100.0, 3.0)), x_axis="log")])
    path = re.search(r'<path d="([^"]*)"', drawn)[1]
    xs = [float(x) for x in re.findall(r"[ML]([\d.]+) ", path)]
    assert xs == [0.0, 500.0, 1000.0]


def test_dots_are_not_connected():
    drawn = draw_lines([curve(((0.0, 1.0), (1.0, 2.0), (2.0, 0.0)), style="dots")])
    path = re.search(r'<path d="([^"]*)"', drawn)[1]
    assert path.count("M") == 3
    assert "L" not in path
