"""Words for conclusions: numbers with few digits, differences as higher or lower, schedules, lists that end."""

from collections.abc import Iterable, Sequence
from math import isfinite

from ratioscope.analysis.compare.margins import RELATIVE_MARGIN, in_points
from ratioscope.analysis.findings.numbers import bracketed, number
from ratioscope.analysis.summary.intervals import NO_INTERVAL, Interval
from ratioscope.catalogue import CATALOGUE

# Of anything more than these, and one, are counted, not named.
MOST_LISTED = 3
# Shares below it have a third digit where they are differences.
_FINE = 0.0095


def quantity(value: float, metric: str, digits: int = 2) -> str:
    """A value as a sentence quotes it: shares as .48, anything else with three digits."""
    if not CATALOGUE[metric].share or not isfinite(value):
        return number(value)
    text = f"{value:.{digits}f}"
    if float(text) == 0:
        return "0"
    return text.replace("0.", ".", 1) if abs(float(text)) < 1 else text


def differing(value: float, metric: str, interval: Interval = NO_INTERVAL) -> str:
    """A difference, after minus before, with its interval: ".31 lower [-.45, -.17]"."""
    if not isfinite(value):
        return "without a finite difference"
    # Two digits, but where they would hide a small difference, or on which side of 0 an end of its interval lies.
    digits = 3 if any(0 < abs(number) < _FINE for number in (value, *interval)) else 2
    size = quantity(abs(value), metric, digits)
    text = "no different" if size == "0" else f"{size} {'higher' if value > 0 else 'lower'}"
    if not isfinite(interval.low):
        return text
    low, high = (quantity(end, metric, digits) for end in interval)
    return f"{text} [{low}, {high}]"


def measured(value: float, metric: str, interval: Interval = NO_INTERVAL) -> str:
    """A value beside a difference that has this interval: to the same decimal, so that the three add up."""
    if CATALOGUE[metric].share and isfinite(value):
        return quantity(value, metric, digits=3)
    return number(value, *interval)


def by_how_much(value: float, metric: str, interval: Interval = NO_INTERVAL) -> str:
    """The size of a difference with its interval, both from its own side: ".245 [.188, .300]"."""
    size, ends = abs(value), sorted(interval if value >= 0 else (-interval.high, -interval.low))
    if not isfinite(interval.low):
        return measured(size, metric)
    if not CATALOGUE[metric].share:
        return bracketed(size, *ends)
    return f"{measured(size, metric)} [{', '.join(measured(end, metric) for end in ends)}]"


def margin_words(metric: str, allowed: float) -> str:
    """Within what differences are alike."""
    return f"±{quantity(allowed, metric)}" + f" ({100 * RELATIVE_MARGIN:.0f}%)" * (not in_points(metric))


def under(schedule: str) -> str:
    """A schedule's words as a place: "offline", "under sync_interval = 20"."""
    if schedule in ("offline", "on-policy"):
        return schedule
    return "where the schedule is not stated" if schedule == "schedule not stated" else f"under {schedule}"


def listed(items: Sequence[str], separator: str = ", ") -> str:
    """ "a, b and c"; with semicolons nothing comes before the last."""
    if len(items) < 2 or separator != ", ":
        return separator.join(items)
    return f"{', '.join(items[:-1])} and {items[-1]}"


def some(items: Iterable[str], separator: str = ", ") -> str:
    """The first ones, and how many more there are; a single one more takes no more room than its number."""
    items = list(items)
    more = len(items) - MOST_LISTED
    return listed([*items[:MOST_LISTED], f"{more} more"] if more > 1 else items, separator)


def lowered(title: str) -> str:
    """A metric's title inside a sentence: abbreviations keep their capitals."""
    return title if title[:2].isupper() else title[:1].lower() + title[1:]


def capital(text: str) -> str:
    """With a capital, for text that begins with a word of ours: names from logs are left as they are."""
    return text[:1].upper() + text[1:]
