"""Policies: which characters of a text are private, by pattern, by list, or by a tagger.

A policy is a function from a text to spans. What it does not mark is not protected by anything that
rests on it, so its recall belongs beside every claim that does.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from tacit.errors import ConfigError, DataError
from tacit.files import refuse_endless


class MarkedSpan(NamedTuple):
    """Characters `start` to before `end` of a text, and what they are."""

    start: int
    end: int
    kind: str


Policy = Callable[[str], list[MarkedSpan]]
"""Marks a text: spans in order, none overlapping another."""

Tagger = Callable[[str], Iterable[tuple[int, int, str]]]
"""Anything that finds spans in a text, in any order: a network, a service, a rule of one's own."""

# Full-width letters, digits and signs become those of ASCII, one for one: places stay the same.
_NARROW = {wide: wide - 0xFEE0 for wide in range(0xFF01, 0xFF5F)} | {0x3000: 0x20}

# Digits of all scripts, and signs that are numbers: ² ½ Ⅳ ④ ⑫ ㈣ ㊀.
_D = (
    r"[\d\u00b2\u00b3\u00b9\u00bc-\u00be\u2070-\u2089\u2150-\u218b\u2460-\u249b\u24ea-\u24ff"
    r"\u2776-\u2793\u3021-\u3029\u3220-\u3229\u3280-\u3289]"
)
_DIGITS = rf"{_D}+(?:[.,]{_D}+)*"
_ONE = "〇零一二三四五六七八九幺壹贰叁肆伍陆柒捌玖"
_HAN = f"[{_ONE}十百千万亿两俩仨半几廿卅拾佰仟貳參陸萬億兩]"
_NUMERAL = rf"{_HAN}+(?:[点.、到至~-]{_HAN}+)*[多来余]?"
_NUMBER = rf"(?:{_DIGITS}{_HAN}*[多来余]?|{_NUMERAL})"
_UNITS = (
    "周岁|岁|年|月|日|号|天|夜|晚|早|周|星期|礼拜|小时|钟头|点|分钟|分(?=[钟之])|刻|秒|世|代|届|期|级|度|型|"
    "次|回|遍|趟|顿|餐|口|下(?=[儿每])|片|粒|颗|丸|支|枝|瓶|盒|包|袋|滴|杯|碗|勺|匙|贴|帖|副|剂|针|管|针剂|板|"
    "毫克|微克|千克|公斤|克|斤|两|钱|吨|毫升|升|厘米|公分|毫米|米|公里|里|尺|寸|平米|平方|毫米汞柱|单位|摄氏度|"
    "个|倍|成|折|元|块|毛|万|名|位|例|人|胎|胞|只|条|根|种|处|项|层|楼|床|室|栋|门|道|行|步|格|圈|场|台|"
    "付|份|家|套|张|件|幅|宿|箱|头|组|"
    "疗程|学期|季度|kg|mg|ml|cm|mm|℃|%"
)
# 一个 is an article, 一点 a little, 一下 a while; months, hours and courses after them count.
_ARTICLE = (
    r"(?![一几半](?:个(?![多半]?(?:月|小时|钟头|星期|礼拜|周|疗程|学期))"
    r"|[种点位下条层道样边家套张件组]))"
)
_DOSES = (
    "mcg|mg|ug|[μµ]g|kg|g|ml|dl|l|iu|u|mmol|umol|[μµ]mol|mmhg|kpa|bpm|cm|mm|℃|%|"
    "微克|毫克|千克|公斤|克|毫升|升|单位|片|粒|颗|丸|支|瓶|盒|包|袋|滴|杯|碗|勺|匙|贴|剂|针|度"
)

