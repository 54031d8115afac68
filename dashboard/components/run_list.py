"""The table of the list of runs: a line a run, what its columns mean, and what a search looks at."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache, cached_property
from itertools import takewhile
from typing import Any

import pandas as pd
import streamlit as st

from ratioscope.analysis.compare.changed_component import number_in
from ratioscope.analysis.compare.configuration import configuration_of, differing_keys
from ratioscope.analysis.diagnosis import Severity
from ratioscope.analysis.diagnosis.rule import rule_words
from ratioscope.analysis.findings.numbers import rounded_level
from ratioscope.analysis.overview.lights import LEARNING, NAMES, LightState
from ratioscope.analysis.runs.store import Listed
from ratioscope.catalogue import CATALOGUE
from ratioscope.dashboard.annotations import Annotation
from ratioscope.dashboard.components.frame import status_words
from ratioscope.dashboard.formats import escape, metric_label, metric_value
from ratioscope.dashboard.theme import DARK, LIGHT, Mode
from ratioscope.dashboard.watching.headlines import Headline
from ratioscope.inert import one_line

ROW_HEIGHT, MOST_HEIGHT, _GROUPS_SHOWN = 36, 542, 8

NOT_READ, NO_FINDING, NO_STEP_YET, CANNOT_BE_READ = "not read yet", "none", "no step yet", "cannot be read"

_FIRST = ("Run", "Open")
_USUAL = ("Severity", *_FIRST, *NAMES, "Finding", "Reward", "Last reward", "Started", "Status", "Tags", "Notes", "From")
"""Those that hold something and tell runs apart; the first nine fit beside the menu on a screen of 1440 pixels."""
_OTHERS = ("Steps", "Algorithm", "Task", "Tokens")

_LIGHTS = {
    "Learning": "Evaluation accuracy, or else training reward: rising, flat, dropping now, fallen, unknown; and the "
    "final mean, of the last tenth of the values, at least five.",
    "Off-policy": "How far the policy is from its data: small, high, harmful, unknown.",
    "Log": "Whether its log can be trusted: trusted, with care, broken in part, unknown.",
}
_LOST = (LightState.FALLEN, LightState.DROPPING, LightState.SET_BACK)
_MARKS = {Severity.CRITICAL: "▲", Severity.WARNING: "◆", Severity.NOTICE: "●"}


@dataclass(frozen=True)
class RunLine:
    """A run as the list shows it; log text is valid Unicode, and still hostile."""

    run: Listed
    status: str
    headline: Headline | None
    annotation: Annotation

    @property
    def algorithm(self) -> str:
        return _name(self.run.manifest.algorithm) if self.run.manifest else ""

    @property
    def source(self) -> str:
        """The framework that an imported run comes from."""
        return one_line(self.run.manifest.source.get("framework") or "") if self.run.manifest else ""

    @property
    def task(self) -> str:
        return _name(self.run.manifest.task) if self.run.manifest else ""

    @cached_property
    def settings(self) -> dict[str, Any]:
        """What was set, and the seed, by their keys; the names of algorithm and task have columns of their own."""
        manifest = self.run.manifest
        if manifest is None:
            return {}
        flat = configuration_of(manifest) | {"seed": manifest.seed}
        return {one_line(key): value for key, value in flat.items() if key not in ("algorithm.name", "task.name")}

    def grouped_by(self, name: str) -> str:
        """In what group the run is by its algorithm, source, task, status or a setting."""
        own = {"Algorithm": self.algorithm, "From": self.source, "Task": self.task, "Status": self.status}
        value = own[name] if name in own else self.settings.get(name)
        return ("" if value is None else one_line(value)) or "not stated"

    @property
    def tags(self) -> list[str]:
        """The run's own tags, then the user's."""
        own = self.run.manifest.tags if self.run.manifest else []
        return list(dict.fromkeys([*map(one_line, own), *self.annotation.tags]))

    @property
    def notes(self) -> str:
        """The user's note, then the run's own, in one line."""
        own = self.run.manifest.notes if self.run.manifest else ""
        return " · ".join(text for text in (self.annotation.text, one_line(own)) if text.strip())

    @property
    def problem(self) -> str:
        return self.run.problem or (self.headline.problem if self.headline else "")

    @property
    def finding(self) -> str:
        """Severity and rule in words."""
        if self.problem:
            return CANNOT_BE_READ
        if self.headline is None:
            return NOT_READ
        if not self.headline.severity:
            return NO_FINDING if self.run.steps else NO_STEP_YET
        return f"{Severity(self.headline.severity).word}: {rule_words(self.headline.rule)}"

    def light(self, name: str) -> str:
        """The state of a light with its sign; "" where none is known."""
        state = self._states.get(name)
        return f"{state.sign} {state.word}" if state else ""

    @property
    def learning(self) -> str:
        """The first light, with where the level ends that it is of."""
        end = self.headline.level_end if self.headline else None
        share = end is not None and CATALOGUE[self.headline.level_metric].share if self.headline else False
        light, level = self.light(LEARNING), "" if end is None else rounded_level(end, share=share)
        return f"{light}, at {level}" if light and level else light or level

    @property
    def lost(self) -> int:
        """What has lost more of what it had learned has the lower number."""
        state = self._states.get(LEARNING)
        return _LOST.index(state) if state in _LOST else len(_LOST)

    @property
    def _states(self) -> dict[str, LightState]:
        known = self.headline.lights if self.headline and not self.problem else ()
        return {of: LightState[state] for of, (state, _) in zip(NAMES, known, strict=bool(known))}

    @property
    def severity(self) -> str:
        """In a word; "" where there is none, or none is known."""
        known = self.headline.severity if self.headline and not self.problem else 0
        return Severity(known).word if known else ""

    @property
    def rule(self) -> str:
        """That of the worst finding, as people say it."""
        return rule_words(self.headline.rule) if self.severity and self.headline else ""

    @property
    def created(self) -> datetime | None:
        try:
            return datetime.fromisoformat(self.run.manifest.created).astimezone(UTC) if self.run.manifest else None
        except (ValueError, OverflowError):
            return None

    @property
    def text(self) -> str:
        """Everything that a search looks at, in lower case."""
        name = self.run.manifest.name if self.run.manifest else ""
        words = (
            self.run.run_id,
            name,
            self.status,
            self.algorithm,
            self.source,
            self.task,
            self.finding,
            *map(self.light, NAMES),
            self.notes,
            self.problem,
        )
        return " ".join((*map(str, words), *self.tags)).lower()


def line(run: Listed, headline: Headline | None, annotation: Annotation | None) -> RunLine:
    return RunLine(run, status_words(run), headline, annotation or Annotation())


def _gravity(shown: RunLine) -> float:
    if shown.problem:
        return 0.5
    return float(shown.headline.severity) if shown.headline else -1.0


def _last_reward(shown: RunLine) -> float:
    reward = shown.headline.last_reward if shown.headline else None
    return float("-inf") if reward is None else reward


# Ties, and whatever has no value, stay newest first.
ORDERS: dict[str, Callable[[RunLine], Any] | None] = {
    "worst finding": lambda shown: (-_gravity(shown), shown.lost),
    "newest": None,
    "highest reward": lambda shown: -_last_reward(shown),
    "most steps": lambda shown: -shown.run.steps,
    "name": lambda shown: shown.run.run_id.lower(),
}


def groupings(lines: Sequence[RunLine]) -> list[str]:
    """By what runs can be grouped: what they do not all have in common."""
    own = [
        name for name in ("Algorithm", "From", "Task", "Status") if len({each.grouped_by(name) for each in lines}) > 1
    ]
    return own + differing_keys(each.settings for each in lines)


def choosable(by: Iterable[str]) -> list[str]:
    """What can be a column: the usual ones, by what runs can be grouped, and metrics, which few runs need have."""
    own = [*_USUAL, *_OTHERS]
    return [name for name in dict.fromkeys([*own, *by, *_metrics()]) if name not in _FIRST]


@cache
def _metrics() -> dict[str, str]:
    return {metric_label(key): key for key in CATALOGUE}


def group_table(lines: Sequence[RunLine], by: str) -> None:
    """A row a group: how many runs, how many of them have a bad finding, and the range of their results."""
    ends = [each.headline.level_metric for each in lines if each.headline and each.headline.level_end is not None]
    metric = max(sorted(set(ends)), key=ends.count, default="")
    groups: dict[str, list[RunLine]] = {}
    for each in lines:
        groups.setdefault(each.grouped_by(by), []).append(each)
    rows = []
    levels: dict[str, float] = {}
    for name in sorted(groups, key=group_order):
        group = groups[name]
        known = [each.headline for each in group if each.headline and each.headline.level_metric == metric]
        values = pd.Series([head.level_end for head in known if head.level_end is not None], dtype=float)
        levels = {"Lowest": values.min(), "Median": values.median(), "Highest": values.max()} if metric else {}
        told = {level: metric_value(metric, float(value)) if len(values) else None for level, value in levels.items()}
        read = all(each.problem or each.headline for each in group)
        grave = [sum(each.severity == word for each in group) if read else None for word in ("critical", "warning")]
        rows.append({by: name, "Runs": len(group), "Critical": grave[0], "Warning": grave[1], **told,
                     "With a result": len(values)})  # fmt: skip
    what = f", with {CATALOGUE[metric].title.lower()} at their end" if metric else ""
    st.caption(escape(f"Runs by {by if by in lines[0].settings else by.lower()}{what}."))
    st.dataframe(
        pd.DataFrame(rows), key="groups", hide_index=True, row_height=ROW_HEIGHT, placeholder="–",
        height=ROW_HEIGHT * (min(len(rows), _GROUPS_SHOWN) + 1) + 2, alt=f"{len(rows)} groups of runs by {by}",
        column_config={name: st.column_config.TextColumn(alignment="right") for name in levels},
    )  # fmt: skip


def group_order(text: str) -> tuple[bool, float, str]:
    """By number, then by name."""
    number = number_in(text)
    return (number is None, number or 0.0, text)


def run_table(
    lines: Sequence[RunLine], columns: Sequence[str], by: str | None = None, *, key: str, chosen: Sequence[int],
    on_choice: Callable[[], None], open_key: str, mode: Mode,
) -> None:  # fmt: skip
    """Draw the list.

    Args:
        columns: of `choosable`, besides the name; none: the usual ones.
        by: what the runs are grouped by, which is the first of them.
        key: another one for another order of rows, because Streamlit remembers a selection by row number.
        chosen: rows that are selected when the table is drawn for the first time under this key.
        on_choice: is called when others are, before the page is drawn.
        open_key: where a click on a row's button is found in the session's state.
    """
    frame = _frame(lines)
    shown = list(dict.fromkeys([*([by] if by else []), *(columns or _shown_columns(lines))]))
    for name in shown:
        if name not in frame:
            frame[name] = _own_column(lines, name)
    st.dataframe(
        frame,
        key=key,
        hide_index=True,
        on_select=on_choice,
        selection_mode="multi-row",
        selection_default={"selection": {"rows": list(chosen), "columns": [], "cells": []}},
        height=min(ROW_HEIGHT * (len(lines) + 1) + 2, MOST_HEIGHT),
        row_height=ROW_HEIGHT,
        column_config=_columns(lines, open_key, mode),
        column_order=list(dict.fromkeys([*_FIRST, *shown])) if by or columns else shown,
        placeholder="–",
        alt=f"Table of {len(lines)} run{'s' * (len(lines) != 1)}",
    )


def _names(lines: Sequence[RunLine]) -> tuple[str, list[str]]:
    """The folder that several runs share, and their names below it: a column cuts off the ends, which tell them
    apart."""
    names = [one_line(shown.run.run_id) for shown in lines]
    levels = zip(*(name.split("/")[:-1] for name in names), strict=False)
    below = "/".join(each[0] for each in takewhile(lambda each: len({*each}) == 1, levels)) if len(names) > 1 else ""
    return below, [name.removeprefix(f"{below}/") if below else name for name in names]


def _frame(lines: Sequence[RunLine]) -> pd.DataFrame:
    headlines = [shown.headline or Headline() for shown in lines]
    return pd.DataFrame(
        {
            "Run": _names(lines)[1],
            "Open": ["Open"] * len(lines),
            "Status": [shown.status for shown in lines],
            "Severity": [[_label(Severity[shown.severity.upper()])] if shown.severity else [] for shown in lines],
            **{name: [shown.light(name) or None for shown in lines] for name in NAMES},
            LEARNING: [shown.learning or None for shown in lines],
            "Finding": [shown.rule or shown.finding for shown in lines],
            "Reward": [list(known.reward) or None for known in headlines],
            "Last reward": pd.array([known.last_reward for known in headlines], dtype="Float64"),
            "Algorithm": [shown.algorithm or None for shown in lines],
            "From": [shown.source or None for shown in lines],
            "Task": [shown.task or None for shown in lines],
            "Steps": [shown.run.steps for shown in lines],
            "Tokens": pd.array([known.tokens or None for known in headlines], dtype="Int64"),
            "Started": pd.to_datetime(pd.Series([shown.created for shown in lines], dtype=object), utc=True),
            "Tags": [shown.tags for shown in lines],
            "Notes": [shown.notes or None for shown in lines],
        }
    )


def _shown_columns(lines: Sequence[RunLine]) -> list[str]:
    """The columns that hold something and tell runs apart; what the user has written beside the finding, in sight."""
    empty = {
        "Status": len({shown.status for shown in lines}) == 1,
        "Tags": not any(shown.tags for shown in lines),
        "Notes": not any(shown.notes for shown in lines),
        "From": not any(shown.source for shown in lines),
    }
    shown = [name for name in _USUAL if not empty.get(name)]
    own = {
        "Tags": any(each.annotation.tags for each in lines),
        "Notes": any(each.annotation.text for each in lines),
    }
    place = shown.index("Finding") + 1
    return list(dict.fromkeys([*shown[:place], *(name for name in own if own[name]), *shown[place:]]))


def _own_column(lines: Sequence[RunLine], name: str) -> Any:
    """A setting, or the last value of a metric, as numbers where all are."""
    if name in _metrics():
        known = [each.headline.metrics if each.headline else {} for each in lines]
        return pd.array([metrics.get(_metrics()[name]) for metrics in known], dtype="Float64")
    values = [each.settings.get(name) for each in lines]
    numbers = [None if value is None else number_in(str(value)) for value in values]
    if all((number is None) == (value is None) for number, value in zip(numbers, values, strict=True)):
        return pd.array(numbers, dtype="Float64")
    return [None if value is None else one_line(value) for value in values]


def _label(severity: Severity) -> str:
    """The word with its mark: colour alone says nothing to some."""
    return f"{_MARKS[severity]} {severity.word}"


def _columns(lines: Sequence[RunLine], open_key: str, mode: Mode) -> dict[str, Any]:
    below, names = _names(lines)
    rewards = [value for shown in lines if shown.headline for value in shown.headline.reward]
    shares = bool(rewards) and min(rewards) >= 0 and max(rewards) <= 1  # then all lines have the same axis
    config = st.column_config
    return {
        # Not pinned: what is pinned is grey, as if it could not be used.
        "Run": config.TextColumn(
            width=min(292, 30 + 6 * max(map(len, names))),
            help=f"The run's folder, relative to {escape(below) or 'the folders of this dashboard'}.",
        ),
        "Open": config.ButtonColumn("", width=52, type="tertiary", help="Opens the run's overview.", key=open_key),
        "Status": config.TextColumn(
            width=90,
            help="Live: written to in the last seconds. Stalled: silent for a short time. "
            "Interrupted: the writer stopped without finishing.",
        ),
        "Severity": config.MultiselectColumn(
            width=92,
            options=[_label(severity) for severity in _MARKS],
            # The words in them have the theme's own colour: the other theme's colours stand out from that.
            color=[(DARK if mode is LIGHT else LIGHT).severity[severity] for severity in _MARKS],
            help="Of the worst finding or light. Critical: the run is broken or its numbers mislead. Warning: act "
            "before it gets worse. Notice: good to know.",
        ),
        **{name: config.TextColumn(width=116 if name == LEARNING else 94, help=told) for name, told in _LIGHTS.items()},
        "Finding": config.TextColumn(width=140, help="The rule that made the worst finding."),
        "Reward": config.LineChartColumn(
            width=74,
            y_min=0 if shares else None,
            y_max=1 if shares else None,
            help="Mean reward per batch, first to last step"
            + ("; all axes from 0 to 1." if shares else "; axes differ between runs."),
        ),
        "Last reward": config.NumberColumn(
            "Reward, last 5",
            width=96,
            format="%.3g",
            help="Mean training reward of the last five steps that have one.",
        ),
        "Algorithm": config.TextColumn(width=150),
        "From": config.TextColumn(width=110, help="The framework whose files the run was imported from."),
        "Task": config.TextColumn(width=90),
        "Steps": config.NumberColumn(width=60, format="localized", help="Steps on disk."),
        "Tokens": config.NumberColumn(width=80, format="compact", help="Response tokens on disk."),
        "Started": config.DatetimeColumn(width=100, format="distance"),
        "Tags": config.ListColumn(width=110, help="The run's own tags, then yours."),
        "Notes": config.TextColumn(width=200, help="Your note, then the run's own."),
    }


def _name(part: dict[str, Any]) -> str:
    return one_line(part["name"]) if part.get("name") else ""
