"""Policies: what they mark, what they miss, and how marks reach tokens."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.dp.policy import (
    MarkedSpan,
    by_pattern,
    by_tagger,
    by_terms,
    mark_tokens,
    read_terms,
    redact,
    union,
)
from tacit.errors import ConfigError, DataError

ALL = by_pattern()


def marked(text, policy=ALL):
    return [text[span.start : span.end] for span in policy(text)]


@pytest.mark.parametrize(
    ("text", "private"),
    [
        ("我今年35岁，每次吃0.5mg", ["35", "0.5"]),
        ("我今年３５岁", ["３５"]),
        ("三十五岁，吃了半年，每天两片", ["三十五", "半", "两"]),
        ("2019年3月5日手术", ["2019年3月5日"]),
        ("二〇一九年三月五日", ["二〇一九年三月五日"]),
        ("电话138-0013-8000或ｌｉ＠ｍａｉｌ．ｃｎ", ["138-0013-8000", "ｌｉ＠ｍａｉｌ．ｃｎ"]),
        ("身份证11010519491231002X", ["11010519491231002X"]),
        ("我的单号是五四一六八四", ["五四一六八四"]),
        (
            "百分之三十，四分之一，一米六，病了十几年",
            ["百分之三十", "四分之一", "一", "六", "十几"],
        ),
        ("Ⅳ期，血压²⁰", ["Ⅳ", "²⁰"]),
        ("५७ और ٤٥", ["५७", "٤٥"]),
    ],
)
def test_numbers_of_both_scripts_are_marked(text, private):
    assert marked(text) == private


@pytest.mark.parametrize(
    "text", ["一般一定有一些，一下子就好一点", "一个人", "三七和十分重要", "", "nothing here"]
)
def test_words_that_only_look_like_numbers_are_not(text):
    assert marked(text) == []


@given(st.text(max_size=80))
@settings(max_examples=200)
def test_every_digit_of_any_script_is_marked_and_spans_are_in_order(text):
    spans = ALL(text)
    covered = {at for span in spans for at in range(span.start, span.end)}
    assert all(at in covered for at, sign in enumerate(text) if sign.isdecimal())
    assert all(a.end <= b.start for a, b in pairwise(spans))
    assert not any(sign.isdecimal() for sign in redact(text, spans, "□"))


def test_a_kind_that_is_not_named_is_not_marked():
    assert marked("三十五岁，35岁", by_pattern("digits")) == ["35"]
    with pytest.raises(ConfigError, match="got 'names'"):
        by_pattern("names")


def test_terms_take_the_longest_and_a_union_takes_all():
    terms = by_terms(["阿莫西林", "阿莫西林胶囊", "痛", "ＡＢＣ"])
    assert marked("吃阿莫西林胶囊，痛，abc ABC", terms) == ["阿莫西林胶囊", "痛", "ABC"]
    assert marked("阿莫西林3片", union(terms, ALL)) == ["阿莫西林", "3"]
    with pytest.raises(ConfigError, match="empty list"):
        by_terms([" ", ""])


def test_a_tagger_that_marks_what_is_not_there_is_refused():
    assert marked("张三来了", by_tagger(lambda text: [(0, 2, "name"), (1, 3, "name")])) == [
        "张三来"
    ]
    with pytest.raises(DataError, match="marked 0 to 99 of a text of 4"):
        by_tagger(lambda text: [(0, 99, "name")])("张三来了")


def test_a_term_list_that_is_not_utf_8_is_refused_in_words(tmp_path):
    path = tmp_path / "terms.txt"
    path.write_bytes("高血压\n".encode("gb18030"))
    with pytest.raises(DataError, match="in UTF-8, byte 0 is not; convert it"):
        read_terms(path)
    path.write_text("\ufeff高血压\n\n 感冒 \n", encoding="utf-8")
    assert read_terms(path) == ("高血压", "感冒")
    with pytest.raises(DataError, match="cannot be read"):
        read_terms(tmp_path / "none.txt")


def test_a_run_becomes_one_placeholder_whatever_its_length():
    spans = [MarkedSpan(1, 3, "a"), MarkedSpan(3, 4, "b"), MarkedSpan(6, 7, "c")]
    assert redact("x123yz5w", spans, "□") == "x□yz□w"
    assert redact("我35岁", ALL("我35岁"), "□") == redact("我135岁", ALL("我135岁"), "□")


def test_a_token_that_touches_a_marked_character_is_marked():
    offsets = [(0, 1), (1, 3), (3, 3), (3, 6), (6, 7)]
    assert mark_tokens([MarkedSpan(2, 4, "x")], offsets) == [False, True, True, True, False]
    assert mark_tokens([], offsets) == [False] * 5