PATTERNS: Mapping[str, str] = {
    "email": r"[A-Za-z0-9][A-Za-z0-9._%+-]*@[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+",
    "id": r"(?<![A-Za-z\d])(?:\d{17}[\dXx]|\d{15}|[A-Za-z]{1,4}[-_]?\d{5,})(?![A-Za-z\d])",
    "phone": (
        r"(?<!\d)(?:(?:\+|00)?86[- ]?)?(?:1[3-9]\d[- ]?\d{4}[- ]?\d{4}|0\d{2,3}[- ]?\d{7,8}"
        r"|[48]00[- ]?\d{3}[- ]?\d{4})(?!\d)"
    ),
    "date": (
        rf"(?:\d{{2,4}}|[{_ONE}]{{2,4}}) ?年(?: ?{_NUMBER} ?月份?(?: ?{_NUMBER} ?[日号])?)?"
        rf"|{_NUMBER} ?月份?(?: ?{_NUMBER} ?[日号])|(?:正|腊|冬)月(?:初?{_NUMBER})?"
        r"|初[一二三四五六七八九十]|\d{4}([-/.])\d{1,2}\1\d{1,2}|\d{1,2}([-/])\d{1,2}\2\d{4}|\d{1,2}:\d{2}(?::\d{2})?"
        r"|(?:星期|礼拜|周)[一二三四五六日天](?!围)"
    ),
    "age": (
        rf"{_NUMBER}(?= ?(?:周岁|岁|个[多半]?月大|years? old|yo\b))"
        rf"|(?<=年龄)[:是为]? ?{_NUMBER}|(?<=aged )\d+"
    ),
    "dose": rf"{_NUMBER}(?= ?(?i:{_DOSES})(?![A-Za-z]))",
    "digits": rf"{_DIGITS}[十百千万亿]*",
    "numerals": (
        rf"百分之{_NUMBER}|[{_ONE}十百千]+(?:点|分之)[{_ONE}十百千]+|[{_ONE}]{{3,}}(?:点[{_ONE}]+)?"
        rf"|{_ARTICLE}{_NUMERAL}(?= ?(?:{_UNITS}))|(?<=第){_NUMERAL}"
        rf"|{_HAN}{{0,3}}[十百千万]{_HAN}+|[{_ONE}两几]+[十百千万亿](?!全|字|指肠)|(?<=[年月岁天周斤倍度次])半"
        rf"|{_NUMERAL}(?=左右|以上|以下|以内|上下)|[{_ONE}十几半]+(?=两)|(?<=[高低大小多少]于){_NUMERAL}"
        rf"|(?<=[米块])[{_ONE}]"
    ),
}
"""What can be marked, by kind; patterns are of text in which full-width signs are narrow."""


def by_pattern(*kinds: str) -> Policy:
    """Mark numbers, dates, addresses and the like; every kind of `PATTERNS` if none is named.

    Of an age, a dose or a counted thing the number is marked and the unit is not; of a date, a
    telephone or identity number and an e-mail address all of it. Names of people, months in other
    languages, words such as "yesterday" and spelled-out numbers of other scripts are not seen.

    Cost: a pass over the text for each kind, several MB per second in all.

    Raises:
        ConfigError: a kind that is not known.
    """
    wanted = kinds or tuple(PATTERNS)
    for kind in wanted:
        if kind not in PATTERNS:
            raise ConfigError(f"a pattern is one of {', '.join(PATTERNS)}, got {kind!r}")
    compiled = [(kind, re.compile(PATTERNS[kind])) for kind in PATTERNS if kind in wanted]

    def policy(text: str) -> list[MarkedSpan]:
        narrow = text.translate(_NARROW)
        return _merged(
            MarkedSpan(*found.span(), kind)
            for kind, pattern in compiled
            for found in pattern.finditer(narrow)
        )

    return policy


