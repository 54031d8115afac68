"""How a number is written, in sentences and on pages: three digits, or those that its interval supports; percent."""

from math import expm1, floor, inf, isfinite, isnan, log10, nan

_LARGEST, _SMALLEST = 1e6, 1e-4
_ROUNDING = 1e-9
"""An interval that is narrower than this part of its end is of numbers that are equal but for their rounding."""
_LARGEST_EXPONENT = 230.0  # 1e100: a longer exponent says no more


def number(value: float, low: float = nan, high: float = nan, digits: int = 3) -> str:
    """A number with a few significant digits; with an interval, to the decimal that all its numbers have.

    Thousands are separated: 12,300; what has no short decimal form is written 1.2e-05. Undefined is a dash.
    """
    if isnan(value):
        return "–"
    if not isfinite(value):
        return "∞" if value == inf else "-∞"
    decimals = _decimals_within(low, high)
    if decimals is not None:
        return _fixed(value, decimals)
    if value == 0:
        return "0"
    if not _SMALLEST <= abs(value) < _LARGEST:
        return f"{value:.{min(digits, 2) - 1}e}"
    text = _fixed(value, _decimals(value, digits))
    return text.rstrip("0").rstrip(".") if "." in text else text


def ends(low: float, high: float) -> tuple[str, str]:
    """Both ends of an interval. None that is not 0 reads as 0: it says on which side of 0 the interval lies."""
    return _end(low, low, high), _end(high, low, high)


def of_log1p(value: float) -> str:
    """e^value - 1 as a number, also where that is beyond the floating-point range: "e^800"."""
    return f"e^{number(value)}" if value > _LARGEST_EXPONENT else number(expm1(value))


def interval_text(low: float, high: float, low_text: str, high_text: str) -> str:
    """An interval in words, as everybody writes it: "0.1 to 0.3", with an open end "at least 0.1" or "at most 0.3"; ""
    where there is none."""
    if isfinite(low) and isfinite(high):
        return f"{low_text} to {high_text}"
    if isfinite(low) and high == inf:
        return f"at least {low_text}"
    if isfinite(high) and low == -inf:
        return f"at most {high_text}"
    return ""


def bracketed(value: float, low: float, high: float) -> str:
    """A number with its interval, all three to the same decimal: "0.31 [0.17, 0.45]"; alone where it has none."""
    if _decimals_within(low, high) is None:
        return number(value)
    return f"{number(value, low, high)} [{', '.join(ends(low, high))}]"


def percent(share: float) -> str:
    """A share in percent, with at most one decimal; what is above 0 never reads as 0, nor what is below 1 as all."""
    if isnan(share):
        return "–"
    if not isfinite(share):
        return number(share)
    if 0 < share < 5e-4:
        return "<0.1%"
    if 1 - 5e-4 < share < 1:
        return ">99.9%"
    return f"{100 * share:.1f}".removesuffix(".0") + "%"


def level(value: float, *, share: bool) -> str:
    """What a metric is at: in percent where it is a share."""
    return percent(value) if share else number(value)


def rounded_level(value: float, *, share: bool) -> str:
    """The same in a headline: "66%"."""
    if not share:
        return number(value)
    return f"{100 * value:.{0 if value == 0 or value >= 0.01 else 1}f}%"


def level_change(before: float, after: float, *, share: bool) -> str:
    """From one level to another: "80 → 27%" of a share; the decimal that tells them apart, where there is one."""
    if not share:
        return f"{number(before)} → {number(after)}"
    digits = 0 if round(100 * before) != round(100 * after) or before == after else 1
    return f"{100 * before:.{digits}f} → {100 * after:.{digits}f}%"


def half_width(width: float, *, share: bool) -> str:
    """Of an interval of a level: "±4.3 points" of a share."""
    return f"±{number(100 * width, digits=2)} points" if share else f"±{number(width, digits=2)}"


def _decimals(value: float, digits: int) -> int:
    """Places after the decimal point that show so many significant digits; negative before it."""
    return digits - 1 - floor(log10(abs(value)))


def _decimals_within(low: float, high: float) -> int | None:
    """The decimals of a number and its interval: two digits of the half width, three of the larger end at most, but
    enough to tell the ends apart. None without an interval, and where that is too small for decimals."""
    half, largest = (high - low) / 2, max(abs(low), abs(high))
    if not (isfinite(half) and half > _ROUNDING * largest and _SMALLEST <= largest < _LARGEST):
        return None
    decimals = min(_decimals(half, 2), _decimals(largest, 3))
    return decimals if _fixed(low, decimals) != _fixed(high, decimals) else _decimals(half, 1)


def _end(end: float, low: float, high: float) -> str:
    text = number(end, low, high)
    return number(end, digits=1) if end and isfinite(end) and not float(text.replace(",", "")) else text


def _fixed(value: float, decimals: int) -> str:
    """With so many decimals, never -0; rounded before the point where they are negative."""
    rounded = round(value, decimals) + 0.0
    return f"{rounded:,.{max(decimals, 0)}f}"


def capital(text: str) -> str:
    """With a capital, for text that begins with a word of ours: names from logs are left as they are."""
    return text[:1].upper() + text[1:]
