"""Numbers and names in words for people: bytes, seconds, counts, percentages, "not measured"."""

import math
import unicodedata
from collections.abc import Sequence
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal

NOT_MEASURED = "not measured"

_THIN = "\u202f"  # narrow no-break space: groups digits without being read as a decimal mark
HARD_SPACE = "\u00a0"  # no-break space: keeps a number and its unit on one line
_MINUS = "\u2212"
_RAISED = str.maketrans("0123456789\u2212", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻")
_FRACTIONS = frozenset({"fraction", "share", "probability"})
_BIDI = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


def clean(text: str) -> str:
    """Replace what could forge a view: control characters, lone surrogates, text-direction marks.

    Names and hosts come from peers. A terminal would obey an escape sequence, and a direction
    mark can show "lab" where the ledger says "bal".
    """
    return "".join("\ufffd" if _is_unsafe(char) else char for char in text)


def enumerate_names(names: Sequence[str]) -> str:
    """Write a list as "a, b and c"."""
    shown = [clean(name) for name in names]
    if len(shown) < 2:
        return "".join(shown) or "nobody"
    return f"{', '.join(shown[:-1])} and {shown[-1]}"


def show_count(count: int | None) -> str:
    """Write a whole number with thin separators."""
    if count is None:
        return NOT_MEASURED
    return f"{count:,}".replace(",", _THIN).replace("-", _MINUS)


def show_bytes(size: int | None) -> str:
    """Write a size to three figures: 871 B, 45.6 kB, 1.2 MB."""
    if size is None:
        return NOT_MEASURED
    value, unit = float(abs(size)), "B"
    for bigger in ("kB", "MB", "GB", "TB", "PB", "EB"):
        if value < 999.5:
            break
        value, unit = value / 1000, bigger
    return _signed(f"{_three_figures(value)}{HARD_SPACE}{unit}", is_negative=size < 0)


def show_exact_bytes(size: int | None) -> str:
    """Write a size to the byte, for comparisons."""
    return NOT_MEASURED if size is None else f"{show_count(size)}{HARD_SPACE}B"


def show_seconds(seconds: float | None) -> str:
    """Write a duration in the unit that suits it."""
    if seconds is None:
        return NOT_MEASURED
    if not math.isfinite(seconds):
        return show_number(seconds)
    return _signed(_duration(abs(seconds)), is_negative=seconds < 0)


def show_percent(fraction: float | None) -> str:
    """Write a fraction of one as a percentage."""
    if fraction is None:
        return NOT_MEASURED
    return (
        f"{show_number(fraction * 100)}{HARD_SPACE}%" if math.isfinite(fraction) else "not a number"
    )


def show_number(value: float | None) -> str:
    """Write a number to four figures."""
    if value is None:
        return NOT_MEASURED
    if not math.isfinite(value):
        return "not a number" if math.isnan(value) else _signed("∞", is_negative=value < 0)
    if float(value).is_integer() and abs(value) < 1e15:
        return show_count(int(value))
    mantissa, _, exponent = f"{value:.4g}".partition("e")
    mantissa = mantissa.replace("-", _MINUS)
    if not exponent:
        return mantissa
    power = f"10{str(int(exponent)).replace('-', _MINUS).translate(_RAISED)}"
    return power if mantissa == "1" else f"{mantissa}{HARD_SPACE}×{HARD_SPACE}{power}"


def show_bound(value: float | None, *, upper: bool = True) -> str:
    """Write a bound to four figures, rounded to the side on which it still holds."""
    if value is None or not math.isfinite(value) or value == 0:
        return show_number(value)
    exact = Decimal(repr(float(value)))
    unit = Decimal(1).scaleb(exact.adjusted() - 3)
    rounding = ROUND_CEILING if upper else ROUND_FLOOR
    return show_number(float(exact.quantize(unit, rounding=rounding)))


def show_quantity(value: float | None, unit: str) -> str:
    """Write a measured value with its unit; fractions become percentages."""
    if value is None:
        return NOT_MEASURED
    if not math.isfinite(value):
        return show_number(value)
    if unit in _FRACTIONS:
        return show_percent(value)
    if unit in {"B", "bytes"}:
        return show_bytes(round(value))
    if unit in {"s", "seconds"}:
        return show_seconds(value)
    return f"{show_number(value)}{HARD_SPACE}{clean(unit)}" if unit else show_number(value)


def is_fraction(unit: str) -> bool:
    """Say whether values of a unit are shares of one, shown in percent."""
    return unit in _FRACTIONS


def show_difference(value: float | None, reference: float | None, unit: str) -> str:
    """Write how far a value lies from its reference, with a sign."""
    if value is None or reference is None:
        return NOT_MEASURED
    gap = value - reference
    if gap == 0:
        return "none"
    sign = "+" if gap > 0 else _MINUS
    if unit in _FRACTIONS and math.isfinite(gap):
        return f"{sign}{show_number(abs(gap) * 100)}{HARD_SPACE}points"
    return f"{sign}{show_quantity(abs(gap), unit)}"


def show_interval(low: float | None, high: float | None, unit: str) -> str:
    """Write a 95 % interval."""
    if low is None or high is None:
        return NOT_MEASURED
    if unit in _FRACTIONS and math.isfinite(low):
        return f"{show_number(low * 100)} to {show_quantity(high, unit)}"
    return f"{show_quantity(low, unit)} to {show_quantity(high, unit)}"


def show_samples(samples: int | None) -> str:
    """Write a sample size."""
    return "n not stated" if samples is None else f"n = {show_count(samples)}"


def shorten(text: str, width: int) -> str:
    """Cut a text to a number of characters, with an ellipsis where something is missing."""
    text = clean(text)
    return text if len(text) <= width else f"{text[: width - 1].rstrip()}…"


def _is_unsafe(char: str) -> bool:
    return char in _BIDI or unicodedata.category(char) in {"Cc", "Cs"}


def _signed(text: str, *, is_negative: bool) -> str:
    return f"{_MINUS}{text}" if is_negative else text


def _three_figures(value: float) -> str:
    decimals = 2 if value < 9.995 else 1 if value < 99.95 else 0
    text = f"{value:.{decimals}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _duration(seconds: float) -> str:
    if seconds == 0:
        return f"0{HARD_SPACE}s"
    if seconds < 0.9995e-3:
        return f"{_three_figures(seconds * 1e6)}{HARD_SPACE}µs"
    if seconds < 0.9995:
        return f"{_three_figures(seconds * 1e3)}{HARD_SPACE}ms"
    if seconds < 59.95:
        return f"{_three_figures(seconds)}{HARD_SPACE}s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes}{HARD_SPACE}min {rest:02d}{HARD_SPACE}s"
    hours, minutes = divmod(minutes, 60)
    return f"{show_count(hours)}{HARD_SPACE}h {minutes:02d}{HARD_SPACE}min"
