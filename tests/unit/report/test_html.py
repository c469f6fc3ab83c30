import base64
import hashlib
import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from tacit.errors import InputError
from tacit.report import render, write
from tacit.result import Claim, Cost, Forecast, Metric, Result

VOID = {"br", "hr", "meta"}


class Page(HTMLParser):
    """Check that every element is closed in order, and keep what the page is made of."""

    def __init__(self, html):
        super().__init__(convert_charrefs=True)
        self.open, self.tags, self.attributes, self.text = [], [], [], []
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "style" not in self.open:
            self.text.append(data)

    @property
    def words(self):
        return " ".join("".join(f"{t} " for t in self.text).replace("\u00a0", " ").split())


def _empty():
    nothing = Cost(traffic=(), offline_rounds=0, online_rounds=0)
    return Result(
        kind="",
        name="",
        protocol="",
        launched="",
        created="",
        version="",
        parties=(),
        forecast=Forecast(cost=nothing, timings=(), plan_hash=""),
        metered=nothing,
        leakage=(),
        claims=(),
        utility=(),
    )


def test_every_section_is_there_in_order(example):
    page = Page(render(example))
    titles = (
        "ε = 2 at δ = 10⁻⁵ for add or remove one record; nothing but declared results",
        "Privacy spent, at most",
        "Who sent what to whom",
        "What each party learned",
        "What was promised",
        "How good the result is",
        "Curves",
        "What it cost: forecast and metered",
        "What it would take on other networks",
        "Where the time went",
        "Notes",
        "This file is complete in itself",
    )
    places = [page.words.find(title) for title in titles]
    assert -1 not in places
    assert places == sorted(places)


@pytest.mark.parametrize(
    "figure",
    ["97.08 %", "97.66 %", "−0.58 points", "93.34 to 98.74 %", "68.2 kB", "96\u202f264 B",
     "1.48 s", "10\u202f000 Mbit/s", "546 ms", "receive randomness", "b94d27b9934d3e08a52e52d7da7d",
     "ε = 2, δ = 10⁻⁵; relation: add or remove one record; accountant: privacy loss distribution",
     "Learned nothing but sizes.", "against the same model in float64", "held out", "tacit 0.1.0"],
)  # fmt: skip
def test_the_figures_are_there(example, figure):
    html = render(example).replace("\u00a0", " ")
    assert figure in html


def test_the_page_is_self_contained(example):
    html = render(example)
    page = Page(html)
    without_hash = re.sub(r"sha256-[A-Za-z0-9+/]+=*", "", html)  # in which // means nothing
    assert not re.search(r"https?:|url\(|@import|//[a-z]", without_hash)
    assert not {"script", "link", "img", "iframe", "object"} & set(page.tags)
    assert not {"src", "href", "style"} & {name for name, _ in page.attributes}
    assert not any(name.startswith("on") for name, _ in page.attributes)


def test_the_page_forbids_itself_everything_but_its_style_sheet(example):
    html = render(example)
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', html).group(1)
    css = re.search(r"<style>(.*?)</style>", html, re.DOTALL).group(1)
    digest = base64.b64encode(hashlib.sha256(css.encode()).digest()).decode()
    assert policy.startswith("default-src &#x27;none&#x27;")
    assert f"sha256-{digest}" in policy


HOSTILE = '<script>alert(\'x\')</script>" onload="x" & </svg></style>\x1b[31m\u202e'


def _poison(value):
    if isinstance(value, str) and value not in {
        "setup", "offline", "online", "output", "protocol", "size"
    }:  # fmt: skip
        return HOSTILE
    if isinstance(value, tuple):
        return tuple(_poison(item) for item in value)
    if hasattr(value, "__dataclass_fields__"):
        return type(value)(**{k: _poison(getattr(value, k)) for k in value.__dataclass_fields__})
    return value


def test_hostile_text_in_any_field_stays_text(example):
    html = render(_poison(example))
    page = Page(html)
    assert "script" not in page.tags
    assert not any(name.startswith("on") for name, _ in page.attributes)
    assert "<script>alert('x')</script>" in page.words
    assert "\x1b" not in html
    assert "\u202e" not in html


def test_an_empty_result_has_a_page_that_says_so():
    words = Page(render(_empty())).words
    assert "No party reported." in words
    assert "not measured" in words
    assert "Nothing is promised" in words


@pytest.mark.parametrize("field", ["parties", "leakage", "claims", "utility", "curves", "notes"])
def test_any_list_may_be_empty(example, field):
    Page(render(replace(example, **{field: ()})))


def test_unmeasured_values_are_called_so(example):
    blank = replace(example, utility=(Metric(name="loss", value=None, unit=""),))
    assert 'class="figure unknown">not measured<' in render(blank)


def test_a_cost_that_differs_is_marked(example):
    assert "✗ differs" not in render(example)
    wrong = replace(example, metered=replace(example.metered, online_rounds=10))
    html = render(wrong)
    assert "✗ differs" in html
    assert "Metered traffic differs from the forecast" in html


def test_a_claim_without_guarantee_is_in_warning_colours(example):
    bare = Claim(subject="the model", guarantee="No guarantee.", assumptions=())
    html = render(replace(example, claims=(bare,)))
    assert '<article class="card claim warn"><h3>the model</h3>' in html


def test_kinds_of_leak_look_different(example):
    seen = replace(example.leakage[0], kind="protocol")
    html = render(replace(example, leakage=(*example.leakage, seen)))
    assert all(f'<li class="leak {kind}">' in html for kind in ("output", "protocol", "size"))


def test_every_picture_has_a_title_and_every_table_its_heads(example):
    html = render(example)
    titled = re.findall(r'<svg role="img"[^>]*><title>[^<]', html)
    described = re.findall(r"<title>[^<]*</title><desc>[^<]", html)
    assert len(titled) == html.count('role="img"') > 10
    assert len(described) == 3
    assert html.count("<table") == html.count('<thead><tr><th scope="col"')


def test_writing_makes_one_file(example, tmp_path):
    write(example, tmp_path / "report.html")
    assert (tmp_path / "report.html").read_text(encoding="utf-8") == render(example)
    assert len(list(tmp_path.iterdir())) == 1
    with pytest.raises(InputError, match="cannot write"):
        write(example, tmp_path / "none" / "report.html")


@pytest.mark.parametrize(
    ("guarantee", "lead"),
    [("no guarantee", "Because:"), ("hidden from the lab", "This rests on:")],
)
def test_reasons_for_no_guarantee_are_not_called_its_ground(example, guarantee, lead):
    claim = Claim(subject="the model", guarantee=guarantee, assumptions=("of this",))
    words = Page(render(replace(example, claims=(claim,)))).words
    found = [each for each in ("Because:", "This rests on:") if f"{each} of this" in words]
    assert found == [lead]
