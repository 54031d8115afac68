"""Words for comparisons: numbers with few digits, differences as higher or lower, schedules, lists that end."""

from math import isfinite

from ratioscope.analysis.compare.grouping import SCHEDULE_UNKNOWN
from ratioscope.analysis.compare.margins import RELATIVE_MARGIN, SHARE_MARGIN, in_points
from ratioscope.analysis.findings.numbers import bracketed, number, percent
from ratioscope.analysis.summary.intervals import NO_INTERVAL, Interval
from ratioscope.catalogue import CATALOGUE

MORE_SEEDS = "run at least 3"
"""What to do about too few seeds, where there are no others to take in."""


def points(share: float) -> str:
    """A difference of shares in percentage points, without its unit: "25.2"; two decimals where one would say 0."""
    text = f"{100 * share:.{1 if abs(share) >= 5e-4 else 2}f}"
    return "0" if float(text) == 0 else text


def measured(value: float, metric: str, interval: Interval = NO_INTERVAL) -> str:
    """A value as a sentence quotes it: shares in percent; beside a difference with this interval to its decimal."""
    return percent(value) if CATALOGUE[metric].share else number(value, *interval)


def by_how_much(value: float, metric: str, interval: Interval = NO_INTERVAL) -> str:
    """The size of a difference with its interval, both from its own side: "24.5 points [18.8, 30.0]"."""
    size, ends = abs(value), sorted(interval if value >= 0 else (-interval.high, -interval.low))
    if not CATALOGUE[metric].share:
        return bracketed(size, *ends) if isfinite(interval.low) else number(size)
    if not isfinite(size):
        return number(size)
    bracket = f" [{', '.join(map(points, ends))}]" if isfinite(interval.low) else ""
    return f"{points(size)} points{bracket}"


def margin_words(metric: str) -> str:
    """Within what differences are alike."""
    return f"{100 * SHARE_MARGIN:g} points" if in_points(metric) else f"{100 * RELATIVE_MARGIN:.0f}%"


def under(schedule: str) -> str:
    """A schedule's words as a place: "offline", "under sync_interval = 20"."""
    if schedule in ("offline", "on-policy"):
        return schedule
    return "where the schedule is not stated" if schedule == SCHEDULE_UNKNOWN else f"under {schedule}"


def lowered(title: str) -> str:
    """A metric's title inside a sentence: abbreviations keep their capitals."""
    return title if title[:2].isupper() else title[:1].lower() + title[1:]