def by_terms(terms: Iterable[str], *, kind: str = "term") -> Policy:
    """Mark the terms of a list, the longest first where several begin.

    Raises:
        ConfigError: the list has no term.
    """
    known = {term.strip().translate(_NARROW) for term in terms} - {""}
    if not known:
        raise ConfigError("a policy by terms needs at least one term, got an empty list")
    sizes: dict[str, list[int]] = {}
    for term in known:
        sizes.setdefault(term[:2], []).append(len(term))
        sizes.setdefault(term[:1], [])  # a text may end behind a term of one character
    longest = {begin: sorted(set(found), reverse=True) for begin, found in sizes.items()}

    def policy(text: str) -> list[MarkedSpan]:
        narrow, found, at = text.translate(_NARROW), [], 0
        while at < len(narrow):
            # Terms of one character are filed under it; longer ones under their first two.
            begins = (*longest.get(narrow[at : at + 2], ()), *longest.get(narrow[at], ()))
            size = next((n for n in begins if narrow[at : at + n] in known), 0)
            if size:
                found.append(MarkedSpan(at, at + size, kind))
            at += size or 1
        return found

    return policy


def by_tagger(tagger: Tagger) -> Policy:
    """Mark what a function finds.

    Raises:
        DataError: when it is called, for a span that is not one of the text.
    """

    def policy(text: str) -> list[MarkedSpan]:
        found = [MarkedSpan(*one) for one in tagger(text)]
        for start, end, _ in found:
            if not 0 <= start < end <= len(text):
                raise DataError(
                    f"the tagger marked {start} to {end} of a text of {len(text)} characters"
                )
        return _merged(found)

    return policy


def union(*policies: Policy) -> Policy:
    """Mark what any of the policies marks."""
    if not policies:
        raise ConfigError("a union needs at least one policy, got none")

    def policy(text: str) -> list[MarkedSpan]:
        return _merged(span for one in policies for span in one(text))

    return policy


def read_terms(path: Path) -> tuple[str, ...]:
    """Read a list of terms, one in a line.

    Raises:
        DataError: the file cannot be read, or is not UTF-8.
    """
    refuse_endless(path)
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise DataError(
            f"{path}: wanted a term per line in UTF-8, byte {error.start} is not; convert it, with "
            "iconv -f GB18030 -t UTF-8, say"
        ) from error
    return tuple(line.strip() for line in lines if line.strip())


def redact(text: str, spans: Sequence[MarkedSpan], placeholder: str) -> str:
    """Put one placeholder in the place of every run of marked characters.

    How long a run is no longer shows; that it is there does.
    """
    pieces, at = [], 0
    for start, end in _runs(spans):
        pieces += [text[at:start], placeholder]
        at = end
    return "".join([*pieces, text[at:]])


def mark_tokens(spans: Sequence[MarkedSpan], offsets: Sequence[tuple[int, int]]) -> list[bool]:
    """Carry marks to tokens: one that touches a marked character is marked.

    Args:
        spans: of the text, in order.
        offsets: first character of each token and the one behind its last, in order.
    """
    marks, at = [], 0
    for start, end in offsets:
        while at < len(spans) and spans[at].end <= start:
            at += 1
        marks.append(at < len(spans) and spans[at].start < max(end, start + 1))
    return marks


def _runs(spans: Iterable[MarkedSpan]) -> list[tuple[int, int]]:
    """Join spans that touch."""
    runs: list[tuple[int, int]] = []
    for start, end, _ in spans:
        if runs and start <= runs[-1][1]:
            runs[-1] = runs[-1][0], max(end, runs[-1][1])
        else:
            runs.append((start, end))
    return runs


def _merged(spans: Iterable[MarkedSpan]) -> list[MarkedSpan]:
    """Put spans in order and join those that overlap; the kind is that of the longest part."""
    merged: list[MarkedSpan] = []
    widest = 0
    for span in sorted(spans):
        if merged and span.start < merged[-1].end:
            last = merged.pop()
            kind = last.kind if widest >= span.end - span.start else span.kind
            widest = max(widest, span.end - span.start)
            merged.append(MarkedSpan(last.start, max(last.end, span.end), kind))
        else:
            widest = span.end - span.start
            merged.append(span)
    return merged
