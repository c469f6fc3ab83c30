"""Invented sentences with private parts whose places are known: what a policy is tried on.

Truth is by construction: a sentence is a frame with one blank, and the blank is filled by a
generator. No text of a person is used. That real texts have forms which nobody thought of here, no
such sample can show.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

from tacit.data.metrics import proportion
from tacit.dp.policy import MarkedSpan, Policy
from tacit.errors import ConfigError
from tacit.result import Metric, Sheet
from tacit.ring import Prg

HAN = "零一二三四五六七八九"
_WIDE = str.maketrans("0123456789.-/:", "０１２３４５６７８９．－／：")
_FEW = 100  # sentences of a form, for a report

Draw = Callable[[Prg], str]


def _below(prg: Prg, bound: int) -> int:
    return int(prg.below(bound, 1))


def _between(prg: Prg, low: int, high: int) -> int:
    return low + _below(prg, high - low + 1)


def in_han(number: int) -> str:
    """Write a number below 10,000 as it is read."""
    said, gap = "", False
    for place, unit in ((1000, "千"), (100, "百"), (10, "十"), (1, "")):
        digit = number // place % 10
        if digit:
            said += ("零" if gap and said else "") + HAN[digit] + unit
        gap = not digit
    said = said or HAN[0]
    return said[1:] if said.startswith("一十") else said


def _digits(prg: Prg, count: int) -> str:
    return "".join(str(_below(prg, 10)) for _ in range(count))


def _amount(prg: Prg) -> str:
    whole = _between(prg, 1, 500)
    return f"{whole}.{_between(prg, 1, 9)}" if _below(prg, 3) == 0 else str(whole)


def _date(prg: Prg) -> str:
    y, m, d = _between(prg, 1950, 2025), _between(prg, 1, 12), _between(prg, 1, 28)
    forms = (f"{y}年{m}月{d}日", f"{y}-{m}-{d}", f"{y}/{m:02}/{d:02}", f"{m}月{d}号", f"{y}年{m}月")
    return forms[_below(prg, len(forms))]


def _han_date(prg: Prg) -> str:
    year = "".join(HAN[int(digit)] for digit in str(_between(prg, 1950, 2025)))
    month, day = in_han(_between(prg, 1, 12)), in_han(_between(prg, 1, 28))
    forms = (f"{year}年{month}月{day}日", f"{month}月{day}号", f"{year}年{month}月")
    return forms[_below(prg, len(forms))]


_NUMBER_FRAMES = (
    "我的单号是{}。",
    "住院号{}，请查一下。",
    "血压是{}，正常吗？",
    "化验结果为{}",
    "编号：{}",
)
_AGE_FRAMES = ("我今年{}岁了。", "患者，女，{}岁，头痛。", "孩子{}岁半", "我爸{}周岁", "年龄{}，男")
_DOSE_FRAMES = (
    "每次吃{}mg。",
    "每天{}片，饭后。",
    "打了{}单位的胰岛素",
    "喝{}毫升",
    "降到{}克",
    "每日{}粒",
)
_DATE_FRAMES = ("我{}做的手术。", "从{}开始吃药", "{}复查。", "上次是{}，医生。")
_COUNT_FRAMES = ("吃了{}天药", "住了{}个月", "做了{}次检查", "病了{}年了", "一天{}顿", "打了{}针")
_OPEN_FRAMES = ("电话{}。", "请打{}找我", "我的号码是{}，谢谢")
_MAIL_FRAMES = ("发到{}。", "邮箱：{}", "请写信给{}，谢谢")
_NAME_FRAMES = ("我叫{}。", "病人{}昨天来过", "{}医生您好")


_HAN_COUNTS = ("两", "半", "三", "四", "五", "十", "十二", "二十", "三四", "十几", "一百")


def _phone(prg: Prg) -> str:
    forms = (f"1{_between(prg, 3, 9)}{_digits(prg, 9)}", f"010-{_digits(prg, 8)}")
    return forms[_below(prg, len(forms))]


FORMS: Mapping[str, tuple[Sequence[str], Draw]] = {
    "digits": (_NUMBER_FRAMES, lambda prg: _digits(prg, 6)),
    "full-width digits": (_NUMBER_FRAMES, lambda prg: _digits(prg, 6).translate(_WIDE)),
    "Chinese digits": (
        _NUMBER_FRAMES,
        lambda prg: "".join(HAN[int(one)] for one in _digits(prg, 6)),
    ),
    "ages": (_AGE_FRAMES, lambda prg: str(_between(prg, 1, 99))),
    "ages in Chinese": (_AGE_FRAMES, lambda prg: in_han(_between(prg, 1, 99))),
    "doses": (_DOSE_FRAMES, _amount),
    "doses in Chinese": (_DOSE_FRAMES, lambda prg: in_han(_between(prg, 1, 500))),
    "dates": (_DATE_FRAMES, _date),
    "dates in Chinese": (_DATE_FRAMES, _han_date),
    "counts in Chinese": (
        _COUNT_FRAMES,
        lambda prg: _HAN_COUNTS[_below(prg, len(_HAN_COUNTS))],
    ),
    "telephone numbers": (_OPEN_FRAMES, _phone),
    "identity numbers": (_OPEN_FRAMES, lambda prg: _digits(prg, 17) + "X"),
    "e-mail addresses": (
        _MAIL_FRAMES,
        lambda prg: f"li.{_digits(prg, 3)}@mail{_below(prg, 9)}.example.cn",
    ),
    "names of people": (
        _NAME_FRAMES,
        lambda prg: "王李张刘陈"[_below(prg, 5)] + "秀英伟芳娜敏静强磊洋"[_below(prg, 10)],
    ),
}
"""Frames and fillings by form."""


def draw_labelled(form: str, count: int, *, prg: Prg) -> list[tuple[str, MarkedSpan]]:
    """Invent sentences of a form, each with the span that is private.

    Raises:
        ConfigError: a form that is not known.
    """
    if form not in FORMS:
        raise ConfigError(f"a form is one of {', '.join(FORMS)}, got {form!r}")
    frames, draw = FORMS[form]
    out = []
    for _ in range(count):
        frame, filling = frames[_below(prg, len(frames))], draw(prg)
        start = frame.index("{}")
        out.append((frame.format(filling), MarkedSpan(start, start + len(filling), form)))
    return out


def measure_recall(
    policy: Policy, labelled: Iterable[tuple[str, MarkedSpan]], *, name: str = "recall"
) -> Metric:
    """Return the share of private spans that a policy marks to their last character.

    The interval is Clopper and Pearson's, of texts that are drawn as the sample was.
    """
    hits = []
    for text, wanted in labelled:
        marked = {at for span in policy(text) for at in range(span.start, span.end)}
        hits.append(marked.issuperset(range(wanted.start, wanted.end)))
    return proportion(name, sum(hits), len(hits))


def coverage_sheet(policy: Policy) -> Sheet:
    """Say of every form whether a policy sees it, by sentences that are invented here."""
    prg, rows = Prg(b"tacit.text.forms"), []
    for form in FORMS:
        found = measure_recall(policy, draw_labelled(form, _FEW, prg=prg))
        value, low = found.value or 0.0, found.low or 0.0
        said = "not covered" if value < 0.5 else "covered" if value > 0.99 else "in part"
        rows.append((form, said, f"{value:.3f}", f"{low:.3f}"))
    return Sheet(
        title="What the policy sees",
        heads=("form", "", "# recall", "# at least, 95 %"),
        rows=tuple(rows),
        caption=f"{_FEW} invented sentences of each form. What is not covered is not protected.",
    )
