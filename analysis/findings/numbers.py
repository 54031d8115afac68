"""How a sentence writes a number: three significant digits, no more than its interval supports, shares in percent."""

from math import floor, inf, isfinite, isnan, log10, nan

_LARGEST, _SMALLEST = 1e6, 1e-4


def number(value: float, low: float = nan, high: float = nan, digits: int = 3) -> str:
    """A number with a few significant digits; with an interval, at most two digits of half its width.

    Thousands are separated: 12,300; what has no short decimal form is written 1.2e-05. Undefined is a dash.
    """
    if isnan(value):
        return "–"
    if not isfinite(value):
        return "∞" if value == inf else "-∞"
    if value == 0:
        return "0"
    half = (high - low) / 2
    if isfinite(half) and half > 0:
        return _fixed(value, min(_decimals(value, digits), _decimals(half, 2)))
    if not _SMALLEST <= abs(value) < _LARGEST:
        return f"{value:.{min(digits, 2) - 1}e}"
    text = _fixed(value, _decimals(value, digits))
    return text.rstrip("0").rstrip(".") if "." in text else text


def bracketed(value: float, low: float, high: float) -> str:
    """A number with its interval, all three to the same decimal: "0.31 [0.17, 0.45]"; alone where it has none.

    No end that is not 0 reads as 0: it says on which side of 0 the interval lies.
    """
    half = (high - low) / 2
    if not (isfinite(half) and half > 0):
        return number(value)
    decimals = _decimals(half, 2)
    texts = [_fixed(end, decimals) for end in (low, high)]
    low_text, high_text = (
        number(end, digits=1) if end and not float(text.replace(",", "")) else text
        for end, text in zip((low, high), texts, strict=True)
    )
    return f"{_fixed(value, decimals)} [{low_text}, {high_text}]"


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


def _decimals(value: float, digits: int) -> int:
    """Places after the decimal point that show so many significant digits; negative before it."""
    return digits - 1 - floor(log10(abs(value)))


def _fixed(value: float, decimals: int) -> str:
    """With so many decimals, never -0; rounded before the point where they are negative."""
    rounded = round(value, decimals) + 0.0
    return f"{rounded:,.{max(decimals, 0)}f}"
