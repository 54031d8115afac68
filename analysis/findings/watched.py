"""Everything that is watched before a fall, as series by step, with the direction in which it can go wrong.

courses = watched(summary, run)
courses["good_lost"].series, courses["good_lost"].label
order = changed(courses, summary.values["version_lag"], until=35)     # by key, the first change first
"""

from collections.abc import Iterable, Mapping
from math import inf, log, nan
from typing import NamedTuple

import pandas as pd

from ratioscope.analysis.findings.change_points import Shift, find_shift, significant
from ratioscope.analysis.findings.facts import STALENESS, UPDATE_METRIC
from ratioscope.analysis.findings.logged import logged
from ratioscope.analysis.findings.numbers import capital, level
from ratioscope.analysis.runs.relations import relations
from ratioscope.analysis.runs.store import Run
from ratioscope.analysis.summary.summary import StepSummary
from ratioscope.catalogue import CATALOGUE
from ratioscope.run_format import schema

WATCHED_METRICS = {
    UPDATE_METRIC: 1, STALENESS: 1, "s_k_engine_bounded": 1, "version_lag": 1, "ratio_min": -1, "ratio_max": 1,
    "kl_k3": 1, "kl_reverse": 1, "kl_to_reference": 1, "kl_to_initial": 1, "chi2_token": 1, "khat_token": 1,
    "ess_token": -1, "clip_fraction": 1, "effective_token_fraction": -1, "zero_advantage_group_fraction": 1,
    "grad_norm": 1, "entropy": 0, "response_length": 0,
}  # fmt: skip
"""Metrics of the summary: +1 where a rise, -1 where a fall, 0 where either can come before a fall of the reward."""


_LABELS = {
    "ratio_min": "smallest ratio", "ratio_max": "largest ratio", "kl_k3": "forward KL (k3)", "kl_reverse": "reverse KL",
    "ess_token": "ESS of tokens", "khat_token": "tail index",
}  # fmt: skip
"""Labels for lists, where the catalogue's has a comma or is no more than a letter."""


class WatchedCourse(NamedTuple):
    """A series that is watched."""

    label: str
    """As inside of a sentence."""
    series: "pd.Series[float]"
    direction: int
    share: bool

    def dated(self, shift: Shift) -> str:
        """What it did, and when."""
        steps = f"step {shift.first}" if shift.first == shift.last else f"steps {shift.first}–{shift.last}"
        verb = "rose" if shift.after > shift.before else "fell"
        before, after = (level(value, share=self.share) for value in (shift.before, shift.after))
        return f"{self.label} {verb} from {before} to {after} in {steps}"


_GOOD_LOST = "avg((log_rho < -1 and advantage > 0)::int) filter (advantage is not null)"
_OF_TOKENS = {
    "lost": ("share of tokens that lost a factor e", 1, "avg((log_rho < -1)::int)"),
    "good_lost": (
        "share of good tokens that lost a factor e",
        1,
        "avg((log_rho < -1 and advantage > 0)::int) filter (advantage is not null)",
    ),
    "largest_advantage": ("largest |A|", 1, "max(abs(advantage))"),
    "mean_advantage": ("mean |A|", 0, "avg(abs(advantage))"),
}
_OF_RESPONSES = {
    "truncated": ("truncated responses", 1, "avg(coalesce(truncated, finish_reason = 'length')::int)"),
    "dropped": ("dropped responses", 1, "avg((dropped is not null)::int)"),
    "temperature": ("sampling temperature", 0, "avg(temperature::double)"),
}
OF_TABLES = ("lost", "good_lost", "truncated", "dropped")
"""Shares that are read from the tables: of few responses, and often 0."""
_FEWEST_OF_THIRD, _TWICE = 3, 2.0
"""Values, and times: less is no course that a few steps show."""
_ALIKE = (
    {"kl_k3", "kl_reverse", "chi2_token", "ess_token", "khat_token", "lost"},
    {"kl_to_reference", "kl_to_initial"},
)
"""What moves together, as it measures the same ratios, or the same distance."""
_LEARNING_RATE = "learning_rate"
REWARD_PART = "reward_"
"""How the parts of a reward are named, in the sequences table and among the courses."""


def _label(key: str) -> str:
    label = _LABELS.get(key, CATALOGUE[key].label)
    return label if label[1:2].isupper() else f"{label[0].lower()}{label[1:]}"


def course_of(summary: StepSummary, key: str, direction: int = 0) -> WatchedCourse:
    """A metric of the summary as such a series."""
    return WatchedCourse(_label(key), summary.values[key], direction, CATALOGUE[key].share)


def watched_metrics(summary: StepSummary) -> dict[str, WatchedCourse]:
    """Those of the summary and of the steps table."""
    found = {
        key: course_of(summary, key, direction)
        for key, direction in WATCHED_METRICS.items()
        if summary.values[key].notna().any()
    }
    if _LEARNING_RATE in summary.steps and summary.steps[_LEARNING_RATE].notna().any():
        found[_LEARNING_RATE] = WatchedCourse("learning rate", summary.steps[_LEARNING_RATE], 0, share=False)
    return found


def watched(summary: StepSummary, run: Run | None = None) -> dict[str, WatchedCourse]:
    """All of them by key; those of tokens and responses are read from the run's tables, once through.

    Raises:
        RatioscopeError: a file that was there at opening cannot be read any more.
    """
    found = watched_metrics(summary)
    if run is None:
        return found
    log = logged(run)
    parts = reward_parts(run)
    with relations(run) as connection:
        rows = []
        if log.has_ratios:
            rows.append((_OF_TOKENS, _select(_OF_TOKENS, "usable")))
        asked = {key: row for key, row in _OF_RESPONSES.items() if key != "truncated" or _says_truncated(run)}
        asked |= {part: (f"{part}", 0, f'avg("{part}")') for part in parts}
        rows.append((asked, _select(asked, "sequence")))
        for declared, query in rows:
            frame = connection.execute(query).df().set_index("step").astype(float)
            for key, (label, direction, _) in declared.items():
                if frame[key].notna().any():
                    found[key] = WatchedCourse(label, frame[key], direction, key in OF_TABLES)
    return found


def reward_parts(run: Run) -> tuple[str, ...]:
    """The columns of the parts of a reward, where there are two at least; by name."""
    columns = logged(run).columns.get(schema.SEQUENCES.name, frozenset())
    parts = tuple(sorted(name for name in columns if name.startswith(REWARD_PART) and '"' not in name))
    return parts if len(parts) > 1 else ()


def finite_parts(names: Iterable[str]) -> str:
    """Parts of the reward as columns of a query, null where they hold no finite number."""
    numbers = {name: f'try_cast("{name}" as double)' for name in names}
    return ", ".join(f'case when isfinite({number}) then {number} end as "{name}"' for name, number in numbers.items())


def changed(courses: Mapping[str, WatchedCourse], lag: "pd.Series[float]", until: int) -> "dict[str, Shift | None]":
    """The sustained changes up to a step, the first one first, then None for those that were judged and have none.

    The version lag is allowed for: what rises and falls with the syncs has not changed.
    """
    shifts = {
        key: shift
        for key, course in courses.items()
        if (shift := find_shift(course.series.loc[:until], course.direction, lag.loc[:until])) is not None
    }
    kept = significant(shifts)
    ordered = sorted(kept.items(), key=lambda found: (found[1].last, found[1].first))
    found: dict[str, Shift | None] = dict(ordered)
    return found | {key: None for key in shifts if key not in kept}


def moved_along(courses: Mapping[str, WatchedCourse], first: int, last: int) -> dict[str, str]:
    """What had twice its value or half of it in the last third of some steps, as clauses; the largest change first.

    No value of one third is among those of the other. A description of few steps, in which `changed` could tell
    nothing from noise; it dates nothing.
    """
    found = {}
    for key, course in courses.items():
        known = course.series.replace([inf, -inf], nan).loc[first:last].dropna()
        third = len(known) // 3
        early, late = known.iloc[:third], known.iloc[len(known) - third :]
        before, after = float(early.median()), float(late.median())
        if third < _FEWEST_OF_THIRD or not min(before, after) > 0:
            continue
        rose = late.min() > early.max()
        apart = rose or late.max() < early.min()
        if apart and course.direction * (after - before) >= 0 and max(after / before, before / after) >= _TWICE:
            said = " to ".join(level(value, share=course.share) for value in (before, after))
            found[key] = abs(log(after / before)), f"{course.label} {'rose' if rose else 'fell'} from {said}"
    largest: dict[str, str] = {}
    for key, (_, clause) in sorted(found.items(), key=lambda each: -each[1][0]):
        if not any(key in alike and alike & largest.keys() for alike in _ALIKE):
            largest[key] = clause
    return largest


def sentence_start(text: str) -> str:
    """A clause as a sentence begins; a column's name keeps its letters."""
    return text if "_" in text.split(" ", 1)[0] else capital(text)


def _select(declared: Mapping[str, tuple[str, int, str]], table: str) -> str:
    columns = ", ".join(f'{sql} as "{key}"' for key, (_, _, sql) in declared.items())
    return f"select step, {columns} from {table} group by step order by step"


def _says_truncated(run: Run) -> bool:
    return logged(run).has("sequences.truncated", "sequences.finish_reason")
